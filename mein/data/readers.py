"""Documents from any source, as a stream of chunks: no reader holds a complete file."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mein.data.columns import ColumnsConfig, find_label_column, find_text_column, refuse_one_column
from mein.data.files import Chunk, File, Source, open_lines
from mein.data.formats import find_files
from mein.data.labels import Label, is_exact, is_missing, plain_label
from mein.data.tables import in_chunks
from mein.errors import InputError

FRACTION = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf", re.IGNORECASE)
NAN = "nan"  # in a format without types; elsewhere a NaN has its own type, and "nan" is a text


@dataclass(frozen=True)
class Documents:
    """One chunk of a stream of documents."""

    texts: list[str]
    labels: list[Label] | None  # None where they were not requested


def read_documents(
    source: Source, columns: ColumnsConfig, *, labeled: bool, may_guess: bool = False
) -> Iterator[Documents]:
    """Stream the documents of a source: about a megabyte of text, at most 4,096, at a time.

    may_guess: whether to guess the text column of a table that lacks the named one. Unlabeled text often
    has another source than the labels.
    """
    files = find_files(source)
    is_empty = True
    for chunk in _read_files(files, columns, labeled, may_guess):
        is_empty = False
        yield chunk
    if is_empty:
        raise _empty(files)


def read_tables(source: Source | File) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a source with every column; a folder has the columns file and text."""
    files = find_files(source)
    is_empty = True
    for batch in _batches(files):
        if batch.num_rows:
            is_empty = False
            yield batch
    if is_empty:
        raise _empty(files)


def _batches(files: list[File]) -> Iterator[pa.RecordBatch]:
    if files[0].is_document:
        for documents in _complete_files(files):
            names = [file.name for file, _ in documents]
            yield pa.RecordBatch.from_pydict({"file": names, "text": [text for _, text in documents]})
        return
    for file in files:
        yield from map(_as_batch, file.format.chunks(file, None))


def column_names(file: File) -> list[str]:
    """The names of a table's columns, even if its values are damaged; in a jsonl, those of its first rows."""
    known: list[str] = []

    def choose(names: list[str]) -> list[str]:
        known[:] = names
        return []

    next(file.format.chunks(file, choose), None)
    return known


def rows_without_label(source: Source, columns: ColumnsConfig) -> int:
    """How many rows of a source's tables `read_documents` would refuse because their label is missing."""
    tables = [file for file in find_files(source) if not file.is_document]
    return sum(is_missing(label) for file in tables for label in _label_values(file, columns))


def _label_values(file: File, columns: ColumnsConfig) -> Iterator[Any]:
    """The labels of a table as they are meant, missing ones included."""
    for chunk in file.format.chunks(file, lambda names: [find_label_column(names, columns.label, file.name)]):
        yield from (_as_meant(value, file) for column in _as_lists(chunk).values() for value in column)


def _read_files(
    files: list[File], columns: ColumnsConfig, labeled: bool, may_guess: bool
) -> Iterator[Documents]:
    if not files[0].is_document:
        for file in files:
            yield from _read_table(file, columns, labeled, may_guess)
        return
    chosen = [file for file in files if file.label is not None] if labeled else files
    if not chosen:
        raise InputError(
            f"{files[0].name} lies in a folder without sub-folders; put the documents of each "
            "class into a sub-folder with its name."
        )
    for documents in _complete_files(chosen):
        labels = [plain_label(_as_meant(file.label, file), file.name) for file, _ in documents if labeled]
        yield Documents([text for _, text in documents], labels if labeled else None)


def _read_table(file: File, columns: ColumnsConfig, labeled: bool, may_guess: bool) -> Iterator[Documents]:
    """Documents of one file; messages count rows from 1."""
    found: list[str] = []

    def choose(names: list[str]) -> list[str]:
        found[:] = [find_text_column(names, columns.text, file.name, may_guess=may_guess)]
        if labeled:
            found.append(find_label_column(names, columns.label, file.name))
            refuse_one_column(found[0], found[1], file.name)
        return found

    done = 0
    for values in map(_as_lists, file.format.chunks(file, choose)):
        texts = _texts(values[found[0]], file, done)
        if texts:
            yield Documents(texts, _labels(values[found[1]], file, done) if labeled else None)
        done += len(texts)


def _as_lists(chunk: Chunk) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = chunk if isinstance(chunk, dict) else chunk.to_pydict()
    return lists


def _as_batch(chunk: Chunk) -> pa.RecordBatch:
    """A chunk as a record batch; a column of several types becomes strings."""
    if not isinstance(chunk, dict):
        return chunk
    columns = []
    for values in chunk.values():
        try:
            columns.append(pa.array(values))
        except (pa.ArrowException, OverflowError):
            columns.append(pa.array([_as_string(value) for value in values], pa.string()))
    return pa.RecordBatch.from_arrays(columns, names=list(chunk))


def _as_string(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or value != value:  # Python writes NaN into JSON where something is missing
        return None
    return json.dumps(value, ensure_ascii=False)


def _complete_files(files: list[File]) -> Iterator[list[tuple[File, str]]]:
    """Files that are a document each, with their texts."""

    def read() -> Iterator[tuple[tuple[File, str], int]]:
        for file in files:
            with open_lines(file) as stream:
                text = stream.read().decode("utf-8")
            yield (file, text), len(text)

    return in_chunks(read())


def _texts(values: list[Any], file: File, done: int) -> list[str]:
    """Texts as strings: a missing value becomes the empty text, a number its digits."""
    return [
        value if isinstance(value, str) else plain_text(value, f"{file.name} row {done + position}")
        for position, value in enumerate(values, start=1)
    ]


def plain_text(value: Any, source: str) -> str:
    """A value as a text: a missing value becomes the empty text, a number its digits."""
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, list | dict):
        raise InputError(f"{source} has a {type(value).__name__} as its text; write it as a string.")
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{source} is not UTF-8 ({error}); write its text again as a string.") from error
    return str(value)


def _labels(values: list[Any], file: File, done: int) -> list[Label]:
    return [
        plain_label(_as_meant(value, file), f"{file.name} row {done + position}")
        for position, value in enumerate(values, start=1)
    ]


def _as_meant(value: Any, file: File) -> Any:
    """A label; a string that stands for a missing value or a number becomes one, and 2.0 becomes "2"."""
    if not isinstance(value, str):
        return value
    if not file.format.has_types and value.casefold() == NAN:
        return None
    if not FRACTION.fullmatch(value):
        return value
    number = float(value)
    return str(int(number)) if is_exact(number) else number


def _empty(files: list[File]) -> InputError:
    others = f" and {len(files) - 1} more files are" if len(files) > 1 else " is"
    return InputError(f"{files[0].name}{others} empty; give a source with documents.")
