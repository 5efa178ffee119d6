"""Readers of tables in each format: csv, tsv, jsonl, parquet and txt, in chunks of limited size."""

import csv
import io
import json
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pa_parquet

from mein.data.files import Choose, Chunk, File, open_lines, open_raw
from mein.errors import InputError

T = TypeVar("T")
CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 4096
LARGEST_VALUE = 1 << 28  # characters; an open quotation mark ends here at the latest
MANY_LINES = 20  # poems and addresses have fewer lines that look like rows


@dataclass(frozen=True)
class Separator:
    """What stands between the values of a row."""

    name: str
    sign: str
    is_quoted: bool
    """Whether values that hold the sign are always quoted; in many a tsv none is."""


COMMAS = Separator("comma", ",", is_quoted=True)
TABS = Separator("tab", "\t", is_quoted=False)


def separated_chunks(separator: Separator, file: File, choose: Choose | None) -> Iterator[Chunk]:
    """Columns of a csv or a tsv; every value is a string, as it is written.

    By Python's own parser, because Arrow's guesses types from its first block, needs every row to
    fit into a block, and reads 32 blocks ahead.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_VALUE))
    with open_lines(file) as stream, closing(separated_rows(separator, file, stream)) as rows:
        names = _header(separator, file, next(rows, [""]))
        chosen: list[str] = []
        sized = ((row, sum(map(len, row))) for row in _closed(file, rows, stream))
        for chunk in in_chunks(sized):
            chosen = chosen or (names if choose is None else choose(names))
            yield {name: [row[place] for row in chunk] for name in chosen for place in [names.index(name)]}


def separated_rows(separator: Separator, file: File, stream: Any) -> Generator[list[str], None, None]:
    """The header and the rows, each as long as the header; blank lines are left out."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    lines = Lines(text)
    reader = csv.reader(lines, delimiter=separator.sign, strict=not separator.is_quoted)
    width = 0
    try:
        while (row := _next_row(separator, file, reader, lines, width)) is not None:
            if row and len(row) != (width := width or len(row)):
                raise InputError(
                    f"{file.name} is malformed in line {lines.start} (expected {width} columns, got "
                    f"{len(row)}); put values that hold a {separator.name} or a line break between "
                    "double quotes."
                )
            if len(lines.kept) > MANY_LINES:
                _check_swallowed(separator, file, row, lines)
            if row:
                yield row
    finally:
        text.detach()


class Lines:
    """Lines of a table; those of the current row are kept and can be read again."""

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
        """Keep only the first line: the others are read again."""
        rest = self.kept[1:]
        del self.kept[1:]
        self._again.extendleft(reversed(rest))
        self._read -= len(rest)


def _next_row(
    separator: Separator, file: File, reader: Iterator[list[str]], lines: Lines, width: int
) -> list[str] | None:
    """The next row, [] for a blank line, None at the end.

    Many tsv files are written without quoting. There, a text that happens to begin with a quotation mark
    would include the rows up to the next mark. So a closing mark must end its value; where it does not, the
    row is its first line, literally, if that has as many columns as the header.
    """
    lines.kept.clear()
    try:
        return next(reader, None)
    except csv.Error as error:
        row = lines.kept[0].rstrip("\r\n").split(separator.sign)
        if not separator.is_quoted and '"' in lines.kept[0] and len(row) == width:
            lines.keep_one()
            return row
        literal = ", or put the value between double quotes and double those inside it"
        raise InputError(
            f"{file.name} is malformed in line {lines.start} "
            f"({str(error).replace(separator.sign, separator.name)}); "
            f"close its quotation marks{'' if separator.is_quoted else literal}."
        ) from error


