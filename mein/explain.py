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
    stop: int
    """One past the last of its pieces."""
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """log p(label) - log p(alternative) = expert + sum(imitators); an imitator sums its fragments.

    A text that says nothing has no such parts: its log-odds are those of the classes in training.
    """

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
    """Whether the text says nothing."""

    def contribution_label(self, fragment: Fragment) -> Label:
        """The label that a fragment spoke for."""
        return self.label if fragment.contribution > 0 else self.alternative

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return asdict(self)


def explain(model: Model, text: str) -> Explanation:
    """Split the log-odds between the likeliest label and the next one into who said what."""
    documents = model.encode([text])
    z, alpha = model.expert_logits(documents).astype(np.float64), model.alpha(documents)
    log_probs = model.calibrated(documents, mixed_logits(z, alpha, model.gates), model.temperature)[0]
    first, second = np.argsort(-log_probs, kind="stable")[:2].tolist()
    is_silent = bool(documents.is_empty[0])
    fragments: list[Fragment] = []
    parts = dict.fromkeys(model.imitators.windows if len(model.gates) else (), 0.0)
    for i, probs in enumerate(() if is_silent or not parts else _window_probs(model, documents)):
        lead = float(alpha[i, 0, first]) - float(alpha[i, 0, second])
        part = float(model.gates[i]) * lead / model.temperature
        parts[model.imitators.windows[i]] += part
        fragments += _fragments(model, documents, i, probs[:, first], probs[:, second], part)
    return Explanation(
        label=model.labels.classes[first],
        probability=float(np.exp(log_probs[first])),
        alternative=model.labels.classes[second],
        log_odds=float(log_probs[first] - log_probs[second]),
        expert=0.0 if is_silent else float(z[0, first] - z[0, second]) / model.temperature,
        imitators=parts,
        fragments=tuple(sorted(fragments, key=lambda f: -abs(f.contribution))),
        is_silent=is_silent,
    )


@torch.no_grad()
def _window_probs(model: Model, documents: Encoded) -> np.ndarray:
    """p_ij (I, J, Y) of a single document."""
    batch = pack_pieces(documents.pieces, model.imitators.gap, device_of(model.imitators))
    log_probs = model.imitators(batch.pieces)[:, batch.document == 0]
    probs: np.ndarray = log_probs.double().exp().cpu().numpy()
    return probs


def _fragments(
    model: Model, documents: Encoded, i: int, a: np.ndarray, b: np.ndarray, total: float
) -> list[Fragment]:
    """What imitator i said at every position, adding up to `total`; a (J,) and b (J,) are of two labels.

    With A = mean_j a_j and B = mean_j b_j, alpha[first] - alpha[second] = log A - log B
    = sum_j (a_j - b_j) / (J L(A, B)), where L is the logarithmic mean (A - B) / (log A - log B).
    What centring takes out of alpha is spread over all positions alike: a fragment counts for how much
    more it says than an average text does.
    """
    J, c = len(a), model.imitators.windows[i]
    if J == 0:
        return []
    share = model.gates[i] / model.temperature * (a - b) / (J * _log_mean(a.mean(), b.mean()))
    share += (total - share.sum()) / J
    spelled = model.encoder.pieces.fragments(documents.pieces.values.tolist())
    spans = [(max(0, j - c), min(J, j + c + 1)) for j in range(J)]
    return [
        Fragment("".join(spelled[start:stop]).strip(), c, start, stop, float(share[j]))
        for j, (start, stop) in enumerate(spans)
    ]


def _log_mean(a: float, b: float) -> float:
    """(a - b) / (log a - log b), and a where they meet."""
    difference = float(np.log(a) - np.log(b))
    return float(a) if abs(difference) < 1e-9 else float(a - b) / difference
