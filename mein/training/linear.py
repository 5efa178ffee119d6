"""Line 1 of Algorithm 1 for the linear expert: logistic regression, in folds, over given features."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array, issparse
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from mein.data.splits import only_texts
from mein.evaluation.prior import log_prior, with_absent_classes

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # C, the inverse of regularization
STEPS = 300
JITTER = 1e-9  # of the mean squared norm of a row: equal documents, and more of them than features

Block: TypeAlias = csr_array | np.ndarray  # features of documents (n, D)


@dataclass(frozen=True)
class LinearFit:
    """z = x W + b over all features: W (D, Y), b (Y,), float64."""

    weights: np.ndarray
    bias: np.ndarray
    strength: float = 1.0
    """C."""
    absent: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The classes that no document was of."""

    def logits(self, x: Block) -> np.ndarray:
        """z (n, Y). Absent classes have their prior, which in x W + b they have where x is 0."""
        found: np.ndarray = x @ self.weights + self.bias
        return with_absent_classes(found, log_softmax(self.bias), self.absent) if len(self.absent) else found


def inner_products(some: Block, others: Block) -> np.ndarray:
    """x y' (m, n) of documents with the same features, either sparse or dense."""
    found: Any = some @ others.T
    return found.toarray() if issparse(found) else np.asarray(found)


@dataclass(frozen=True)
class Reduced:
    """Documents as rows of n numbers with the same inner products as all their features x (n, D) have.

    The penalty depends on inner products only, so that a fit over these rows is the fit over x, W = x' V,
    where `duals` gives V. V is small: a number for each document and class, zero for documents that the fit
    did not learn from.
    """

    rows: np.ndarray
    """L (n, n), lower triangular: L L' = x x'."""

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> "Reduced":
        """From blocks of features (n, D_b) side by side."""
        n = blocks[0].shape[0]
        products = np.zeros((n, n))
        for block in blocks:
            x = block.astype(np.float64)
            products += inner_products(x, x)
        size = float(np.trace(products)) / max(n, 1)
        products[np.diag_indices(n)] += JITTER * size if size > 0 else 1.0
        return cls(cholesky(products, lower=True) if size > 0 else np.zeros((n, 0)))

    def duals(self, weights: np.ndarray) -> np.ndarray:
        """V (n, Y) of weights (n, Y) over the rows."""
        if not self.rows.size:
            return np.zeros((len(self.rows), weights.shape[1]))
        found: np.ndarray = solve_triangular(self.rows, weights, trans="T", lower=True)
        return found


@dataclass(frozen=True)
class FoldedFits:
    """A fit for each fold, on the labels of all others, and one on all labels."""

    folds: tuple[LinearFit, ...]
    last: LinearFit
    out_of_fold: np.ndarray
    """z (n, Y) of each labeled document by the fit that has not seen it; of those in no fold, by the last."""


def fit_in_folds(
    x: Block, labels: np.ndarray, weights: np.ndarray, fold: np.ndarray, classes: int
) -> FoldedFits:
    """Fit documents x (n, D) with labels (n,); fold (n,): -1 for those that always teach.

    weights: (n,), or (K + 1, n): what documents weigh where fold k is held out, and where none is.

    C is chosen by log-loss: for a fold on the documents of the other folds, for the last fit on all.
    """
    number = int(fold.max()) + 1
    weights = np.broadcast_to(weights, (number + 1, len(labels)))
    path = [_path(x, labels, weights[k], fold != k, classes) for k in range(number)]
    held = [np.flatnonzero(fold == k) for k in range(number)]
    losses = np.zeros((len(STRENGTHS), len(labels)))
    for k, (fits, rows) in enumerate(zip(path, held, strict=True)):
        for number_of, fit in enumerate(fits):
            log_p = log_softmax(fit.logits(x[rows]), axis=1)
            losses[number_of, rows] = -log_p[np.arange(len(rows)), labels[rows]] * weights[k, rows]
    chosen = [_best(losses[:, (fold != k) & (fold >= 0)]) for k in range(number)]
    folds = tuple(fits[at] for fits, at in zip(path, chosen, strict=True))
    last = _path(x, labels, weights[-1], np.ones(len(labels), bool), classes, _best(losses[:, fold >= 0]))[-1]
    out_of_fold = last.logits(x)
    for fit, rows in zip(folds, held, strict=True):
        out_of_fold[rows] = fit.logits(x[rows])
    return FoldedFits(folds, last, out_of_fold)


def _best(losses: np.ndarray) -> int:
    """The C with the least mean loss; of equal ones the smallest, and a middle one without documents."""
    return int(losses.mean(1).argmin()) if losses.shape[1] else STRENGTHS.index(1.0)


def _path(
    x: Block,
    labels: np.ndarray,
    weights: np.ndarray,
    teaches: np.ndarray,
    classes: int,
    only: int | None = None,
) -> list[LinearFit]:
    """Fits of the documents that teach for every C, each from the one before; or for one C alone."""
    rows = np.flatnonzero(teaches & (weights > 0))
    x, labels, weights = x[rows], labels[rows], weights[rows]
    present, prior = np.unique(labels), log_prior(labels, weights, classes)
    if len(present) < 2 or x.shape[1] == 0:
        return [LinearFit(np.zeros((x.shape[1], classes)), prior)] * len(STRENGTHS)
    model = LogisticRegression(max_iter=STEPS, warm_start=True)
    found = []
    for strength in STRENGTHS if only is None else (STRENGTHS[only],):
        model.set_params(C=strength)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            model.fit(x, labels, sample_weight=weights)
        found.append(_of_all_classes(model, present, prior, strength))
    return found


def _of_all_classes(
    model: LogisticRegression, present: np.ndarray, prior: np.ndarray, strength: float
) -> LinearFit:
    """A fit with a column for every class; absent ones keep their prior."""
    classes = len(prior)
    W, b = np.zeros((model.coef_.shape[1], classes)), np.zeros(classes)
    if len(present) == 2:  # scikit-learn has one logit, that of the second class: half of it for each
        W[:, present[0]], W[:, present[1]] = -model.coef_[0] / 2, model.coef_[0] / 2
        b[present[0]], b[present[1]] = -model.intercept_[0] / 2, model.intercept_[0] / 2
    else:
        W[:, present], b[present] = model.coef_.T, model.intercept_
    absent = np.setdiff1d(np.arange(classes), present)
    return LinearFit(W, with_absent_classes(b, prior, absent), strength, absent)


def folds_of(keys: Sequence[str], labels: np.ndarray, number: int, order: Sequence[int]) -> np.ndarray:
    """The fold of each document (n,): classes are dealt evenly, equal texts stay together.

    keys: what equal texts share; order: a permutation of the documents that follows from text and seed only.
    A text that is the only one of a class is in no fold (-1): it always teaches.
    """
    first: dict[str, int] = {}
    for row in order:
        first.setdefault(keys[row], int(row))
    only = only_texts(keys, labels.tolist())
    fold_of = dict.fromkeys(only, -1)
    at = 0
    for label in np.unique(labels):
        own = [key for key, row in first.items() if labels[row] == label and key not in only]
        fold_of |= {key: (at + place) % number for place, key in enumerate(own)}
        at += len(own)
    return np.array([fold_of[key] for key in keys], np.int64)
