"""How long work shows itself: a live bar on a terminal, plain lines in a log, or nothing."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

LINE_SECONDS = 10.0  # in a log, a task reports its progress no more often than this


class Task(Protocol):
    """One piece of work, in documents."""

    def advance(self, documents: int, note: str = "") -> None:
        """Report that more documents are done, with a note."""


class Reporter(Protocol):
    """Where progress and notes go."""

    def log(self, line: str) -> None:
        """Show one line."""

    def task(self, name: str, total: int | None, done: int = 0) -> AbstractContextManager[Task]:
        """Open a piece of work of `total` documents, `done` of them before; None where that is unknown."""


class Quiet:
    """Shows nothing: what the library does unless asked."""

    def log(self, line: str) -> None:
        """Drop the line."""

    def advance(self, documents: int, note: str = "") -> None:
        """Drop the news."""

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator[Task]:
        """A task that shows nothing."""
        yield self


QUIET = Quiet()


class Terminal:
    """A live bar where the console is a terminal, a line now and then where it is not."""

    def __init__(self, console: Console, *, shows_times: bool = False) -> None:
        """shows_times: whether lines begin with the time since the start, and tasks end with their own."""
        self.console, self.shows_times = console, shows_times
        self.started = time.monotonic()

    def log(self, line: str) -> None:
        """Print one line, unchanged."""
        clock = f"{as_clock(time.monotonic() - self.started):>7}  " if self.shows_times else ""
        self.console.print(Text(clock + line), soft_wrap=not self.console.is_terminal)

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator[Task]:
        """A bar with rate and time left, gone when the work is done; or plain lines."""
        pace = Pace(total, done)
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(20),
                TextColumn("{task.fields[pace]}"),
            )
            with Progress(*columns, console=self.console, transient=True) as bars:
                yield _Bar(bars, name, pace)
        else:
            yield _Lines(self, name, pace)
        if self.shows_times:
            seconds = time.monotonic() - pace.started
            self.log(f"  {name}: {pace.done - pace.done_before:,} docs in {seconds:.1f} s")


class Pace:
    """How far a piece of work is, how fast it goes, and when it will be over."""

    def __init__(self, total: int | None, done: int) -> None:
        self.total, self.done, self.done_before = total, done, done
        self.started = time.monotonic()

    def words(self, note: str) -> str:
        """Such as 45%, 1,200 docs/s, 1:05 left, loss 0.693."""
        rate = (self.done - self.done_before) / max(time.monotonic() - self.started, 1e-6)
        words = [f"{self.done:,}" if not self.total else f"{100 * self.done // self.total}%"]
        words.append(f"{rate:,.0f} docs/s")
        if self.total and rate:
            words.append(f"{as_clock((self.total - self.done) / rate)} left")
        return ", ".join([*words, note] if note else words)


def as_clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any.

    >>> as_clock(65.2), as_clock(3_605)
    ('1:05', '1:00:05')
    """
    minutes, second = divmod(round(max(seconds, 0.0)), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


class _Bar:
    def __init__(self, bars: Progress, name: str, pace: Pace) -> None:
        self.bars, self.pace = bars, pace
        self.id = bars.add_task(name, total=pace.total, completed=pace.done, pace="")

    def advance(self, documents: int, note: str = "") -> None:
        self.pace.done += documents
        self.bars.update(self.id, completed=self.pace.done, pace=self.pace.words(note))


class _Lines:
    def __init__(self, terminal: Terminal, name: str, pace: Pace) -> None:
        self.terminal, self.name, self.pace = terminal, name, pace
        self.last = time.monotonic()

    def advance(self, documents: int, note: str = "") -> None:
        self.pace.done += documents
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            self.terminal.log(f"  {self.name}: {self.pace.words(note)}")
