"""Which files a source names: a path, a fsspec URL, a glob, a folder, or a list of these."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import fsspec
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
