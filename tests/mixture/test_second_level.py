"""Weights of components: noise gets none, the truth gets much, and no document weighs its own logits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax

from mein.mixture import second_level
from mein.mixture.second_level import Examples, fit_weights, mixed, scale_of

RNG = np.random.default_rng(0)
N, Y = 200, 3
LABELS = RNG.integers(0, Y, N)
TRUTH = np.eye(Y)[LABELS]
EXPERT = RNG.normal(size=(N, Y)) + 1.5 * TRUTH
NOISE = RNG.normal(size=(2, N, Y))


def log_loss(z: np.ndarray, labels: np.ndarray = LABELS) -> float:
    return float(-log_softmax(z, axis=1)[np.arange(len(labels)), labels].mean())


def examples(parts: np.ndarray, labels: np.ndarray, fold: np.ndarray, **others: Any) -> Examples:
    return Examples(parts, labels, fold, np.ones((int(fold.max()) + 1, len(labels))), **others)


def test_the_gradient_is_that_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[bool] = []
    original = minimize

    def looking(objective: Any, start: np.ndarray, **options: Any) -> Any:
        for t in (start, start + 0.3):
            wanted = approx_fprime(t, lambda t: objective(t)[0], 1e-6)
            assert_allclose(objective(t)[1], wanted, rtol=1e-3, atol=1e-3)
            checked.append(True)
        return original(objective, start, **options)

    monkeypatch.setattr("mein.mixture.second_level.minimize", looking)
    fit_weights(np.concatenate([EXPERT[None], NOISE]), LABELS, RNG.uniform(0.5, 2.0, N))
    assert len(checked) == 2


def test_the_loss_is_as_small_as_a_plain_search_finds_it() -> None:
    """Of one component: penalized log-loss of a z, with the ridge on (a - 1) times the scale of z."""
    z = 3 * EXPERT
    a = fit_weights(z[None], LABELS)[0]

    def loss(a: float) -> float:
        return N * log_loss(a * z) + second_level.RIDGE * ((a - 1) * scale_of(z)) ** 2

    grid = np.linspace(0.05, 2.0, 2000)
    assert a == pytest.approx(grid[np.argmin([loss(a) for a in grid])], abs=2e-3)


def test_scales_are_deviations_from_the_mean_over_classes() -> None:
    z = np.array([[1.0, 3.0], [5.0, 5.0]])
    assert scale_of(z) == pytest.approx(np.sqrt((1 + 1 + 0 + 0) / 4))
    assert scale_of(z, np.array([3.0, 1.0])) == pytest.approx(np.sqrt(3 / 4))
    assert scale_of(np.full((2, 3), 7.0)) == 1.0
    assert scale_of(z + 100) == pytest.approx(scale_of(z))


def test_noise_gets_almost_no_weight() -> None:
    weights = fit_weights(np.concatenate([EXPERT[None], NOISE]), LABELS)
    assert (weights[1:] < 0.15 * weights[0]).all()
    against = fit_weights(np.stack([EXPERT, -TRUTH]), LABELS)
    assert against[1] == 0.0


def test_what_knows_the_truth_lowers_the_loss() -> None:
    parts = np.stack([EXPERT, TRUTH + 0.3 * RNG.normal(size=(N, Y))])
    weights = fit_weights(parts, LABELS)
    assert weights[1] > weights[0]
    assert log_loss(mixed(weights, parts)) < 0.5 * log_loss(EXPERT)


def test_an_expert_that_is_always_wrong_keeps_a_little_weight() -> None:
    weights = fit_weights(np.stack([-5 * EXPERT, NOISE[0]]), LABELS)
    assert weights[0] == pytest.approx(0.05)


def test_whole_weights_are_repeated_documents() -> None:
    parts = np.concatenate([EXPERT[None], NOISE, TRUTH[None] + RNG.normal(size=(N, Y))])
    counts = RNG.integers(1, 4, N)
    rows = np.repeat(np.arange(N), counts)
    assert_allclose(
        fit_weights(parts, LABELS, counts), fit_weights(parts[:, rows], LABELS[rows]), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("k", range(4))
def test_the_labels_of_a_fold_do_not_reach_what_is_reported_of_it(k: int) -> None:
    parts, fold = np.concatenate([EXPERT[None], NOISE]), np.arange(N) % 4
    other = LABELS.copy()
    other[fold == k] = (other[fold == k] + 1) % Y
    before, after = (examples(parts, labels, fold).nested() for labels in (LABELS, other))
    assert_array_equal(before[fold == k], after[fold == k])
    assert (before[fold != k] != after[fold != k]).any()


def test_the_best_view_is_where_weights_start() -> None:
    """It keeps a little weight; the others may have none."""
    parts = np.stack([EXPERT, TRUTH + 0.1 * RNG.normal(size=(N, Y)), NOISE[0]])
    weights = examples(parts, LABELS, np.arange(N) % 5, views=2).weights()
    assert_allclose(weights, fit_weights(parts, LABELS, first=1))
    assert weights[1] > 0.05
    assert weights[2] == pytest.approx(0, abs=0.15 * weights[1])


def test_only_the_last_components_may_count_against_others_and_not_far() -> None:
    parts = np.stack([EXPERT, -2 * TRUTH, -2 * TRUTH + 0.1 * NOISE[0]])
    found = examples(parts, LABELS, np.arange(N) % 5, signed=1)
    weights = found.weights()
    assert weights[1] == 0.0
    assert weights[2] * scale_of(parts[2]) == pytest.approx(second_level.LEAST)
    assert (replace(found, signed=0).weights() >= 0).all()


@pytest.mark.parametrize("is_worse", [True, False])
def test_a_sum_that_is_worse_than_a_floor_is_the_floor(is_worse: bool) -> None:
    """Components that fit the labels of some folds only: on each fold the sum of the others' is worse."""
    fold = np.arange(N) % 2
    turned = np.where(fold == 0, 1, -1)[:, None] * (TRUTH - 1 / Y)
    parts = np.stack([EXPERT, EXPERT, turned if is_worse else TRUTH])
    found = examples(parts, LABELS, fold, views=2, floors=(1,))
    free = replace(found, floors=()).weights()
    if is_worse:
        parts[2] += 0.2 * TRUTH
        found = examples(30 * parts, LABELS, fold, views=2, floors=(1,))
        weights = found.weights()
        assert_array_equal(weights[[0, 2]], 0.0)
        assert_allclose(weights[1], fit_weights(30 * parts[[1]], LABELS)[0])
        assert found.losses(found.nested()) <= found.losses(replace(found, floors=()).nested())
    else:
        assert_array_equal(found.weights(), free)


