"""A run that dies at a chosen step, in this process, and what must be left of it once it went on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mein.runtime.progress import Quiet
from tests.support import tiny

ALWAYS, NEVER = 0, 1e9  # seconds between checkpoints: one at every step, or only where an epoch ends


class Death(BaseException):
    """The end of a process, for tests: nothing in mein catches it."""


@dataclass
class Dying(Quiet):
    """Dies at the n-th step of a task, before that step's checkpoint, or where a line is logged."""

    task_name: str
    at: int

    def log(self, line: str) -> None:
        if line.strip().startswith(self.task_name):
            raise Death

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator["Dying"]:
        self.is_due = name.startswith(self.task_name)
        yield self

    def advance(self, documents: int, note: str = "") -> None:
        self.at -= self.is_due
        if self.is_due and self.at == 0:
            raise Death


def assert_same_folder(path: Path, unbroken: Path) -> None:
    found, wanted = tiny.artefacts(path), tiny.artefacts(unbroken)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert tiny.timeless_metrics(path) == tiny.timeless_metrics(unbroken)
