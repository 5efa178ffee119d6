"""One prediction taken apart: the parts of expert, lexicon and imitators, each fragment, and each piece.

I: imitators, J: pieces of a document, Y: classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from mein.data.labels import Label, Labels, listed
from mein.errors import InputError
from mein.explain.fragments import Fragment, FragmentSource, RankedFragments
from mein.explain.imitated import blanking_shares, fragments_of, window_probs
from mein.explain.layout import Layout, lay_out
from mein.explain.linear import ComponentShare, encoder_share, expert_share, lexicon_share, parts_of_row
from mein.model.model import Encoded, Model, mixed_logits
from mein.text.ragged import Ragged

EXPERT, ENCODER, LEXICON = "expert", "encoder", "lexicon"


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
class Piece:
    """One piece of the text, and how much it moved the log-odds through all components."""

    text: str
    """As it was encoded, with a space before the first piece of a word."""
    contribution: float
    parts: dict[str, float]
    """The part of the contribution that came through each component: `expert`, `encoder`, `lexicon`, or the
    window of an imitator."""
    start: int
    """Its first character in the text."""
    stop: int
    """One past its last character."""


@dataclass(frozen=True, eq=False)
class Shares:
    """The contributions of all pieces, by component, and where the pieces and words are."""

    layout: Layout
    of: dict[str, np.ndarray]
    """Of each piece (J,), by component; nothing where no component can be split."""

    def pieces(self) -> Iterator[Piece]:
        """The pieces in the order of the text."""
        if not self.of:
            return
        columns = [part.tolist() for part in self.of.values()]
        total = sum(self.of.values()).tolist()  # type: ignore[union-attr]
        places = zip(self.layout.starts.tolist(), self.layout.stops.tolist(), strict=True)
        rows = zip(self.layout.which.tolist(), total, places, *columns, strict=True)
        for which, contribution, place, *values in rows:
            parts = dict(zip(self.of, values, strict=True))
            yield Piece(self.layout.spelled[which], contribution, parts, *place)

    def by_word(self) -> dict[str, np.ndarray]:
        """The contributions of all words, by component."""
        return {name: self.layout.by_word(values) for name, values in self.of.items()}


@dataclass(frozen=True)
class Explanation:
    """log p(label) - log p(alternative) = expert + lexicon + sum(imitators), where:

    - the expert's part is its own z, and an imitator's its own alpha times its gate, both between the two
      labels and over the temperature; a lexicon's is its log p times its gate, 0 where there is none;
    - a linear expert's part is the sum of its fragments' contributions, each a word or a pair of words, of
      `encoder`, and of rest["expert"], its constant; of another expert all is rest;
    - `encoder` is what the features of a frozen encoder add to a linear expert. Its fragments are words that
      were left out, then the text was encoded again: they lost so much, which is no exact split, and
      rest["encoder"] is what they leave over;
    - the lexicon's part is the sum of its fragments' contributions, each up to three pieces, and of
      rest["lexicon"], its constant;
    - an imitator's part is the sum of its fragments' contributions; alpha is the logarithm of a mean over
      fragments, so a sum over them needs a rule: the logarithmic mean, see `fragment_shares`;
    - the contribution of a piece through expert, encoder and lexicon is its share of the fragments that hold
      it. Through an imitator it is the decrease of that part when the piece is blanked: its effect through
      all fragments that contain it, whatever the sign of the gate. What depends on no single piece is
      spread evenly. So the pieces of a text add up to each component's part without its rest.

    A text without a known word has no such parts: its log-odds are those of the classes in training.
    """

    text: str
    label: Label
    probability: float
    alternative: Label
    log_odds: float
    expert: float
    encoder: float
    """Of the expert's part, what came through the features of its encoder; 0 where there is none."""
    lexicon: float
    imitators: dict[int, float]
    """The part of each window's imitator."""
    rest: dict[str, float]
    """What no fragment accounts for, of `expert`, `encoder` and `lexicon`."""
    fragments: Sequence[Fragment]
    """The strongest first, but windows with a negative gate last; those below 0 support the alternative."""
    labels: tuple[Label, ...]
    probabilities: tuple[float, ...]
    """p(y | X) of each label."""
    is_empty: bool
    """Whether the text has no word that the run knows."""
    shares: Shares = field(repr=False, compare=False)
    """The contributions of pieces and words, as arrays."""

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """In the order of the text; none where no component can be split."""
        return tuple(self.shares.pieces())

    def contribution_label(self, fragment: Fragment) -> Label:
        """The label that a fragment supports."""
        return self.label if fragment.contribution > 0 else self.alternative

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "shares"}
        plain["fragments"] = [dict(vars(fragment)) for fragment in self.fragments]
        plain["pieces"] = [dict(vars(piece)) for piece in self.pieces]
        return plain


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
    split = _Split(model, text, documents, pair)
    of_expert = of_lexicon = 0.0
    parts = np.zeros(len(model.gates))
    if not is_empty:
        of_expert = float(_lead(z[0], first, second)) / model.temperature
        of_lexicon = float(_lead(lexicon[0], first, second)) / model.temperature
        parts = model.weights * _lead(alpha[:, 0], first, second) if len(parts) else parts
        split.take_apart(of_expert, of_lexicon, parts)
    return Explanation(
        text=text,
        label=model.labels.classes[first],
        probability=float(np.exp(log_probs[first])),
        alternative=model.labels.classes[second],
        log_odds=float(log_probs[first] - log_probs[second]),
        expert=of_expert,
        encoder=split.encoder,
        lexicon=of_lexicon,
        imitators=_by_window(model, parts),
        rest=split.rest,
        fragments=RankedFragments(split.sources),
        labels=model.labels.classes,
        probabilities=tuple(np.exp(log_probs).tolist()),
        is_empty=is_empty,
        shares=Shares(split.layout, split.of_pieces),
    )