def test_weights_are_sane_on_small_random_problems() -> None:
    draw = np.random.default_rng(5)
    above = []
    for _ in range(200):
        n, classes, count = (int(draw.integers(*ends)) for ends in ((8, 80), (2, 7), (0, 5)))
        labels = draw.integers(0, classes, n)
        truth = np.eye(classes)[labels]
        sizes = draw.choice([0.01, 1.0, 30.0], (1 + count, 1, 1))
        sizes[0] = draw.choice([0.1, 1.0, 5.0])
        parts = draw.normal(size=(1 + count, n, classes)) * sizes
        parts += draw.uniform(0, 3, (1 + count, 1, 1)) * truth
        if draw.random() < 0.2:
            parts[-1] = draw.choice([0.0, -7.0])  # a component that says nothing
        weights = fit_weights(parts, labels)
        assert np.isfinite(weights).all()
        assert weights[0] >= 0.05 * (1 - 1e-9)
        assert (weights[1:] >= 0).all()
        fold = np.arange(n) % 5
        nested, alone = (examples(some, labels, fold).nested() for some in (parts, parts[:1]))
        assert np.isfinite(nested).all()
        own = min(log_loss(alone, labels), log_loss(parts[0], labels))
        above.append(log_loss(nested, labels) - own)
    assert np.mean(above) < 0.0
    assert np.max(above) < 0.3  # of eight documents, chance has its share


def test_many_logits_of_any_size_are_finite() -> None:
    for size in (0.0, 1e-8, 1e4):
        weights = fit_weights(np.stack([size * EXPERT, 1e4 * NOISE[0]]), LABELS)
        assert np.isfinite(weights).all()
        assert np.isfinite(log_loss(mixed(weights, np.stack([size * EXPERT, 1e4 * NOISE[0]]))))


def test_each_fold_has_weights_of_documents_of_its_own() -> None:
    fold, weights = np.arange(N) % 3, RNG.uniform(0.1, 5.0, (3, N))
    parts = np.concatenate([EXPERT[None], NOISE])
    found = Examples(parts, LABELS, fold, weights).nested()
    for k in range(3):
        rest = fold != k
        wanted = fit_weights(parts[:, rest], LABELS[rest], weights[k, rest])
        assert_array_equal(found[~rest], mixed(wanted, parts[:, ~rest]))


def test_documents_that_weigh_nothing_weigh_no_component() -> None:
    assert fit_weights(np.stack([EXPERT, 2 * TRUTH]), LABELS, np.zeros(N)).tolist() == [1.0, 0.0]
