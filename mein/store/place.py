"""A folder, or a URL with a local cache.

A store in a folder of this machine.

Copies of remote files on this machine, by their checksums: fetched when needed, dropped when old.

A store at a URL: what is read lies in a cache of this machine, what is written is put there whole.

Where a store lies: a folder of this machine, or any URL that fsspec knows; files appear whole.
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
from mein.runtime.files import atomic_path, cache_folder, held_folder, is_temporary, sha256_of, writing_failed

LEFT_OUT = "`mein label` and `mein imitate` go on without it with --quarantine"


def damaged(path: Path | str) -> DamagedFile:
    """One sentence for a file that is not what was written."""
    return DamagedFile(f"{path} is damaged; restore it from a copy or make it again; {LEFT_OUT}.")


def missing(path: Path | str) -> DamagedFile:
    """One sentence for a file that is gone."""
    return DamagedFile(f"{path} is missing; restore it from a copy or make it again; {LEFT_OUT}.")


class Folder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.verified: set[str] = set()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        """The whole path."""
        return str(self.path.resolve())

    def names(self) -> list[str]:
        """The files that are there, less those half-written, in order."""
        files = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(file.name for file in files if not file.name.startswith("."))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it against a second process; clear what a kill left half-written."""
        with held_folder(self.path, remedy="give another store"):
            self.clear_halves()
            try:
                yield
            finally:
                self.clear_halves()  # of workers that were ended in mid-write

    def clear_halves(self) -> None:
        """Remove what was being written when its writer was killed."""
        try:
            for file in self.path.glob(".*.tmp"):
                if is_temporary(file.name):
                    file.unlink(missing_ok=True)
        except OSError as problem:
            raise writing_failed(self.path, problem) from problem

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        return (self.path / name).read_bytes()

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A temporary path beside the file, which is then renamed."""
        with atomic_path(self.path / name) as temporary:
            yield temporary
        self.verified.discard(name)

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """The file itself."""
        yield self.path / name

    def fetch(self, name: str, sha256: str | None) -> Path:
        """The file itself, proved by its checksum when first asked for."""
        path = self.path / name
        if sha256 is not None and name not in self.verified:
            try:
                is_complete = sha256_of(path) == sha256
            except FileNotFoundError as problem:
                raise missing(path) from problem
            except OSError as problem:
                raise damaged(path) from problem
            if not is_complete:
                raise damaged(path)
            self.verified.add(name)
        return path

    def move(self, name: str, folder: str) -> None:
        """Put a file into a folder below this one."""
        try:
            (self.path / folder).mkdir(exist_ok=True)
            (self.path / name).replace(self.path / folder / name)
        except OSError as problem:
            raise writing_failed(self.path / folder / name, problem) from problem

    def remove(self, name: str) -> None:
        """Take a file away."""
        (self.path / name).unlink(missing_ok=True)


CACHE_BYTES = 10_000_000_000  # about 35 million short documents; the oldest copies make room for new ones


def cached(sha256: str, download: Callable[[Path], None]) -> Path:
    """The copy with this checksum; `download` fills a path where there is none, or a damaged one.

    ValueError where what was downloaded has another checksum.
    """
    path = cache_folder() / "shards" / sha256
    if _is_complete(path):
        os.utime(path)  # it is young again
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        download(temporary)
        if sha256_of(temporary) != sha256:
            raise ValueError(path)
    _make_room(path)
    return path


def _is_complete(path: Path) -> bool:
    try:
        return _verified(path, path.stat().st_ino)
    except OSError:
        return False


@lru_cache(maxsize=100_000)
def _verified(path: Path, inode: int) -> bool:
    """Whether a copy is what its name says, looked at once in a process."""
    return sha256_of(path) == path.name


def _make_room(newest: Path) -> None:
    """Remove the copies that were not used for longest. Who has one mapped keeps what it sees."""
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
    """A folder at a URL. A file is written here and then put there in one piece, as object stores do."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.filesystem, self.root = locate(url)

    def __str__(self) -> str:
        return self.url

    @property
    def address(self) -> str:
        """The URL."""
        return self.url

    def names(self) -> list[str]:
        """The files that are there, in order."""
        with self._told("listed", ""):
            self.filesystem.invalidate_cache()
            found = self.filesystem.ls(self.root, detail=False) if self.filesystem.exists(self.root) else []
        names = (str(path).rstrip("/").rsplit("/", 1)[-1] for path in found)
        return sorted(name for name in names if not name.startswith("."))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Object stores know no locks; two steps on one store write the same bytes, each in one piece."""
        with self._told("made", ""):
            self.filesystem.makedirs(self.root, exist_ok=True)
        yield

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        with self._told("read", name):
            content: bytes = self.filesystem.cat_file(self._path(name))
        return content

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A temporary path on this machine, whose file is then put there."""
        with tempfile.TemporaryDirectory(prefix="mein-") as folder:
            try:
                yield Path(folder) / name
            except OSError as problem:
                raise writing_failed(f"{self.url}/{name}", problem) from problem
            with self._told("written", name):
                self.filesystem.put_file(str(Path(folder) / name), self._path(name))

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """A copy that lives for a moment."""
        with tempfile.TemporaryDirectory(prefix="mein-") as folder:
            self._download(name, Path(folder) / name)
            yield Path(folder) / name

    def fetch(self, name: str, sha256: str | None) -> Path:
        """A copy in the cache, proved by its checksum."""
        if sha256 is None:
            raise damaged(f"{self.url}/{name}")  # nobody but us writes stores to URLs, and ours have one
        try:
            return cached(sha256, lambda path: self._download(name, path))
        except ValueError as problem:
            raise damaged(f"{self.url}/{name}") from problem

    def move(self, name: str, folder: str) -> None:
        """Put a file into a folder below this one."""
        with self._told("moved", name):
            self.filesystem.makedirs(f"{self.root}/{folder}", exist_ok=True)
            self.filesystem.mv(self._path(name), f"{self.root}/{folder}/{name}")

    def remove(self, name: str) -> None:
        """Take a file away."""
        with self._told("removed", name):
            self.filesystem.rm_file(self._path(name))

    def _download(self, name: str, path: Path) -> None:
        try:
            with self._told("read", name):
                self.filesystem.get_file(self._path(name), str(path))
        except FileNotFoundError as problem:
            raise missing(f"{self.url}/{name}") from problem

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _told(self, done: str, name: str) -> Iterator[None]:
        """One sentence for whatever a storage raises: each has errors of its own."""
        try:
            yield
        except (FileNotFoundError, DamagedFile):
            raise
        except Exception as problem:
            raise RunError(
                f"{self.url}/{name} cannot be {done} ({problem}): check the connection and the rights, "
                "and give the same command again."
            ) from problem


class Place(Protocol):
    """A flat folder of files, known by their names."""

    def __str__(self) -> str:
        """Its path or URL, which `place_of` takes."""

    @property
    def address(self) -> str:
        """The same, from wherever it is asked for."""

    def names(self) -> list[str]:
        """The files that are there, less those half-written, in order."""

    def held(self) -> AbstractContextManager[None]:
        """Hold it against a second process, as far as the storage can; clear what a kill left."""

    def read(self, name: str) -> bytes:
        """The content of a small file; FileNotFoundError where it is not there."""

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A temporary path on this machine; at a clean exit its file is there under the name."""

    def reading(self, name: str) -> AbstractContextManager[Path]:
        """A file as it is, for a moment, on this machine."""

    def fetch(self, name: str, sha256: str | None) -> Path:
        """A file on this machine, proved by its checksum when first asked for."""

    def move(self, name: str, folder: str) -> None:
        """Put a file into a folder below this place."""

    def remove(self, name: str) -> None:
        """Take a file away."""


def place_of(at: str | Path) -> Place:
    """The place with this path or URL."""
    name = os.fspath(at)
    if name.startswith("file://"):
        return Folder(Path(locate(name)[1]))
    return Remote(name.rstrip("/")) if "://" in name else Folder(Path(name))
