"""The place of a store: a local folder, or any URL that fsspec knows, with a local cache.

Files appear complete or not at all. The cache holds copies of remote files by their checksums.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from mein.data.files import locate
from mein.errors import DamagedFile, RunError
from mein.runtime.files import (
    atomic_path,
    cache_folder,
    held_folder,
    is_special,
    is_temporary,
    read_regular,
    sha256_of,
    writing_failed,
)

LEFT_OUT = "`mein store label` and `mein store train` go on without it with --quarantine"


def damaged_file(path: Path | str) -> DamagedFile:
    """The error for a file that is not what was written."""
    return DamagedFile(f"{path} is damaged; restore it from a copy or make it again; {LEFT_OUT}.")


def missing_file(path: Path | str) -> DamagedFile:
    """The error for a file that does not exist."""
    return DamagedFile(f"{path} is missing; restore it from a copy or make it again; {LEFT_OUT}.")


class Folder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.verified: set[str] = set()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        return str(self.path.resolve())

    def names(self) -> list[str]:
        files = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(file.name for file in files if not file.name.startswith("."))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock it against a second process; remove incomplete files."""
        with held_folder(self.path, remedy="give another store"):
            self.clear_halves()
            try:
                yield
            finally:
                self.clear_halves()  # of workers that were killed while they wrote

    def clear_halves(self) -> None:
        """Remove files whose writer was killed."""
        try:
            for file in self.path.glob(".*.tmp"):
                if is_temporary(file.name):
                    file.unlink(missing_ok=True)
        except OSError as problem:
            raise writing_failed(self.path, problem) from problem

    def read(self, name: str) -> bytes:
        return read_regular(self.path / name)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with atomic_path(self.path / name) as temporary:
            yield temporary
        self.verified.discard(name)

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        yield self._regular(name)

    def fetch(self, name: str, sha256: str | None) -> Path:
        path = self._regular(name)
        if sha256 is not None and name not in self.verified:
            try:
                is_complete = sha256_of(path) == sha256
            except FileNotFoundError as problem:
                raise missing_file(path) from problem
            except OSError as problem:
                raise damaged_file(path) from problem
            if not is_complete:
                raise damaged_file(path)
            self.verified.add(name)
        return path

    def _regular(self, name: str) -> Path:
        """The path of a file; a FIFO in its place is refused, whose reader would wait forever."""
        if is_special(self.path / name):
            raise damaged_file(self.path / name)
        return self.path / name

    def move(self, name: str, folder: str) -> None:
        try:
            (self.path / folder).mkdir(exist_ok=True)
            (self.path / name).replace(self.path / folder / name)
        except OSError as problem:
            raise writing_failed(self.path / folder / name, problem) from problem

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


CACHE_BYTES = 10_000_000_000  # about 35 million short documents; new copies replace the oldest ones


def cached(sha256: str, download: Callable[[Path], None]) -> Path:
    """The copy with this checksum; if there is none, or a damaged one, `download` fills a path.

    ValueError if the downloaded file has another checksum.
    """
    path = cache_folder() / "shards" / sha256
    if _is_complete(path):
        os.utime(path)  # it counts as new
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        download(temporary)
        if sha256_of(temporary) != sha256:
            raise ValueError(path)
    _drop_oldest(path)
    return path


def _is_complete(path: Path) -> bool:
    try:
        return _verified(path, path.stat().st_ino)
    except OSError:
        return False


@lru_cache(maxsize=100_000)
def _verified(path: Path, inode: int) -> bool:
    """Whether a copy has the checksum in its name; verified once per process."""
    return sha256_of(path) == path.name


def _drop_oldest(newest: Path) -> None:
    """Remove the copies that were not used for longest. A process that has mapped one can still read it."""
    found = []
    for path in newest.parent.iterdir():
        try:
            status = path.stat()
        except OSError:  # another process has just removed it
            continue
        found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= CACHE_BYTES:
            return
        if path != newest:
            path.unlink(missing_ok=True)
            total -= size


