"""Temperatures are recovered, never harm the dev set; tables equal loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax

from mein.evaluation.metrics import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    apply_temperature,
    fit_temperature,
    reliability,
    risk_coverage,
)


def loss_at(logits: NDArray[np.float64], labels: NDArray[np.int64], temperature: float) -> float:
    """The mean negative log-likelihood, written out."""
    total = 0.0
    for z, y in zip(logits / temperature, labels, strict=True):
        total += np.log(np.sum(np.exp(z - z.max()))) + z.max() - z[y]
    return total / len(labels)


def draw(seed: int, n: int, classes: int, scale: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits and labels drawn from their softmax: their temperature is 1."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n, classes)) * scale
    noise = generator.gumbel(size=(n, classes))
    return logits, (logits + noise).argmax(axis=1)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0, 20.0])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    logits, labels = draw(seed=0, n=20_000, classes=4, scale=2.0)
    assert fit_temperature(logits * temperature, labels) == pytest.approx(temperature, rel=0.05)


def test_the_temperature_minimizes_the_loss_on_a_grid() -> None:
    logits, labels = draw(seed=1, n=3_000, classes=3, scale=2.0)
    logits *= 4
    grid = np.exp(np.linspace(np.log(0.5), np.log(20), 400))
    best = grid[np.argmin([loss_at(logits, labels, T) for T in grid])]
    assert fit_temperature(logits, labels) == pytest.approx(best, rel=0.02)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 40),
    scale=st.sampled_from([0.0, 0.01, 1.0, 50.0, 1e4]),
    is_wrong=st.booleans(),
)
def test_the_loss_on_dev_never_rises(seed: int, n: int, scale: float, is_wrong: bool) -> None:
    logits, labels = draw(seed, n, 3, scale)
    if is_wrong:
        labels = logits.argmin(axis=1)
    temperature = fit_temperature(logits, labels)
    assert MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE
    assert loss_at(logits, labels, temperature) <= loss_at(logits, labels, 1.0) + 1e-9


def test_a_dev_set_without_errors_does_not_make_the_classifier_certain() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 2.0]] * 20)
    labels = np.array([0, 1] * 20)
    assert 0.3 < fit_temperature(logits, labels) < 1.0


def test_without_documents_the_temperature_is_the_usual_one() -> None:
    nothing = np.empty((0, 3)), np.empty(0, dtype=np.int64)
    assert fit_temperature(*nothing) == 1.0
    assert fit_temperature(*nothing, usual=7.0) == 7.0


def test_the_scale_of_logits_does_not_matter_where_the_usual_temperature_has_it_too() -> None:
    logits, labels = draw(3, 60, 3, 2.0)
    once, far = fit_temperature(logits, labels), fit_temperature(100 * logits, labels, usual=100.0)
    assert far == pytest.approx(100 * once, rel=1e-3)


def test_applying_a_temperature_gives_log_probabilities_in_double_precision() -> None:
    logits = np.array([[3.0, -1.0, 0.5]], dtype=np.float32)
    log_probs = apply_temperature(logits, 2.0)
    expected = np.exp([1.5, -0.5, 0.25]) / np.exp([1.5, -0.5, 0.25]).sum()
    assert log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(log_probs[0]), expected, rtol=1e-12)
    assert np.isfinite(apply_temperature(np.array([[1e5, -1e5]]), 0.05)).all()


def test_the_reliability_table_by_hand() -> None:
    probs = np.array([[0.55, 0.45], [0.5, 0.5], [0.95, 0.05], [0.09, 0.91], [1.0, 0.0]])
    with np.errstate(divide="ignore"):
        table = reliability(np.log(probs), np.array([0, 1, 1, 1, 0]), bins=2)
    # (0, 0.5] holds the second alone, which is wrong; (0.5, 1] the rest, of which one is wrong
    np.testing.assert_array_equal(table.count, [1, 4])
    np.testing.assert_allclose(table.confidence, [0.5, (0.55 + 0.95 + 0.91 + 1.0) / 4])
    np.testing.assert_allclose(table.accuracy, [0.0, 3 / 4])


def test_risk_against_coverage_equals_a_loop() -> None:
    logits, labels = draw(seed=2, n=50, classes=3, scale=1.0)
    log_probs = log_softmax(logits, axis=1)
    curve = risk_coverage(log_probs, labels)
    confidence, wrong = log_probs.max(axis=1), log_probs.argmax(axis=1) != labels
    for coverage, error in zip(curve.coverage, curve.error, strict=True):
        most = sorted(range(50), key=lambda i: -confidence[i])[: round(coverage * 50)]
        assert error == pytest.approx(100 * sum(wrong[i] for i in most) / len(most))
    assert len(curve.coverage) == 50
    assert curve.coverage[-1] == 1.0


def test_documents_of_equal_confidence_enter_together() -> None:
    probs = np.array([[0.8, 0.2], [0.9, 0.1], [0.8, 0.2], [0.8, 0.2]])
    curve = risk_coverage(np.log(probs), np.array([1, 0, 0, 0]))
    np.testing.assert_allclose(curve.coverage, [0.25, 1.0])
    np.testing.assert_allclose(curve.error, [0.0, 25.0])
