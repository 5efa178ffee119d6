"""A store in a folder of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mein.files import atomic_path, held_folder, is_temporary, sha256_of, writing_failed
from mein.text.damage import damaged, missing


class Folder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.proved: set[str] = set()

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
        self.proved.discard(name)

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """The file itself."""
        yield self.path / name

    def fetch(self, name: str, sha256: str | None) -> Path:
        """The file itself, proved by its checksum when first asked for."""
        path = self.path / name
        if sha256 is not None and name not in self.proved:
            try:
                is_whole = sha256_of(path) == sha256
            except FileNotFoundError as problem:
                raise missing(path) from problem
            except OSError as problem:
                raise damaged(path) from problem
            if not is_whole:
                raise damaged(path)
            self.proved.add(name)
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
