"""One prediction taken apart: the parts of the expert, each imitator, each fragment, and each piece.

I: imitators, J: pieces of a document, Y: classes. Fragment j of an imitator with window c holds the pieces
j - c .. j + c, as far as the document has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from mein.data.labels import Label, Labels, listed
from mein.errors import InputError
from mein.model.model import Model, mixed_logits
from mein.text.indexer import Spelled, spelled_pieces
from mein.text.ragged import Ragged


def two_labels(
    labels: Labels, log_probs: np.ndarray, label: Label | None, against: Label | None
) -> tuple[int, int]:
    """The ids of a label and its alternative; by default the most probable ones of log_probs (Y,)."""
    ranked = np.argsort(-log_probs, kind="stable").tolist()
    second = None if against is None else _id_of(labels, against)
    first = next(i for i in ranked if i != second) if label is None else _id_of(labels, label)
    if second is None:
        second = next(i for i in ranked if i != first)
    if first == second:
        raise InputError(f"The label {label!r} cannot be compared with itself: give another one.")
    return first, second


def _id_of(labels: Labels, label: Label) -> int:
    known = [str(name) for name in labels.classes]
    if str(label) not in known:
        raise InputError(f"The run has no label {label!r}: choose among {listed(known)}.")
    return known.index(str(label))


@dataclass(frozen=True)
class Fragment:
    """The input of one imitator at one position, and how much it moved the log-odds."""

    text: str
    window: int
    start: int
    """The first of its pieces, counted from the text's first."""
    stop: int
    """One past the last of its pieces."""
    contribution: float
    """Its share of its imitator's part; positive for the label, negative for the alternative."""
    probabilities: tuple[float, ...]
    """p_ij: the imitator's prediction for this fragment, in the order of `Explanation.labels`. Where the
    gate is negative, a fragment that the imitator assigns to one label supports the other."""


@dataclass(frozen=True)
class Piece:
    """One piece of the text, and how much it moved the log-odds through all windows that contain it."""

    text: str
    """As it was encoded, with a space before the first piece of a word."""
    contribution: float
    windows: dict[int, float]
    """The part of the contribution that came through each window."""
    start: int
    """Its first character in the text."""
    stop: int
    """One past its last character."""


@dataclass(frozen=True)
class Explanation:
    """log p(label) - log p(alternative) = expert + lexicon + sum(imitators), where:

    - the expert's part is its own z, and an imitator's its own alpha times its gate, both between the two
      labels and over the temperature; a lexicon's is its log p times its gate, 0 where there is none;
    - an imitator's part is the sum of its fragments' contributions; alpha is the logarithm of a mean over
      fragments, so a sum over them needs a rule: the logarithmic mean, see `fragment_shares`;
    - a piece's contribution is the decrease of the imitators' part when that piece is blanked: its effect
      through all fragments that contain it, of all windows, whatever the signs of their gates. The rest,
      which depends on no single piece, is spread evenly, so that the pieces of a text add up to the
      imitators' part, and in `Piece.windows` to the part of each imitator.

    A text without a known word has no such parts: its log-odds are those of the classes in training.
    """

    text: str
    label: Label
    probability: float
    alternative: Label
    log_odds: float
    expert: float
    lexicon: float
    imitators: dict[int, float]
    """The part of each window's imitator."""
    fragments: tuple[Fragment, ...]
    """The strongest first, but windows with a negative gate last; those below 0 support the alternative."""
    pieces: tuple[Piece, ...]
    """In the order of the text; none where no imitator has a gate."""
    labels: tuple[Label, ...]
    probabilities: tuple[float, ...]
    """p(y | X) of each label."""
    is_empty: bool
    """Whether the text has no word that the run knows."""

    def contribution_label(self, fragment: Fragment) -> Label:
        """The label that a fragment supports."""
        return self.label if fragment.contribution > 0 else self.alternative

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return asdict(self)


def explain(model: Model, text: str, label: Label | None = None, against: Label | None = None) -> Explanation:
    """Split the log-odds between two labels into the parts of the components.

    The default of `label` is the most probable label, that of `against` the most probable of the others.
    """
    documents = model.encode([text])
    z, alpha = model.expert_logits(documents).astype(np.float64), model.alpha(documents)
    lexicon = np.zeros_like(z) if model.lexicon is None else model.lexicon.logits(documents.pieces)
    mixed = mixed_logits(z, alpha, model.gates) + lexicon
    log_probs = model.calibrated(documents, mixed, model.temperature)[0]
    pair = first, second = two_labels(model.labels, log_probs, label, against)
    is_empty = bool(documents.is_empty[0])
    has_imitators = len(model.gates) > 0 and not is_empty
    weights = model.gates / model.temperature
    parts = weights * _lead(alpha[:, 0], first, second) if has_imitators else np.zeros(len(weights))
    evidence, blanked = None, np.zeros((0, 0))
    if has_imitators:
        (probs,) = window_probs(model, documents.pieces)
        evidence = _evidence(model, text, probs, weights, parts, pair)
        blanked = blanking_shares(model, documents.pieces, weights, parts, pair)
    return Explanation(
        text=text,
        label=model.labels.classes[first],
        probability=float(np.exp(log_probs[first])),
        alternative=model.labels.classes[second],
        log_odds=float(log_probs[first] - log_probs[second]),
        expert=0.0 if is_empty else float(_lead(z[0], first, second)) / model.temperature,
        lexicon=0.0 if is_empty else float(_lead(lexicon[0], first, second)) / model.temperature,
        imitators=_by_window(model, parts),
        fragments=() if evidence is None else tuple(evidence.fragments(evidence.shares.size)),
        pieces=() if evidence is None else tuple(_pieces(model, evidence, blanked)),
        labels=model.labels.classes,
        probabilities=tuple(np.exp(log_probs).tolist()),
        is_empty=is_empty,
    )


