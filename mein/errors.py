"""Every error that a user can meet. Each message is one sentence: the thing, the value, the remedy.

MeinError
├── InputError      a file, a text or a label that cannot be used (also a ValueError)
├── ConfigError     a setting that is unknown or out of range (also a ValueError)
├── UsageError      a command line with an unknown command, or an option's value that cannot be read
├── RunError        a run folder that is missing, damaged, newer than this version, or another run's;
│   │               or what stops a run on its way, such as a full GPU
│   ├── DamagedFile  a file of a store that is not what was written, or is gone
│   └── LostProcess  one of several processes that work together is gone
└── MissingExtra    an optional package that is not installed
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_SHOWN = 100  # characters of a value in a sentence


class MeinError(Exception):
    """Something the user can fix; the command line shows its one sentence and exits with code 2."""


class InputError(MeinError, ValueError):
    """A file, a text or a label that cannot be used."""


class ConfigError(MeinError, ValueError):
    """A setting that is unknown or out of range."""


class UsageError(MeinError):
    """A command line that cannot be read; no ValueError, which typer would turn into a message of its own."""


class RunError(MeinError):
    """A run folder that is missing, damaged, newer than this version, or another run's."""


class DamagedFile(RunError):  # noqa: N818 - as below
    """A file of a store that is not what was written, or is gone."""


class LostProcess(RunError):  # noqa: N818 - as below
    """One of several processes that work together is gone."""


class MissingExtra(MeinError):  # noqa: N818 - reads as a sentence: raise MissingExtra(...)
    """An optional package that is not installed."""


def shown(value: object, *, quoted: bool = True) -> str:
    """A value as a sentence quotes it: only its beginning where it is long."""
    try:
        text = repr(value) if quoted else str(value)
    except (ValueError, RecursionError):  # of thousands of digits or levels
        return "a value that is too large to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} ..."


def is_of_a_full_gpu(problem: RuntimeError) -> bool:
    """Whether a GPU has no memory left; torch, cuBLAS, and cuDNN each report it differently."""
    return any(sign in str(problem) for sign in ("out of memory", "ALLOC_FAILED"))


@contextmanager
def explaining_full_gpu() -> Iterator[None]:
    """Turn the error of a GPU, or of a machine, without free memory into one sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if isinstance(problem, MemoryError) or "can't allocate memory" in str(problem):
            raise RunError(
                "The memory of this machine is too small for these settings: choose smaller sizes or batches."
            ) from problem
        if not is_of_a_full_gpu(problem):
            raise
        cause = re.findall(r".*?is free|.+", str(problem))[0].rstrip(".")  # of its first line
        raise RunError(
            f"The GPU's memory is full ({cause}): stop what else runs on it, or lower --jobs, and give the "
            "same command again (a training with --resume); or start anew with smaller batches."
        ) from problem
