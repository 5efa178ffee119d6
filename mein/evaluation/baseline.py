"""The baselines: logistic regression on labels only, over TF-IDF or given features; needs scikit-learn."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from mein.evaluation.prior import log_prior, with_absent_classes

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)  # C, the inverse of regularization
USUAL = 3.0  # C where there are no two documents of a class to choose it by
STEPS = 2_000
FOLDS = 5
MOST_SEARCHED = 5_000  # documents on which C is chosen

Features: TypeAlias = csr_array | csr_matrix | NDArray[np.floating]  # of documents (n, D)


@dataclass(frozen=True)
class LogisticFit:
    """Logistic regression with a column for every class, or the prior where nothing could be learned."""

    prior: NDArray[np.float64]
    """The log of each class's share (Y,)."""
    model: LogisticRegression | None = None

    @property
    def strength(self) -> float | None:
        """C; none where nothing was learned."""
        return None if self.model is None else float(self.model.C)

    def log_probs(self, x: Features) -> NDArray[np.float64]:
        """log p(y | x) (n, Y). An absent class keeps its prior, the others share the rest."""
        if self.model is None or x.shape[0] == 0:
            return np.tile(self.prior, (x.shape[0], 1))
        found = self.model.decision_function(x).astype(np.float64)
        if found.ndim == 1:  # of two classes scikit-learn gives one logit, that of the second
            found = np.stack([np.zeros_like(found), found], axis=1)
        logits = np.zeros((len(found), len(self.prior)))
        logits[:, self.model.classes_] = found
        absent = np.setdiff1d(np.arange(len(self.prior)), self.model.classes_)
        log_probs: NDArray[np.float64] = log_softmax(with_absent_classes(logits, self.prior, absent), axis=1)
        return log_probs


def logistic_regression(
    x: Features, labels: NDArray[np.integer], weights: NDArray[np.floating] | None, classes: int
) -> LogisticFit:
    """Fit all documents x (n, D) with labels and weights (n,), with the C of best accuracy.

    C is chosen by stratified 5-fold cross-validation, as `GridSearchCV` does it: by the mean over the folds,
    of equal ones the smallest. Above 5,000 documents it is chosen on a stratified 5,000 of them. The result
    is deterministic. Only the prior is learned from a single class, or without features.
    """
    counts = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    return _fit(x, labels, counts, classes, _best_strength(x, labels, counts, classes))


def _best_strength(
    x: Features, labels: NDArray[np.integer], weights: NDArray[np.float64], classes: int
) -> float:
    if len(labels) > MOST_SEARCHED:
        rows = _stratified(labels, MOST_SEARCHED)
        x, labels, weights = x[rows], labels[rows], weights[rows]
        if not isinstance(x, np.ndarray):  # what no document has gets no weight
            x = x[:, np.unique(x.indices)]
    number = min(FOLDS, int(np.bincount(labels).max()))
    if number < 2 or len(np.unique(labels)) < 2:
        return USUAL
    folds = StratifiedKFold(number, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        splits = list(folds.split(labels, labels))
    accuracy = np.zeros((len(STRENGTHS), number))
    for k, (rest, held) in enumerate(splits):
        for i, strength in enumerate(STRENGTHS):
            fit = _fit(x[rest], labels[rest], weights[rest], classes, strength)
            accuracy[i, k] = _accuracy(fit.log_probs(x[held]), labels[held], weights[held])
    return STRENGTHS[int(np.average(accuracy, axis=1).argmax())]


def _stratified(labels: NDArray[np.integer], number: int) -> NDArray[np.intp]:
    """Rows in which each class has its share."""
    drawn = np.random.default_rng(0).permutation(len(labels))
    by_class = drawn[np.argsort(labels[drawn], kind="stable")]
    return np.sort(by_class[np.linspace(0, len(labels) - 1, number).astype(np.intp)])


def _fit(
    x: Features,
    labels: NDArray[np.integer],
    weights: NDArray[np.float64],
    classes: int,
    strength: float,
) -> LogisticFit:
    if not weights.all():  # what weighs nothing is as if it were not there
        rows = np.flatnonzero(weights)
        x, labels, weights = x[rows], labels[rows], weights[rows]
    prior = log_prior(labels, weights, classes)
    if x.shape[1] == 0 or len(np.unique(labels)) < 2:
        return LogisticFit(prior)
    model = LogisticRegression(C=strength, max_iter=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        model.fit(x, labels, sample_weight=weights)
    return LogisticFit(prior, model)


def _accuracy(
    log_probs: NDArray[np.float64], labels: NDArray[np.integer], weights: NDArray[np.float64]
) -> float:
    total = weights.sum()
    return float(weights @ (log_probs.argmax(axis=1) == labels) / total) if total > 0 else 0.0


def log_probs_out_of_fold(
    x: Features,
    labels: NDArray[np.integer],
    weights: NDArray[np.floating],
    fold: NDArray[np.integer],
    classes: int,
) -> NDArray[np.float64]:
    """log p(y | x) (n, Y) of each document by a fit that has not seen its fold; the prior of those in none.

    fold (n,): -1 for documents that always teach. weights: (n,), or (K + 1, n): what documents weigh where
    fold k is held out, and where none is. Each C is fitted once a fold; that of a fold is the best
    one for the other folds, instead of by a cross-validation inside each.
    """
    number = int(fold.max()) + 1
    counts = np.broadcast_to(weights, (number + 1, len(labels))).astype(np.float64)
    found = np.tile(log_prior(labels, counts[-1], classes), (len(STRENGTHS), len(labels), 1))
    accuracy = np.zeros((len(STRENGTHS), number))
    for k in range(number):
        rest, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        for i, strength in enumerate(STRENGTHS):
            fit = _fit(x[rest], labels[rest], counts[k, rest], classes, strength)
            found[i, held] = fit.log_probs(x[held])
            accuracy[i, k] = _accuracy(found[i, held], labels[held], counts[k, held])
    chosen = np.zeros(len(labels), np.intp)
    for k in range(number):
        chosen[fold == k] = accuracy[:, np.arange(number) != k].sum(axis=1).argmax()
    log_probs: NDArray[np.float64] = found[chosen, np.arange(len(labels))]
    return log_probs


def tfidf_features(known: Sequence[str], *others: Sequence[str]) -> list[Features]:
    """TF-IDF of words and pairs of words, as learned from known texts: theirs, and those of other texts.

    Words are those of scikit-learn: two letters or digits and more, lower-cased. Without any word there are
    no features.
    """
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    words = vectorizer.build_analyzer()
    if not any(words(text) for text in known):
        return [np.zeros((len(texts), 0)) for texts in (known, *others)]
    found = [vectorizer.fit_transform(known)]
    for texts in others:
        found.append(vectorizer.transform(texts) if len(texts) else found[0][:0])
    return found


def tfidf_baseline(
    train_texts: Sequence[str],
    train_labels: NDArray[np.integer],
    texts: Sequence[str],
    classes: int,
    sample_weight: NDArray[np.floating] | None = None,
) -> NDArray[np.float64]:
    """log p(y | X) (n, Y) of `texts`, after logistic regression on TF-IDF of the training texts."""
    known, new = tfidf_features(train_texts, texts)
    return logistic_regression(known, train_labels, sample_weight, classes).log_probs(new)
