"""A reporter that keeps what it gets."""

from collections.abc import Iterator
from contextlib import contextmanager

from mein.runtime.progress import Quiet, Task


class Recording(Quiet):
    """Keeps how many documents each step of a task was, by the task's name."""

    def __init__(self) -> None:
        self.steps: dict[str, list[int]] = {}
        self.name = ""

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator[Task]:
        self.name = name
        yield self

    def advance(self, documents: int, note: str = "") -> None:
        self.steps.setdefault(self.name, []).append(documents)
