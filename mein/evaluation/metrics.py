"""Scores of a classifier on labelled documents: error, macro F1, log-loss, calibration error."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from mein.errors import InputError
from mein.evaluation.calibration import reliability

SMALLEST_LOG_PROB = float(np.log(np.finfo(np.float64).tiny))  # about -708


@dataclass(frozen=True)
class Scores:
    """What was measured on one set of documents."""

    error: float
    """Share of documents given a wrong class, in %."""
    macro_f1: float
    """Mean F1 over the classes, from 0 to 1."""
    log_loss: float
    """Mean negative log-probability of the right class, in nats."""
    calibration_error: float
    """Mean distance between confidence and accuracy, from 0 to 1."""
    documents: int
    """How many documents were scored."""

    def to_dict(self) -> dict[str, float | int]:
        """The fields by name, ready for JSON."""
        return asdict(self)


def evaluate(log_probs: NDArray[np.float64], labels: NDArray[np.integer]) -> Scores:
    """Every score of log-probabilities (n, Y) against label ids (n,)."""
    if len(labels) == 0:
        raise InputError(
            "There is nothing to score: the set holds 0 documents; give at least one with a label."
        )
    assert log_probs.shape[0] == len(labels), (log_probs.shape, labels.shape)
    assert not np.isnan(log_probs).any(), "log-probabilities hold NaN"
    predicted = log_probs.argmax(axis=1)
    return Scores(
        error=error_rate(predicted, labels),
        macro_f1=macro_f1(predicted, labels),
        log_loss=log_loss(log_probs, labels),
        calibration_error=calibration_error(log_probs, labels),
        documents=len(labels),
    )


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
