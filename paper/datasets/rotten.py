"""Rotten Tomatoes (Pang & Lee 2005): rt-polarity.pos and .neg; every seed gives another split.

Also sentences of longer reviews in the style of its snippets: lower case, punctuation separated.
"""

import heapq
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mein.data.splits import fingerprint, word_string
from mein.runtime.seeds import numpy_generator
from paper.datasets.archive import members
from paper.datasets.benchmark import NEGATIVE, POSITIVE, Benchmark, Row, held_lines, not_found, with_dev
from paper.datasets.download import Download

FEWEST, MOST = 5, 40  # tokens; nine of ten snippets have 7 to 38
LARGEST = 2_000_000  # sentences in all

BREAK = re.compile(r"<br\s*/?>|\n", re.IGNORECASE)
END = re.compile(
    r"""(?:(?<=[.!?])|(?<=[.!?]["')]))\s+(?=["'(]?[A-Z0-9])"""  # an end, a space, a beginning,
    r"(?<!\bMr\.\s)(?<!\bMrs\.\s)(?<!\bMs\.\s)(?<!\bDr\.\s)(?<!\bSt\.\s)(?<!\b[A-Z]\.\s)"  # but no name
)
APART = re.compile(r'[.,;:?!"()*]|--+')


def snippet(sentence: str) -> str:
    """A sentence as the published snippets are written: apostrophes and hyphens stay in their words.

    >>> snippet('It\\'s "Alien" (1979)... only slow-moving!')
    'it\\'s " alien " ( 1979 ) . . . only slow-moving !'
    """
    return " ".join(APART.sub(r" \g<0> ", sentence.lower()).split())


def sentences(text: str) -> list[str]:
    """The sentences of a review, by a simple rule.

    >>> sentences("Mr. Bean is back.<br />Is he? (Yes.) 3 stars... at most, J. R. said.")
    ['Mr. Bean is back.', 'Is he?', '(Yes.)', '3 stars... at most, J. R. said.']
    """
    return [sentence for line in BREAK.split(text) for sentence in END.split(line.strip()) if sentence]


def snippets(texts: Iterable[str], largest: int = LARGEST) -> Iterator[str]:
    """Different sentences of fitting length, drawn by their hashes, independent of position and seed."""
    drawn: list[tuple[int, str]] = []  # a heap whose top is the next to go: the greatest hash
    held: set[int] = set()
    for text in texts:
        for found in map(snippet, sentences(text)):
            if not FEWEST <= found.count(" ") + 1 <= MOST:
                continue
            mark = fingerprint(word_string(found))
            if mark in held or (len(drawn) == largest and -mark < drawn[0][0]):
                continue
            held.add(mark)
            heapq.heappush(drawn, (-mark, found))
            if len(drawn) > largest:
                held.remove(-heapq.heappop(drawn)[0])
    yield from (found for _, found in sorted(drawn, reverse=True))


FILES = {"rt-polarity.neg": NEGATIVE, "rt-polarity.pos": POSITIVE}


def read_rotten(source: Path, seed: int) -> Iterator[Row]:
    """A tenth for test, a tenth of the rest for dev: 10,662 -> 8,636 + 960 + 1,066."""
    texts: dict[str, list[str]] = {}
    for member in members(source):
        name = member.name.rpartition("/")[2]
        if name in FILES:
            texts[name] = [line.strip() for line in held_lines(member)]
    if set(texts) != set(FILES):
        raise not_found(source, sorted(set(FILES) - set(texts)))
    rows = [Row("train", text, label) for name, label in FILES.items() for text in texts[name]]
    order = numpy_generator(seed, "rotten", "test").permutation(len(rows))
    in_test = set(order[: len(rows) // 10].tolist())
    parted = (row._replace(part="test") if place in in_test else row for place, row in enumerate(rows))
    yield from with_dev(parted, seed, source)


ROTTEN = Benchmark(
    name="rotten",
    description="film sentences",
    where="Bo Pang's page of movie review data at Cornell: sentence polarity dataset v1.0",
    license="research use; cite Pang & Lee 2005",
    read=read_rotten,
    counts={"train": 8_636, "dev": 960, "test": 1_066},
    classes=2,
    downloads=(Download("https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz"),),
    dress=snippets,
)
