"""Which fragments spoke for which label: the imitators' own p_ij, split so that the parts add up."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from mein.data.readers import Label
from mein.inference import device_of
from mein.model import Encoded, Model, mixed_logits
from mein.text.batches import pack_pieces


@dataclass(frozen=True)
class Fragment:
    """What one imitator saw at one position, and how much it moved the log-odds."""

    text: str
    window: int
    start: int
    """The first of its pieces, counted from the text's first."""
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """log p(label) - log p(alternative) = expert + sum(imitators); an imitator sums its fragments."""

    label: Label
    probability: float
    alternative: Label
    log_odds: float
    expert: float
    imitators: dict[int, float]
    """The part of each window's imitator."""
    fragments: tuple[Fragment, ...]
    """Of all windows, the strongest first; negative ones spoke for the alternative."""
    is_silent: bool
    """Whether the text says nothing, so that the odds are those of the classes in training."""

    def contribution_label(self, fragment: Fragment) -> Label:
        """The label that a fragment spoke for."""
        return self.label if fragment.contribution > 0 else self.alternative

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return asdict(self)


def explain(model: Model, text: str) -> Explanation:
    """Split the log-odds between the likeliest label and the next one into who said what."""
    documents = model.encode([text])
    z, alpha = model.expert_logits(documents), model.alpha(documents)
    logits = mixed_logits(z, alpha, model.gates)
    log_probs = model.calibrated(documents, logits, model.temperature)[0]
    second, first = np.argsort(log_probs)[-2:]
    is_silent = bool(documents.is_empty[0])
    expert = 0.0 if is_silent else float(z[0, first] - z[0, second]) / model.temperature
    fragments = () if is_silent else _fragments(model, documents, int(first), int(second))
    windows = model.imitators.windows if len(model.gates) else ()
    parts = {c: sum(f.contribution for f in fragments if f.window == c) for c in windows}
    return Explanation(
        label=model.labels.classes[first],
        probability=float(np.exp(log_probs[first])),
        alternative=model.labels.classes[second],
        log_odds=float(log_probs[first] - log_probs[second]),
        expert=expert,
        imitators=parts,
        fragments=tuple(sorted(fragments, key=lambda f: -abs(f.contribution))),
        is_silent=is_silent,
    )


@torch.no_grad()
def _fragments(model: Model, documents: Encoded, first: int, second: int) -> tuple[Fragment, ...]:
    """Every window at every position. With A = mean_j a_j and B = mean_j b_j the mean probabilities of
    the two labels, alpha[first] - alpha[second] = log A - log B = sum_j (a_j - b_j) / (J L(A, B)),
    where L is the logarithmic mean (A - B) / (log A - log B): the split is exact.
    """
    if len(model.gates) == 0 or len(documents.pieces.values) == 0:
        return ()
    device = device_of(model.imitators)
    batch = pack_pieces(documents.pieces, model.imitators.gap, device)
    log_probs = model.imitators(batch.pieces)[:, batch.document == 0]
    probs = log_probs.double().exp().cpu().numpy()  # (I, J, Y)
    spelled = model.encoder.pieces.fragments(documents.pieces.values.tolist())
    found = []
    for i, c in enumerate(model.imitators.windows):
        a, b = probs[i, :, first], probs[i, :, second]
        share = model.gates[i] / model.temperature * (a - b) / (len(a) * _log_mean(a.mean(), b.mean()))
        for j in range(len(a)):
            start = max(0, j - c)
            text = "".join(spelled[start : j + c + 1]).strip()
            found.append(Fragment(text, c, start, float(share[j])))
    return tuple(found)


def _log_mean(a: float, b: float) -> float:
    """(a - b) / (log a - log b), and a where they meet."""
    difference = float(np.log(a) - np.log(b))
    return float(a) if abs(difference) < 1e-9 else float(a - b) / difference
