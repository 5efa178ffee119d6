"""R52: Reuters-21578, ModApte split, documents with one topic; from reut2-*.sgm or from JSON lines."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mein.data.benchmarks.benchmark import Benchmark, Row, json_rows, label_of, not_found, with_dev
from mein.data.bounded import read_whole
from mein.data.download import Download
from mein.data.unpack import members
from mein.errors import InputError

SGM = re.compile(r"(?:.*/)?reut2-\d+\.sgm")
JSONL = re.compile(r"(?:.*/)?r52-(train|test|unlabeled)\.jsonl")
CLASSES = re.compile(r"(?:.*/)?r52-classes\.json")
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
TOPIC = re.compile(r"<D>(.*?)</D>")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")


class Story(NamedTuple):
    """A document of an sgm file."""

    part: str | None  # of the ModApte split
    topics: list[str]
    text: str
    has_body: bool


def read_r52(source: Path, seed: int) -> Iterator[Row]:
    """Whichever layout the source has."""
    names = [member.name for member in members(source)]
    if any(SGM.fullmatch(name) for name in names):
        yield from with_dev(_read_sgm(source), seed, source)
    elif any(JSONL.fullmatch(name) for name in names):
        yield from with_dev(_read_jsonl(source), seed, source)
    else:
        raise not_found(source, ["reut2-000.sgm", "r52-train.jsonl"])


def _read_jsonl(source: Path) -> Iterator[Row]:
    classes = _classes(source)
    for member in members(source):
        match = JSONL.fullmatch(member.name)
        for row in json_rows(member) if match is not None else ():
            part = match[1] if match is not None else ""
            is_labeled = part != "unlabeled"
            label = label_of(row.get("label"), classes, member.where) if is_labeled else None
            yield Row(part, row["text"], label)


def _classes(source: Path) -> list[str]:
    for member in members(source):
        if CLASSES.fullmatch(member.name):
            try:
                names = json.loads(read_whole(member.stream, member.where))
            except (ValueError, RecursionError) as problem:
                raise InputError(f"{member.where} is not JSON ({problem}); fetch it again.") from problem
            if isinstance(names, list) and all(isinstance(name, str) for name in names):
                return names
    raise not_found(source, ["r52-classes.json with a list of names"])


def _read_sgm(source: Path) -> Iterator[Row]:
    """Two passes: a class counts if both parts have a document with this one topic."""
    seen: dict[str, set[str]] = {"train": set(), "test": set()}
    for story in _stories(source):
        if story.part is not None and len(story.topics) == 1:
            seen[story.part].add(story.topics[0])
    classes = seen["train"] & seen["test"]
    for story in _stories(source):
        if story.part is not None and len(story.topics) == 1 and story.topics[0] in classes:
            yield Row(story.part, story.text, story.topics[0])
        elif story.part != "test" and story.has_body:
            yield Row("unlabeled", story.text)


def _stories(source: Path) -> Iterator[Story]:
    for member in members(source):
        if not SGM.fullmatch(member.name):
            continue
        for record in read_whole(member.stream, member.where).decode("latin-1").split("<REUTERS ")[1:]:
            yield _story(record)


def _story(record: str) -> Story:
    attributes = dict(ATTRIBUTE.findall(record.partition(">")[0]))
    split = attributes.get("LEWISSPLIT", "").lower()
    is_judged = attributes.get("TOPICS") == "YES" and split in ("train", "test")
    title, body = _between(record, "TITLE"), _between(record, "BODY")
    if not title and not body:
        body = re.sub(r"<[^>]*>", "", _between(record, "TEXT"))
    text = "\n\n".join(CONTROL.sub("", html.unescape(part)).strip() for part in (title, body) if part)
    return Story(split if is_judged else None, TOPIC.findall(_between(record, "TOPICS")), text, bool(body))


def _between(record: str, tag: str) -> str:
    """What stands between <TAG> and </TAG>; the record itself has an attribute of the name TOPICS."""
    match = re.search(rf"<{tag}(?:\s[^>]*)?>(.*?)</{tag}>", record, re.DOTALL)
    return match[1] if match is not None else ""


R52 = Benchmark(
    name="r52",
    description="news wire",
    where="the UCI machine learning repository: Reuters-21578 text categorization collection",
    license="free for research; Reuters and Carnegie Group hold the copyright",
    read=read_r52,
    counts={"train": 5_878, "dev": 654, "test": 2_568},
    classes=52,
    downloads=(
        Download(
            "https://archive.ics.uci.edu/ml/machine-learning-databases/reuters21578-mld/reuters21578.tar.gz"
        ),
    ),
)
