"""Sentences of longer reviews in the dress of Rotten Tomatoes' snippets: lower-cased, punctuation apart."""

import heapq
import re
from collections.abc import Iterable, Iterator

from mein.data.splits import fingerprint, word_string

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
    """So many different sentences of fitting length: drawn by their hashes, so not by place or seed."""
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
