"""Logistic regression in folds: scikit-learn's own, and no label reaches the logits of its own document."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from mein.training import linear
from mein.training.linear import Reduced, fit_in_folds, folds_of

RNG = np.random.default_rng(0)


def problem(classes: int, n: int = 60) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """Documents that a linear model tells apart somewhat, their labels, and folds."""
    labels = np.arange(n) % classes
    x = RNG.normal(size=(n, 8)) + RNG.normal(size=(classes, 8))[labels]
    fold = folds_of([str(i) for i in range(n)], labels, 5, RNG.permutation(n).tolist())
    return csr_array(x * (RNG.random(x.shape) < 0.7)), labels, fold


@pytest.mark.parametrize("classes", [2, 3, 12])
def test_the_last_fit_is_that_of_scikit_learn_on_all_documents(classes: int) -> None:
    x, labels, fold = problem(classes)
    fits = fit_in_folds(x, labels, np.ones(60), fold, classes)
    wanted = LogisticRegression(C=fits.last.strength, max_iter=1000).fit(x, labels)
    z = fits.last.logits(x)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert_allclose(p, wanted.predict_proba(x), atol=2e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_each_fold_s_logits_are_of_a_model_of_the_others(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "STRENGTHS", (1.0,))
    x, labels, fold = problem(classes)
    fits = fit_in_folds(x, labels, np.ones(60), fold, classes)
    for k in range(5):
        rest = np.flatnonzero(fold != k)
        wanted = LogisticRegression(C=1.0, max_iter=1000).fit(x[rest], labels[rest])
        z = fits.out_of_fold[fold == k]
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        assert_allclose(p, wanted.predict_proba(x[np.flatnonzero(fold == k)]), atol=1e-3)


def test_the_strength_is_that_of_least_log_loss_out_of_fold() -> None:
    """For the last fit over all folds; for a fold over the others, each by the model that lacks it."""
    x, labels, fold = problem(3)
    fits = fit_in_folds(x, labels, np.ones(60), fold, 3)
    losses = np.zeros((len(linear.STRENGTHS), 60))
    for i, strength in enumerate(linear.STRENGTHS):
        for k in range(5):
            rest, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            model = LogisticRegression(C=strength, max_iter=1000).fit(x[rest], labels[rest])
            losses[i, held] = -model.predict_log_proba(x[held])[np.arange(len(held)), labels[held]]
    for k, fit in enumerate(fits.folds):
        assert fit.strength == linear.STRENGTHS[losses[:, fold != k].mean(1).argmin()]
    assert fits.last.strength == linear.STRENGTHS[losses.mean(1).argmin()]


@pytest.mark.parametrize("k", range(5))
def test_the_labels_of_a_fold_do_not_reach_its_logits(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "STRENGTHS", (3.0,))
    x, labels, fold = problem(3)
    held = np.flatnonzero(fold == k)
    other = labels.copy()
    other[held] = np.roll(labels[held], 1)
    assert (other != labels).any()
    before, after = (fit_in_folds(x, y, np.ones(60), fold, 3).out_of_fold for y in (labels, other))
    assert_array_equal(before[held], after[held])
    assert (before[fold != k] != after[fold != k]).any()


def chances(z: np.ndarray) -> np.ndarray:
    p: np.ndarray = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return p


@pytest.mark.parametrize("classes", [2, 3])
def test_absent_classes_have_their_prior(classes: int) -> None:
    """One in as many as there are documents and classes, one more for each class; in a linear model only
    where x is 0."""
    x, labels, fold = problem(classes)
    labels = labels * 2 + 1  # of 2 * classes + 1, only the odd ones are there
    Y = 2 * classes + 1
    fits = fit_in_folds(x, labels, np.ones(60), fold, Y)
    assert_allclose(chances(fits.out_of_fold)[:, ::2], 1 / (48 + Y))
    assert_allclose(chances(fits.last.logits(x))[:, ::2], 1 / (60 + Y))
    assert_allclose(chances(fits.last.bias[None])[:, ::2], 1 / (60 + Y))
    assert set(fits.out_of_fold.argmax(1)) <= set(labels.tolist())


def test_a_class_absent_from_a_fold_s_teachers_has_its_prior() -> None:
    x, labels, fold = problem(2)
    labels[fold == 0] = 2  # all of a class are in one fold
    p = chances(fit_in_folds(x, labels, np.ones(60), fold, 3).out_of_fold)
    assert_allclose(p[fold == 0, 2], 1 / (48 + 3))


@pytest.mark.parametrize("classes", [2, 3])
def test_documents_of_weight_0_teach_nothing(classes: int) -> None:
    """Although they are in folds; a class of such documents is an absent one."""
    x, labels, fold = problem(classes)
    weights = np.r_[np.zeros(15), np.ones(45)]
    labels[:15] = classes
    found = fit_in_folds(x, labels, weights, fold, classes + 1)
    wanted = fit_in_folds(x[np.arange(15, 60)], labels[15:], weights[15:], fold[15:], classes + 1)
    assert found.last.strength == wanted.last.strength
    assert_allclose(found.out_of_fold[15:], wanted.out_of_fold, atol=1e-9)
    assert_allclose(found.last.logits(x), wanted.last.logits(x), atol=1e-9)


def test_each_fold_has_weights_of_its_own() -> None:
    x, labels, fold = problem(3)
    weights = RNG.uniform(0.2, 5.0, (6, 60))
    fits = fit_in_folds(x, labels, weights, fold, 3)
    p = np.zeros((len(linear.STRENGTHS), 60, 3))
    for i, strength in enumerate(linear.STRENGTHS):
        for k in range(5):
            rest, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            model = LogisticRegression(C=strength, max_iter=1000)
            model.fit(x[rest], labels[rest], sample_weight=weights[k, rest])
            p[i, held] = model.predict_proba(x[held])
    losses = -np.log(p[:, np.arange(60), labels]) * weights[fold, np.arange(60)]
    for k, fit in enumerate(fits.folds):
        assert fit.strength == linear.STRENGTHS[losses[:, fold != k].sum(1).argmin()]
        wanted = p[linear.STRENGTHS.index(fit.strength), fold == k]
        assert_allclose(chances(fits.out_of_fold)[fold == k], wanted, atol=2e-3)
    assert fits.last.strength == linear.STRENGTHS[losses.sum(1).argmin()]
    last = LogisticRegression(C=fits.last.strength, max_iter=1000).fit(x, labels, sample_weight=weights[-1])
    assert_allclose(chances(fits.last.logits(x)), last.predict_proba(x), atol=2e-3)


def test_one_class_is_always_predicted() -> None:
    x, _, fold = problem(2)
    for classes in (1, 2):
        fits = fit_in_folds(x, np.zeros(60, np.int64), np.ones(60), fold, classes)
        assert (fits.out_of_fold.argmax(1) == 0).all()
        assert np.isfinite(fits.out_of_fold).all()


def test_without_folds_all_documents_teach() -> None:
    x, labels, _ = problem(3, n=6)
    fits = fit_in_folds(x, labels, np.ones(6), np.full(6, -1), 3)
    assert fits.folds == ()
    assert_array_equal(fits.out_of_fold, fits.last.logits(x))
    assert fits.last.strength == 1.0


@pytest.mark.parametrize("classes", [2, 3])
def test_whole_weights_are_repeated_rows(classes: int) -> None:
    x, labels, fold = problem(classes)
    weights = RNG.integers(1, 4, 60)
    rows = np.repeat(np.arange(60), weights)
    weighed = fit_in_folds(x, labels, weights.astype(float), fold, classes)
    repeated = fit_in_folds(x[rows], labels[rows], np.ones(len(rows)), fold[rows], classes)
    assert weighed.last.strength == repeated.last.strength
    assert [fit.strength for fit in weighed.folds] == [fit.strength for fit in repeated.folds]
    spread = np.abs(weighed.out_of_fold).max()
    assert_allclose(weighed.out_of_fold[rows], repeated.out_of_fold, atol=0.02 * spread)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_fit_over_inner_products_is_the_fit_over_all_features(classes: int) -> None:
    """With fewer documents than features, equal documents, a sparse and a dense block."""
    labels, fold = np.arange(40) % classes, np.arange(40) % 5
    blocks = [csr_array(RNG.normal(size=(40, 90)) * (RNG.random((40, 90)) < 0.2)), RNG.normal(size=(40, 3))]
    blocks = [block[np.r_[:20, :20]] for block in blocks]
    reduced = Reduced.of(blocks)
    fits = fit_in_folds(reduced.rows, labels, np.ones(40), fold, classes)
    x = np.hstack([blocks[0].toarray(), blocks[1]])
    for k, fit in enumerate((*fits.folds, fits.last)):
        duals = reduced.duals(fit.weights)
        teaches = np.flatnonzero(fold != k)
        assert_allclose(duals[fold == k], 0.0, atol=1e-6 * np.abs(duals).max())
        wanted = LogisticRegression(C=fit.strength, max_iter=2000, tol=1e-8).fit(x[teaches], labels[teaches])
        z = x @ (x.T @ duals) + fit.bias
        assert_allclose(softmax(z, axis=1), wanted.predict_proba(x), atol=5e-3)


@pytest.mark.parametrize("n", [0, 3])
def test_documents_without_features_have_none_reduced(n: int) -> None:
    reduced = Reduced.of([csr_array((n, 4)), np.zeros((n, 0))])
    assert reduced.rows.shape == (n, 0)
    assert_array_equal(reduced.duals(np.zeros((0, 2))), np.zeros((n, 2)))


def test_folds_deal_each_class_evenly() -> None:
    labels = np.repeat([0, 1, 2, 3], [33, 7, 5, 2])
    keys = [f"text {i}" for i in range(len(labels))]
    fold = folds_of(keys, labels, 5, RNG.permutation(len(labels)).tolist())
    for y in range(4):
        counts = np.bincount(fold[labels == y], minlength=5)
        assert counts.max() - counts.min() <= 1
    sizes = np.bincount(fold, minlength=5)
    assert sizes.max() - sizes.min() <= 1  # where one class ends, the next begins


def test_equal_texts_are_in_one_fold_and_singletons_in_none() -> None:
    labels = np.array([0, 0, 0, 0, 1, 2, 2, 0, 3, 3])
    keys = ["a", "b", "a", "c", "d", "e", "f", "b", "g", "g"]
    fold = folds_of(keys, labels, 5, range(10))
    assert fold[0] == fold[2]
    assert fold[1] == fold[7]
    assert len({int(fold[row]) for row in (0, 1, 3)}) == 3
    assert fold[4] == -1
    assert (fold[[8, 9]] == -1).all()  # two rows, one text
    assert fold[5] != fold[6]
    assert (fold[[5, 6]] >= 0).all()


def test_a_text_with_two_labels_is_in_one_fold() -> None:
    fold = folds_of(["a", "a", "b", "c", "d"], np.array([0, 1, 0, 1, 1]), 5, range(5))
    assert fold[0] == fold[1]


def test_the_only_text_of_a_class_teaches_whatever_others_it_has() -> None:
    labels = np.array([0, 1, 1, 1, 2, 2])
    fold = folds_of(["a", "a", "b", "c", "b", "d"], labels, 5, range(6))
    assert fold[:2].tolist() == [-1, -1]  # class 0 has no other
    assert (fold[2:] >= 0).all()
    assert fold[2] == fold[4]
    assert folds_of(["a", "b", "a", "b"], np.array([0, 0, 1, 2]), 5, range(4)).tolist() == [-1] * 4


def test_folds_follow_the_order_that_is_given_and_not_that_of_rows() -> None:
    labels = RNG.integers(0, 3, 40)
    keys = [f"text {i % 30}" for i in range(40)]
    labels[30:] = labels[:10]
    order = sorted(range(40), key=lambda row: (keys[row][::-1], row))
    fold = folds_of(keys, labels, 5, order)
    shuffled = RNG.permutation(40)
    new = [keys[row] for row in shuffled]
    order = sorted(range(40), key=lambda row: (new[row][::-1], row))
    assert_array_equal(folds_of(new, labels[shuffled], 5, order), fold[shuffled])
