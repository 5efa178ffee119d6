"""Metrics and calibration: error, F1, log loss, reliability, temperature.

`METRICS` is the registry: a metric that is added there is measured, recorded, and shown in every table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from mein.errors import InputError

MIN_TEMPERATURE = 0.05
MAX_TEMPERATURE = 1_000.0
BINS = 15
GRID = 60


@dataclass(frozen=True)
class Reliability:
    """One entry for each bin of confidence; an empty bin holds zeros."""

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    count: NDArray[np.int64]


@dataclass(frozen=True)
class RiskCoverage:
    """The error (in %) on the most confident share `coverage` of the documents, for every share."""

    coverage: NDArray[np.float64]
    error: NDArray[np.float64]


def apply_temperature(logits: NDArray[np.floating], temperature: float) -> NDArray[np.float64]:
    """Log-probabilities of logits divided by the temperature: (n, Y) -> (n, Y) float64."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    log_probs: NDArray[np.float64] = log_softmax(scaled, axis=1)
    return log_probs


def fit_temperature(
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
    usual: float = 1.0,
    weights: NDArray[np.floating] | None = None,
) -> float:
    """The temperature T under which the labels of a dev set are most probable.

    Minimizes  mean_n -log softmax(z_n / T)[y_n]  +  (log T - log usual)^2 / 2n  over T in [0.05, 1000].
    The second term is a normal prior on log T, whose weight does not grow with n. It matters where every
    dev document is classified correctly: there the likelihood alone would push T to the lower bound and
    make the classifier certain of everything, and the prior keeps T near the usual one.

    The labels are never less probable than at the usual T, which has no prior cost and stays a candidate;
    without documents it is the result. Sizes: logits (n, Y), labels (n,), weights (n,); n is the sum of
    the weights.
    """
    counts = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    n, start, rows = counts.sum(), math.log(usual), np.arange(len(labels))
    if n == 0:
        return usual

    def cost(log_T: float) -> float:
        log_probs = apply_temperature(logits, math.exp(log_T))[rows, labels]
        return float(-(counts @ log_probs) / n + (log_T - start) ** 2 / (2 * n))

    grid = np.linspace(math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE), GRID)  # there may be two minima
    best = int(np.argmin([cost(log_T) for log_T in grid]))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)])
    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x) if found.fun < cost(start) else usual


def reliability(log_probs: NDArray[np.float64], labels: NDArray[np.integer], bins: int = BINS) -> Reliability:
    """Mean confidence and accuracy of the predicted class, by confidence.

    Bin b holds the confidences in (b / bins, (b + 1) / bins].
    """
    confidence, correct = _confidence(log_probs), log_probs.argmax(axis=1) == labels
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    size = np.maximum(count, 1)
    return Reliability(
        confidence=np.bincount(bin_of, weights=confidence, minlength=bins) / size,
        accuracy=np.bincount(bin_of, weights=correct, minlength=bins) / size,
        count=count,
    )


def risk_coverage(log_probs: NDArray[np.float64], labels: NDArray[np.integer]) -> RiskCoverage:
    """How the error grows as less and less confident documents are answered.

    Documents of equal confidence enter together, so their order in the file does not matter.
    """
    confidence, wrong = _confidence(log_probs), log_probs.argmax(axis=1) != labels
    order = np.argsort(-confidence, kind="stable")
    answered = np.arange(1, len(order) + 1)
    is_last_of_equals = np.append(np.diff(confidence[order]) != 0, True)[: len(order)]
    error = 100 * np.cumsum(wrong[order]) / answered
    return RiskCoverage((answered / len(order))[is_last_of_equals], error[is_last_of_equals])


