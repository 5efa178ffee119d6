"""Amazon reviews (McAuley) as raw text: SNAP's .txt.gz records, and the later .json.gz lines."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from mein.data.benchmarks.benchmark import Benchmark, Row, not_found, utf8_or_latin1
from mein.data.bounded import bounded_lines
from mein.data.download import Download
from mein.data.unpack import Member, members
from mein.errors import InputError

PREFIX = b"review/text:"
LONGEST_LITERAL = 1 << 20  # characters: parsing Python takes a hundredfold of memory


def read_amazon(source: Path, seed: int) -> Iterator[Row]:
    """The texts alone, line by line: memory does not grow with the file."""
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
