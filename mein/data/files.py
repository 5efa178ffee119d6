"""A file of a source, its format, and its bytes: decompressed, verified to be UTF-8, without a BOM."""

import codecs
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from mein.data.compression import Compression
from mein.errors import InputError, MeinError, MissingExtra
from mein.runtime.files import refuse_irregular

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# Columns by name, as lists where a column may hold values of several types.
Chunk: TypeAlias = dict[str, list[Any]] | pa.RecordBatch

# From the columns of a file to those to read.
Choose = Callable[[list[str]], list[str]]

INSTALL = {"s3": ".[s3]", "s3a": ".[s3]", "hf": ".[hub]"}


class TableWriter(Protocol):
    """Writes a table to an opened file."""

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows."""

    def close(self) -> None:
        """Write what ends the file, which stays open."""


@dataclass(frozen=True)
class Format:
    """How files with certain endings are read and written; formats.py lists all."""

    name: str
    endings: tuple[str, ...]
    chunks: Callable[["File", Choose | None], Iterator[Chunk]]
    """Read the chosen columns, or all, in chunks of limited size, none of them without rows."""
    write: Callable[[str, Any], TableWriter] | None = None
    """Begin a table in an opened file, whose name is for messages."""
    has_columns: bool = True
    """If not: a row is a text, and a file in a folder is one document."""
    has_types: bool = True
    """If not: all values are strings, so "nan" is a missing value and not a text."""
    is_compressed: bool = False
    """The format compresses its own pages, so files must not be compressed again."""


@dataclass(frozen=True)
class File:
    """One file of a source and how to read it."""

    filesystem: Any  # an fsspec file system; fsspec carries no types
    path: str
    name: str  # what messages call it
    format: Format
    compression: Compression | None
    label: str | None = None  # the subfolder, for a text file in a folder
    is_document: bool = False  # the complete file is one document

    def __str__(self) -> str:
        return self.name


def locate(name: str) -> tuple[Any, str]:
    """The file system and the path on it for a local path or a fsspec URL."""
    if "://" not in name:
        return LocalFileSystem(), LocalFileSystem._strip_protocol(os.path.abspath(name))  # noqa: PTH100 - a glob
    protocol = name.split("://", 1)[0].split("::")[0]
    try:
        filesystem, path = fsspec.core.url_to_fs(name)
    except ImportError as error:
        remedy = f"pip install '{INSTALL[protocol]}'" if protocol in INSTALL else str(error)
        raise MissingExtra(
            f"{name} needs a package for {protocol}:// that is not installed: {remedy}"
        ) from error
    except Exception as error:  # each storage raises its own
        if protocol not in fsspec.available_protocols():
            raise InputError(
                f"{name} starts with {protocol}://, which fsspec does not know; "
                "use a local path or a URL such as s3:// or hf://."
            ) from error
        raise unreachable(name, error) from error
    return filesystem, path


def unreachable(name: str, error: Exception) -> InputError:
    """The error for what a storage does not give; its own may have no text or many lines."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(
        f"{name} cannot be read ({reason}); check the path and its permissions, or the connection."
    )


@contextmanager
def reaching(name: str) -> Iterator[None]:
    """One error for whatever a storage raises: each has its own exceptions."""
    try:
        yield
    except MeinError:
        raise
    except Exception as error:
        raise unreachable(name, error) from error


READ_BYTES = 1 << 20
BOM = codecs.BOM_UTF8


class TextBytes(io.RawIOBase):
    """A stream of UTF-8 bytes; an error names the line of the first other byte."""

    def __init__(self, file: File) -> None:
        """Open a file, which is closed with this stream."""
        self.name = file.name
        self.compression = file.compression
        self.position = 0  # decompressed bytes read so far, the BOM included
        self._lines = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._raw = open_raw(file)
        self._source = self._raw if file.compression is None else file.compression.reader(self._raw)

    def readable(self) -> bool:
        """Always true; the base class calls it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; 0 at the end."""
        view = memoryview(buffer)
        chunk = self._next(len(view))
        if self.position == 0 and chunk.startswith(BOM):
            self._check(BOM)
            chunk = chunk[len(BOM) :] if len(chunk) > len(BOM) else self._next(len(view))
        self._check(chunk)
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Close the file below."""
        if not self.closed:
            self._raw.close()
        super().close()

    def _next(self, size: int) -> bytes:
        try:
            return bytes(self._source.read(size))
        except Exception as error:  # the disk's, the connection's, or the compression's
            raise _damaged(self.name, self.compression, error) from error

    def _check(self, chunk: bytes) -> None:
        try:
            self._utf8.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            seen: bytes = error.object  # the chunk, after bytes of a character begun before it
            line = self._lines + seen.count(b"\n", 0, error.start) + 1
            offset = self.position - (len(seen) - len(chunk)) + error.start
            if offset == 0 and seen.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                problem, encoding = "is UTF-16, not UTF-8", "utf-16"
            else:
                problem = f"is not UTF-8: byte 0x{seen[error.start]:02x} in line {line} (offset {offset})"
                encoding = "latin1"
            raise InputError(
                f"{self.name} {problem}; re-encode it, for example with iconv -f {encoding} -t utf-8."
            ) from error
        self._lines += chunk.count(b"\n")
        self.position += len(chunk)


def open_raw(file: File) -> Any:
    """The file without decompression, opened for reading bytes."""
    if isinstance(file.filesystem, LocalFileSystem):
        refuse_irregular(Path(file.path))  # to open a FIFO would wait forever
    with reaching(file.name):
        return file.filesystem.open(file.path, "rb")


def open_lines(file: File) -> "io.BufferedReader[TextBytes]":
    """A text file, ready to be iterated over by line or read in blocks."""
    return io.BufferedReader(TextBytes(file), READ_BYTES)


def _damaged(name: str, compression: Compression | None, error: BaseException) -> InputError:
    if compression is None:
        return InputError(f"{name} cannot be read ({error}); check the disk or the connection.")
    return InputError(
        f"{name} is truncated or not {compression.name} data ({error}); fetch or compress it again."
    )