class Remote:
    """A folder at a URL. A file is written locally and then uploaded as one object."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.filesystem, self.root = locate(url)

    def __str__(self) -> str:
        return self.url

    @property
    def address(self) -> str:
        return self.url

    def names(self) -> list[str]:
        with self._failing("listed", ""):
            self.filesystem.invalidate_cache()
            found = self.filesystem.ls(self.root, detail=False) if self.filesystem.exists(self.root) else []
        names = (str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)
        return sorted(name for name in names if not name.startswith("."))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Object stores have no locks: two steps on one store write the same bytes."""
        with self._failing("made", ""):
            self.filesystem.makedirs(self.root, exist_ok=True)
        yield

    def read(self, name: str) -> bytes:
        with self._failing("read", name):
            content: bytes = self.filesystem.cat_file(self._path(name))
        return content

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="mein-") as folder:
            try:
                yield Path(folder) / name
            except OSError as problem:
                raise writing_failed(f"{self.url}/{name}", problem) from problem
            with self._failing("written", name):
                self.filesystem.put_file(str(Path(folder) / name), self._path(name))

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="mein-") as folder:
            self._download(name, Path(folder) / name)
            yield Path(folder) / name

    def fetch(self, name: str, sha256: str | None) -> Path:
        if sha256 is None:
            raise damaged_file(f"{self.url}/{name}")  # only mein writes stores to URLs, always with checksums
        try:
            return cached(sha256, lambda path: self._download(name, path))
        except ValueError as problem:
            raise damaged_file(f"{self.url}/{name}") from problem

    def move(self, name: str, folder: str) -> None:
        with self._failing("moved", name):
            self.filesystem.makedirs(f"{self.root}/{folder}", exist_ok=True)
            self.filesystem.mv(self._path(name), f"{self.root}/{folder}/{name}")

    def remove(self, name: str) -> None:
        with self._failing("removed", name):
            self.filesystem.rm_file(self._path(name))

    def _download(self, name: str, path: Path) -> None:
        try:
            with self._failing("read", name):
                self.filesystem.get_file(self._path(name), str(path))
        except FileNotFoundError as problem:
            raise missing_file(f"{self.url}/{name}") from problem

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _failing(self, done: str, name: str) -> Iterator[None]:
        """One error for whatever a storage raises: each has its own exceptions."""
        try:
            yield
        except (FileNotFoundError, DamagedFile):
            raise
        except Exception as problem:
            raise RunError(
                f"{self.url}/{name} cannot be {done} ({problem}): check the connection and the permissions, "
                "and run the same command again."
            ) from problem


class Place(Protocol):
    """A flat folder of files."""

    def __str__(self) -> str:
        """Its path or URL, which `place_of` takes."""

    @property
    def address(self) -> str:
        """The absolute path, or the URL."""

    def names(self) -> list[str]:
        """The complete files, in order."""

    def held(self) -> AbstractContextManager[None]:
        """Lock it against a second process, if the storage has locks; remove incomplete files."""

    def read(self, name: str) -> bytes:
        """The content of a small file; FileNotFoundError if there is none."""

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A temporary local path; at a clean exit its file gets the name."""

    def reading(self, name: str) -> AbstractContextManager[Path]:
        """A local path of a file, unverified, inside the context only."""

    def fetch(self, name: str, sha256: str | None) -> Path:
        """A local path of a file, verified by its checksum at the first call."""

    def move(self, name: str, folder: str) -> None:
        """Move a file into a folder below this place."""

    def remove(self, name: str) -> None:
        """Remove a file."""


def place_of(at: str | Path) -> Place:
    """The place with this path or URL."""
    name = os.fspath(at)
    if name.startswith("file://"):
        return Folder(Path(locate(name)[1]))
    return Remote(name.rstrip("/")) if "://" in name else Folder(Path(name))
