"""Readers of tables in each format: csv, tsv, jsonl, parquet and txt, in chunks of limited size."""

import csv
import io
import json
from collections import Counter
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


COMMAS = Separator("comma", ",")
TABS = Separator("tab", "\t")
OTHER_NAMES = {COMMAS.sign: ", or name it .csv", TABS.sign: ", or name it .tsv"}


def separated_chunks(separator: Separator, file: File, choose: Choose | None) -> Iterator[Chunk]:
    """Columns of a csv or a tsv; every value is a string, as it is written.

    By Python's own parser, because Arrow's guesses types from its first block, needs every row to
    fit into a block, and reads 32 blocks ahead.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_VALUE))
    with open_lines(file) as stream, closing(separated_rows(separator, file, stream)) as rows:
        names = _header(separator, file, next(rows, [""]))
        chosen: list[str] = []
        sized = ((row, sum(map(len, row))) for row in rows)
        for chunk in in_chunks(sized):
            chosen = chosen or (names if choose is None else choose(names))
            yield {name: [row[place] for row in chunk] for name in chosen for place in [names.index(name)]}


def separated_rows(separator: Separator, file: File, stream: Any) -> Generator[list[str], None, None]:
    """The header and the rows, each as long as the header; blank lines are left out."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    reader = csv.reader(text, delimiter=separator.sign, strict=True)
    width, line = 0, 1
    try:
        for row in reader:
            if row and len(row) != (width := width or len(row)):
                raise InputError(
                    f"{file.name} is malformed in line {line} (expected {width} columns, got {len(row)}); "
                    f"put values that hold a {separator.name} or a line break between double quotes."
                )
            if separator is TABS and reader.line_num - line > MANY_LINES:
                _refuse_swallowed_rows(separator, file, row, line)
            if row:
                yield row
            line = reader.line_num + 1
    except csv.Error as error:
        reason = str(error).replace(separator.sign, separator.name)
        raise InputError(
            f"{file.name} is malformed in line {line} ({reason}); "
            "close its quotation marks, or put the value between double quotes and double those inside it."
        ) from error
    finally:
        text.detach()


def _refuse_swallowed_rows(separator: Separator, file: File, row: list[str], line: int) -> None:
    """Refuse a value of many lines each of which could be a row: its quotation mark is left open.

    Only a tsv is tested: many are written without quoting, where a text may begin with such a mark.
    """
    for value in row:
        inner = value.split("\n")[1:-1]
        is_like_rows = {part.count(separator.sign) for part in inner} == {len(row) - 1} != {0}
        if is_like_rows and len(inner) >= MANY_LINES:
            raise InputError(
                f"{file.name} has a value in line {line} that holds {len(inner)} lines of {len(row)} columns "
                f"and begins with {value[:40].splitlines()[0]!r}; close its quotation mark, or, if the value "
                "is meant so, write the file as .jsonl or .parquet."
            )


def _header(separator: Separator, file: File, names: list[str]) -> list[str]:
    """The names of the columns, unless the file was written with another separator."""
    other = next((sign for sign in ";\t|," if sign in names[0] and sign != separator.sign), None)
    if len(names) == 1 and other is not None:
        raise InputError(
            f"{file.name} has the single column {names[0]!r:.60}; it seems to be separated by {other!r}: "
            f"separate it by {separator.name}s{OTHER_NAMES.get(other, '')}."
        )
    return unlike(file, names)


def unlike(file: File, names: list[str]) -> list[str]:
    """The names of the columns, no two of which may be equal."""
    times = Counter(names)
    twice = next((name for name in names if times[name] > 1), None)
    if twice is not None:
        raise InputError(f"{file.name} has the column {twice!r} twice; rename one of them.")
    return names


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
