"""RCV1 and R52.

RCV1 (Lewis et al. 2004) with the 55 second-level topics: Reuters' XML, or the LYRL2004 token files.

A document is labeled if it has exactly one of the 55 codes. Johnson & Zhang (2015) use two weeks
and a month: August 1996 for training, July 1997 for testing, the ten months between unlabeled. Their files
name the ten months; that July is the test month follows from its 49,838 documents.

R52: Reuters-21578, ModApte split, documents with one topic; from reut2-*.sgm or from JSON lines.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from mein.errors import InputError
from paper.datasets.archive import Member, bounded_lines, members, read_whole
from paper.datasets.benchmark import (
    Benchmark,
    Row,
    check_held,
    decoded,
    json_rows,
    label_of,
    not_found,
    with_dev,
)
from paper.datasets.download import Download

CODES = """
    C11 C12 C13 C14 C15 C16 C17 C18 C21 C22 C23 C24 C31 C32 C33 C34 C41 C42
    E11 E12 E13 E14 E21 E31 E41 E51 E61 E71
    G15 GCRIM GDEF GDIP GDIS GENT GENV GFAS GHEA GJOB GMIL GOBIT GODD GPOL GPRO GREL GSCI GSPO GTOUR
    GVIO GVOTE GWEA GWELF
    M11 M12 M13 M14"""
LEVEL_2 = frozenset(CODES.split())
TRAIN, TEST = ("1996-08-20", "1996-08-31"), ("1997-07-01", "1997-07-31")
UNLABELED = ("1996-09-01", "1997-06-30")
TOKENS = re.compile(r"(?:.*/)?lyrl2004_tokens_(train|test)(?:_pt\d)?\.dat")
NUMBER = re.compile(r"[0-9]{1,9}")
TOPICS = re.compile(r"(?:.*/)?rcv1-v2\.topics\.qrels")


def single_topic(codes: Iterable[str]) -> str | None:
    """The one second-level code among these; None where there is none, or more than one.

    >>> single_topic(["CCAT", "C15", "C151"]), single_topic(["C15", "M11"]), single_topic(["GCAT"])
    ('C15', None, None)
    """
    found = LEVEL_2.intersection(codes)
    return next(iter(found)) if len(found) == 1 else None


def read_rcv1(source: Path, seed: int) -> Iterator[Row]:
    """Reuters' XML, in zips of a day or unpacked, parted by date."""
    yield from with_dev(_read_rcv1(source), seed, source)


def _read_rcv1(source: Path) -> Iterator[Row]:
    is_empty = True
    for member in members(source):
        if not member.name.endswith(".xml"):
            continue
        is_empty = False
        date, text, topic = _rcv1_story(member)
        if _is_in(date, UNLABELED):
            yield Row("unlabeled", text)
        elif topic is not None and _is_in(date, TEST):
            yield Row("test", text, topic)
        elif topic is not None and _is_in(date, TRAIN):
            yield Row("train", text, topic)
    if is_empty:
        raise not_found(source, ["file such as 2286newsML.xml"])


def _is_in(date: str, days: tuple[str, str]) -> bool:
    return days[0] <= date <= days[1]


def _rcv1_story(member: Member) -> tuple[str, str, str | None]:
    """Date, headline and text, and the single topic of a newsitem."""
    content = read_whole(member.stream, member.where)
    if b"<!DOCTYPE" in content or b"\0" in content:  # it could define entities that grow without end
        raise InputError(
            f"{member.where} has a document type, which Reuters' files have not: it is not read."
        )
    try:
        item = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as problem:
        raise InputError(f"{member.where} is not XML ({problem}); fetch it again.") from problem
    date = item.get("date", "")
    if item.tag != "newsitem" or not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise InputError(f"{member.where} is no newsitem with a date: it is not of RCV1.")
    paragraphs = [item.findtext("headline", ""), *("".join(p.itertext()) for p in item.iterfind("text/p"))]
    codes = (code.get("code", "") for code in item.iterfind("metadata/codes[@class='bip:topics:1.0']/code"))
    return date, "\n".join(text.strip() for text in paragraphs if text.strip()), single_topic(codes)


def read_tokens(source: Path, seed: int) -> Iterator[Row]:
    """The LYRL2004 split: its training file to train, its four test files to test, the rest is raw."""
    yield from with_dev(_read_tokens(source), seed, source)


