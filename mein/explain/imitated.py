"""The imitators' part of a prediction: shares of fragments, by p_ij, and of pieces, by blanking each.

I: imitators, J: pieces of a document, Y: classes. Fragment j of an imitator with window c holds the pieces
j - c .. j + c, as far as the document has them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mein.explain.fragments import CORRECTS, POSITIVE, SILENT, Fragment
from mein.explain.layout import Layout
from mein.model.model import Model
from mein.text.ragged import Ragged


def window_probs(model: Model, pieces: Ragged) -> Iterator[np.ndarray]:
    """p_ij (I, J, Y), float64, of one document after another."""
    for rows, _, document, probs in model.networks.window_probs(pieces):
        of_documents = np.ascontiguousarray(probs[:, document >= 0])
        yield from np.split(of_documents, np.cumsum(pieces.lengths[rows])[:-1], axis=1)


@dataclass(frozen=True, eq=False)
class WindowFragments:
    """The fragments of all imitators on one document."""

    windows: tuple[int, ...]
    layout: Layout
    probs: np.ndarray
    """p_ij (I, J, Y)."""
    shares: np.ndarray
    """Of each fragment (I, J)."""
    weights: np.ndarray
    """Gate over temperature of each imitator (I,)."""

    @cached_property
    def contributions(self) -> np.ndarray:
        """Of each fragment (I J,)."""
        return self.shares.reshape(-1)

    @cached_property
    def ranks(self) -> np.ndarray:
        """Of each fragment (I J,)."""
        of_imitator = np.where(self.weights > 0, POSITIVE, np.where(self.weights < 0, CORRECTS, SILENT))
        return np.repeat(of_imitator, self.shares.shape[1])

    def fragment(self, k: int) -> Fragment:
        """The one of that number."""
        J = self.shares.shape[1]
        i, j = divmod(k, J)
        c = self.windows[i]
        start, stop = max(0, j - c), min(J, j + c + 1)
        return Fragment(
            self.layout.letters(start, stop).strip(),
            "imitator",
            c,
            start,
            stop,
            float(self.shares[i, j]),
            probabilities=tuple(self.probs[i, j].tolist()),
        )


def fragments_of(
    model: Model,
    layout: Layout,
    probs: np.ndarray,
    weights: np.ndarray,
    parts: np.ndarray,
    pair: tuple[int, int],
) -> WindowFragments:
    """Split the parts (I,) of imitators between two labels, given their p_ij (I, J, Y) on the pieces."""
    a, b = (probs[:, :, label] for label in pair)
    shares = fragment_shares(a, b, weights, parts) if probs.shape[1] else np.zeros(probs.shape[:2])
    return WindowFragments(model.windows, layout, probs, shares, weights)


def fragment_shares(a: np.ndarray, b: np.ndarray, weights: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The share (I, J) of each fragment; an imitator's add up to its part (I,), exactly.

    a, b (I, J): p_ij of the two labels; weights (I,): gate over temperature, of any sign.

    With A = mean_j a_j and B = mean_j b_j, an imitator moves the log-odds by its weight times
    log A - log B = sum_j (a_j - b_j) / (J L(A, B)), where L is the logarithmic mean
    (A - B) / (log A - log B). So a fragment's share is proportional to a_j - b_j: what alpha would lose
    without it, to the first order, at the scale that makes the sum exact. What centering subtracts from
    alpha is spread evenly over all fragments: each counts relative to an average text.
    """
    J = a.shape[1]
    mean = _log_mean(a.mean(axis=1), b.mean(axis=1))
    shares: np.ndarray = weights[:, None] * (a - b) / (J * mean[:, None])
    shares += ((parts - shares.sum(axis=1)) / J)[:, None]
    return shares


def _log_mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(a - b) / (log a - log b), and a where they meet."""
    difference = np.log(a) - np.log(b)
    meet = np.abs(difference) < 1e-9
    return np.where(meet, a, (a - b) / np.where(meet, 1.0, difference))


def blanking_shares(
    model: Model, pieces: Ragged, weights: np.ndarray, parts: np.ndarray, pair: tuple[int, int]
) -> np.ndarray:
    """The effect of each piece through each imitator (I, J), adding up to the parts (I,)."""
    falls = piece_falls(model, pieces, *pair)
    rest = (parts - falls.sum(axis=1)) / max(1, falls.shape[1])
    shares: np.ndarray = falls + rest[:, None]
    return shares


def piece_scores(model: Model, pieces: Ragged, a: int, b: int) -> np.ndarray:
    """The decrease of the imitators' log-odds of label a over b when each piece is blanked (J,)."""
    scores: np.ndarray = piece_falls(model, pieces, a, b).sum(0)
    return scores


def piece_falls(model: Model, pieces: Ragged, a: int, b: int) -> np.ndarray:
    """The same for each imitator (I, J), times its weight; pieces (1, J) of one document."""
    if not pieces.lengths[0]:
        return np.zeros((len(model.weights), 0))
    total, change = model.networks.blanked(pieces.values, (a, b))
    before, after = np.log(total), np.log(np.maximum(total[:, None] + change, np.finfo(np.float64).tiny))
    fall = (before[..., 0] - before[..., 1])[:, None] - (after[..., 0] - after[..., 1])
    falls: np.ndarray = model.weights[:, None] * fall
    return falls
