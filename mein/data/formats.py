"""The formats of files in one table; the files of a source; a writer for a file of any format."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from mein.data.compression import COMPRESSIONS, Compression
from mein.data.files import File, Format, Source, locate, reaching
from mein.data.tables import COMMAS, TABS, json_chunks, parquet_chunks, separated_chunks, text_chunks
from mein.data.writers import JsonWriter, ParquetWriter, SeparatedWriter
from mein.errors import InputError
from mein.runtime.files import is_utf8, refuse_irregular

FORMATS = [
    Format(
        "csv",
        (".csv",),
        partial(separated_chunks, COMMAS),
        partial(SeparatedWriter, COMMAS),
        has_types=False,
    ),
    Format(
        "tsv",
        (".tsv",),
        partial(separated_chunks, TABS),
        partial(SeparatedWriter, TABS),
        has_types=False,
    ),
    Format("jsonl", (".jsonl", ".ndjson", ".json"), json_chunks, JsonWriter),
    Format("parquet", (".parquet",), parquet_chunks, ParquetWriter, is_compressed=True),
    Format("txt", (".txt",), text_chunks, has_columns=False),
]


def format_of(name: str) -> tuple[Format, Compression | None]:
    """The format and the compression that the ending of a file name stands for.

    >>> [one.name for one in format_of("raw.jsonl.gz")]
    ['jsonl', 'gzip']
    """
    bare = name.split("?", 1)[0] if "://" in name else name
    path = PurePosixPath(bare.lower())
    compression = COMPRESSIONS.get(path.suffix)
    ending = (path if compression is None else path.with_suffix("")).suffix
    found = next((known for known in FORMATS if ending in known.endings), None)
    if found is None:
        endings = ", ".join(ending for known in FORMATS for ending in known.endings)
        raise InputError(
            f"{name} has an unknown format; name it {endings} (text formats also with "
            f"{', '.join(COMPRESSIONS)})."
        )
    if found.is_compressed and compression is not None:
        raise InputError(
            f"{name} is a compressed {found.name} file; decompress it, {found.name} compresses its own pages."
        )
    return found, compression


def find_files(source: Source | File) -> list[File]:
    """The files of a source, in reading order; at least one."""
    if isinstance(source, File):
        return [source]
    if not isinstance(source, str | os.PathLike):
        return _alike([file for part in source for file in find_files(part)], source_name(source))
    name = os.fspath(source)
    if not name:
        raise InputError("The path of a source is empty; name a file or a folder, or . for this one.")
    filesystem, path = locate(name)
    with reaching(name):
        if filesystem.isdir(path):
            return _folder(filesystem, path, path, name)
        if filesystem.exists(path):
            return [_file(filesystem, path, name)]
        return _alike(_glob(filesystem, path, name), name)


def source_name(source: Source) -> str:
    """What messages call a source."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return ", ".join(os.fspath(part) for part in source)


def _file(filesystem: Any, path: str, name: str) -> File:
    if not is_utf8(name):
        raise InputError(f"{name!r} is not UTF-8: rename the file or folder.")
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
    """Text files below a folder, each a document; or its tables, as for a glob."""
    paths = [entry for entry in sorted(filesystem.find(path)) if _is_readable(entry)]
    files = [_file(filesystem, entry, entry) for entry in paths]
    if not files:
        raise InputError(f"{name} is a folder without a file to read; put .txt files into it.")
    documents = [_document(file, root) for file in files if not file.format.has_columns]
    return _alike([*documents, *(file for file in files if file.format.has_columns)], name)


def _alike(files: list[File], name: str) -> list[File]:
    """Files that are all read as one document each, or all as tables; a mixture is refused."""
    first = {file.is_document: file.name for file in reversed(files)}
    if len(first) == 2:
        raise InputError(
            f"{name} mixes documents, such as {first[True]}, and tables, such as {first[False]}; move one "
            "kind elsewhere, or name the files by a glob such as *.csv."
        )
    return files


def _is_readable(path: str) -> bool:
    try:
        format_of(path)
    except InputError:
        return False
    return not PurePosixPath(path).name.startswith(".")


def _document(file: File, root: str) -> File:
    below = PurePosixPath(file.path).relative_to(PurePosixPath(root)).parts
    label = below[0] if len(below) > 1 else None
    return replace(file, label=label, is_document=True)


@contextmanager
def open_writer(path: str | os.PathLike[str]) -> Iterator["Writer"]:
    """A writer of record batches; the file appears under its name at a clean exit only.

    >>> with open_writer(folder / "out.csv.gz") as writer:  # doctest: +SKIP
    ...     writer.write(pa.table({"text": ["fine"], "label": [1]}))
    """
    name = os.fspath(path)
    file_format, compression = format_of(name)
    if file_format.write is None:
        *others, last = [known.endings[0] for known in FORMATS if known.write is not None]
        raise InputError(f"{name} cannot hold a table; name it {', '.join(others)} or {last}.")
    filesystem, target = locate(name)
    if "://" not in name:
        refuse_irregular(Path(target))
    folder, _, last = target.rpartition("/")
    temporary = f"{folder}/.{last}.{os.getpid()}.tmp"
    with _writing(name):
        raw = filesystem.open(temporary, "wb")
    try:
        with _writing(name):  # a compressed file begins with a header
            sink = raw if compression is None else compression.writer(raw)
        writer = Writer(name, file_format.write(name, sink), sink, raw)
        try:
            yield writer
            writer.close()
        finally:
            writer.abandon()
        with _writing(name):
            filesystem.mv(temporary, target)
    finally:
        raw.close()
        if filesystem.exists(temporary):
            filesystem.rm(temporary)


class Writer:
    """A table under way, and the files below it, which are closed in this order."""

    def __init__(self, name: str, *parts: Any) -> None:
        """The writer of a format, and what it writes to."""
        self.name = name
        self._parts = parts

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append the rows of a batch or a table."""
        with _writing(self.name):
            self._parts[0].write(batch)

    def close(self) -> None:
        """Finish the file."""
        with _writing(self.name):
            for part in self._parts:
                part.close()

    def abandon(self) -> None:
        """Close the file, whatever state it is in; after `close` this does nothing."""
        for part in self._parts:
            with suppress(OSError, ValueError):
                part.close()


@contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # nobody reads standard output any more
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{name} cannot be written ({reason}); check the folder, its permissions and the free space."
        ) from error
