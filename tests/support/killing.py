"""Runs in child processes that die by SIGKILL, at a chosen moment of a chosen step or at any time."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch

from mein.run.pipeline import train_and_evaluate
from tests.support import tiny

STEPS = {
    "preparing": "prepared.json",
    "expert": "expert.safetensors",
    "labeling": "encoded/held_out/labels.json",
    "imitators": "imitators.safetensors",
    "closed": "closed.safetensors",
    "random": "random.safetensors",
    "mixture": "mixture.safetensors",
    "judging": "done",
}
"""The steps of a run, and the file that ends each."""
ORDER = [*STEPS, "over"]


@dataclass(frozen=True)
class Death:
    """Die in `step` at its moment `at`, or at the first moment after the step if it has fewer.

    what: count only moments that are described so. torn: leave half of the file that is being
    written. outside: be killed by the parent, who waits for that moment and then for `wait` seconds:
    in the middle of anything, unless the step ends before.
    """

    step: str
    at: int = 1
    what: str = ""
    torn: bool = False
    outside: bool = False
    wait: float = 0.0


@dataclass
class Doomed:
    """A reporter and audit hook that sees every step, line and file of a run, and ends it when due."""

    path: Path
    death: Death | None
    diary: int
    seen: int = 0

    def moment(self, what: str, file: Path | None = None) -> None:
        step = step_of(self.path)
        os.write(self.diary, f"{step}\t{what}\n".encode())
        if self.death is None:
            return
        self.seen += step == self.death.step and self.death.what in what
        is_beyond = ORDER.index(step) > ORDER.index(self.death.step)
        is_due = self.seen >= self.death.at and not self.death.outside
        if not is_due and not is_beyond:
            return
        if self.death.torn and file is not None:
            tear(file)
        os.kill(os.getpid(), signal.SIGKILL)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit hook: called before a file is opened, renamed or removed."""
        if event not in ("open", "os.rename", "os.remove") or not isinstance(arguments[0], str | Path):
            return
        file = Path(arguments[0])
        is_written = event != "open" or file.name.endswith(".tmp") or arguments[1] not in ("r", "rb", None)
        if self.path in file.parents and is_written:
            self.moment(f"{event} {file.name}", file)

    def log(self, line: str) -> None:
        self.moment("log")

    def advance(self, documents: int, note: str = "") -> None:
        self.moment("advance")

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator["Doomed"]:
        yield self


def tear(file: Path) -> None:
    """Leave what a write that was cut leaves: half a file, or half a line at a file's end."""
    if file.name == "metrics.jsonl":
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "wb") as lines:
            lines.write(b'{"stage": "ste')
    elif file.exists():
        os.truncate(file, file.stat().st_size // 2)


def step_of(path: Path) -> str:
    """Which step a run is in, by the artefacts that it has left."""
    return next((step for step, file in STEPS.items() if not (path / file).exists()), "over")


def live(path: Path, diary: Path, death: Death | None, overrides: dict[str, Any]) -> None:
    """Train, resuming what is there, until the end or death: what the child does."""
    torch.set_num_threads(1)
    descriptor = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    doomed = Doomed(path, death, descriptor)
    if death is not None or diary.name == "reference":
        sys.addaudithook(doomed)
    train_and_evaluate(tiny.config(**overrides), tiny.corpus(), path, doomed, resume=path.exists())


def start(path: Path, diary: Path, death: Death | None, **overrides: Any) -> ForkServerProcess:
    """A child that lives; it comes from a server that has imported torch once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=live, args=(path, diary, death, overrides))
    child.start()
    return child


def live_and_die(path: Path, diary: Path, death: Death | None, **overrides: Any) -> int:
    """Let a child live, kill it from outside where that is its death, and return its exit code."""
    child = start(path, diary, death, **overrides)
    if death is not None and death.outside:
        while child.is_alive() and not _is_due(diary, death):
            time.sleep(0.001)
        time.sleep(death.wait)
        child.kill()
    child.join(timeout=120)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def moments(diary: Path) -> list[str]:
    """The step of each moment of a life."""
    return [line.split("\t")[0] for line in diary.read_text(encoding="utf-8").splitlines()]


def _is_due(diary: Path, death: Death) -> bool:
    seen = moments(diary) if diary.exists() else []
    is_beyond = any(ORDER.index(step) > ORDER.index(death.step) for step in seen[-1:])
    return seen.count(death.step) >= death.at or is_beyond
