"""The baseline: TF-IDF with logistic regression on the labels only; apart, as it needs scikit-learn."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

# Fixed, not searched, so that the baseline costs seconds. A weak baseline would flatter the
# mixture: on unit vectors scikit-learn's own C = 1 cost 5 to 15 points of error with 300 labels.
INVERSE_REGULARIZATION = 30.0
MAX_FEATURES = 50_000


def tfidf_baseline(
    train_texts: Sequence[str],
    train_labels: NDArray[np.integer],
    texts: Sequence[str],
    classes: int,
    sample_weight: NDArray[np.floating] | None = None,
) -> NDArray[np.float64]:
    """Log-probabilities (n, classes) of `texts` after learning from the training texts.

    Words are runs of letters and digits, lower-cased; features are words and pairs of words. A
    class without training documents gets a small probability, never 0. Where there is nothing to
    learn from (no word at all, or a single class), every text gets the prior of the classes.
    The result is deterministic.
    """
    weight = np.ones(len(train_labels)) if sample_weight is None else np.asarray(sample_weight)
    prior = _prior(train_labels, classes, weight)
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2),
        sublinear_tf=True,
        token_pattern=r"\w+",
        max_features=MAX_FEATURES,
        dtype=np.float32,
    )
    words = vectorizer.build_analyzer()
    if len(np.unique(train_labels)) < 2 or not any(words(text) for text in train_texts):
        return np.tile(np.log(prior), (len(texts), 1))
    model = LogisticRegression(C=INVERSE_REGULARIZATION, max_iter=1000)
    model.fit(vectorizer.fit_transform(train_texts), train_labels, sample_weight=weight)
    if len(texts) == 0:
        return np.empty((0, classes))
    logits = model.decision_function(vectorizer.transform(texts)).astype(np.float64)
    if logits.ndim == 1:  # of two classes scikit-learn gives one logit, that of the second
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    return _with_absent_classes(log_softmax(logits, axis=1), model.classes_, prior)


def _prior(labels: NDArray[np.integer], classes: int, weight: NDArray[np.floating]) -> NDArray[np.float64]:
    """The share of each class, one document added to each so that none is 0."""
    counts = np.bincount(labels, weights=weight, minlength=classes) + 1
    share: NDArray[np.float64] = counts / counts.sum()
    return share


def _with_absent_classes(
    log_probs: NDArray[np.float64], present: NDArray[np.integer], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Columns for every class: the absent ones keep their prior, the others share the rest."""
    full = np.tile(np.log(prior), (len(log_probs), 1))
    full[:, present] = log_probs + np.log(prior[present].sum())
    return full
