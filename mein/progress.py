"""How long work shows itself: a live bar on a terminal, plain lines in a log, or nothing."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0  # in a log, a task says how far it is no more often than this


class Task(Protocol):
    """One piece of work of known length, in documents."""

    def advance(self, documents: int, note: str = "") -> None:
        """Say that so many more documents are done, and one thing worth knowing."""


class Reporter(Protocol):
    """Where progress and remarks go."""

    def say(self, line: str) -> None:
        """Show one line."""

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        """Open a piece of work of `total` documents, `done` of them before."""


class Silence:
    """Shows nothing: what the library does unless asked."""

    def say(self, line: str) -> None:
        """Drop the line."""

    def advance(self, documents: int, note: str = "") -> None:
        """Drop the news."""

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Task]:
        """A task that shows nothing."""
        yield self


class Terminal:
    """A live bar where the console is a terminal, a line now and then where it is not."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, line: str) -> None:
        """Print one line."""
        self.console.print(line, highlight=False)

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Task]:
        """A bar with rate and time left, gone when the work is done; or plain lines."""
        if not self.console.is_terminal:
            yield _Lines(self, name, total, done)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console, transient=True) as bars:
            yield _Bar(bars, name, total, done)


class _Bar:
    def __init__(self, bars: Progress, name: str, total: int, done: int) -> None:
        self.bars = bars
        self.rate = _Rate()
        self.id = bars.add_task(name, total=total, completed=done, rate="", note="")

    def advance(self, documents: int, note: str = "") -> None:
        self.bars.update(self.id, advance=documents, rate=self.rate.after(documents), note=note)


class _Lines:
    def __init__(self, terminal: Terminal, name: str, total: int, done: int) -> None:
        self.terminal, self.name, self.total, self.done = terminal, name, total, done
        self.rate = _Rate()
        self.last = time.monotonic()

    def advance(self, documents: int, note: str = "") -> None:
        self.done += documents
        rate = self.rate.after(documents)
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            self.terminal.say(f"{self.name}: {self.done:,} of {self.total:,}, {rate} {note}".rstrip())


class _Rate:
    def __init__(self) -> None:
        self.started = time.monotonic()
        self.done = 0

    def after(self, documents: int) -> str:
        self.done += documents
        seconds = max(time.monotonic() - self.started, 1e-6)
        return f"{self.done / seconds:,.0f} docs/s"
