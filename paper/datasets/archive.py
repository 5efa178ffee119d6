"""The files of a tar, zip, or folder as untrusted streams, with bounds on memory, bytes, and lines.

Nothing is written to disk.
An archive with an absolute path, a "..", a link, a device, too many members, or too many bytes is
refused with one sentence. A folder is read like an archive; archives in it are opened, archives in
archives are not.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
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
    """Bytes of a line, or of a document that is read at once."""

    def most(self, compressed: int) -> int:
        """How many bytes may come out of a file of this size."""
        return min(self.total, max(self.free, self.ratio * compressed))


DEFAULT = Limits()


class Bounded(io.RawIOBase):
    """A stream that refuses to return more than a number of bytes, and names what is damaged."""

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
            raise damaged_archive(self.name, problem) from problem
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
    """The decompressed bytes of an opened file of `size` bytes; its first bytes show its format."""
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


def damaged_archive(name: str, problem: BaseException) -> InputError:
    """One sentence for a file that cannot be decompressed."""
    return InputError(f"{name} is truncated or damaged ({problem}); fetch it again.")


BLOCK = tarfile.BLOCKSIZE
LONGEST_HEADER = 1 << 16  # bytes of an extended header: a long name, a date
ZIP_START = (b"PK\x03\x04", b"PK\x05\x06")
SIZE = re.compile(r"[0-9]{1,18}")
REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


@dataclass(frozen=True)
class Member:
    """A file of an archive or a folder; its stream must be read before the next member is asked for."""

    name: str  # its path inside, without .gz and the like
    where: str  # what messages call it
    stream: IO[bytes]


def members(path: Path, limits: Limits = DEFAULT) -> Iterator[Member]:
    """The files of a folder, a tar (.gz, .xz, .bz2) or a zip, or the one file, decompressed."""
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path.")
    if path.is_dir():
        for entry in _files_below(path, limits):
            yield from _file(entry, entry.relative_to(path).as_posix(), limits)
    else:
        yield from _file(path, path.name, limits)


def _files_below(folder: Path, limits: Limits) -> list[Path]:
    """Every file below a folder, in order; links would lead out of it."""
    found = []
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            entry = Path(root, name)
            if entry.is_symlink():
                raise InputError(f"{entry} is a link; put the file itself there.")
            if entry.is_file():
                found.append(entry)
        if len(found) > limits.members:
            raise _too_many(str(folder), limits)
    return sorted(found)


def _file(path: Path, name: str, limits: Limits) -> Iterator[Member]:
    with path.open("rb") as raw:
        if raw.read(4) in ZIP_START:
            yield from _zip_members(path, limits)
            return
        raw.seek(0)
        stream = open_bounded(raw, str(path), path.stat().st_size, limits)
        if _is_tar(stream.peek(BLOCK)[:BLOCK]):
            yield from _tar_members(stream, path, limits)
        else:
            shown = name.rpartition(".")[0] or name if is_compressed(path) else name
            yield Member(shown, str(path), stream)


def _is_tar(head: bytes) -> bool:
    """Whether a block is a tar header: the checksum in it is right."""
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _tar_members(stream: "io.BufferedReader[Any]", path: Path, limits: Limits) -> Iterator[Member]:
    """Header by header, as a stream: tarfile's own reader takes extended headers of any length."""
    longer: dict[str, str] = {}
    count = 0
    while (header := _exactly(stream, BLOCK, path)).strip(b"\0"):
        count += 1
        if count > limits.members:
            raise _too_many(str(path), limits)
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as problem:
            raise damaged_archive(str(path), problem) from problem
        if info.type in (*EXTENDED, *LONG, tarfile.XGLTYPE):
            longer |= _extended(info, _header_text(stream, info, path))
            continue
        name = _checked(longer.get("path", info.name), path)
        size = int(longer["size"]) if SIZE.fullmatch(longer.get("size", "")) else info.size
        if info.type not in (*REGULAR, tarfile.DIRTYPE) or size < 0:
            raise InputError(f"{path} holds {name!r}, which is a link or a device: it is not read.")
        longer = {}
        if info.isdir():
            continue
        content = _Part(stream, size, path)
        yield Member(name, f"{name} in {path}", io.BufferedReader(content))
        content.skip()
        _exactly(stream, -size % BLOCK, path)
    while stream.read(BLOCK):  # to the end, where the checksum of the compression is
        pass


