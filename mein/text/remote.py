"""A store at a URL: what is read lies in a cache of this machine, what is written is put there whole."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mein.data.files import locate
from mein.errors import DamagedFile, RunError
from mein.files import writing_failed
from mein.text.cache import cached
from mein.text.damage import damaged, missing


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
