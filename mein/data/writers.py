"""Tables to csv, tsv, jsonl or parquet: a batch at a time, and either whole or not there."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from mein.data.files import format_of, locate
from mein.errors import InputError


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


class Writer:
    """Writes batches that have the columns of the first one; jsonl takes any columns."""

    def __init__(self, name: str, file_format: str, compression: str | None, raw: Any) -> None:
        """Write to an opened file, which `close` closes."""
        self.name = name
        self.format = file_format
        self._raw = raw
        self._sink = _compressed(raw, compression)
        self._schema: pa.Schema | None = None
        self._table: Any = None

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append the rows of a batch or a table."""
        with _writing(self.name):
            if self.format == "jsonl":
                self._sink.write(_json_lines(batch))
                return
            if self.format != "parquet":
                batch = _flat(batch)
            if self._schema is None:
                self._schema = _schema_of(batch)
                self._table = _open_table(self._sink, self.format, self._schema)
            self._table.write_table(self._conform(batch))

    def close(self) -> None:
        """Finish the file."""
        with _writing(self.name):
            if self.format == "parquet" and self._table is None:
                self._table = _open_table(self._sink, self.format, pa.schema([]))
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

    def _conform(self, batch: pa.RecordBatch | pa.Table) -> pa.Table:
        """A batch with the columns and types of the first; absent columns are null."""
        assert self._schema is not None
        surplus = [name for name in batch.schema.names if name not in self._schema.names]
        if surplus:
            raise InputError(
                f"{self.name} cannot take the column {surplus[0]!r}, which appears after the first "
                "rows; write to .jsonl, whose rows may differ."
            )
        columns = []
        for field in self._schema:
            if field.name not in batch.schema.names:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            try:
                columns.append(batch.column(field.name).cast(field.type))
            except pa.ArrowException as error:
                raise InputError(
                    f"{self.name} cannot take {batch.schema.field(field.name).type} values in the "
                    f"column {field.name!r}, which began as {field.type}; write to .jsonl, whose "
                    "rows may differ."
                ) from error
        return pa.table(columns, schema=self._schema)


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


def _open_table(sink: Any, file_format: str, schema: pa.Schema) -> Any:
    if file_format == "parquet":
        return pa_parquet.ParquetWriter(sink, schema, compression="zstd")
    delimiter = "\t" if file_format == "tsv" else ","
    return pa_csv.CSVWriter(sink, schema, write_options=pa_csv.WriteOptions(delimiter=delimiter))


def _schema_of(batch: pa.RecordBatch | pa.Table) -> pa.Schema:
    """The columns of the first batch; one that is all null so far is taken for strings."""
    return pa.schema(
        [
            field.with_type(pa.string()) if pa.types.is_null(field.type) else field
            for field in batch.schema.remove_metadata()
        ]
    )


def _flat(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """A batch whose lists and structs are JSON texts, since a csv has no place for them."""
    columns = [
        pa.array([_json(value) for value in batch.column(place).to_pylist()], pa.string())
        if pa.types.is_nested(field.type)
        else batch.column(place)
        for place, field in enumerate(batch.schema)
    ]
    return pa.table(columns, names=batch.schema.names)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _json_lines(batch: pa.RecordBatch | pa.Table) -> bytes:
    rows = (
        {key: None if value != value else value for key, value in row.items()} for row in batch.to_pylist()
    )
    lines = [json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows]
    return "".join(lines).encode("utf-8")