def _header_text(stream: IO[bytes], info: tarfile.TarInfo, path: Path) -> bytes:
    if not 0 <= info.size <= LONGEST_HEADER:
        raise InputError(f"{path} has a header of {info.size:,} bytes, which no valid archive has.")
    content = _exactly(stream, info.size, path)
    _exactly(stream, -info.size % BLOCK, path)
    return content


def _extended(info: tarfile.TarInfo, content: bytes) -> dict[str, str]:
    """What an extended header has about the next member: its path and size, if any."""
    if info.type == tarfile.XGLTYPE or info.type == tarfile.GNUTYPE_LONGLINK:
        return {}
    if info.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": content.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    found_keys: dict[str, str] = {}
    while content.strip(b"\0"):  # "30 path=some/where\n", the length counting itself
        digits = content.split(b" ", 1)[0]
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        if not len(digits) < length <= len(content):
            break
        key, _, value = content[len(digits) + 1 : length].rstrip(b"\n").partition(b"=")
        if key in (b"path", b"size"):
            found_keys[key.decode("ascii")] = value.decode("utf-8", "surrogateescape")
        content = content[length:]
    return found_keys


class _Part(io.RawIOBase):
    """The next bytes of a stream, of a given number."""

    def __init__(self, stream: IO[bytes], size: int, path: Path) -> None:
        self.stream, self.left, self.path = stream, size, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        chunk = self.stream.read(min(len(view), self.left))
        if self.left and not chunk:
            raise damaged_archive(str(self.path), EOFError("it ends in the middle of a file"))
        self.left -= len(chunk)
        view[: len(chunk)] = chunk
        return len(chunk)

    def skip(self) -> None:
        """Go to the end of the part, whatever was read of it."""
        scratch = bytearray(1 << 16)
        while self.left:
            self.readinto(scratch)


def _exactly(stream: IO[bytes], size: int, path: Path) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise damaged_archive(str(path), EOFError("it ends in the middle"))
    return content


def _zip_members(path: Path, limits: Limits) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > limits.members:
                raise _too_many(str(path), limits)
            left = limits.most(path.stat().st_size)
            for entry in entries:
                name = _checked(entry.filename, path)
                _check_kind(entry, name, path)
                if entry.is_dir():
                    continue
                with archive.open(entry) as raw:
                    content = Bounded(raw, str(path), left)
                    yield Member(name, f"{name} in {path}", io.BufferedReader(content))
                left -= content.given
    except (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError) as problem:
        raise damaged_archive(str(path), problem) from problem


def _check_kind(entry: zipfile.ZipInfo, name: str, path: Path) -> None:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise InputError(f"{path} holds {name!r}, which is a link or a device: it is not read.")
    if entry.flag_bits & 1:
        raise InputError(f"{path} holds {name!r}, which is encrypted: decrypt the archive first.")


def _checked(name: str, path: Path) -> str:
    """A name that stays inside the archive, without a leading ./"""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    has_drive = bool(parts) and parts[0].endswith(":")
    if name.startswith(("/", "\\")) or ".." in parts or has_drive or not name.isprintable() or not name:
        raise InputError(
            f"{path} holds the path {name!r}, which leads out of it or is no name: it is not read."
        )
    return "/".join(parts)


def _too_many(name: str, limits: Limits) -> InputError:
    return InputError(f"{name} holds more than {limits.members:,} files: it is not read.")
