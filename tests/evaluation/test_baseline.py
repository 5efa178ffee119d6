"""The baseline learns, has a column for every class, and falls back to the prior."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mein.evaluation.baseline import tfidf_baseline

TEXTS = [
    "a fine film",
    "A fine, fine story",
    "not a fine film",
    "dull",
    "not good",
    "good fun",
    "a dull story",
    "fun",
]
LABELS = np.array([1, 1, 0, 0, 0, 1, 0, 1])


def test_it_equals_the_pipeline_of_scikit_learn() -> None:
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+"),
        LogisticRegression(C=30.0, max_iter=1000, tol=1e-8),
    )
    unseen = ["a fine story", "not fun", "good, not dull", ""]
    expected = pipeline.fit(TEXTS, LABELS).predict_proba(unseen)
    log_probs = tfidf_baseline(TEXTS, LABELS, unseen, classes=2)
    np.testing.assert_allclose(np.exp(log_probs), expected, atol=2e-3)  # single precision inside


def test_it_learns_from_pairs_of_words_and_single_letters() -> None:
    texts = ["not x", "y not", "x", "y"] * 3
    labels = np.array([1, 0, 0, 1] * 3)
    log_probs = tfidf_baseline(texts, labels, ["not x", "y not", "x", "y"], classes=2)
    np.testing.assert_array_equal(log_probs.argmax(axis=1), [1, 0, 0, 1])


def test_it_has_a_column_for_a_class_that_was_never_seen() -> None:
    labels = np.where(LABELS == 1, 3, 1)
    log_probs = tfidf_baseline(TEXTS, labels, TEXTS, classes=5)
    assert log_probs.shape == (8, 5)
    assert log_probs.dtype == np.float64
    np.testing.assert_allclose(logsumexp(log_probs, axis=1), 0.0, atol=1e-12)
    np.testing.assert_array_equal(log_probs.argmax(axis=1), labels)
    np.testing.assert_allclose(np.exp(log_probs[:, [0, 2, 4]]), 1 / 13)  # (0 + 1) / (8 + 5)


@pytest.mark.parametrize("texts", [["", " ", "?!"], ["a film", "a film", "a film"]])
def test_without_words_or_with_a_single_class_it_answers_the_prior(texts: list[str]) -> None:
    labels = np.array([0, 0, 1]) if texts[0] == "" else np.array([0, 0, 0])
    log_probs = tfidf_baseline(texts, labels, ["good", ""], classes=2)
    counts = [3, 2] if texts[0] == "" else [4, 1]  # one more than seen
    np.testing.assert_allclose(np.exp(log_probs), np.tile(np.array(counts) / 5, (2, 1)))


def test_weights_act_like_repeated_documents() -> None:
    texts, labels = ["good film", "good film", "dull film"], np.array([0, 1, 1])
    weight = np.array([5.0, 1.0, 1.0])
    plain = tfidf_baseline(texts, labels, ["good film"], classes=2)
    weighted = tfidf_baseline(texts, labels, ["good film"], classes=2, sample_weight=weight)
    assert plain[0, 0] < weighted[0, 0]
    assert weighted[0].argmax() == 0
    empty = tfidf_baseline(["", "", ""], labels, ["x"], classes=2, sample_weight=weight)
    np.testing.assert_allclose(np.exp(empty), [[6 / 9, 3 / 9]])


def test_no_texts_give_no_rows() -> None:
    assert tfidf_baseline(TEXTS, LABELS, [], classes=2).shape == (0, 2)
