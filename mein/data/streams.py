"""The bytes of a text file: decompressed, proven to be UTF-8 as they pass, without a BOM."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from typing import Any

import pyarrow as pa

from mein.data.files import File
from mein.errors import InputError

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
