"""IMDB (Maas et al. 2011): the aclImdb tree, one file a review; dev by file id, as in the papers."""

import re
from collections.abc import Iterator
from pathlib import Path

from paper.datasets.archive import members, read_whole
from paper.datasets.benchmark import Benchmark, Row, check_held, decoded, json_rows, not_found
from paper.datasets.download import Download

REVIEW = re.compile(r"(?:.*/)?(train|test)/(pos|neg|unsup)/(\d{1,9})_\d+\.txt")
FIRST_DEV_ID = {"pos": 10_621, "neg": 10_625}  # 12,500 - 10,621 + 12,500 - 10,625 = 3,754


def read_imdb(source: Path, seed: int) -> Iterator[Row]:
    """All reviews in the order of parts, labels and ids, whatever order the archive has."""
    found, size = [], 0
    for member in members(source):
        match = REVIEW.fullmatch(member.name)
        if match is not None:
            part, label, number = match[1], match[2], int(match[3])
            text = decoded(read_whole(member.stream, member.where), member.where)
            size += len(text)
            check_held(size, source)
            found.append((_part(part, label, number), label, number, text))
    if not found:
        raise not_found(source, ["file such as train/pos/0_9.txt"])
    found.sort(key=lambda review: review[:3])
    for part, label, _, text in found:
        yield Row(part, text, None if part == "unlabeled" else label)


def _part(part: str, label: str, number: int) -> str:
    if label == "unsup":
        return "unlabeled"
    return "dev" if part == "train" and number >= FIRST_DEV_ID[label] else part


def read_extra(source: Path, seed: int) -> Iterator[Row]:
    """Further reviews, as JSON lines with a text."""
    is_empty = True
    for member in members(source):
        if member.name.endswith(".jsonl"):
            for row in json_rows(member):
                is_empty = False
                yield Row("unlabeled", row["text"])
    if is_empty:
        raise not_found(source, ["unlabeled.jsonl with a text"])


IMDB = Benchmark(
    name="imdb",
    description="film reviews",
    where="the page of the Large Movie Review Dataset at ai.stanford.edu/~amaas/data/sentiment",
    license="free for research; cite Maas et al. 2011; the reviews belong to their authors",
    read=read_imdb,
    counts={"train": 21_246, "dev": 3_754, "test": 25_000, "unlabeled": 50_000},
    classes=2,
    downloads=(
        Download(
            "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            size=84_125_825,
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        ),
    ),
)
IMDB_EXTRA = Benchmark(
    name="imdb-extra",
    description="film reviews",
    where="a file unlabeled.jsonl.xz with a text a line: IMDb user reviews that IMDB does not hold",
    license="research use; the reviews belong to their authors",
    read=read_extra,
    counts={"unlabeled": 100_000},
)
