"""The gates g_i of the mixture: free ones, fitted on dev as z / tau + sum_i w_i alpha_i, or the paper's."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional

RIDGE = 0.1  # near the best of 0.001 .. 3 on ten sets of 400 to 2,000 labels (log/)
LARGEST_WEIGHT = 100.0  # of a component whose scale is 1
SMALLEST_SCALE = 0.03  # smaller ones are not normalized to 1: on long reviews components have 0.03 and more
CHANCE = 2.0  # standard errors; with one, good gates were shrunk where labels are few (log/)
LARGEST_LOG_TAU = 5.0  # the least is 0: an expert without errors on dev does not become more confident


class Gates(nn.Module, ABC):
    """g_i for each imitator, from `lam`: the paper's lambda (a keyword in Python)."""

    is_fitted: ClassVar[bool]
    """Whether `start` fits them, which evidence that is zero on train needs."""

    def __init__(self, imitators: int) -> None:
        super().__init__()
        self.lam = nn.Parameter(torch.zeros(imitators))

    @abstractmethod
    def forward(self) -> Tensor:
        """g (I,)."""

    @abstractmethod
    def start(self, logits: np.ndarray, alpha: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        """Set the gates that tuning starts from, given z (n, Y) and alpha (I, n, Y) of dev; tau."""

    @abstractmethod
    def accepts(
        self, logits: np.ndarray, before: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> bool:
        """Whether tuning is kept, given the mixture's logits (n, Y) on dev and the expert's before it."""


class FreeGates(Gates):
    """g_i = lam_i, without bounds: fitted on dev, and dropped where the mixture is worse on dev."""

    is_fitted = True

    def forward(self) -> Tensor:
        """g (I,)."""
        return self.lam

    def start(self, logits: np.ndarray, alpha: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        """Fit them on dev."""
        if not len(alpha):
            return 1.0
        gates, tau = open_gates(logits, alpha, labels, weights)
        with torch.no_grad():
            self.lam.copy_(torch.from_numpy(gates))
        return tau

    def accepts(
        self, logits: np.ndarray, before: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> bool:
        """Whether the mixture is not worse on dev."""
        return not is_worse(logits, before, labels, weights)


class SigmoidGates(Gates):
    """sigma(lam_i), within (0, 1), as in the paper: only tuning moves them."""

    is_fitted = False

    def forward(self) -> Tensor:
        """g (I,)."""
        return torch.sigmoid(self.lam)

    def start(self, logits: np.ndarray, alpha: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
        """Leave lam at 0, as the paper does."""
        return 1.0

    def accepts(
        self, logits: np.ndarray, before: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> bool:
        """Always, as the paper does."""
        return True


# By mixture.method.
GATES: dict[str, type[Gates]] = {"ours": FreeGates, "no-lexicon": FreeGates, "paper": SigmoidGates}


@dataclass(frozen=True)
class Weights:
    """The gates and the temperature of a mixture, by name, as artefacts store them."""

    gates: np.ndarray
    """g of each imitator (I,); empty where closed."""
    lexicon: float | None = None
    """The gate of the lexicon; none where there is no lexicon."""
    temperature: float = 1.0
    """Divides the sum of all logits."""
    epochs: int | None = None
    """Those that dev chose, where the network then learns again from all labels."""

    @classmethod
    def of_rows(cls, gates: np.ndarray, *, has_lexicon: bool) -> "Weights":
        """From gates for rows of evidence, in which a lexicon's row is the last."""
        return cls(gates[:-1], float(gates[-1])) if has_lexicon else cls(gates)

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "Weights":
        """The inverse of `to_facts`; ValueError for what no mixture can be computed with."""
        lexicon = facts.get("lexicon_weight")
        gates = np.array(facts["gates"], np.float64)
        found = cls(
            gates,
            None if lexicon is None else float(lexicon),
            float(facts["temperature"]),
            facts.get("epochs"),
        )
        weights = [*gates.ravel(), 0.0 if lexicon is None else float(lexicon), found.temperature]
        if gates.ndim != 1 or not np.isfinite(weights).all() or found.temperature <= 0:
            raise ValueError("its gates and its temperature must be finite numbers")
        return found

    def to_facts(self) -> dict[str, Any]:
        """Facts for JSON."""
        found: dict[str, Any] = {"gates": self.gates.tolist(), "temperature": self.temperature}
        optional = {"lexicon_weight": self.lexicon, "epochs": self.epochs}
        return found | {name: value for name, value in optional.items() if value is not None}


def fit_gates(
    logits: np.ndarray, alpha: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Gates g = tau w (I,) that minimize the log-loss of softmax(z / tau + sum_i w_i alpha_i), and tau.

    logits (n, Y), alpha (I, n, Y), labels (n,), weights of documents (n,), or none for 1 each. tau
    corrects an over-confident expert; dividing all of z + sum_i g_i alpha_i by it changes no decision, and
    calibration starts from it. A ridge regularizes w where labels are few. It applies to w_i times the
    scale of alpha_i, because over long documents alpha is small and needs large gates. Rejected: gates
    that cannot be negative, one gate for all windows, a class bias, a prior on tau (log/).
    """
    scale = _scales(alpha, _counts(labels, weights))
    z, a = torch.from_numpy(logits).double(), torch.from_numpy(alpha / scale[:, None, None]).double()
    y, counts = torch.from_numpy(labels), torch.from_numpy(_counts(labels, weights))

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        t = torch.from_numpy(theta).requires_grad_()
        log_tau, w = t[0], t[1:]
        mixed = z * (-log_tau).exp() + torch.einsum("i,iny->ny", w, a)
        loss = (counts * functional.cross_entropy(mixed, y, reduction="none")).sum() + RIDGE * (w**2).sum()
        (gradient,) = torch.autograd.grad(loss, t)
        return loss.item(), gradient.numpy()

    bounds = [(0.0, LARGEST_LOG_TAU)] + [(-LARGEST_WEIGHT, LARGEST_WEIGHT)] * len(alpha)
    found = minimize(objective, np.zeros(1 + len(alpha)), jac=True, bounds=bounds)
    tau = float(np.exp(found.x[0]))
    return tau * found.x[1:] / scale, tau


def _scales(alpha: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The scale of each component (I,): the deviation of alpha (I, n, Y), centered over Y."""
    share = counts / counts.sum()
    centered = alpha - alpha.mean(axis=2, keepdims=True, dtype=np.float64)
    centered -= np.einsum("n,iny->iy", share, centered)[:, None]
    found: np.ndarray = np.sqrt(np.einsum("n,iny->i", share, centered**2) / alpha.shape[2])
    return found.clip(min=SMALLEST_SCALE)


def open_gates(
    logits: np.ndarray, alpha: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Fitted gates (I,), shrunk where they make the mixture worse; their tau, or 1 where they were shrunk."""
    fitted, tau = fit_gates(logits, alpha, labels, weights)
    kept = shrunk(logits, alpha, labels, fitted, weights)
    return kept, tau if np.array_equal(kept, fitted) else 1.0


def shrunk(
    logits: np.ndarray,
    alpha: np.ndarray,
    labels: np.ndarray,
    gates: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """The largest of g, g / 2, g / 4 .. with which the mixture is not worse than z; 0 if none is.

    Gates are fitted by log loss, which the calibrated mixture always lowers; it is the error that must
    not rise.
    """
    for halvings in range(10):
        smaller: np.ndarray = gates * 0.5**halvings
        if not is_worse(logits + np.einsum("i,iny->ny", smaller, alpha), logits, labels, weights):
            return smaller
    return np.zeros_like(gates)


def is_worse(
    logits: np.ndarray, before: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> bool:
    """Whether logits (n, Y) have a higher error than those before, beyond chance.

    Chance is two standard errors; one is the root of the number of documents that exactly one of the two
    gets right. The expert's dev error is optimistic, because its epoch was selected there. Documents count
    by their weights.

    >>> right, wrong = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    >>> before = np.repeat(right, 10, axis=0)
    >>> [is_worse(np.concatenate([wrong] * n + [right] * (10 - n)), before, np.zeros(10)) for n in (4, 5)]
    [False, True]
    """
    is_right, was_right = logits.argmax(axis=1) == labels, before.argmax(axis=1) == labels
    counts = _counts(labels, weights)
    more = counts @ was_right - counts @ is_right
    return bool(more > CHANCE * np.sqrt(counts**2 @ (is_right != was_right)))


def _counts(labels: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The weight of each document (n,), float64."""
    return np.ones(len(labels)) if weights is None else weights.astype(np.float64)
