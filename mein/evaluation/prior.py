"""The shares of classes, for what has nothing to learn from: a fold's expert of a class that it lacks."""

import numpy as np
from scipy.special import logsumexp


def log_prior(labels: np.ndarray, weights: np.ndarray, classes: int) -> np.ndarray:
    """The log of each class's share (Y,), one document added to each so that none is 0."""
    counts = np.bincount(labels, weights, minlength=classes) + 1
    found: np.ndarray = np.log(counts / counts.sum())
    return found


def with_absent_classes(logits: np.ndarray, prior: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """Logits (..., Y) in which absent classes have their prior (Y,), a log, and the others share the rest."""
    present = np.setdiff1d(np.arange(len(prior)), absent)
    found = logits.copy()
    rest = logsumexp(logits[..., present], axis=-1, keepdims=True) - logsumexp(prior[present])
    found[..., absent] = prior[absent] + rest
    return found
