"""What a benchmark is: where it comes from, what it should hold, and how its layout is read."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mein.data.bounded import bounded_lines
from mein.data.download import Download
from mein.data.labels import Label
from mein.data.splits import split_dev
from mein.data.unpack import Member
from mein.errors import InputError

PARTS = ("train", "dev", "test", "unlabeled")
NEGATIVE, POSITIVE = "neg", "pos"
MOST_HELD = 1 << 29  # bytes; the largest labelled set, RCV1, has a tenth of it


class Row(NamedTuple):
    """A document and the part that it belongs to; the unlabelled part has no labels."""

    part: str
    text: str
    label: Label | None = None


@dataclass(frozen=True)
class Benchmark:
    """A published data set."""

    name: str
    description: str
    where: str
    """Where to get it, in words, for those who fetch it by hand."""
    license: str
    read: Callable[[Path, int], Iterator[Row]]
    """From a folder, archive or file in the official layout, and a seed, to its documents."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many documents each part has, where that is published."""
    classes: int | None = None
    """How many classes it has; None where it is raw text."""
    downloads: tuple[Download, ...] = ()
    """Official homes that give the files to anybody; empty where there is none."""
    dress: Callable[[Iterable[str]], Iterable[str]] = iter
    """What makes further raw text look like the set's own."""


def check_held(size: int, where: object) -> None:
    """Refuse labelled text of a size that no benchmark has; it is held in memory until it is parted."""
    if size > MOST_HELD:
        raise InputError(
            f"{where} holds more than {MOST_HELD:,} bytes of text that is not raw: it is not read."
        )


def held_lines(member: Member) -> list[str]:
    """All lines of a labelled file, in UTF-8 or Latin-1."""
    lines, size = [], 0
    for line in bounded_lines(member.stream, member.where):
        size += len(line)
        check_held(size, member.where)
        lines.append(utf8_or_latin1(line))
    return lines


def with_dev(rows: Iterable[Row], seed: int, source: object) -> Iterator[Row]:
    """The rows with a random tenth of the training part turned into dev: floor(0.9 n) stay.

    Each class is parted in proportion and keeps a document to train on. Training rows are held and
    come last; the others stream by.
    """
    train: list[Row] = []
    size = 0
    for row in rows:
        if row.part == "train":
            train.append(row)
            size += len(row.text)
            check_held(size, source)
        else:
            yield row
    _, ids = np.unique([str(row.label) for row in train], return_inverse=True)
    _, dev = split_dev(ids, 0.1, seed)
    chosen = set(dev.tolist())
    yield from (row._replace(part="dev") if place in chosen else row for place, row in enumerate(train))


def decoded(content: bytes, where: str) -> str:
    """UTF-8 text; another encoding is refused."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{where} is not UTF-8 ({problem.reason}): it is not the published file."
        ) from problem


def utf8_or_latin1(content: bytes) -> str:
    """Text of files that were published in Latin-1 and of copies that were made UTF-8 since."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def json_rows(member: Member) -> Iterator[dict[str, Any]]:
    """The objects of a JSON lines file."""
    for number, line in enumerate(bounded_lines(member.stream, member.where), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise InputError(f"{member.where} is malformed in line {number} ({problem}).") from problem
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise InputError(f"{member.where} has no text in line {number}: it is not the published file.")
        yield row


def label_of(number: object, names: Sequence[str], where: str) -> str:
    """The name of a class that a file gives by its number, from 0."""
    if not isinstance(number, int) or not 0 <= number < len(names):
        raise InputError(f"{where} has the class {number!r}, which is none of the {len(names)} published.")
    return names[number]


def not_found(source: Path, expected: Iterable[str]) -> InputError:
    """One sentence for a source without the files of the layout."""
    return InputError(f"{source} holds no {' and no '.join(expected)}: give the folder or archive that does.")
