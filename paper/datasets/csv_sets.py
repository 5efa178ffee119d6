"""AG News and DBpedia (Zhang et al. 2015): train.csv and test.csv of class, title and text."""

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from mein.errors import InputError
from paper.datasets.archive import Member, bounded_lines, members
from paper.datasets.benchmark import Benchmark, Row, decoded, not_found

AG_CLASSES = ("World", "Sports", "Business", "Sci/Tech")
DBPEDIA_CLASSES = (
    "Company",
    "EducationalInstitution",
    "Artist",
    "Athlete",
    "OfficeHolder",
    "MeanOfTransportation",
    "Building",
    "NaturalPlace",
    "Village",
    "Animal",
    "Plant",
    "Album",
    "Film",
    "WrittenWork",
)


def read_csv_set(classes: Sequence[str], source: Path, seed: int) -> Iterator[Row]:
    """Title and text, joined by a space; the class by its name."""
    found = set()
    for member in members(source):
        name = member.name.rpartition("/")[2]
        if name in ("train.csv", "test.csv"):
            found.add(name)
            yield from _rows(member, name.removesuffix(".csv"), classes)
    if len(found) < 2:
        raise not_found(source, sorted({"train.csv", "test.csv"} - found))


def _rows(member: Member, part: str, classes: Sequence[str]) -> Iterator[Row]:
    numbers = {str(number): name for number, name in enumerate(classes, start=1)}
    lines = bounded_lines(member.stream, member.where)
    reader = csv.reader((decoded(line, member.where) + "\n" for line in lines), strict=True)
    try:
        for row in reader:
            if len(row) != 3 or row[0] not in numbers:
                raise InputError(
                    f"{member.where} has {row!r:.60} in line {reader.line_num}: expected a class from 1 to "
                    f"{len(classes)}, a title and a text."
                )
            yield Row(part, f"{row[1].strip()} {row[2].strip()}".strip(), numbers[row[0]])
    except csv.Error as problem:
        raise InputError(
            f"{member.where} is malformed after line {reader.line_num} ({problem})."
        ) from problem


ZHANG = "Xiang Zhang's folder of data sets on Google Drive, which the Crepe project links to"
AG_NEWS = Benchmark(
    name="ag-news",
    description="news",
    where=f"{ZHANG}: ag_news_csv.tar.gz",
    license="non-commercial research; cite Zhang et al. 2015",
    read=partial(read_csv_set, AG_CLASSES),
    counts={"train": 120_000, "test": 7_600},
    classes=4,
)
DBPEDIA = Benchmark(
    name="dbpedia",
    description="encyclopedia",
    where=f"{ZHANG}: dbpedia_csv.tar.gz",
    license="CC BY-SA 3.0; cite Zhang et al. 2015 and Lehmann et al. 2014",
    read=partial(read_csv_set, DBPEDIA_CLASSES),
    counts={"train": 560_000, "test": 70_000},
    classes=14,
)
