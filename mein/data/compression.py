"""Compressions of files, by ending; what follows a complete stream is read if it is another, or refused."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

READ_BYTES = 1 << 16  # what follows a stream is copied: many small ones would make larger reads slow
DAMAGED = (OSError, zlib.error, lzma.LZMAError)  # what decompressors raise; OSError is that of bz2


@dataclass(frozen=True)
class Compression:
    """How a compressed file is read and written."""

    name: str
    reader: Callable[[Any], Any]
    writer: Callable[[Any], Any]


class Decompressor(Protocol):
    """Decompresses one stream."""

    @property
    def eof(self) -> bool:
        """Whether the stream is complete."""

    @property
    def needs_input(self) -> bool:
        """Whether more output needs more input."""

    @property
    def unused_data(self) -> bytes:
        """What followed the complete stream."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next bytes, at most so many."""


class GzipDecompressor:
    """What zlib has for gzip, with the interface of bz2 and lzma."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        """Whether the stream is complete."""
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        """Whether more output needs more input."""
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        """What followed the complete stream."""
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next bytes, at most so many."""
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


class Streams:
    """The streams of a compressed file as one.

    Python's own readers end silently where what follows a stream is no other, or is all zeros: half of the
    documents would be lost to one flipped bit.
    """

    def __init__(self, new: Callable[[], Decompressor], raw: Any) -> None:
        self._new, self._raw, self._stream = new, raw, new()
        self._where = ""

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        while True:
            data = b""
            if self._stream.eof:
                data = self._stream.unused_data or bytes(self._raw.read(READ_BYTES))
                if not data:
                    return b""
                self._stream, self._where = self._new(), "after a complete stream: "
            elif self._stream.needs_input:
                data = bytes(self._raw.read(READ_BYTES))
            is_pending = not (data or self._stream.needs_input)
            try:
                found = self._stream.decompress(data, size)
            except DAMAGED as problem:
                raise ValueError(f"{self._where}{problem}") from problem
            if found:
                return found
            if not (data or is_pending or self._stream.eof):
                raise EOFError(f"{self._where}it ends within a stream")


# Arrow's reader of zstd refuses what is no stream by itself.
COMPRESSIONS = {
    ".gz": Compression(
        "gzip",
        partial(Streams, GzipDecompressor),
        lambda raw: gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0),
    ),
    ".xz": Compression(  # subtle: without the format, 18 zeros are a complete stream of the old .lzma
        "xz",
        partial(Streams, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ)),
        partial(lzma.LZMAFile, mode="wb"),
    ),
    ".zst": Compression(
        "zstd",
        lambda raw: pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"),
        lambda raw: pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), "zstd"),
    ),
    ".bz2": Compression("bzip2", partial(Streams, bz2.BZ2Decompressor), partial(bz2.BZ2File, mode="wb")),
}
