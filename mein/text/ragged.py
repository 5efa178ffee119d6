"""Rows of different lengths, laid end to end in one array."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


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


def beside(rows: Ragged, others: Ragged) -> Ragged:
    """Each row with the numbers of another behind it, float32.

    >>> beside(ragged([[5, 6], [7, 8]]), ragged([[1], []])).to_lists()
    [[5.0, 6.0, 1.0], [7.0, 8.0]]
    """
    offsets = rows.offsets + others.offsets
    is_first = np.zeros(int(offsets[-1]), bool)
    starts = np.repeat(offsets[:-1] - rows.offsets[:-1], rows.lengths)
    is_first[starts + np.arange(len(rows.values))] = True
    values = np.empty(len(is_first), np.float32)
    values[is_first], values[~is_first] = rows.values, others.values
    return Ragged(values, offsets)


def parted(rows: Ragged, size: int) -> tuple[np.ndarray, Ragged]:
    """The first numbers of each row (n, size), and the rest as whole numbers: what `beside` put together."""
    if size == 0:
        return np.zeros((len(rows), 0), np.float32), rows
    at = (rows.offsets[:-1, None] + np.arange(size)).ravel()
    is_rest = np.ones(len(rows.values), bool)
    is_rest[at] = False
    rest = Ragged(rows.values[is_rest].astype(np.int32), rows.offsets - size * np.arange(len(rows) + 1))
    return rows.values[at].reshape(len(rows), size), rest


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
