"""How what an imitator moved is split over fragments.

I: imitators, J: pieces of a document, Y: classes. Fragment j of an imitator with window c holds the pieces
j - c .. j + c, those of them that the document has.
"""

from collections.abc import Sequence

import numpy as np


def fragment_shares(a: np.ndarray, b: np.ndarray, weights: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The share (I, J) of each fragment; an imitator's add up to its part (I,), exactly.

    a, b (I, J): p_ij of the two labels; weights (I,): gate over temperature, of any sign.

    With A = mean_j a_j and B = mean_j b_j, an imitator moves the log-odds by its weight times
    log A - log B = sum_j (a_j - b_j) / (J L(A, B)), where L is the logarithmic mean
    (A - B) / (log A - log B). So a fragment's share is proportional to how far it leans, a_j - b_j: what
    alpha would lose without it, to the first order, at the scale that makes the sum exact. What centring
    takes out of alpha is spread over all fragments alike: one counts for how much more it says than an
    average text does.
    """
    J = a.shape[1]
    mean = _log_mean(a.mean(axis=1), b.mean(axis=1))
    shares: np.ndarray = weights[:, None] * (a - b) / (J * mean[:, None])
    shares += ((parts - shares.sum(axis=1)) / J)[:, None]
    return shares


def strongest(shares: np.ndarray, weights: np.ndarray, count: int) -> Sequence[tuple[int, int]]:
    """The imitator and position of the fragments with the largest shares (I, J) of either sign, in order.

    Those of imitators with a negative weight come last: such an imitator corrects the others, and what
    it takes away at a fragment does not say that the fragment speaks for the other label.
    """
    corrects = np.broadcast_to(weights[:, None] < 0, shares.shape)
    order = np.lexsort((-np.abs(shares).ravel(), corrects.ravel()))[:count]
    i, j = np.unravel_index(order, shares.shape)
    return list(zip(i.tolist(), j.tolist(), strict=True))


def _log_mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(a - b) / (log a - log b), and a where they meet."""
    difference = np.log(a) - np.log(b)
    meet = np.abs(difference) < 1e-9
    return np.where(meet, a, (a - b) / np.where(meet, 1.0, difference))
