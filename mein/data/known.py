"""Known texts, to be found again among many: most others are told from them by letters and symbols."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from zlib import crc32

import numpy as np
import numpy.typing as npt

from mein.data.splits import ASCII_SPACES, fingerprint, fingerprints, text_key

LOWER = bytes(range(256)).lower()
NOT_COUNTED = bytes(ASCII_SPACES)


@dataclass(frozen=True)
class KnownTexts:
    """Texts by their fingerprints; empty ones, which betray nothing, are left out.

    `checksums`: of the letters and symbols of each that an ASCII text can equal. Where a text's is not
    among them, it is not known; where it is, the fingerprint tells, which takes eight times as long.
    """

    prints: frozenset[int] = frozenset()
    checksums: frozenset[int] = frozenset()

    @classmethod
    def of(cls, chunks: Iterable[Sequence[str]]) -> "KnownTexts":
        """The texts of a stream."""
        prints: set[int] = set()
        checksums: set[int] = set()
        for texts in chunks:
            keys = [key for key in map(text_key, texts) if key]
            prints.update(map(fingerprint, keys))
            checksums.update(_checksum(key) for key in keys if key.isascii())
        return cls(frozenset(prints), frozenset(checksums))

    def among(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts are known, whatever their case, whitespace and punctuation; (n,)."""
        may_be = [not text.isascii() or _checksum(text) in self.checksums for text in texts]
        prints = fingerprints(list(compress(texts, may_be))).tolist()
        is_known = np.array(may_be, np.bool_)
        is_known[is_known] = [found in self.prints for found in prints]
        return is_known


def _checksum(text: str) -> int:
    """Equal for ASCII texts whose letters, digits and symbols are the same, whatever their case."""
    return crc32(text.encode("ascii").translate(LOWER, NOT_COUNTED))