class _Split:
    """The parts of one prediction between a pair of labels, component after component."""

    def __init__(self, model: Model, text: str, documents: Encoded, pair: tuple[int, int]) -> None:
        self.model, self.text, self.documents, self.pair = model, text, documents, pair
        self.layout = lay_out(model.indexer, text)
        self.sources: list[FragmentSource] = []
        self.of_pieces: dict[str, np.ndarray] = {}
        self.rest: dict[str, float] = {}
        self.encoder = 0.0

    def take_apart(self, expert: float, lexicon: float, imitators: np.ndarray) -> None:
        """Split the parts of expert, lexicon and imitators (I,)."""
        self._expert(expert)
        if self.model.lexicon is not None:
            pieces, scale = self.documents.pieces.values, 1 / self.model.temperature
            self._add(
                LEXICON, lexicon, lexicon_share(self.model.lexicon, self.layout, pieces, self.pair, scale)
            )
        if len(imitators):
            self._imitators(imitators)

    def _expert(self, part: float) -> None:
        weights = self.model.networks.linear_weights()
        if weights is None:
            self.rest[EXPERT] = part
            return
        scale = 1 / self.model.temperature
        features, words = parts_of_row(weights, self.documents.words)
        lead = scale * _lead(weights.features, *self.pair)
        self.encoder = float(features @ lead)
        share = expert_share(weights, self.layout, self.model, words, self.pair, scale)
        self._add(EXPERT, part - self.encoder, share)
        if self.model.indexer.reader is not None:
            found = encoder_share(self.model.indexer.reader, self.text, self.layout, features, lead)
            self._add(ENCODER, self.encoder, found)

    def _imitators(self, parts: np.ndarray) -> None:
        model, pieces = self.model, self.documents.pieces
        (probs,) = window_probs(model, pieces)
        self.sources.append(fragments_of(model, self.layout, probs, model.weights, parts, self.pair))
        found = blanking_shares(model, pieces, model.weights, parts, self.pair)
        for window, values in zip(model.windows, found, strict=True):
            every = np.zeros(len(self.layout.which))  # of a huge text only the beginning is encoded
            every[: len(values)] = values
            self.of_pieces[str(window)] = self.of_pieces.get(str(window), 0.0) + every

    def _add(self, name: str, part: float, share: ComponentShare) -> None:
        """A component with its fragments; what they leave over of its part is its rest."""
        self.sources.append(share.fragments)
        self.of_pieces[name] = share.by_piece
        self.rest[name] = part - float(share.fragments.contributions.sum())


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
        source = fragments_of(model, lay_out(model.indexer, texts[n]), probs, weights, parts, pair)
        found.append(list(RankedFragments([source])[:count]))
    return found


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