def _check_swallowed(separator: Separator, file: File, row: list[str], lines: Lines) -> None:
    """Refuse a value of many lines each of which could be a row: its quotation mark is left open.

    A csv with correct quotation marks is accepted. A tsv is not, because few are quoted at all.
    """
    for value in row:
        inner = value.split("\n")[1:-1]
        is_like_rows = {line.count(separator.sign) for line in inner} == {len(row) - 1} != {0}
        if len(inner) < MANY_LINES or not is_like_rows or (separator.is_quoted and _is_strict(lines.kept)):
            continue
        other = ", or, if the value is meant so, write the file as .jsonl or .parquet"
        raise InputError(
            f"{file.name} has a value in line {lines.start} that holds {len(inner)} lines of {len(row)} "
            f"columns and begins with {value[:40].splitlines()[0]!r}; close its quotation mark"
            f"{'' if separator.is_quoted else other}."
        )


def _is_strict(lines: list[str]) -> bool:
    """Whether every quotation mark of a csv's lines opens a value, closes it or is doubled."""
    try:
        return len(list(csv.reader(lines, strict=True))) == 1
    except csv.Error:
        return False


def _header(separator: Separator, file: File, names: list[str]) -> list[str]:
    """The names of the columns, unless the file was written with another separator."""
    other = next((sign for sign in ";\t|" if sign in names[0]), None)
    if len(names) == 1 and other is not None and other != separator.sign:
        raise InputError(
            f"{file.name} has the single column {names[0]!r:.60}; it seems to be separated by {other!r}: "
            f"separate it by {separator.name}s."
        )
    return unlike(file, names)


def unlike(file: File, names: list[str]) -> list[str]:
    """The names of the columns, no two of which may be equal."""
    times = Counter(names)
    twice = next((name for name in names if times[name] > 1), None)
    if twice is not None:
        raise InputError(f"{file.name} has the column {twice!r} twice; rename one of them.")
    return names


def _closed(file: File, rows: Iterator[list[str]], stream: Any) -> Iterator[list[str]]:
    """The rows; refuses a last value that holds the rest of the file behind an open quotation mark."""
    row = [""]
    for row in rows:
        yield row
    last = row[-1]
    if "\n" in last and stream.raw.tail != b'"':
        raise InputError(
            f"{file.name} is malformed at its end (a value of {len(last)} characters that starts "
            f"with {last.splitlines()[0][:40]!r} is never closed); close its quotation mark."
        )


def parquet_chunks(file: File, choose: Choose | None) -> Iterator[Chunk]:
    """Columns of a parquet file, read page by page."""
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
    """Refuse strings that are not UTF-8, which Arrow does not check."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise InputError(
                f"{file.name} is not UTF-8, or damaged, in column {name!r} ({error}); write its strings "
                "as UTF-8."
            ) from error


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts, because repeated values are larger in memory than in the file."""
    rows = max(1, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, CHUNK_BYTES))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def json_chunks(file: File, choose: Choose | None) -> Iterator[Chunk]:
    """Columns of a jsonl file, blank lines left out; chosen among the keys of the first chunk."""
    with open_lines(file) as lines:
        objects = (
            (_json_object(file, line, number), len(line))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        )
        names: list[str] = []
        for rows in in_chunks(objects):
            if choose is None or not names:
                known = list(dict.fromkeys(key for row in rows for key in row))
                names = known if choose is None else choose(known)
            yield {name: [row.get(name) for row in rows] for name in names}


def _json_object(file: File, line: bytes, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if b"\\ud" in line.lower():  # half of a surrogate pair is not a text: it becomes "?"
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


def text_chunks(file: File, choose: Choose | None) -> Iterator[Chunk]:
    """The column `text`: the lines of a txt file, each a document; an empty line is an empty document."""
    names = ["text"] if choose is None else choose(["text"])
    with open_lines(file) as lines:
        texts = ((line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8"), len(line)) for line in lines)
        for chunk in in_chunks(texts):
            yield dict.fromkeys(names, chunk)


def in_chunks(rows: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Rows, which come with their sizes, in lists of limited size."""
    chunk: list[T] = []
    total = 0
    for row, size in rows:
        chunk.append(row)
        total += size
        if total >= CHUNK_BYTES or len(chunk) >= CHUNK_ROWS:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk
