"""Texts to word numbers and piece numbers, by both vocabularies; where each piece is in its text."""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from mein.text.config import PiecesConfig, WordsConfig
from mein.text.pieces import UNKNOWN, Pieces
from mein.text.ragged import Ragged, beside, concatenate, ragged
from mein.text.words import END, WordCounter, Words, tokenize, words_in

BATCH_CHARACTERS = 2_000_000  # text that is encoded at once; a document at least
LONGEST_PIECES = (
    1_000_000  # about 4 MB of text: a longer document fills memory, and imitators learn no more from it
)
TABLE_TOKENS = 50_000  # about 15 MB; with more distinct tokens than this, start an empty table
END_TOKEN, END_ROW = "", 0  # no tokenizer yields an empty token


class Reader(Protocol):
    """What an expert reads instead of words: a row of numbers for each text."""

    @property
    def fingerprint(self) -> str:
        """Equal for two readers only if they give the same rows."""

    @property
    def is_slow(self) -> bool:
        """Whether it is slow, so that progress is shown and kept every few documents."""

    @property
    def size(self) -> int | None:
        """How many numbers each row holds, if all rows hold the same number."""

    @property
    def is_beside_words(self) -> bool:
        """Whether the words of a text follow its numbers in the same row, see `beside`."""

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """A row for each text."""


class Indexer:
    """Turns texts into word numbers for experts and piece numbers for imitators.

    The pieces of a text are those of `" ".join(tokenize(text))`. Since no piece spans a space, each
    distinct token is cut and looked up once and then cached, for speed. Pickling omits the cache.
    Threads may share an indexer; they take turns.
    With a `reader`, experts read what it makes of the text instead of words.
    """

    def __init__(
        self, words_config: WordsConfig, words: Words, pieces: Pieces, reader: Reader | None = None
    ) -> None:
        self.words_config = words_config
        self.words = words
        self.pieces = pieces
        self.reader = reader
        self._table = TokenTable(words, pieces)
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[type["Indexer"], tuple[Any, ...]]:
        return Indexer, (self.words_config, self.words, self.pieces, self.reader)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two indexers only if they give the same numbers."""
        readers = [] if self.reader is None else [self.reader.fingerprint]
        readers += ["float16"] if self.reader is not None and self.reader.is_beside_words else []
        words = "\n".join([self.words_config.model_dump_json(), *self.words.words, *readers])
        return hashlib.blake2b(words.encode("utf-8") + self.pieces.model, digest_size=16).hexdigest()

    def encode(self, texts: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """The word numbers and the piece numbers of each text, as lists."""
        words, pieces = self.encode_ragged(texts)
        return words.to_lists(), pieces.to_lists()

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """What the expert reads and the piece numbers of each text, end to end in arrays."""
        words, pieces = self._encode(texts)
        if self.reader is not None:
            rows = self.reader(texts)
            words = beside(rows, words) if self.reader.is_beside_words else rows
        return words, pieces

    def pieces_of(self, texts: Sequence[str]) -> Ragged:
        """The piece numbers of each text."""
        return self._encode(texts)[1]

    def _encode(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        with self._turn:
            parts = [self._encode_batch(batch) for batch in _batches(texts)]
        return concatenate(words for words, _ in parts), concatenate(pieces for _, pieces in parts)

    def _encode_batch(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        if len(self._table) > TABLE_TOKENS:
            self._table = TokenTable(self.words, self.pieces)
        row_of = self._table.__getitem__
        rows: list[int] = []
        ends = [0]  # of documents, counted in tokens
        for text in texts:
            rows += map(row_of, tokenize(text, self.words_config))
            rows.append(END_ROW)
            ends.append(len(rows))
        words, pieces = self._table.take(np.array(rows, np.int32))
        of_words = Ragged(words.values, words.offsets[ends]).tail(self.words_config.max_length)
        return of_words, Ragged(pieces.values, pieces.offsets[ends]).head(LONGEST_PIECES)


class TokenTable(dict[str, int]):
    """The row of each token found so far; a row has a word number (or none) and piece numbers.

    Row 0 is the end of sequence, a token with a word number and no pieces.
    """

    def __init__(self, words: Words, pieces: Pieces) -> None:
        super().__init__({END_TOKEN: END_ROW})
        self._words = ragged([[END]])
        self._pieces = ragged([[]])
        self._number = words.numbers.get
        self._cut = pieces.encode
        self._new: list[str] = []

    def __missing__(self, token: str) -> int:
        row = self[token] = len(self)
        self._new.append(token)
        return row

    def take(self, rows: np.ndarray) -> tuple[Ragged, Ragged]:
        """The word numbers and the piece numbers of these rows, new tokens among them."""
        if self._new:
            numbers = [[] if number is None else [number] for number in map(self._number, self._new)]
            self._words = concatenate([self._words, ragged(numbers)])
            self._pieces = concatenate([self._pieces, ragged(self._cut(self._new))])
            self._new = []
        return self._words.take(rows), self._pieces.take(rows)


def learn_vocabularies(
    chunks: Iterable[Sequence[str]], words_config: WordsConfig, pieces_config: PiecesConfig
) -> tuple[Indexer, int]:
    """Learn words and pieces in one pass over a stream; also the number of documents in it."""
    counter = WordCounter(words_config)
    for texts in chunks:
        counter.add(texts)
    pieces = Pieces.from_counts(counter, pieces_config)
    return Indexer(words_config, Words.from_counts(counter), pieces), counter.documents


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut texts where `BATCH_CHARACTERS` are reached."""
    start = characters = 0
    for stop, text in enumerate(texts, start=1):
        characters += len(text)
        if characters >= BATCH_CHARACTERS or stop == len(texts):
            yield texts[start:stop]
            start, characters = stop, 0


Spelled = tuple[str, int, int]


def spelled_pieces(indexer: Indexer, text: str) -> Iterator[Spelled]:
    """Each piece: its letters as they were read, after a space where it begins a word; and its place in the
    text, from its first character to one past its last."""
    words = words_in(text, indexer.words_config)
    cut = indexer.pieces.encode([word for word, _, _ in words])
    for (word, start, stop), pieces in zip(words, cut, strict=True):
        for number, (first, last) in enumerate(_inside(indexer, word, pieces)):
            letters = word[first:last] if number else f" {word[first:last]}"
            yield letters, min(start + first, stop), min(start + last, stop)  # some letters grow when lowered


def _inside(indexer: Indexer, word: str, pieces: list[int]) -> Iterator[tuple[int, int]]:
    """The characters of a word that each piece spells; unknown pieces spell what is between others."""
    spelled = [piece.strip() for piece in indexer.pieces.fragments(pieces)]
    at = 0
    for place, (piece, letters) in enumerate(zip(pieces, spelled, strict=True)):
        stop = at + len(letters)
        if piece == UNKNOWN:
            known = [s for p, s in zip(pieces[place + 1 :], spelled[place + 1 :], strict=True) if p > UNKNOWN]
            stop = word.index(known[0], at) if known else len(word)
        yield at, stop
        at = stop
