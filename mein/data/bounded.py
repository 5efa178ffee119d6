"""Compressed files read with bounds: so much memory, so many bytes, lines so long, and no more."""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mein.errors import InputError

MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
CHUNK = 1 << 16
XZ_MEMORY = 1 << 28  # xz -9 needs 65 MB; a header may ask for 4 GB
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold before it is taken for an attack."""

    members: int = 2_000_000
    total: int = 64 << 30
    """Bytes after decompression."""
    ratio: int = 100
    """Bytes after decompression for each byte before; text seldom exceeds 10."""
    free: int = 64 << 20
    """Bytes after decompression that are always allowed: a small file may well be monotonous."""
    line: int = 16 << 20
    """Bytes of a line, or of a document that is read whole."""

    def most(self, compressed: int) -> int:
        """How many bytes may come out of a file of this size."""
        return min(self.total, max(self.free, self.ratio * compressed))


DEFAULT = Limits()


class Bounded(io.RawIOBase):
    """A stream that refuses to give more than so many bytes, and says what is damaged."""

    def __init__(self, source: IO[bytes], name: str, most: int) -> None:
        self.source, self.name, self.most, self.given = source, name, most, 0

    def readable(self) -> bool:
        """Always true; the base class asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; 0 at the end."""
        view = memoryview(buffer)
        try:
            chunk = self.source.read(len(view))
        except DAMAGED as problem:
            raise damaged(self.name, problem) from problem
        self.given += len(chunk)
        if self.given > self.most:
            raise InputError(
                f"{self.name} holds more than {self.most:,} bytes, which is no text: "
                "it may be a decompression bomb; fetch it from its official home."
            )
        view[: len(chunk)] = chunk
        return len(chunk)


class _Xz(io.RawIOBase):
    """An xz file, one stream after another, with a bound on the decoder's memory."""

    def __init__(self, raw: IO[bytes]) -> None:
        self.raw = raw
        self.decoder = self._start()

    @staticmethod
    def _start() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        while True:
            if self.decoder.eof:
                rest = (self.decoder.unused_data or self.raw.read(CHUNK)).lstrip(b"\0")
                if not rest:
                    return 0
                self.decoder = self._start()
            else:
                rest = self.raw.read(CHUNK) if self.decoder.needs_input else b""
                if not rest and self.decoder.needs_input:
                    raise EOFError("it ends in the middle")
            chunk = self.decoder.decompress(rest, len(view))
            if chunk:
                view[: len(chunk)] = chunk
                return len(chunk)


def open_bounded(raw: IO[bytes], name: str, size: int, limits: Limits = DEFAULT) -> "io.BufferedReader[Any]":
    """The decompressed bytes of an opened file of so many bytes; what it is, its first bytes tell."""
    head = raw.read(6)
    raw.seek(0)
    kind = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)
    source: Any = raw
    if kind == "gzip":
        source = gzip.GzipFile(fileobj=raw, mode="rb")
    elif kind == "xz":
        source = io.BufferedReader(_Xz(raw), CHUNK)
    elif kind == "bzip2":
        source = bz2.BZ2File(raw)
    most = limits.total if kind is None else limits.most(size)
    return io.BufferedReader(Bounded(source, name, most), CHUNK)


def is_compressed(path: Path) -> bool:
    """Whether the first bytes of a file are those of gzip, xz or bzip2."""
    with path.open("rb") as raw:
        head = raw.read(6)
    return any(head.startswith(magic) for magic in MAGIC)


def bounded_lines(stream: IO[bytes], name: str, limits: Limits = DEFAULT) -> Iterator[bytes]:
    """The lines of a stream without their ends; a line without an end in sight is refused."""
    while line := stream.readline(limits.line):
        if len(line) >= limits.line:
            raise InputError(f"{name} has a line of {limits.line:,} bytes or more: it is no text file.")
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def read_whole(stream: IO[bytes], name: str, limits: Limits = DEFAULT) -> bytes:
    """All bytes of a document, which is short."""
    content = stream.read(limits.line)
    if len(content) >= limits.line:
        raise InputError(f"{name} has {limits.line:,} bytes or more, which is too long for a document.")
    return content


def damaged(name: str, problem: BaseException) -> InputError:
    """One sentence for a file that cannot be decompressed."""
    return InputError(f"{name} is truncated or damaged ({problem}); fetch it again.")