def _confidence(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    confidence: NDArray[np.float64] = np.exp(log_probs.max(axis=1))
    return confidence


SMALLEST_LOG_PROB = float(np.log(np.finfo(np.float64).tiny))  # about -708


def error_rate(predicted: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Share of documents given a wrong class, in %."""
    return float(100 * np.mean(predicted != labels))


def macro_f1(predicted: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Mean of F1 = 2 TP / (2 TP + FP + FN) over the classes among the labels or the predictions.

    A class in neither is left out: it has no F1. A class in only one of the two counts as 0.
    """
    classes = max(int(predicted.max()), int(labels.max())) + 1
    true_positives = np.bincount(labels[predicted == labels], minlength=classes)
    # 2 TP + FP + FN: a true positive is counted once among the labels, once among the predictions.
    named = np.bincount(labels, minlength=classes) + np.bincount(predicted, minlength=classes)
    occurs = named > 0
    return float(np.mean(2 * true_positives[occurs] / named[occurs]))


def log_loss(log_probs: NDArray[np.float64], labels: NDArray[np.integer]) -> float:
    """Mean negative log-probability of the right class, in nats.

    A probability of 0 counts as the smallest double, so that one document cannot make it infinite.
    """
    of_label = log_probs[np.arange(len(labels)), labels]
    return float(-np.maximum(of_label, SMALLEST_LOG_PROB).mean())


def calibration_error(log_probs: NDArray[np.float64], labels: NDArray[np.integer]) -> float:
    """Expected calibration error (ECE): sum_b (n_b / n) |accuracy_b - confidence_b|.

    The bins b are 15 equal intervals of the probability of the predicted class, closed at the top.
    """
    bins = reliability(log_probs, labels)
    return float(bins.count @ np.abs(bins.accuracy - bins.confidence) / len(labels))


def percent(value: float, documents: int) -> str:
    """One decimal, or two where there are enough documents for the second to mean something."""
    return f"{value:.1f}" if documents < 5_000 else f"{value:.2f}"


def _three_decimals(value: float, documents: int) -> str:
    return f"{value:.3f}"


@dataclass(frozen=True)
class Metric:
    """One score of a classifier, and how tables show it."""

    name: str
    """In metrics.jsonl."""
    title: str
    """In tables."""
    measure: Callable[[NDArray[np.float64], NDArray[np.integer]], float]
    """From log-probabilities (n, Y) and label ids (n,)."""
    text: Callable[[float, int], str] = _three_decimals
    """From the value and the number of documents."""
    short_title: str | None = None
    """In the terminal's table, where it is broken at its spaces."""
    note: str | None = None
    """Below a table, where the title needs one."""
    hub_type: str | None = None
    """What the Hugging Face hub calls it, if not by its name."""


ERROR = "error"
METRICS = {
    metric.name: metric
    for metric in (
        Metric(ERROR, "error, %", lambda p, y: error_rate(p.argmax(axis=1), y), percent, "error %"),
        Metric("macro_f1", "macro F1", lambda p, y: macro_f1(p.argmax(axis=1), y), hub_type="f1"),
        Metric("log_loss", "log loss", log_loss),
        Metric(
            "calibration_error",
            "calibration error",
            calibration_error,
            short_title="calib. error",
            note="calibration: ECE, 15 bins",
            hub_type="expected_calibration_error",
        ),
    )
}
"""Every metric by name, in the order of the tables."""


def metrics_beside_error() -> list[Metric]:
    """All metrics but the error, which tables show with its interval."""
    return [metric for name, metric in METRICS.items() if name != ERROR]


@dataclass(frozen=True)
class Scores:
    """The value of every metric on one set of documents."""

    values: dict[str, float]
    documents: int

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    @property
    def error(self) -> float:
        """Share of documents given a wrong class, in %."""
        return self.values[ERROR]

    def text(self, metric: Metric) -> str:
        """The value of a metric as tables show it; nothing in a run of before the metric."""
        return "" if metric.name not in self.values else metric.text(self.values[metric.name], self.documents)

    def to_dict(self) -> dict[str, float | int]:
        """The values by name, ready for JSON."""
        return {**self.values, "documents": self.documents}

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> "Scores":
        """What `to_dict` gave, perhaps of a version with fewer metrics."""
        values = {name: float(line[name]) for name in METRICS if name in line}
        return cls({ERROR: float(line[ERROR]), **values}, line["documents"])


def evaluate(log_probs: NDArray[np.float64], labels: NDArray[np.integer]) -> Scores:
    """Every score of log-probabilities (n, Y) against label ids (n,)."""
    if len(labels) == 0:
        raise InputError("The set to evaluate on holds 0 documents: give at least one with a label.")
    assert log_probs.shape[0] == len(labels), (log_probs.shape, labels.shape)
    assert not np.isnan(log_probs).any(), "log-probabilities hold NaN"
    return Scores({name: of.measure(log_probs, labels) for name, of in METRICS.items()}, len(labels))
