"""Elec (Johnson & Zhang 2015) from its text and .cat files; electronics, made to its recipe.

Amazon reviews (McAuley) as unlabeled text: SNAP's .txt.gz records, and the later .json.gz lines.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from mein.errors import InputError
from paper.datasets.archive import Member, bounded_lines, members
from paper.datasets.benchmark import (
    NEGATIVE,
    POSITIVE,
    Benchmark,
    Row,
    held_lines,
    json_rows,
    label_of,
    not_found,
    utf8_or_latin1,
    with_dev,
)
from paper.datasets.download import Download

STEMS = {"elec-25k-train": "train", "elec-test": "test"}
UNLABELED = re.compile(r"elec-25k-unlab\d\d")
CATEGORIES = {"1": NEGATIVE, "2": POSITIVE}  # of the .cat files: 1-2 stars, 4-5 stars


def read_elec(source: Path, seed: int) -> Iterator[Row]:
    """Labeled reviews are held (50,000 of them), the unlabeled ones stream by."""
    yield from with_dev(_read_elec(source), seed, source)


def _read_elec(source: Path) -> Iterator[Row]:
    chosen = _chosen_files(source)
    lines: dict[str, list[str]] = {}
    for member in members(source):
        if member.name not in chosen:
            continue
        stem, ending = _split(member.name)
        if UNLABELED.fullmatch(stem):
            for line in bounded_lines(member.stream, member.where):
                yield Row("unlabeled", utf8_or_latin1(line))
        else:
            lines[stem + ending.removesuffix(".tok")] = held_lines(member)
    for stem, part in STEMS.items():
        yield from _labeled(part, lines[f"{stem}.txt"], lines[f"{stem}.cat"], f"{stem} in {source}")


def _chosen_files(source: Path) -> set[str]:
    """The names of the files to read: the plain text of each where it is there, else its tokens."""
    found: dict[tuple[str, str], str] = {}
    for member in members(source):
        stem, ending = _split(member.name)
        if stem in STEMS or UNLABELED.fullmatch(stem):
            kind = ending.removesuffix(".tok")
            if kind in (".txt", ".cat") and (ending == kind or (stem, kind) not in found):
                found[stem, kind] = member.name
    wanted = [(stem, kind) for stem in STEMS for kind in (".txt", ".cat")]
    missing = [stem + kind for stem, kind in wanted if (stem, kind) not in found]
    if missing:
        raise not_found(source, missing)
    return set(found.values())


def _split(name: str) -> tuple[str, str]:
    """elec/elec-test.txt.tok -> elec-test, .txt.tok"""
    stem, dot, ending = name.rpartition("/")[2].partition(".")
    return stem, dot + ending


def _labeled(part: str, texts: list[str], categories: list[str], where: str) -> Iterator[Row]:
    if len(texts) != len(categories):
        raise InputError(
            f"{where} has {len(texts):,} texts but {len(categories):,} categories; fetch it again."
        )
    for text, category in zip(texts, categories, strict=True):
        if category.strip() not in CATEGORIES:
            raise InputError(f"{where} has the category {category!r}, which is neither 1 nor 2.")
        yield Row(part, text, CATEGORIES[category.strip()])


def read_electronics(source: Path, seed: int) -> Iterator[Row]:
    """train, test and unlabeled.jsonl; products of the test part are in neither of the others."""
    yield from with_dev(_read_electronics(source), seed, source)


def _read_electronics(source: Path) -> Iterator[Row]:
    found = set()
    for member in members(source):
        part = member.name.rpartition("/")[2].removesuffix(".jsonl")
        if part not in ("train", "test", "unlabeled"):
            continue
        found.add(part)
        for row in json_rows(member):
            label = None
            if part != "unlabeled":
                label = label_of(row.get("label"), (NEGATIVE, POSITIVE), member.where)
            yield Row(part, row["text"], label)
    if not {"train", "test"} <= found:
        raise not_found(source, [f"{part}.jsonl" for part in ("train", "test") if part not in found])


ELEC = Benchmark(
    name="elec",
    description="Amazon reviews",
    where="Rie Johnson's page of ConText at riejohnson.com: elec2.tar.gz and, for the unlabeled text, "
    "unlab_data.tar.gz, both in one folder",
    license="research use; cite Johnson & Zhang 2015 and McAuley & Leskovec 2013",
    read=read_elec,
    counts={"train": 22_500, "dev": 2_500, "test": 25_000, "unlabeled": 200_000},
    classes=2,
    downloads=(
        Download("http://riejohnson.com/software/elec2.tar.gz"),
        Download("http://riejohnson.com/software/unlab_data.tar.gz"),
    ),
)
ELECTRONICS = Benchmark(
    name="electronics",
    description="Amazon, not Elec",
    where="a folder with train, test and unlabeled.jsonl.xz (text, label 0 or 1), made to Elec's recipe",
    license="research use; the reviews belong to their authors",
    read=read_electronics,
    counts={"train": 22_500, "dev": 2_500, "test": 25_000, "unlabeled": 200_000},
    classes=2,
)


PREFIX = b"review/text:"
LONGEST_LITERAL = 1 << 20  # characters: parsing Python takes a hundredfold of memory


def read_amazon(source: Path, seed: int) -> Iterator[Row]:
    """The texts only, line by line: memory does not grow with the file."""
    is_empty = True
    for member in members(source):
        texts = _json_texts(member) if member.name.endswith((".json", ".jsonl")) else _record_texts(member)
        for text in texts:
            is_empty = False
            yield Row("unlabeled", text)
    if is_empty:
        raise not_found(source, ["line that begins with review/text:", "JSON line with reviewText"])


def _record_texts(member: Member) -> Iterator[str]:
    """Records of lines such as "review/score: 5.0"; the prefix is no part of the text."""
    for line in bounded_lines(member.stream, member.where):
        if line.startswith(PREFIX):
            yield utf8_or_latin1(line[len(PREFIX) :]).strip()


def _json_texts(member: Member) -> Iterator[str]:
    for number, line in enumerate(bounded_lines(member.stream, member.where), start=1):
        if line.strip():
            text = _review(utf8_or_latin1(line), f"{member.where}, line {number}").get("reviewText", "")
            yield text if isinstance(text, str) else ""


def _review(line: str, where: str) -> dict[str, object]:
    """One review: JSON, or the Python literal that the release of 2014 wrote in its place."""
    try:
        review = json.loads(line)
    except ValueError:
        try:
            review = ast.literal_eval(line[:LONGEST_LITERAL])
        except (ValueError, SyntaxError, MemoryError, RecursionError) as problem:
            raise InputError(f"{where} is malformed ({type(problem).__name__}); fetch it again.") from problem
    except RecursionError as problem:
        raise InputError(f"{where} is malformed ({problem}); fetch it again.") from problem
    if not isinstance(review, dict):
        raise InputError(f"{where} holds a {type(review).__name__} instead of a review.")
    return review


AMAZON_MOVIES = Benchmark(
    name="amazon-movies",
    description="film reviews",
    where="SNAP's page web-Movies at snap.stanford.edu: movies.txt.gz, 3 GB",
    license="research use; cite McAuley & Leskovec 2013",
    read=read_amazon,
    counts={"unlabeled": 7_911_684},
    downloads=(Download("https://snap.stanford.edu/data/movies.txt.gz"),),
)
AMAZON_ELECTRONICS = Benchmark(
    name="amazon-electronics",
    description="Amazon reviews",
    where="SNAP's Electronics.txt.gz, or reviews_Electronics.json.gz of Julian McAuley's page at UCSD",
    license="research use; cite McAuley & Leskovec 2013",
    read=read_amazon,
    downloads=(
        Download(
            "https://snap.stanford.edu/data/amazon/Electronics.txt.gz",
            sha256="9029cee5e6f7209ceee7e4d52910397023c59d599430eb84b05fa1a6b822e3f4",
        ),
    ),
)
