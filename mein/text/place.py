"""Where a store lies: a folder of this machine, or any URL that fsspec knows; files appear whole."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from mein.data.files import locate
from mein.text.local import Folder
from mein.text.remote import Remote


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
