"""The split of labeled documents into training and dev; equal, empty, and known texts."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from zlib import crc32

import numpy as np
import numpy.typing as npt

from mein.errors import ConfigError
from mein.runtime.seeds import numpy_generator

NOT_A_WORD = re.compile(r"\W+")
SYMBOLS = {"Sc", "Sm", "So", "Cn"}  # categories of Unicode; an emoji newer than this Python is Cn
ASCII_SYMBOLS = "$+<=>|~"  # not ^ and `, which are accents or quotation marks
ASCII_WORDS = {code: " " for code in range(128) if NOT_A_WORD.fullmatch(chr(code))}
ASCII_SPACES = {code: " " for code in ASCII_WORDS if chr(code) not in ASCII_SYMBOLS}


def word_string(text: str) -> str:
    """The case-folded words of a text with single spaces between. Published data are drawn by it.

    >>> word_string("Not  BAD,\\nat all! +1")
    'not bad at all 1'
    """
    if text.isascii():  # the same, three times faster
        return " ".join(text.lower().translate(ASCII_WORDS).split())
    return NOT_A_WORD.sub(" ", text.casefold()).strip()


class _Signs(dict[int, str | None]):
    """What each character contributes to a text's key: itself, a word, a space, or nothing."""

    def __missing__(self, code: int) -> str | None:
        sign = chr(code)
        kind = unicodedata.category(sign)
        found: str | None = " "
        if kind in SYMBOLS:
            found = f" {sign} "
        elif sign.isalnum() or sign == "_":
            found = sign
        elif kind[0] == "M":  # part of a word, except what chooses between two forms of an emoji
            found = None if "VARIATION SELECTOR" in unicodedata.name(sign, "") else sign
        self[code] = found
        return found


SIGNS = _Signs()


def text_key(text: str) -> str:
    """What equal texts share: their words, whatever the case, and symbols, with single spaces between.

    White space and punctuation do not count, unless there is nothing else.

    >>> text_key("Not  BAD,\\nat all! +1"), text_key(" ?! ")
    ('not bad at all + 1', '?!')
    """
    if text.isascii():  # the same, four times faster
        words = text.lower().translate(ASCII_SPACES)
        for sign in ASCII_SYMBOLS:
            words = words.replace(sign, f" {sign} ")
    else:
        words = text.casefold().translate(SIGNS)
    return " ".join(words.split()) or " ".join(text.split())


def only_texts(keys: Sequence[str], labels: Iterable[int]) -> set[str]:
    """The texts, by their keys, that are the only one of a class."""
    keys_of: dict[int, set[str]] = {}
    for key, label in zip(keys, labels, strict=True):
        keys_of.setdefault(label, set()).add(key)
    return {key for found in keys_of.values() if len(found) == 1 for key in found}


def fingerprint(key: str) -> int:
    """A 64-bit hash of a key; only the empty key has 0."""
    if not key:
        return 0
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def fingerprints(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Hashes that are equal where texts differ in case, whitespace or punctuation only; (n,)."""
    return np.array([fingerprint(text_key(text)) for text in texts], dtype=np.uint64)


def empty_texts(texts: Iterable[str]) -> int:
    """How many texts hold nothing but white space."""
    return sum(not text or text.isspace() for text in texts)


def dev_size(labeled: int, fraction: float | None) -> int:
    """How many of the labeled documents go to dev: a quarter; from 2,000 on 500; from 5,000 on a tenth.

    >>> [dev_size(labeled, None) for labeled in (300, 2_000, 5_000, 25_000)], dev_size(1_000, 0.1)
    ([75, 500, 500, 2500], 100)
    """
    if fraction is None:
        return min(labeled // 4, max(labeled // 10, 500))
    if not 0 <= fraction < 1:
        raise ConfigError(f"The dev fraction is {fraction}; give a number from 0 to below 1.")
    # subtle: (1 - 0.9) * 10 is 0.9999999999999998 in floating point
    return labeled - int((1 - fraction) * labeled + 1e-9)


def split_dev(
    label_ids: npt.NDArray[np.int64], fraction: float | None, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sorted indices of train and dev, each class in proportion and never absent from train."""
    generator = numpy_generator(seed, "dev split")
    _, inverse, counts = np.unique(label_ids, return_inverse=True, return_counts=True)
    quotas = _quotas(counts, dev_size(len(label_ids), fraction))
    parts = [
        generator.permutation(np.flatnonzero(inverse == position))[:quota]
        for position, quota in enumerate(quotas)
    ]
    dev = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))
    train = np.setdiff1d(np.arange(len(label_ids), dtype=np.int64), dev)
    return train, dev


def _quotas(counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Shares of `size` by largest remainder; every class keeps one document in train."""
    most = counts - 1
    exact = counts * (size / max(int(counts.sum()), 1))
    quotas: npt.NDArray[np.int64] = np.minimum(np.floor(exact).astype(np.int64), most)
    while quotas.sum() < min(size, most.sum()):
        lack = np.where(quotas < most, exact - quotas, -np.inf)
        quotas[int(np.argmax(lack))] += 1
    return quotas


LOWER = bytes(range(256)).lower()
NOT_COUNTED = bytes(ASCII_SPACES)


@dataclass(frozen=True)
class KnownTexts:
    """Texts by their fingerprints, without empty ones.

    `checksums`: of the letters and symbols of each that an ASCII text can equal. A text whose checksum is
    not among them is not known; for the others the fingerprint decides, which takes eight times as long.
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
