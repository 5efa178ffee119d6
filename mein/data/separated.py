"""The rows of a csv or a tsv: quoted as they should be, or, in a tsv, not at all."""

import csv
import io
from collections import deque
from collections.abc import Iterator
from typing import Any

from mein.data.files import File
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
