"""Files that are either whole or not there: written under a temporary name, then renamed."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mein.errors import RunError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to it at a clean exit, removed otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # see is_temporary
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as problem:
        raise writing_failed(path, problem) from problem
    finally:
        temporary.unlink(missing_ok=True)


def is_temporary(name: str, of: str | None = None) -> bool:
    """Whether a file's name is one that `atomic_path` gives, for the file `of` or for any."""
    target = ".+" if of is None else re.escape(of)
    return re.fullmatch(rf"\.{target}\.\d+\.tmp", name) is not None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole small file at once."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def writing_failed(path: Path, problem: OSError) -> RunError:
    """One sentence for a write that the system refused."""
    if problem.errno == errno.ENOSPC:
        remedy = "the disk is full: free some space and start again with --resume"
    else:
        remedy = f"{problem.strerror}: choose a folder that can be written to"
    return RunError(f"Cannot write {path}: {remedy}.")
