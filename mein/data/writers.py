"""Writers of tables in each format, a batch at a time; no value is changed.

A csv holds strings, so a column's type may differ from batch to batch; a parquet file holds what the types
of its first batch can hold; a jsonl holds any columns.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from mein.data.tables import Separator
from mein.errors import InputError

ELSEWHERE = "write to .parquet, or leave the column out"


class UnfitError(InputError):
    """Values that the format of the output cannot hold unchanged; another format can."""


class JsonWriter:
    """Writes a JSON object a row."""

    def __init__(self, name: str, sink: Any) -> None:
        self._name, self._sink = name, sink

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        fields = zip(batch.schema.names, batch.columns, strict=True)
        pairs = [
            [f"{_encode(name)}: {value}" for value in _converted(self._name, _json, name, column)]
            for name, column in fields
        ]
        lines = [f"{{{', '.join(row)}}}\n" for row in zip(*pairs, strict=True)]
        self._sink.write("".join(lines).encode("utf-8"))

    def close(self) -> None:
        """No footer."""


class SeparatedWriter:
    """Writes a csv or a tsv, with a header."""

    def __init__(self, separator: Separator, name: str, sink: Any) -> None:
        self._separator, self._name, self._sink = separator, name, sink
        self._names: list[str] = []

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        is_first = not self._names
        self._names = self._names or batch.schema.names
        texts = {
            name: column
            if _is_plain(column.type)
            else pa.array(_converted(self._name, _text, name, column), pa.string())
            for name, column in _aligned(batch, self._names, self._name).items()
        }
        options = pa_csv.WriteOptions(include_header=is_first, delimiter=self._separator.sign)
        lines = pa.BufferOutputStream()
        pa_csv.write_csv(pa.table(texts), lines, options)
        self._sink.write(bytes(lines.getvalue()))

    def close(self) -> None:
        """No footer."""


class ParquetWriter:
    """Writes a parquet file; every column keeps the type of the first batch."""

    def __init__(self, name: str, sink: Any) -> None:
        self._name, self._sink = name, sink
        self._types: dict[str, pa.DataType] = {}
        self._table: Any = None

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        self._types = self._types or dict(zip(batch.schema.names, batch.schema.types, strict=True))
        columns = _aligned(batch, list(self._types), self._name)
        fitted = pa.table({name: self._fitted(name, column) for name, column in columns.items()})
        try:
            if self._table is None:
                self._table = pa_parquet.ParquetWriter(self._sink, fitted.schema, compression="zstd")
            self._table.write_table(fitted)
        except pa.ArrowException as error:
            detail = str(error).split("\n")[0][:200]
            raise UnfitError(f"{self._name} cannot hold a column ({detail}); write to .jsonl.") from error

    def close(self) -> None:
        """Write the footer."""
        if self._table is None:
            self._table = pa_parquet.ParquetWriter(self._sink, pa.schema([]))
        self._table.close()

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
            f"{self._name} cannot take {column.type!s:.80} values in the column {name!r}, which began as "
            f"{began!s:.80}; write to .jsonl, whose rows may differ."
        )


def _aligned(batch: pa.RecordBatch | pa.Table, known: list[str], file: str) -> dict[str, Any]:
    """The columns of a batch in the order of the first one's; absent columns are null."""
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    surplus = next((name for name in found if name not in known), None)
    if surplus is not None:
        raise UnfitError(
            f"{file} cannot take the column {surplus!r}, which appears after the first "
            "rows; write to .jsonl, whose rows may differ."
        )
    absent = pa.nulls(batch.num_rows)
    return {name: found.get(name, absent) for name in known}


def _converted(file: str, convert: Callable[[Any], Any], name: str, column: Any) -> list[Any]:
    """The values of a column, converted one by one; times as Arrow writes them, to the last digit."""
    try:
        texts = column.cast(pa.string()) if _is_time(column.type) else column
        return [convert(value) for value in texts.to_pylist()]
    except UnicodeDecodeError as error:
        raise UnfitError(
            f"{file} cannot hold the bytes in the column {name!r}, which are not UTF-8; {ELSEWHERE}."
        ) from error
    except (ValueError, OverflowError) as error:  # a time in a list, out of Python's range
        detail = str(error).splitlines()[0][:200]
        raise UnfitError(
            f"{file} cannot hold the values in the column {name!r} ({detail}); {ELSEWHERE}."
        ) from error


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow can write values of a type into a csv."""
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
    """Whether a value equals the one that was given, whatever type it is stored as."""
    if isinstance(value, list | tuple) and isinstance(given, list | tuple):
        return len(value) == len(given) and all(map(_is_kept, value, given))
    if isinstance(value, dict) and isinstance(given, dict):  # a struct has all keys: absent ones are null
        return given.keys() <= value.keys() and all(_is_kept(value[key], given.get(key)) for key in value)
    is_equal = value == given or (value != value and given != given)  # the latter for NaN
    return is_equal and isinstance(value, bool) is isinstance(given, bool)


def _text(value: Any) -> str | None:
    """A value in a csv, which holds lists and structs as JSON only."""
    if value is None or isinstance(value, str):
        return value
    return _encode(value) if isinstance(value, list | dict) else _unknown_to_json(value)


def _json(value: Any) -> str:
    return "null" if value != value else _encode(value)


def _unknown_to_json(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, default=_unknown_to_json).encode
