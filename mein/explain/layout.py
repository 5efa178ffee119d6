"""A text as its words and pieces, with the place of each: laid out once, for all that is shown of it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mein.text.indexer import Indexer
from mein.text.pieces import UNKNOWN
from mein.text.ragged import offsets_of
from mein.text.words import words_in


@dataclass(frozen=True, eq=False)
class Layout:
    """W words in J pieces. A place is a first character in the text and one past the last."""

    words: list[tuple[str, int, int]]
    """Each word as it was read, and its place."""
    ends: np.ndarray
    """How many pieces the first w words have (W + 1,)."""
    starts: np.ndarray
    """Of the pieces (J,)."""
    stops: np.ndarray
    """Of the pieces (J,)."""
    spelled: list[str]
    """What each distinct piece of a distinct word spells, after a space where it begins the word."""
    which: np.ndarray
    """Where each piece (J,) is in `spelled`."""

    def letters(self, start: int, stop: int) -> str:
        """What some pieces spell, as they were read."""
        return "".join(self._letters[start:stop])

    @cached_property
    def _letters(self) -> list[str]:
        return [self.spelled[k] for k in self.which.tolist()]

    def words_of(self, words: np.ndarray) -> tuple[int, int]:
        """The pieces, first and one past the last, from the first of these words to the last."""
        return int(self.ends[words[0]]), int(self.ends[words[-1] + 1])

    def by_piece(self, values: np.ndarray) -> np.ndarray:
        """Values of words (W,), each spread evenly over the word's pieces (J,)."""
        lengths = np.diff(self.ends)
        found: np.ndarray = np.repeat(values / np.maximum(1, lengths), lengths)
        return found

    def by_word(self, values: np.ndarray) -> np.ndarray:
        """Sums (W,) of values of pieces (J,)."""
        found: np.ndarray = np.diff(np.concatenate([[0.0], np.cumsum(values)])[self.ends])
        return found

    def segments(self, text: str) -> list[str]:
        """The text as gap, word, gap, ..., word, gap; joined they are the text."""
        found, end = [], 0
        for _, start, stop in self.words:
            found += [text[end:start], text[start:stop]]
            end = stop
        return [*found, text[end:]]


def lay_out(indexer: Indexer, text: str) -> Layout:
    """Find the words and pieces of a text; every distinct word is cut once."""
    words = words_in(text, indexer.words_config)
    number: dict[str, int] = {}
    rows = np.array([number.setdefault(word, len(number)) for word, _, _ in words], np.int64)
    cut = indexer.pieces.encode(list(number))
    spans = [_inside(indexer, word, pieces) for word, pieces in zip(number, cut, strict=True)]
    spelled = [
        word[first:last] if place else f" {word[first:last]}"
        for word, its in zip(number, spans, strict=True)
        for place, (first, last) in enumerate(its)
    ]
    offsets = offsets_of([len(its) for its in spans])
    inside = np.array([span for its in spans for span in its], np.int64).reshape(-1, 2)
    ends = offsets_of(np.diff(offsets)[rows])
    lengths = np.diff(ends)
    which = np.repeat(offsets[:-1][rows] - ends[:-1], lengths) + np.arange(ends[-1])
    places = np.array([place for _, *place in words], np.int64).reshape(-1, 2)
    start, stop = np.repeat(places[:, 0], lengths), np.repeat(places[:, 1], lengths)
    starts, stops = (np.minimum(start + inside[which, side], stop) for side in (0, 1))  # some letters grow
    return Layout(words, ends, starts, stops, spelled, which)


def _inside(indexer: Indexer, word: str, pieces: list[int]) -> list[tuple[int, int]]:
    """The characters of a word that each piece spells; unknown pieces spell what is between others."""
    letters = [piece.strip() for piece in indexer.pieces.fragments(pieces)]
    following: list[str | None] = []  # the next known piece after each, from the last to the first
    known = None
    for piece, its in zip(reversed(pieces), reversed(letters), strict=True):
        following.append(known)
        known = its if piece > UNKNOWN else known
    spans, at = [], 0
    for piece, its, known in zip(pieces, letters, reversed(following), strict=True):
        stop = at + len(its)
        if piece == UNKNOWN:
            stop = len(word) if known is None else word.index(known, at)
        spans.append((at, stop))
        at = stop
    return spans
