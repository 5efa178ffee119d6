"""One hostile command after another, in this process, within a limit of time and memory."""

import contextlib
import faulthandler
import io
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mein.cli.main import main
from tests.support.shell import Answer

SECONDS = 60.0  # of one command, on a busy machine; usual ones take a tenth of a second
LONGEST = 90.0
MEMORY = 4 << 30  # that one command may take beyond what is in use
SENTENCE, FINE, SILENT, TRACEBACK, HANG = "sentence", "fine", "silent", "traceback", "hang"


@dataclass(frozen=True)
class Case:
    """A command line, and what must hold where it ends well."""

    words: tuple[str, ...]
    wrong: Callable[[Answer], str | None] = lambda answer: None
    """Why an answer with exit code 0 is not the right one, if it is not."""


@dataclass(frozen=True)
class Outcome:
    """What a case ended with, and its sentence, traceback, or fault."""

    kind: str
    detail: str


class Hang(BaseException):
    """A command takes too long; no Exception, so that nothing handles it."""


def attempt(case: Case) -> Outcome:
    """Run a command as the shell does."""
    out, err, code = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO(), 0
    try:
        with (
            limited(),
            patch.object(sys, "argv", ["mein", *case.words]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except Hang:
        return Outcome(HANG, traceback.format_exc(limit=-6))
    except Exception:
        return Outcome(TRACEBACK, traceback.format_exc(limit=-6))
    out.flush()
    answer = Answer(code, out.buffer.getvalue().decode("utf-8", "replace"), err.getvalue())
    return judged(case, answer)


def judged(case: Case, answer: Answer) -> Outcome:
    """Whether an answer is one sentence, or right."""
    if answer.code == 0:
        fault = case.wrong(answer)
        return Outcome(FINE, "") if fault is None else Outcome(SILENT, fault)
    lines = answer.err.splitlines()
    are_errors = bool(lines) and all(line.startswith("Error: ") for line in lines)
    one_each = len(lines) == 1 or case.words[0] == "check"  # which reports every problem that it finds
    if answer.code == 2 and are_errors and one_each and "Traceback" not in answer.err:
        return Outcome(SENTENCE, answer.err)
    return Outcome(TRACEBACK, f"exit code {answer.code}, not one sentence: {answer.err}")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise Hang after SECONDS, MemoryError beyond MEMORY; a limit of the test's own goes on afterwards.

    What waits in C, such as Arrow for a FIFO, cannot be interrupted: after LONGEST the process ends.
    """

    def stop(number: int, frame: Any) -> None:
        raise Hang

    usual, (rest, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, rest)
