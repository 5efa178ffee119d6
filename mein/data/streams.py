"""Standard input as a source, standard output as a target: apart from files, as each is used only once."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mein.data.files import File
from mein.data.formats import Writer, format_of
from mein.errors import InputError

STREAM = "-"
USUAL = "jsonl"  # the format of a stream, unless it is named; also of the output where text lines come in


class _Stdin:
    """What a reader needs of a file system that holds nothing but standard input."""

    def open(self, path: str, mode: str) -> Any:
        """Standard input, which is not closed with what reads it."""
        if sys.stdin is None:
            raise InputError("Standard input is closed: name a file, or pipe documents in.")
        return io.FileIO(sys.stdin.fileno(), closefd=False)


def stdin_file(name: str = USUAL) -> File:
    """Standard input in a format, such as csv or jsonl.gz."""
    file_format, compression = _named(name)
    if file_format.is_compressed:  # which begins at its end
        raise InputError(f"Standard input cannot be {file_format.name}: give the file by its path.")
    return File(_Stdin(), STREAM, "standard input", file_format, compression)


@dataclass(frozen=True)
class Stdout:
    """Standard output in a format, such as csv or jsonl.gz."""

    name: str = USUAL

    def __str__(self) -> str:
        return "standard output"

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """A writer of record batches. A broken pipe is a BrokenPipeError."""
        if sys.stdout is None:
            raise InputError("Standard output is closed: name a file by --out.")
        file_format, compression = _named(self.name)
        if file_format.write is None:
            file_format, compression = _named(USUAL)
        assert file_format.write is not None
        raw = _Stdout()
        sink = raw if compression is None else compression.writer(raw)
        writer = Writer(str(self), file_format.write(str(self), sink), sink, raw)
        try:
            yield writer
            writer.close()
        finally:
            writer.abandon()


class _Stdout(io.RawIOBase):
    """Standard output, unbuffered: nothing is left to write where a pipe breaks."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[os.write(sys.stdout.fileno(), left) :]
        return size


def _named(name: str) -> Any:
    """The format and the compression of a stream."""
    try:
        return format_of(f"stream.{name}")
    except InputError:
        raise InputError(
            f"--format {name!r} is unknown: choose csv, tsv, jsonl, parquet, or txt, or one with a "
            "compression, such as csv.gz."
        ) from None
