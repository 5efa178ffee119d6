"""Tables to csv, tsv, jsonl or parquet: a batch at a time, and either whole or not there."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from mein.data.files import format_of, locate
from mein.errors import InputError

ELSEWHERE = "write to .parquet, or leave the column out"


@contextmanager
def open_writer(path: str | os.PathLike[str]) -> Iterator["Writer"]:
    """A writer of record batches; the file appears under its name at a clean exit only.

    >>> with open_writer(folder / "out.csv.gz") as writer:  # doctest: +SKIP
    ...     writer.write(pa.table({"text": ["fine"], "label": [1]}))
    """
    name = os.fspath(path)
    file_format, compression = format_of(name)
    if file_format == "txt":
        raise InputError(f"{name} cannot hold a table; name it .csv, .tsv, .jsonl or .parquet.")
    filesystem, target = locate(name)
    folder, _, last = target.rpartition("/")
    temporary = f"{folder}/.{last}.{os.getpid()}.tmp"
    with _writing(name):
        raw = filesystem.open(temporary, "wb")
    try:
        with _writing(name):  # a compressed file begins with a header
            writer = Writer(name, file_format, compression, raw)
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


class UnfitError(InputError):
    """Values that the output's format cannot hold as they are; another format can."""


class Writer:
    """Writes batches that have the columns of the first one; jsonl takes any columns.

    No value is changed. A csv takes texts, so types may differ from batch to batch; a parquet file
    takes what its columns can hold.
    """

    def __init__(self, name: str, file_format: str, compression: str | None, raw: Any) -> None:
        """Write to an opened file, which `close` closes."""
        self.name = name
        self.format = file_format
        self._raw = raw
        self._sink = _compressed(raw, compression)
        self._types: dict[str, pa.DataType] = {}  # of the first batch
        self._table: Any = None

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append the rows of a batch or a table."""
        with _writing(self.name):
            if self.format == "jsonl":
                self._sink.write(self._json_lines(batch))
                return
            is_first = not self._types
            if is_first:
                self._types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
            columns = self._aligned(batch)
            if self.format == "parquet":
                self._write_parquet(columns)
            else:
                self._sink.write(self._csv_lines(columns, has_header=is_first))

    def close(self) -> None:
        """Finish the file."""
        with _writing(self.name):
            if self.format == "parquet" and self._table is None:
                self._table = pa_parquet.ParquetWriter(self._sink, pa.schema([]))
            for part in self._parts():
                part.close()

    def abandon(self) -> None:
        """Let go of the file, whatever state it is in; after `close` this does nothing."""
        for part in self._parts():
            with suppress(OSError, ValueError):
                part.close()

    def _parts(self) -> list[Any]:
        parts = [self._table, None if self._sink is self._raw else self._sink, self._raw]
        return [part for part in parts if part is not None]

    def _aligned(self, batch: pa.RecordBatch | pa.Table) -> dict[str, Any]:
        """The columns of a batch in the order of the first one's; absent columns are null."""
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        surplus = next((name for name in found if name not in self._types), None)
        if surplus is not None:
            raise UnfitError(
                f"{self.name} cannot take the column {surplus!r}, which appears after the first "
                "rows; write to .jsonl, whose rows may differ."
            )
        absent = pa.nulls(batch.num_rows)
        return {name: found.get(name, absent) for name in self._types}

    def _write_parquet(self, columns: dict[str, Any]) -> None:
        fitted = pa.table({name: self._fitted(name, column) for name, column in columns.items()})
        try:
            if self._table is None:
                self._table = pa_parquet.ParquetWriter(self._sink, fitted.schema, compression="zstd")
            self._table.write_table(fitted)
        except pa.ArrowException as error:
            detail = str(error).split("\n")[0][:200]
            raise UnfitError(f"{self.name} cannot hold a column ({detail}); write to .jsonl.") from error

    def _fitted(self, name: str, column: Any) -> Any:
        """A column in the type of the first batch; where that was all null, as strings."""
        began = self._types[name]
        kind = pa.string() if pa.types.is_null(began) else began
        if column.type == kind:
            return column
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), kind)
        with suppress(pa.ArrowException, ValueError, OverflowError):  # the latter two of times
            fitted = column.cast(kind)  # may parse, round, or drop what a struct has no field for
            if _is_kept(fitted.to_pylist(), column.to_pylist()):
                return fitted
        raise UnfitError(
            f"{self.name} cannot take {column.type!s:.80} values in the column {name!r}, which began as "
            f"{began!s:.80}; write to .jsonl, whose rows may differ."
        )

    def _csv_lines(self, columns: dict[str, Any], *, has_header: bool) -> bytes:
        texts = {
            name: column if _is_plain(column.type) else pa.array(self._each(_text, name, column), pa.string())
            for name, column in columns.items()
        }
        delimiter = "\t" if self.format == "tsv" else ","
        options = pa_csv.WriteOptions(include_header=has_header, delimiter=delimiter)
        lines = pa.BufferOutputStream()
        pa_csv.write_csv(pa.table(texts), lines, options)
        return bytes(lines.getvalue())

    def _json_lines(self, batch: pa.RecordBatch | pa.Table) -> bytes:
        fields = zip(batch.schema.names, batch.columns, strict=True)
        pairs = [
            [f"{_encode(name)}: {value}" for value in self._each(_json, name, column)]
            for name, column in fields
        ]
        lines = [f"{{{', '.join(row)}}}\n" for row in zip(*pairs, strict=True)]
        return "".join(lines).encode("utf-8")

    def _each(self, convert: Callable[[Any], Any], name: str, column: Any) -> list[Any]:
        """The values of a column, converted one by one; times as Arrow writes them, to the last digit."""
        try:
            texts = column.cast(pa.string()) if _is_time(column.type) else column
            return [convert(value) for value in texts.to_pylist()]
        except UnicodeDecodeError as error:
            told = f"bytes in the column {name!r}, which are not UTF-8"
            raise UnfitError(f"{self.name} cannot hold the {told}; {ELSEWHERE}.") from error
        except (ValueError, OverflowError) as error:  # a time within a list that Python has no place for
            told = f"values in the column {name!r} ({str(error).splitlines()[0][:200]})"
            raise UnfitError(f"{self.name} cannot hold the {told}; {ELSEWHERE}.") from error


@contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{name} cannot be written ({reason}); check the folder, its permissions and the free space."
        ) from error


def _compressed(raw: Any, compression: str | None) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
    if compression == "xz":
        return lzma.LZMAFile(raw, "wb")
    if compression == "bzip2":
        return bz2.BZ2File(raw, "wb")
    if compression == "zstd":
        return pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), "zstd")
    return raw


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow writes values of a type into a csv by itself."""
    if pa.types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    types = pa.types
    known = (types.is_primitive, types.is_decimal, types.is_string, types.is_large_string, types.is_null)
    return any(is_known(kind) for is_known in known)


def _is_time(kind: pa.DataType) -> bool:
    """Whether a type is a date, a time or a duration, of which Python's own have no nanoseconds."""
    if pa.types.is_dictionary(kind):
        return _is_time(kind.value_type)
    types = pa.types
    return any(
        is_one(kind) for is_one in (types.is_timestamp, types.is_date, types.is_time, types.is_duration)
    )


def _is_kept(value: Any, given: Any) -> bool:
    """Whether a value is the text, number, truth ... that was given, in whatever type it is stored."""
    if isinstance(value, list | tuple) and isinstance(given, list | tuple):
        return len(value) == len(given) and all(map(_is_kept, value, given))
    if isinstance(value, dict) and isinstance(given, dict):  # a struct has all keys: absent ones are null
        return given.keys() <= value.keys() and all(_is_kept(value[key], given.get(key)) for key in value)
    is_equal = value == given or (value != value and given != given)  # the latter for NaN
    return is_equal and isinstance(value, bool) is isinstance(given, bool)


def _text(value: Any) -> str | None:
    """A value in a csv, which has no place for lists and structs but as JSON."""
    if value is None or isinstance(value, str):
        return value
    return _encode(value) if isinstance(value, list | dict) else _unknown_to_json(value)


def _json(value: Any) -> str:
    return "null" if value != value else _encode(value)


def _unknown_to_json(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, default=_unknown_to_json).encode
