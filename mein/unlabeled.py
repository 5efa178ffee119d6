"""The unlabelled documents of a run as streams that can be read again, here or in another process."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mein.config import Config
from mein.data.corpus import Source
from mein.data.known import KnownTexts
from mein.data.splits import empty_texts


class UnlabeledTexts:
    """The unlabelled documents as a stream that can be read again, less those of the test set.

    `in_test` and `empty` count what the last whole reading met.
    """

    def __init__(self, config: Config, source: Source | None, test: KnownTexts) -> None:
        self.source = source
        self.removes = config.removes_test_overlap
        self.test = test
        self.in_test = self.empty = 0

    def __iter__(self) -> Iterator[list[str]]:
        self.in_test = self.empty = 0
        for chunk in () if self.source is None else self.source():
            texts = chunk.texts
            self.empty += empty_texts(texts)
            if self.test.prints:
                is_known = self.test.among(texts)
                self.in_test += int(is_known.sum())
                if self.removes:
                    texts = [text for text, known in zip(texts, is_known, strict=True) if not known]
            yield texts


@dataclass(frozen=True)
class Chosen:
    """The documents of a stream that are held out, or the others."""

    chunks: Iterable[Sequence[str]]
    held_out: np.ndarray
    is_held_out: bool

    def __iter__(self) -> Iterator[list[str]]:
        first = 0
        for chunk in self.chunks:
            is_out = np.isin(np.arange(first, first + len(chunk)), self.held_out)
            first += len(chunk)
            yield [text for text, out in zip(chunk, is_out, strict=True) if out == self.is_held_out]


def known_texts(test: Source | None) -> KnownTexts:
    """Those of the test set, which unlabelled text must not hold."""
    return KnownTexts() if test is None else KnownTexts.of(chunk.texts for chunk in test())


def digest_of_texts(source: Source) -> str:
    """Equal for the same texts in the same order."""
    digest = hashlib.blake2b(digest_size=16)
    for chunk in source():
        for text in chunk.texts:
            content = text.encode("utf-8", "surrogatepass")
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
    return digest.hexdigest()
