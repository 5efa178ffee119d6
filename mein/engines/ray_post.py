"""What processes of a cluster tell the terminal that started them: an actor takes it in, we read it out."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from mein.progress import Reporter, Task

SECONDS = 0.2  # between two looks into the box, and between two letters about the same task
Letter = tuple[str, tuple[Any, ...]]  # the name of what to do with it, and the words


class Box:
    """An actor beside the terminal: letters that wait to be read, and why the work cannot go on."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.refused: str | None = None

    def put(self, name: str, *words: Any) -> None:
        """Take a letter in."""
        self.letters.append((name, words))

    def take(self) -> list[Letter]:
        """Hand out the letters since the last time."""
        letters, self.letters = self.letters, []
        return letters

    def refuse(self, sentence: str) -> None:
        """Remember the first reason to give up."""
        self.refused = sentence if self.refused is None else self.refused

    def refusal(self) -> str | None:
        """The reason to give up, if there is one."""
        return self.refused


def open_box() -> Any:
    """A box on this machine, which lives as long as we hold it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0)(Box).options(scheduling_strategy=here).remote()


class Distant:
    """A reporter whose words go to a box."""

    def __init__(self, box: Any) -> None:
        self.box = box
        self.documents, self.last = 0, 0.0

    def say(self, line: str) -> None:
        """Send one line."""
        self.box.put.remote("say", line)

    def advance(self, documents: int, note: str = "") -> None:
        """Send how far it is, now and then."""
        self.documents += documents
        if time.monotonic() - self.last >= SECONDS:
            self.box.put.remote("advance", self.documents, note)
            self.documents, self.last = 0, time.monotonic()

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator[Task]:
        """Send that a piece of work begins, and that it ends."""
        self.documents = 0
        self.box.put.remote("begin", name, total, done)
        yield self
        self.box.put.remote("end")


@contextmanager
def read_aloud(box: Any, reporter: Reporter) -> Iterator[None]:
    """Show what comes into a box, and all of it before the end."""
    import ray
    from ray.exceptions import RayError

    is_over = threading.Event()

    def read() -> None:
        with suppress(RayError), ExitStack() as open_task:  # whoever waits for the work hears of it
            task: Task | None = None
            while True:
                is_last = is_over.wait(SECONDS)
                for name, words in ray.get(box.take.remote()):
                    if name == "say":
                        reporter.say(*words)
                    elif name == "advance" and task is not None:
                        task.advance(*words)
                    elif name in ("begin", "end"):
                        open_task.close()  # also of a process that was lost in the middle of it
                        task = open_task.enter_context(reporter.task(*words)) if name == "begin" else None
                if is_last:
                    return

    reader = threading.Thread(target=read, name="post", daemon=True)
    reader.start()
    try:
        yield
    finally:
        is_over.set()
        reader.join()
