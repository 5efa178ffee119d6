"""What a path, glob or URL names; opened as a checked byte stream.

Which files a source names: a path, a fsspec URL, a glob, a folder, or a list of these.

The bytes of a text file: decompressed, proven to be UTF-8 as they pass, without a BOM.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from mein.errors import InputError, MissingExtra

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "txt",
}
COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
INSTALL = {"s3": ".[s3]", "s3a": ".[s3]", "hf": ".[hub]"}


@dataclass(frozen=True)
class File:
    """One file of a source and how to read it."""

    filesystem: Any  # an fsspec file system; fsspec carries no types
    path: str
    name: str  # what messages call it
    format: str
    compression: str | None
    label: str | None = None  # the sub-folder, for a text file in a folder
    is_document: bool = False  # the whole file is one document


def find_files(source: Source) -> list[File]:
    """The files of a source, in reading order; at least one."""
    if not isinstance(source, str | os.PathLike):
        return [file for part in source for file in find_files(part)]
    name = os.fspath(source)
    if not name:
        raise InputError("The path of a source is empty; name a file or a folder, or . for this one.")
    filesystem, path = locate(name)
    try:
        if filesystem.isdir(path):
            return _folder(filesystem, path, path, name)
        if filesystem.exists(path):
            return [_file(filesystem, path, name)]
        return _glob(filesystem, path, name)
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error}); check its permissions.") from error


def source_name(source: Source) -> str:
    """What messages call a source."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return ", ".join(os.fspath(part) for part in source)


def locate(name: str) -> tuple[Any, str]:
    """The file system and the path on it for a local path or a fsspec URL."""
    if "://" not in name:
        return LocalFileSystem(), LocalFileSystem._strip_protocol(name)
    protocol = name.split("://", 1)[0].split("::")[0]
    try:
        filesystem, path = fsspec.core.url_to_fs(name)
    except ImportError as error:
        remedy = f"pip install '{INSTALL[protocol]}'" if protocol in INSTALL else str(error)
        raise MissingExtra(
            f"{name} needs a package for {protocol}:// that is not installed: {remedy}"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{name} starts with {protocol}://, which fsspec does not know; "
            "use a local path or a URL such as s3:// or hf://."
        ) from error
    return filesystem, path


def format_of(name: str) -> tuple[str, str | None]:
    """The format and the compression that a file name tells.

    >>> format_of("raw.jsonl.gz")
    ('jsonl', 'gzip')
    """
    bare = name.split("?", 1)[0] if "://" in name else name
    path = PurePosixPath(bare.lower())
    compression = COMPRESSIONS.get(path.suffix)
    if compression is not None:
        path = path.with_suffix("")
    file_format = FORMATS.get(path.suffix)
    if file_format is None:
        raise InputError(
            f"{name} has an unknown format; name it {', '.join(FORMATS)} (text formats also with "
            f"{', '.join(COMPRESSIONS)})."
        )
    if file_format == "parquet" and compression is not None:
        raise InputError(
            f"{name} is a compressed parquet file; decompress it, parquet compresses its own pages."
        )
    return file_format, compression


def _file(filesystem: Any, path: str, name: str) -> File:
    file_format, compression = format_of(name if "*" not in name else path)
    return File(filesystem, path, name, file_format, compression)


def _glob(filesystem: Any, path: str, name: str) -> list[File]:
    """The files and folders that a pattern matches; a folder's own name is then its label."""
    matches = sorted(filesystem.glob(path)) if any(sign in path for sign in "*?[") else []
    if not matches:
        raise InputError(f"{name} does not exist; check the path.")
    files = []
    for match in matches:
        if filesystem.isdir(match):
            files += _folder(filesystem, match, str(PurePosixPath(match).parent), match)
        else:
            files.append(_file(filesystem, match, match))
    return files


def _folder(filesystem: Any, path: str, root: str, name: str) -> list[File]:
    """Text files below a folder, each a document; without any, its tables, like a glob."""
    paths = [entry for entry in sorted(filesystem.find(path)) if _is_readable(entry)]
    files = [_file(filesystem, entry, entry) for entry in paths]
    documents = [file for file in files if file.format == "txt"]
    if not files:
        raise InputError(f"{name} is a folder without a file to read; put .txt files into it.")
    if not documents:
        return files
    return [_document(file, root) for file in documents]


def _is_readable(path: str) -> bool:
    try:
        format_of(path)
    except InputError:
        return False
    return not PurePosixPath(path).name.startswith(".")


def _document(file: File, root: str) -> File:
    below = PurePosixPath(file.path).relative_to(PurePosixPath(root)).parts
    label = below[0] if len(below) > 1 else None
    return File(file.filesystem, file.path, file.name, "txt", file.compression, label, is_document=True)


READ_BYTES = 1 << 20
BOM = codecs.BOM_UTF8
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


class TextBytes(io.RawIOBase):
    """A stream of UTF-8 bytes; says at which line another encoding shows."""

    def __init__(self, file: File) -> None:
        """Open a file, which is closed with this stream."""
        self.name = file.name
        self.compression = file.compression
        self.position = 0  # decompressed bytes read so far, the BOM included
        self.tail = b""  # the last byte read, line breaks aside
        self._lines = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._raw = open_raw(file)
        self._source = _decompressed(self._raw, file.compression)

    def readable(self) -> bool:
        """Always true; the base class asks."""
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
        except DAMAGED as error:
            raise _damaged(self.name, self.compression, error) from error

    def _check(self, chunk: bytes) -> None:
        try:
            self._utf8.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            seen: bytes = error.object  # the chunk, after bytes of a character begun before it
            line = self._lines + seen.count(b"\n", 0, error.start) + 1
            offset = self.position - (len(seen) - len(chunk)) + error.start
            if offset == 0 and seen.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                told, encoding = "is UTF-16, not UTF-8", "utf-16"
            else:
                told = f"is not UTF-8: byte 0x{seen[error.start]:02x} in line {line} (offset {offset})"
                encoding = "latin1"
            raise InputError(
                f"{self.name} {told}; re-encode it, for example with iconv -f {encoding} -t utf-8."
            ) from error
        self._lines += chunk.count(b"\n")
        self.position += len(chunk)
        self.tail = chunk.rstrip(b"\r\n")[-1:] or self.tail


def open_raw(file: File) -> Any:
    """The file as it lies on its file system, opened for reading bytes."""
    try:
        return file.filesystem.open(file.path, "rb")
    except OSError as error:
        raise InputError(f"{file.name} cannot be opened ({error}); check the path.") from error


def open_lines(file: File) -> "io.BufferedReader[TextBytes]":
    """A text file, ready to be iterated over by line or read in blocks."""
    return io.BufferedReader(TextBytes(file), READ_BYTES)


def _decompressed(raw: Any, compression: str | None) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression == "xz":
        return lzma.LZMAFile(raw)
    if compression == "bzip2":
        return bz2.BZ2File(raw)
    if compression == "zstd":
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    return raw


def _damaged(name: str, compression: str | None, error: BaseException) -> InputError:
    if compression is None:
        return InputError(f"{name} cannot be read ({error}); check the disk or the connection.")
    return InputError(f"{name} is truncated or not {compression} data ({error}); fetch or compress it again.")
