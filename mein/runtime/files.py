"""Files that are either complete or not there: written under a temporary name, then renamed."""

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from mein.errors import InputError, RunError

REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space and start again (a training with --resume)",
    errno.EDQUOT: "your share of the disk is full: free some space and start again",
    errno.EFBIG: "it is larger than the system allows: raise the limit (ulimit -f) and start again",
    errno.EROFS: "the disk is read-only: choose a folder that can be written to",
}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to it at a clean exit, removed otherwise."""
    refuse_nameless(path)
    if not path.is_dir():  # which the system refuses to replace
        refuse_irregular(path)
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


AnyPath = TypeVar("AnyPath", bound=str | Path)


def expanded(path: AnyPath) -> AnyPath:
    """A path as its user means it: `~` is the home folder. A URL is left as it is.

    Called once, where a path enters: on the command line, in the Python API, in a setting.
    """
    text = str(path)
    if not is_utf8(text):
        raise InputError(f"{text!r} is not UTF-8: rename the file or folder.")
    return path if "://" in text else type(path)(os.path.expanduser(text))  # noqa: PTH111 - keeps a glob


def is_utf8(text: str) -> bool:
    """Whether a string is text: files' names may be any bytes, and Python's strings hold half characters."""
    return text.isascii() or text.encode("utf-8", "replace").decode("utf-8") == text


def absolute(path: str | Path) -> str:
    """A path or glob that means the same from everywhere; a URL unchanged."""
    text = str(path)
    return text if "://" in text else os.path.abspath(text)  # noqa: PTH100 - Path would change a glob


def refuse_nameless(path: Path) -> None:
    """Refuse a path such as '' or '.', which names no file."""
    if not path.name:
        raise InputError(f"{str(path)!r} names no file to write: give its path.")


PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # where a shell puts what <(...) prints


def refuse_irregular(path: Path) -> None:
    """Refuse what is there and is no regular file: to write would replace a device, to read may never end."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the path of a file.")
    if is_special(path):
        raise InputError(f"{path} is no regular file: choose another path.")


def is_special(path: Path) -> bool:
    """Whether a path leads to something but a file or a folder: who opens a FIFO waits for its other end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # not there, or for whoever opens it to explain
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def read_regular(path: Path) -> bytes:
    """The content of a file; an OSError if it is a FIFO or the like."""
    if is_special(path):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.read_bytes()


def is_temporary(name: str, of: str | None = None) -> bool:
    """Whether a file's name is one that `atomic_path` gives, for the file `of` or for any.

    For any, also one that safetensors gives to the beginning of a file that it writes.
    """
    if of is None:
        return re.fullmatch(r"\..+\.\d+\.tmp|\.tmp[A-Za-z0-9]{6}", name) is not None
    return re.fullmatch(rf"\.{re.escape(of)}\.\d+\.tmp", name) is not None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a small file at once."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def held_folder(path: Path, *, waits: bool = False, remedy: str = "choose another --out") -> Iterator[None]:
    """Hold a folder, made where it is not there, so that a second process refuses to start, or waits.

    After an error the folders that were made here are removed if nothing was left in them.
    """
    from filelock import FileLock, Timeout  # 30 ms to import, which a refusal need not wait for

    made: list[Path] = []
    lock = FileLock(path / ".lock", timeout=-1 if waits else 0, thread_local=False)
    try:
        for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
            folder.mkdir(exist_ok=True)  # one by one: `parents=True` recurses, too deep for 1,000 folders
            made.insert(0, folder)
        held = lock.acquire()
    except Timeout as problem:
        raise RunError(f"Another process is working in {path}: wait for it, or {remedy}.") from problem
    except OSError as problem:
        _remove_empty(made)
        raise writing_failed(path, problem) from problem
    with held:
        try:
            yield
        except BaseException:
            if made and path.is_dir() and [file.name for file in path.iterdir()] == [".lock"]:
                with suppress(OSError):
                    (path / ".lock").unlink()
                _remove_empty(made)
            raise


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first, up to one in which somebody else put something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where the disk has no links; complete or not there."""
    if target.exists() or source.name.startswith("."):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)


def cache_folder() -> Path:
    """Where what was fetched is kept: $MEIN_CACHE, or `mein` in $XDG_CACHE_HOME. Default: in ~/.cache."""
    own, shared = os.environ.get("MEIN_CACHE", ""), Path(os.environ.get("XDG_CACHE_HOME", ""))
    if own:
        return Path(own).expanduser()
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "mein"


def sha256_of(path: Path) -> str:
    """The checksum of a file's content."""
    if is_special(path):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def writing_failed(path: Path | str, problem: OSError) -> RunError:
    """One sentence for a write that the system refused."""
    other = f"{problem.strerror or problem}: choose a folder that can be written to"
    return RunError(f"Cannot write {path}: {REMEDIES.get(problem.errno or 0, other)}.")
