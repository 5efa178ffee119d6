"""The files of a tar, a zip, or a folder as streams of bounded size; nothing is written to disk."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mein.errors import InputError

OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}
ZIP_START = (b"PK\x03\x04", b"PK\x05\x06")
CHUNK = 1 << 16
MOST = 64 << 30  # bytes after decompression
LONGEST = 16 << 20  # bytes of a line, or of a document that is read at once
# RuntimeError: what zipfile raises for an encrypted file
DAMAGED = (EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True)
class Member:
    """A file of an archive or a folder; its stream must be read before the next member is asked for."""

    name: str  # its path inside, without .gz and the like
    where: str  # what messages call it
    stream: IO[bytes]


def members(path: Path, most: int = MOST) -> Iterator[Member]:
    """The files of a folder, a tar (.gz, .xz, .bz2) or a zip, or the one file, decompressed.

    A folder is read like an archive; archives in it are opened, archives in archives are not.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path.")
    files = sorted(entry for entry in path.rglob("*") if entry.is_file()) if path.is_dir() else [path]
    for file in files:
        with _named(file):
            yield from _file(file, file.relative_to(path).as_posix() if path.is_dir() else path.name, most)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """One sentence for a file that cannot be read."""
    try:
        yield
    except DAMAGED as problem:
        raise InputError(f"{path} is truncated or damaged ({problem}); fetch it again.") from problem


def _file(path: Path, name: str, most: int) -> Iterator[Member]:
    with path.open("rb") as raw:
        head = raw.read(6)
    opener = next((opener for magic, opener in OPENERS.items() if head.startswith(magic)), None)
    if head[:4] in ZIP_START:
        yield from _zip_members(path, most)
    elif tarfile.is_tarfile(path):
        yield from _tar_members(path, most)
    else:
        with (opener or open)(path, "rb") as stream:
            shown = name if opener is None else name.rpartition(".")[0] or name
            yield Member(shown, str(path), _bounded(stream, path, most))


def _tar_members(path: Path, most: int) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for info in archive:
            name = tarfile.data_filter(info, ".").name
            content = archive.extractfile(info) if info.isreg() else None
            if content is None and not info.isdir():
                raise InputError(f"{path} holds {name!r}, which is a link or a device: it is not read.")
            if content is not None:
                most = _left(path, most, info.size)
                shown = PurePosixPath(name).as_posix()
                yield Member(shown, f"{shown} in {path}", _bounded(content, path, info.size))
        while archive.fileobj is not None and archive.fileobj.read(CHUNK):  # to the compression's checksum
            pass


def _zip_members(path: Path, most: int) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                most = _left(path, most, entry.file_size)
                with archive.open(entry) as content:
                    where = f"{entry.filename} in {path}"
                    yield Member(entry.filename, where, _bounded(content, path, entry.file_size))


def _left(path: Path, most: int, size: int) -> int:
    """How many bytes more an archive may hold."""
    if size > most:
        raise InputError(f"{path} holds too many bytes for a data set: fetch it from its official home.")
    return most - size


class Bounded(io.RawIOBase):
    """A stream that refuses to return more than a number of bytes, and names what is damaged."""

    def __init__(self, source: IO[bytes], path: Path, most: int) -> None:
        self.source, self.path, self.most = source, path, most

    def readable(self) -> bool:
        """Always true; the base class asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; 0 at the end."""
        with _named(self.path):
            chunk = self.source.read(len(buffer))
        self.most = _left(self.path, self.most, len(chunk))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _bounded(stream: IO[bytes], path: Path, most: int) -> "io.BufferedReader[Any]":
    return io.BufferedReader(Bounded(stream, path, most), CHUNK)


def bounded_lines(stream: IO[bytes], name: str, longest: int = LONGEST) -> Iterator[bytes]:
    """The lines of a stream without their ends; a line without an end in sight is refused."""
    while line := stream.readline(longest):
        if len(line) >= longest:
            raise InputError(f"{name} has a line of {longest:,} bytes or more: it is no text file.")
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def read_whole(stream: IO[bytes], name: str, longest: int = LONGEST) -> bytes:
    """All bytes of a document, which is short."""
    content = stream.read(longest)
    if len(content) >= longest:
        raise InputError(f"{name} has {longest:,} bytes or more, which is too long for a document.")
    return content
