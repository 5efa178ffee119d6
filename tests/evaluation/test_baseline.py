"""The baselines are those of scikit-learn, have a column for every class, and fall back to the prior."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from mein.evaluation import baseline
from mein.evaluation.baseline import (
    log_probs_out_of_fold,
    logistic_regression,
    tfidf_baseline,
    tfidf_features,
)

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


def noisy_texts(n: int, classes: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts of ten words, of which one tells the class three times in four."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    told = np.where(rng.random(n) < 0.75, labels, rng.integers(classes, size=n))
    noise = rng.integers(60, size=(n, 9))
    return [
        " ".join([f"told{y}", *(f"word{w}" for w in row)]) for y, row in zip(told, noise, strict=True)
    ], labels


@pytest.mark.parametrize(("n", "classes", "seed"), [(120, 2, 0), (150, 4, 1), (90, 3, 2), (200, 2, 3)])
def test_c_and_probabilities_equal_those_of_scikit_learn(n: int, classes: int, seed: int) -> None:
    texts, labels = noisy_texts(n, classes, seed)
    unseen = [*noisy_texts(40, classes, seed + 100)[0], ""]
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    x = words.fit_transform(texts)
    search = GridSearchCV(
        LogisticRegression(max_iter=2000),
        {"C": [0.3, 1, 3, 10, 30]},
        cv=StratifiedKFold(5, shuffle=True, random_state=0),
    ).fit(x, labels)
    (known,) = tfidf_features(texts)
    fit = logistic_regression(known, labels, None, classes)
    assert fit.strength == search.best_params_["C"]
    expected = search.predict_proba(words.transform(unseen))
    found = np.exp(tfidf_baseline(texts, labels, unseen, classes, np.ones(n)))
    assert_allclose(found, expected, rtol=1e-9)


def test_c_differs_between_problems() -> None:
    """Otherwise equal C would prove nothing."""
    found = set()
    for n, classes, seed in [(120, 2, 0), (150, 4, 1), (90, 3, 2), (200, 2, 3)]:
        texts, labels = noisy_texts(n, classes, seed)
        found.add(logistic_regression(tfidf_features(texts)[0], labels, None, classes).strength)
    assert len(found) > 1


def test_dense_features_keep_their_precision() -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(80, 5)).astype(np.float32), rng.integers(3, size=80)
    fit = logistic_regression(x, labels, None, classes=3)
    assert fit.strength is not None
    expected = LogisticRegression(C=fit.strength, max_iter=2000).fit(x, labels).predict_log_proba(x)
    assert_allclose(fit.log_probs(x), expected, rtol=1e-4)
    assert fit.log_probs(x).dtype == np.float64


@pytest.mark.parametrize("seed", [2, 5, 6])  # where unweighted accuracy would choose another C
def test_weights_count_in_the_fits_and_in_the_accuracy_that_chooses_c(seed: int) -> None:
    texts, labels = noisy_texts(100, 2, seed)
    (x,) = tfidf_features(texts)
    weights = np.random.default_rng(seed).integers(0, 5, 100).astype(np.float64)
    chosen = []
    for counts in (weights, np.ones(100)):  # in the accuracy
        scores = []
        for C in (0.3, 1.0, 3.0, 10.0, 30.0):
            of_folds = []
            for rest, held in StratifiedKFold(5, shuffle=True, random_state=0).split(x, labels):
                model = LogisticRegression(C=C, max_iter=2000)
                model.fit(x[rest], labels[rest], sample_weight=weights[rest])
                of_folds.append(model.score(x[held], labels[held], sample_weight=counts[held]))
            scores.append(np.mean(of_folds))
        chosen.append((0.3, 1.0, 3.0, 10.0, 30.0)[int(np.argmax(scores))])
    fit = logistic_regression(x, labels, weights, classes=2)
    assert fit.strength == chosen[0]
    assert chosen[0] != chosen[1]
    model = LogisticRegression(C=chosen[0], max_iter=2000).fit(x, labels, sample_weight=weights)
    assert_allclose(fit.log_probs(x), model.predict_log_proba(x), rtol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "labels",
    [[0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 1, 1, 2, 2, 3, 3]],
    ids=["singleton", "fewer than folds", "all singletons", "pairs"],
)
def test_classes_with_fewer_documents_than_folds(labels: list[int]) -> None:
    log_probs = tfidf_baseline(TEXTS, np.array(labels), TEXTS, classes=9)
    assert_allclose(logsumexp(log_probs, axis=1), 0.0, atol=1e-12)
    assert np.isfinite(log_probs).all()


def test_above_5000_documents_c_is_chosen_on_a_stratified_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = noisy_texts(300, 3, 0)
    (x,) = tfidf_features(texts)
    assert logistic_regression(x, labels, None, classes=3).strength == 3.0
    monkeypatch.setattr(baseline, "MOST_SEARCHED", 100)
    rows = baseline._stratified(labels, 100)
    assert len(np.unique(rows)) == 100
    assert np.abs(np.bincount(labels[rows]) - np.bincount(labels) / 3).max() <= 1
    fit = logistic_regression(x, labels, None, classes=3)
    assert fit.strength == 30.0 == logistic_regression(x[rows], labels[rows], None, classes=3).strength
    expected = LogisticRegression(C=fit.strength, max_iter=2000).fit(x, labels).predict_proba(x)
    assert_allclose(np.exp(fit.log_probs(x)), expected, rtol=1e-9)  # of all documents


def test_out_of_fold_no_document_teaches_itself_and_c_is_that_of_other_folds() -> None:
    texts, labels = noisy_texts(120, 3, 5)
    (x,) = tfidf_features(texts)
    fold = np.arange(120) % 5
    fold[:2] = -1
    found = log_probs_out_of_fold(x, labels, np.ones(120), fold, 3)
    grid = (0.3, 1.0, 3.0, 10.0, 30.0)
    of_all = {}
    for k in range(5):
        rest = fold != k
        for C in grid:
            fit = LogisticRegression(C=C, max_iter=2000).fit(x[rest], labels[rest])
            of_all[C, k] = fit.predict_log_proba(x[fold == k])
    for k in range(5):
        right = [
            sum(float(np.mean(of_all[C, j].argmax(1) == labels[fold == j])) for j in range(5) if j != k)
            for C in grid
        ]
        C = grid[int(np.argmax(np.round(right, 9)))]
        assert_allclose(found[fold == k], of_all[C, k], rtol=1e-7, atol=1e-9)


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
