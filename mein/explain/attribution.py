"""How what an imitator moved is split over fragments, and what blanking a piece costs.

I: imitators, J: pieces of a document, Y: classes. Fragment j of an imitator with window c holds the pieces
j - c .. j + c, those of them that the document has.
"""

from collections.abc import Sequence

import numpy as np

from mein.model.model import Model
from mein.text.ragged import Ragged


def fragment_shares(a: np.ndarray, b: np.ndarray, weights: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The share (I, J) of each fragment; an imitator's add up to its part (I,), exactly.

    a, b (I, J): p_ij of the two labels; weights (I,): gate over temperature, of any sign.

    With A = mean_j a_j and B = mean_j b_j, an imitator moves the log-odds by its weight times
    log A - log B = sum_j (a_j - b_j) / (J L(A, B)), where L is the logarithmic mean
    (A - B) / (log A - log B). So a fragment's share is proportional to how far it leans, a_j - b_j: what
    alpha would lose without it, to the first order, at the scale that makes the sum exact. What centering
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


def piece_scores(model: Model, pieces: Ragged, a: int, b: int) -> np.ndarray:
    """By how much the imitators' log-odds of label a over b fall when each piece is blanked (J,)."""
    scores: np.ndarray = piece_falls(model, pieces, a, b).sum(0)
    return scores


def piece_falls(model: Model, pieces: Ragged, a: int, b: int) -> np.ndarray:
    """The same for each imitator (I, J), times its weight.

    Pieces (1, J) of one document. Blanking piece t changes p_ij only for |j - t| <= c_i, so it is enough
    to read, for every t, the 4 gap + 1 pieces around it. Not of every label: p is (I, J, 2).
    """
    J, gap = int(pieces.lengths[0]), max(model.windows, default=0)
    if J == 0:
        return np.zeros((len(model.weights), 0))
    p = _probs_of_pair(model, pieces, a, b)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(pieces.values, 2 * gap), 4 * gap + 1).copy()
    around[:, 2 * gap] = 0
    rows = Ragged(around.ravel(), np.arange(J + 1, dtype=np.int64) * (4 * gap + 1))
    blanked = _probs_of_pair(model, rows, a, b).reshape(len(p), J, 4 * gap + 1, 2)
    blanked = blanked[:, :, gap : 3 * gap + 1]  # (I, J, 2 gap + 1, 2)
    near = np.arange(J)[:, None] + np.arange(-gap, gap + 1)
    inside = ((near >= 0) & (near < J))[:, :, None]
    change = ((blanked - p[:, np.clip(near, 0, J - 1)]) * inside).sum(2)  # (I, J, 2)
    total = p.sum(1, keepdims=True)
    before, after = np.log(total), np.log(np.maximum(total + change, np.finfo(np.float64).tiny))
    fall = (before[..., 0] - before[..., 1]) - (after[..., 0] - after[..., 1])
    falls: np.ndarray = model.weights[:, None] * fall
    return falls


def _probs_of_pair(model: Model, pieces: Ragged, a: int, b: int) -> np.ndarray:
    """p_ij (I, S, 2) of two labels at the pieces of all documents."""
    batches = model.networks.window_probs(pieces)
    return np.concatenate([p[:, document >= 0][:, :, [a, b]] for _, _, document, p in batches], axis=1)
