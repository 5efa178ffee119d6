"""Csv, tsv, jsonl, parquet, txt as chunks.

The rows of a csv or a tsv: quoted as they should be, or, in a tsv, not at all.

Tables as streams: csv, tsv, jsonl, parquet and txt, a bounded chunk at a time.
"""

import csv
import io
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet

from mein.data.files import File, open_lines, open_raw
from mein.errors import InputError

MANY_LINES = 20  # poems and addresses have fewer lines that look like rows
SEPARATORS = {"csv": ("comma", ","), "tsv": ("tab", "\t")}


def separated_rows(file: File, stream: Any) -> Iterator[list[str]]:
    """The header and the rows, each as long as the header; blank lines are left out."""
    separator, delimiter = SEPARATORS[file.format]
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    lines = Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, strict=file.format == "tsv")
    width = 0
    try:
        while (row := _next_row(file, reader, lines, width)) is not None:
            if row and len(row) != (width := width or len(row)):
                raise InputError(
                    f"{file.name} is malformed in line {lines.start} (expected {width} columns, got "
                    f"{len(row)}); put values that hold a {separator} or a line break between "
                    "double quotes."
                )
            if len(lines.kept) > MANY_LINES:
                _check_swallowed(file, row, lines)
            if row:
                yield row
    finally:
        text.detach()


class Lines:
    """Lines of a table, of which those of the row under way are kept and can be read again."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.kept: list[str] = []
        self._read = 0
        self._again: deque[str] = deque()
        self._lines = lines

    @property
    def start(self) -> int:
        """The number of the first line that is kept."""
        return self._read - len(self.kept) + 1

    def __iter__(self) -> "Lines":
        """Itself, as iterators do."""
        return self

    def __next__(self) -> str:
        """The next line, with its line break."""
        line = self._again.popleft() if self._again else next(self._lines)
        self.kept.append(line)
        self._read += 1
        return line

    def keep_one(self) -> None:
        """Keep the first line alone: the others come again."""
        rest = self.kept[1:]
        del self.kept[1:]
        self._again.extendleft(reversed(rest))
        self._read -= len(rest)


def _next_row(file: File, reader: Iterator[list[str]], lines: Lines, width: int) -> list[str] | None:
    """The next row, [] for a blank line, None at the end.

    Many a tsv is written without quoting, and a text that happens to begin with a quotation mark would take
    the rows up to the next one into itself. So there a mark that closes must end its value; where one does
    not, the row is its first line as it stands, if that has as many columns as the header.
    """
    lines.kept.clear()
    try:
        return next(reader, None)
    except csv.Error as error:
        separator, delimiter = SEPARATORS[file.format]
        row = lines.kept[0].rstrip("\r\n").split(delimiter)
        if file.format == "tsv" and '"' in lines.kept[0] and len(row) == width:
            lines.keep_one()
            return row
        literal = ", or put the value between double quotes and double those inside it"
        raise InputError(
            f"{file.name} is malformed in line {lines.start} ({str(error).replace(delimiter, separator)}); "
            f"close its quotation marks{literal if file.format == 'tsv' else ''}."
        ) from error


def _check_swallowed(file: File, row: list[str], lines: Lines) -> None:
    """Refuse a value of many lines each of which could be a row: its quotation mark is left open.

    A csv that is quoted as it should be means it. Of a tsv nobody knows, for few are quoted at all.
    """
    delimiter = SEPARATORS[file.format][1]
    for value in row:
        inner = value.split("\n")[1:-1]
        is_like_rows = {line.count(delimiter) for line in inner} == {len(row) - 1} != {0}
        if len(inner) < MANY_LINES or not is_like_rows or (file.format == "csv" and _is_strict(lines.kept)):
            continue
        meant = ", or, if the value is meant so, write the file as .jsonl or .parquet"
        raise InputError(
            f"{file.name} has a value in line {lines.start} that holds {len(inner)} lines of {len(row)} "
            f"columns and begins with {value[:40].splitlines()[0]!r}; close its quotation mark"
            f"{meant if file.format == 'tsv' else ''}."
        )


def _is_strict(lines: list[str]) -> bool:
    """Whether every quotation mark of a csv's lines opens a value, closes it or is doubled."""
    try:
        return len(list(csv.reader(lines, strict=True))) == 1
    except csv.Error:
        return False


CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 4096
LARGEST_VALUE = 1 << 28  # characters; a quotation mark that is left open stops here at the latest

# From the columns there are to the columns to read; None reads all.
Choose = Callable[[list[str]], list[str]] | None


def csv_chunks(file: File) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The names of the columns with some rows; every value a string as it is written.

    Python's own parser, because Arrow's guesses types from its first block, needs every row to
    fit into a block, and reads 32 blocks ahead.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_VALUE))
    names: list[str] = []
    rows: list[list[str]] = []
    size = 0
    with open_lines(file) as stream:
        for row in separated_rows(file, stream):
            if not names:
                names = _header(file, row)
                continue
            rows.append(row)
            size += sum(map(len, row))
            if size >= CHUNK_BYTES or len(rows) >= CHUNK_ROWS:
                yield names, rows
                rows, size = [], 0
        _check_closed(file, rows, stream.raw.tail)
    if rows:
        yield names, rows


def _header(file: File, names: list[str]) -> list[str]:
    """The names of the columns, unless the file was written with another separator."""
    other = next((sign for sign in ";\t|" if sign in names[0]), None)
    if len(names) == 1 and other is not None and other != SEPARATORS[file.format][1]:
        raise InputError(
            f"{file.name} has the single column {names[0]!r:.60}; it seems to be separated by {other!r}: "
            f"separate it by {SEPARATORS[file.format][0]}s."
        )
    return unlike(file, names)


def unlike(file: File, names: list[str]) -> list[str]:
    """The names of the columns, no two of which may be equal."""
    times = Counter(names)
    twice = next((name for name in names if times[name] > 1), None)
    if twice is not None:
        raise InputError(f"{file.name} has the column {twice!r} twice; rename one of them.")
    return names


def _check_closed(file: File, rows: list[list[str]], tail: bytes) -> None:
    """Refuse a last value that swallowed the rest of the file behind an open quotation mark."""
    last = rows[-1][-1] if rows else ""
    if "\n" in last and tail != b'"':
        raise InputError(
            f"{file.name} is malformed at its end (a value of {len(last)} characters that starts "
            f"with {last.splitlines()[0][:40]!r} is never closed); close its quotation mark."
        )


def csv_batch(names: list[str], rows: list[list[str]]) -> pa.RecordBatch:
    """Rows as a record batch of strings."""
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def parquet_batches(file: File, choose: Choose) -> Iterator[pa.RecordBatch]:
    """Rows of a parquet file, read page by page."""
    with open_raw(file) as raw:
        try:
            table = pa_parquet.ParquetFile(raw, buffer_size=CHUNK_BYTES, pre_buffer=False)
            known = unlike(file, table.schema_arrow.names)
            names = None if choose is None else choose(known)
            for batch in table.iter_batches(_parquet_rows(table.metadata), columns=names):
                _check_strings(file, batch)
                yield from _sliced(batch)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of a column's name
            detail = str(error).split("\n")[0][:200]
            raise InputError(
                f"{file.name} is truncated or not a parquet file ({detail}); fetch or write it again."
            ) from error


def _parquet_rows(metadata: Any) -> int:
    """How many rows make a chunk, from the mean size of a row as it is stored."""
    groups = [metadata.row_group(position) for position in range(metadata.num_row_groups)]
    size = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1.0)
    return int(min(CHUNK_ROWS, max(1, CHUNK_BYTES // max(size, 1.0))))


def _check_strings(file: File, batch: pa.RecordBatch) -> None:
    """Refuse strings that are not UTF-8, which Arrow hands on unseen."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise InputError(
                f"{file.name} is not UTF-8, or damaged, in column {name!r} ({error}); write its strings "
                "as UTF-8."
            ) from error


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts, since repeated values need less room in the file than here."""
    rows = max(1, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, CHUNK_BYTES))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


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
    if isinstance(value, str):
        return value
    if value is None or value != value:  # Python writes NaN into JSON where something is missing
        return None
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
