"""Rows of different lengths, laid end to end in one array."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

LARGEST_FEATURE = float(np.finfo(np.float16).max)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i is `values[offsets[i] : offsets[i + 1]]`; `offsets` (n + 1,) are int64."""

    values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """How long each row is (n,)."""
        return np.diff(self.offsets)

    def take(self, indices: np.ndarray) -> "Ragged":
        """These rows, in this order.

        >>> ragged([[5], [], [6, 7]]).take(np.array([2, 0, 2])).to_lists()
        [[6, 7], [5], [6, 7]]
        """
        starts = self.offsets[:-1][indices]
        lengths = self.offsets[1:][indices] - starts
        offsets = offsets_of(lengths)
        source = np.repeat(starts - offsets[:-1], lengths)
        source += np.arange(len(source))
        return Ragged(self.values[source], offsets)

    def tail(self, longest: int | None) -> "Ragged":
        """The rows, each with at most its last `longest` values.

        >>> ragged([[5, 6, 7], [8]]).tail(2).to_lists()
        [[6, 7], [8]]
        """
        if longest is None or not (self.lengths > longest).any():
            return self
        return self._cut(self.offsets[1:] - np.minimum(self.lengths, longest), longest)

    def head(self, longest: int) -> "Ragged":
        """The rows, each with at most its first `longest` values.

        >>> ragged([[5, 6, 7], [8]]).head(2).to_lists()
        [[5, 6], [8]]
        """
        return self._cut(self.offsets[:-1], longest) if (self.lengths > longest).any() else self

    def _cut(self, starts: np.ndarray, longest: int) -> "Ragged":
        lengths = np.minimum(self.lengths, longest)
        offsets = offsets_of(lengths)
        source = np.repeat(starts - offsets[:-1], lengths)
        source += np.arange(len(source))
        return Ragged(self.values[source], offsets)

    def to_lists(self) -> list[list[int]]:
        """The rows as lists."""
        values, offsets = self.values.tolist(), self.offsets.tolist()
        return [values[start:stop] for start, stop in pairwise(offsets)]


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Lists of integers, end to end."""
    values = np.array([value for row in rows for value in row], np.int32)
    return Ragged(values, offsets_of([len(row) for row in rows]))


def beside(features: Ragged, words: Ragged) -> Ragged:
    """The features of each document in float16, two in a number, and its words behind them, all int32.

    All documents have equally many features. What is too large for float16 becomes its largest number.

    >>> rows = beside(Ragged(np.array([1, 0.5, -2]), np.array([0, 3])), ragged([[7, 8]]))
    >>> rows.to_lists(), [part.tolist() for part in (parted(rows, 3)[0], parted(rows, 3)[1].values)]
    ([[939539456, 49152, 7, 8]], [[[1.0, 0.5, -2.0]], [7, 8]])
    """
    n = len(features)
    F = len(features.values) // n if n else 0
    size = packed_size(F)
    packed = np.zeros((n, 2 * size), np.float16)
    packed[:, :F] = features.values.reshape(n, F).clip(-LARGEST_FEATURE, LARGEST_FEATURE)
    values = np.empty(n * size + len(words.values), np.int32)
    is_word = _are_words(size, words.lengths)
    values[~is_word], values[is_word] = packed.view(np.int32).reshape(-1), words.values
    return Ragged(values, words.offsets + size * np.arange(n + 1))


def _are_words(size: int, lengths: np.ndarray) -> np.ndarray:
    """Which numbers of rows, end to end, come after the first `size` of a row: so many as `lengths` says."""
    widths = np.full(2 * len(lengths), size)
    widths[1::2] = lengths
    return np.repeat(np.tile([False, True], len(lengths)), widths)


def packed_size(features: int) -> int:
    """How many numbers of a row so many features take."""
    return -(-features // 2)


def parted(rows: Ragged, features: int) -> tuple[np.ndarray, Ragged]:
    """The features (n, F) of each document, float32, and its words: what `beside` put together."""
    if features == 0:
        return np.zeros((len(rows), 0), np.float32), rows
    size = packed_size(features)
    is_word = _are_words(size, rows.lengths - size)
    words = Ragged(rows.values[is_word], rows.offsets - size * np.arange(len(rows) + 1))
    packed = rows.values[~is_word].reshape(len(rows), size)
    return packed.view(np.float16)[:, :features].astype(np.float32), words


def concatenate(parts: Iterable[Ragged]) -> Ragged:
    """The rows of all parts, one after another; their offsets start at 0."""
    parts = list(parts) or [ragged([])]
    values = [part.values[part.offsets[0] : part.offsets[-1]] for part in parts]
    lengths = [part.lengths for part in parts]
    return Ragged(np.concatenate(values), offsets_of(np.concatenate(lengths)))


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where rows of these lengths start, and where the last one ends (n + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
