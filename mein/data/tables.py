"""Tables as streams: csv, tsv, jsonl, parquet and txt, a bounded chunk at a time."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from mein.data.files import File
from mein.data.streams import open_lines, open_raw
from mein.errors import InputError

CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 4096
LARGEST_CSV_ROW = 1 << 30
SEPARATORS = {"csv": "comma", "tsv": "tab"}

# From the columns there are to the columns to read; None reads all.
Choose = Callable[[list[str]], list[str]] | None


class _RowTooLongError(Exception):
    """A csv row that is longer than the block it is read in."""


def csv_batches(file: File, choose: Choose) -> Iterator[pa.RecordBatch]:
    """Rows of a csv or tsv file, every value a string as it is written."""
    block, done = CHUNK_BYTES, 0
    while True:
        try:
            for batch in _csv_pass(file, choose, block, done):
                yield batch
                done += batch.num_rows
            return
        except _RowTooLongError as error:
            block *= 8
            if block > LARGEST_CSV_ROW:
                raise InputError(
                    f"{file.name} has a row after row {done} that does not end within "
                    f"{LARGEST_CSV_ROW >> 20} MiB; close its quotation mark."
                ) from error


def _csv_pass(file: File, choose: Choose, block: int, skip: int) -> Iterator[pa.RecordBatch]:
    """Rows from number `skip` on, read in blocks of this many bytes."""
    with open_lines(file) as stream:
        reader = _open_csv(file, stream, block, [], [])
    if reader is None:
        return
    names = reader.schema.names
    wanted = names if choose is None else choose(names)
    with open_lines(file) as stream:
        reader = _open_csv(file, stream, block, names, [*wanted, names[-1]])
        last = ""
        while (batch := _next_csv(file, reader)) is not None:
            fresh = batch.slice(min(skip, batch.num_rows))
            skip -= batch.num_rows - fresh.num_rows
            for start in range(0, fresh.num_rows, CHUNK_ROWS):
                yield fresh.slice(start, CHUNK_ROWS).select(range(len(wanted)))
            if batch.num_rows:
                last = batch.column(len(wanted))[-1].as_py()
        _check_closed(file, last, stream.raw.tail)


def _open_csv(file: File, stream: Any, block: int, names: list[str], wanted: list[str]) -> Any:
    """A streaming csv reader for the columns wanted, or all; None where there is no row."""
    try:
        return pa_csv.open_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=pa_csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=pa_csv.ParseOptions(
                delimiter="\t" if file.format == "tsv" else ",", newlines_in_values=True
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if "mpty CSV" in str(error) and stream.raw.position < block:
            return None
        raise _csv_error(file, error) from error


def _next_csv(file: File, reader: Any) -> Any:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None
    except pa.ArrowInvalid as error:
        raise _csv_error(file, error) from error


def _check_closed(file: File, last: str, tail: bytes) -> None:
    """Refuse a last value that swallowed the rest of the file behind an open quotation mark."""
    if "\n" in last and tail != b'"':
        raise InputError(
            f"{file.name} is malformed at its end (a value of {len(last)} characters that starts "
            f"with {last.splitlines()[0][:40]!r} is never closed); close its quotation mark."
        )


def _csv_error(file: File, error: Exception) -> Exception:
    message = str(error)
    if "straddling" in message or "mpty CSV" in message:
        return _RowTooLongError(message)
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    if ragged is None:
        return InputError(f"{file.name} is malformed ({message[:200]}); write it again.")
    row, expected, found = ragged.groups()
    return InputError(
        f"{file.name} is malformed in row {row}, counting the header as 1 (expected {expected} "
        f"columns, got {found}); put values that hold a {SEPARATORS[file.format]} or a line break "
        "between double quotes."
    )


def parquet_batches(file: File, choose: Choose) -> Iterator[pa.RecordBatch]:
    """Rows of a parquet file, read page by page."""
    with open_raw(file) as raw:
        try:
            table = pa_parquet.ParquetFile(raw, buffer_size=CHUNK_BYTES, pre_buffer=False)
            names = None if choose is None else choose(table.schema_arrow.names)
            yield from table.iter_batches(_parquet_rows(table.metadata), columns=names)
        except (pa.ArrowException, OSError) as error:
            detail = str(error).split("\n")[0][:200]
            raise InputError(
                f"{file.name} is truncated or not a parquet file ({detail}); fetch or write it "
                "again."
            ) from error


def _parquet_rows(metadata: Any) -> int:
    """How many rows make a chunk, from the mean size of a row."""
    groups = [metadata.row_group(position) for position in range(metadata.num_row_groups)]
    size = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1.0)
    return int(min(CHUNK_ROWS, max(1, CHUNK_BYTES // max(size, 1.0))))


def json_chunks(file: File) -> Iterator[list[dict[str, Any]]]:
    """Objects of a jsonl file, blank lines left out."""
    rows: list[dict[str, Any]] = []
    size = 0
    with open_lines(file) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            rows.append(_json_object(file, line, number))
            size += len(line)
            if size >= CHUNK_BYTES or len(rows) >= CHUNK_ROWS:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows


def _json_object(file: File, line: bytes, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if b"\\ud" in line.lower():  # half of a surrogate pair is no text: it becomes "?"
            row = json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{file.name} is malformed in line {number} ({error}); write one JSON object a line, "
            "for example with jq -c."
        ) from error
    if not isinstance(row, dict):
        raise InputError(
            f"{file.name} holds a {type(row).__name__} in line {number}, not an object; write one "
            "JSON object a line, for example with jq -c '.[]'."
        )
    return row


def json_batch(rows: list[dict[str, Any]], names: list[str]) -> pa.RecordBatch:
    """Rows as a record batch; a column of several types becomes strings."""
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns.append(pa.array(values))
        except (pa.ArrowException, OverflowError):
            columns.append(pa.array([_as_string(value) for value in values], pa.string()))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _as_string(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def text_chunks(file: File) -> Iterator[list[str]]:
    """Lines of a txt file, each a document; an empty line is an empty document."""
    texts: list[str] = []
    size = 0
    with open_lines(file) as lines:
        for line in lines:
            texts.append(line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8"))
            size += len(line)
            if size >= CHUNK_BYTES or len(texts) >= CHUNK_ROWS:
                yield texts
                texts, size = [], 0
    if texts:
        yield texts