def _read_tokens(source: Path) -> Iterator[Row]:
    topics = _topics(source)
    found = set()
    for member in members(source):
        match = TOKENS.fullmatch(member.name)
        if match is None:
            continue
        found.add(match[1])
        for number, text in _documents(member):
            topic = topics.get(number)
            yield Row("unlabeled", text) if topic is None else Row(match[1], text, topic)
    if found != {"train", "test"}:
        raise not_found(source, ["lyrl2004_tokens_train.dat", "lyrl2004_tokens_test_pt0.dat"])


def _topics(source: Path) -> dict[int, str]:
    """The single topic of each document that has one, from lines such as "C15 2286 1"."""
    names = {name: name for name in LEVEL_2}  # one string for each code, not one for each line
    topics: dict[int, str] = {}
    several: set[int] = set()
    for member in members(source):
        if not TOPICS.fullmatch(member.name):
            continue
        for line in bounded_lines(member.stream, member.where):
            code, number, is_relevant = _assignment(line, member.where)
            if not is_relevant or code not in names:
                continue
            if topics.setdefault(number, names[code]) != code:
                several.add(number)
    if not topics:
        raise not_found(source, ["rcv1-v2.topics.qrels"])
    return {number: code for number, code in topics.items() if number not in several}


def _assignment(line: bytes, where: str) -> tuple[str, int, bool]:
    words = decoded(line, where).split()
    if not words:
        return "", 0, False
    if len(words) != 3 or not NUMBER.fullmatch(words[1]):
        raise InputError(f"{where} has the line {line[:40]!r}: expected a topic, a document and 1.")
    return words[0], int(words[1]), words[2] == "1"


def _documents(member: Member) -> Iterator[tuple[int, str]]:
    """Number and words of each document: .I 2286, then .W, then lines of words."""
    number, words, size = -1, list[str](), 0
    for line in bounded_lines(member.stream, member.where):
        if line.startswith(b".I "):
            if number >= 0:
                yield number, " ".join(words)
            if not NUMBER.fullmatch(decoded(line[3:].strip(), member.where)):
                raise InputError(f"{member.where} has the line {line[:40]!r}: expected .I and a number.")
            number, words, size = int(line[3:]), [], 0
        elif line.strip() and line.strip() != b".W":
            words.append(decoded(line.strip(), member.where))
            size += len(line)
            check_held(size, member.where)
    if number >= 0:
        yield number, " ".join(words)


PAPERS = "http://www.ai.mit.edu/projects/jmlr/papers/volume5/lewis04a"
LICENSE = "by agreement with NIST, not to be passed on; cite Lewis et al. 2004"
RCV1 = Benchmark(
    name="rcv1",
    description="news wire",
    where="NIST's page Reuters Corpora (RCV1, RCV2, TRC2) at trec.nist.gov: sign the agreement",
    license=LICENSE,
    read=read_rcv1,
    counts={"train": 14_007, "dev": 1_557, "test": 49_838, "unlabeled": 668_640},
    classes=55,
)
RCV1_TOKENS = Benchmark(
    name="rcv1-tokens",
    description="news stems",
    where="the on-line appendices 8 and 12 of Lewis et al. 2004 at jmlr.org",
    license="free for research; cite Lewis et al. 2004",
    read=read_tokens,
    classes=55,
    downloads=(
        Download(f"{PAPERS}/a08-topic-qrels/rcv1-v2.topics.qrels.gz"),
        Download(f"{PAPERS}/a12-token-files/lyrl2004_tokens_train.dat.gz"),
        *(Download(f"{PAPERS}/a12-token-files/lyrl2004_tokens_test_pt{n}.dat.gz") for n in range(4)),
    ),
)


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
            yield _r52_story(record)


def _r52_story(record: str) -> Story:
    attributes = dict(ATTRIBUTE.findall(record.partition(">")[0]))
    split = attributes.get("LEWISSPLIT", "").lower()
    is_evaluated = attributes.get("TOPICS") == "YES" and split in ("train", "test")
    title, body = _between(record, "TITLE"), _between(record, "BODY")
    if not title and not body:
        body = re.sub(r"<[^>]*>", "", _between(record, "TEXT"))
    text = "\n\n".join(CONTROL.sub("", html.unescape(part)).strip() for part in (title, body) if part)
    return Story(split if is_evaluated else None, TOPIC.findall(_between(record, "TOPICS")), text, bool(body))


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