def top_fragments(
    model: Model,
    texts: Sequence[str],
    pieces: Ragged,
    alpha: np.ndarray,
    log_probs: np.ndarray,
    weights: np.ndarray,
    count: int,
) -> list[list[Fragment]]:
    """The strongest fragments of each document, between its two most probable labels, as in `explain`.

    alpha (I, n, Y), log_probs (n, Y); weights (I,): gate over temperature.
    """
    found: list[list[Fragment]] = []
    for n, probs in enumerate(window_probs(model, pieces)):
        pair = two_labels(model.labels, log_probs[n], None, None)
        parts = weights * _lead(alpha[:, n], *pair)
        found.append(_evidence(model, texts[n], probs, weights, parts, pair).fragments(count))
    return found


def window_probs(model: Model, pieces: Ragged) -> Iterator[np.ndarray]:
    """p_ij (I, J, Y), float64, of one document after another."""
    for rows, _, document, probs in model.networks.window_probs(pieces):
        of_documents = np.ascontiguousarray(probs[:, document >= 0])
        yield from np.split(of_documents, np.cumsum(pieces.lengths[rows])[:-1], axis=1)


@dataclass(frozen=True)
class _Evidence:
    """The imitators' evidence on one document."""

    windows: tuple[int, ...]
    pieces: list[Spelled]
    probs: np.ndarray
    """p_ij (I, J, Y)."""
    shares: np.ndarray
    """Of each fragment (I, J)."""
    weights: np.ndarray
    """Gate over temperature of each imitator (I,)."""

    def fragments(self, count: int) -> list[Fragment]:
        """The strongest ones."""
        return [self._fragment(i, j) for i, j in strongest(self.shares, self.weights, count)]

    def _fragment(self, i: int, j: int) -> Fragment:
        c, J = self.windows[i], self.shares.shape[1]
        start, stop = max(0, j - c), min(J, j + c + 1)
        text = "".join(letters for letters, _, _ in self.pieces[start:stop]).strip()
        probabilities = tuple(self.probs[i, j].tolist())
        return Fragment(text, c, start, stop, float(self.shares[i, j]), probabilities)


def _evidence(
    model: Model,
    text: str,
    probs: np.ndarray,
    weights: np.ndarray,
    parts: np.ndarray,
    pair: tuple[int, int],
) -> _Evidence:
    """Split the parts (I,) of imitators between two labels, given their p_ij (I, J, Y) on the pieces."""
    a, b = (probs[:, :, label] for label in pair)
    J = probs.shape[1]
    shares = fragment_shares(a, b, weights, parts) if J else np.zeros(probs.shape[:2])
    pieces = list(islice(spelled_pieces(model.indexer, text), J))  # of a huge text, those that were encoded
    return _Evidence(model.windows, pieces, probs, shares, weights)


def blanking_shares(
    model: Model, pieces: Ragged, weights: np.ndarray, parts: np.ndarray, pair: tuple[int, int]
) -> np.ndarray:
    """The effect of each piece through each imitator (I, J), adding up to the parts (I,)."""
    falls = piece_falls(model, pieces, *pair)
    rest = (parts - falls.sum(axis=1)) / max(1, falls.shape[1])
    shares: np.ndarray = falls + rest[:, None]
    return shares


def _pieces(model: Model, evidence: _Evidence, shares: np.ndarray) -> Iterator[Piece]:
    """The pieces of a text with their shares (I, J)."""
    for j, (letters, start, stop) in enumerate(evidence.pieces):
        yield Piece(letters, float(shares[:, j].sum()), _by_window(model, shares[:, j]), start, stop)


def _by_window(model: Model, values: np.ndarray) -> dict[int, float]:
    """Values (I,), or none, by window; imitators of the same window are added."""
    found: dict[int, float] = {}
    for window, value in zip(model.windows, values.tolist(), strict=False):
        found[window] = found.get(window, 0.0) + value
    return found


def _lead(values: np.ndarray, first: int, second: int) -> np.ndarray:
    """By how much the first label leads the second, of values (..., Y)."""
    lead: np.ndarray = values[..., first].astype(np.float64) - values[..., second]
    return lead


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


def strongest(shares: np.ndarray, weights: np.ndarray, count: int) -> Sequence[tuple[int, int]]:
    """The imitator and position of the fragments with the largest shares (I, J) of either sign, in order.

    Those of imitators with a negative weight come last: such an imitator corrects the others, and a
    negative share of its fragment does not mean that the fragment supports the other label.
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
    """The decrease of the imitators' log-odds of label a over b when each piece is blanked (J,)."""
    scores: np.ndarray = piece_falls(model, pieces, a, b).sum(0)
    return scores


def piece_falls(model: Model, pieces: Ragged, a: int, b: int) -> np.ndarray:
    """The same for each imitator (I, J), times its weight.

    Pieces (1, J) of one document. Blanking piece t changes p_ij only for |j - t| <= c_i, so it is enough
    to evaluate, for every t, the 4 gap + 1 pieces around it. Of the labels only two: p is (I, J, 2).
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
