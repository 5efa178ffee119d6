"""Scores equal loops, hand arithmetic and scikit-learn."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn import metrics as sklearn_metrics

from mein.errors import InputError
from mein.evaluation.metrics import calibration_error, evaluate, macro_f1


def random_answers(
    seed: int, n: int = 400, classes: int = 5
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Log-probabilities that know something of the labels."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, n)
    logits = generator.normal(size=(n, classes)) * 2
    logits[np.arange(n), labels] += 1.5
    return log_softmax(logits, axis=1), labels


def test_four_documents_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
    scores = evaluate(np.log(probs), np.array([0, 1, 1, 0]))  # only the second is wrong
    assert scores.error == 25.0
    assert scores.documents == 4
    # class 0: TP 2, FP 1, FN 0 -> 4/5; class 1: TP 1, FP 0, FN 1 -> 2/3
    assert scores["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert scores["log_loss"] == pytest.approx(-math.log(0.9 * 0.4 * 0.8 * 0.7) / 4)
    # bins of 1/15: 0.9, 0.6, 0.8 and 0.7 each lie alone; |1 - 0.9|, |0 - 0.6|, |1 - 0.8|, |1 - 0.7|
    assert scores["calibration_error"] == pytest.approx((0.1 + 0.6 + 0.2 + 0.3) / 4)


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_those_of_scikit_learn(seed: int) -> None:
    log_probs, labels = random_answers(seed)
    scores, predicted = evaluate(log_probs, labels), log_probs.argmax(axis=1)
    accuracy = sklearn_metrics.accuracy_score(labels, predicted)
    assert scores.error == pytest.approx(100 * (1 - accuracy))
    assert scores["macro_f1"] == pytest.approx(sklearn_metrics.f1_score(labels, predicted, average="macro"))
    assert scores["log_loss"] == pytest.approx(sklearn_metrics.log_loss(labels, np.exp(log_probs)))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_macro_f1_leaves_out_classes_that_nobody_names(pairs: list[tuple[int, int]]) -> None:
    labels, predicted = np.array(pairs).T
    with warnings.catch_warnings():  # scikit-learn warns where a class has no true sample
        warnings.simplefilter("ignore")
        expected = sklearn_metrics.f1_score(labels, predicted, average="macro")
    assert macro_f1(predicted, labels) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_calibration_error_equals_a_loop_over_bins(seed: int) -> None:
    log_probs, labels = random_answers(seed)
    expected = 0.0
    for b in range(15):
        inside = [
            (float(np.exp(row.max())), int(row.argmax()) == label)
            for row, label in zip(log_probs, labels, strict=True)
            if b / 15 < np.exp(row.max()) <= (b + 1) / 15
        ]
        if inside:
            confidence = sum(c for c, _ in inside) / len(inside)
            accuracy = sum(is_right for _, is_right in inside) / len(inside)
            expected += len(inside) / len(labels) * abs(confidence - accuracy)
    assert calibration_error(log_probs, labels) == pytest.approx(expected)


def test_calibration_error_is_zero_for_a_true_confidence_and_one_for_a_false_certainty() -> None:
    labels = np.array([0, 0, 0, 1])
    truthful = np.log(np.tile([0.75, 0.25], (4, 1)))
    assert calibration_error(truthful, labels) == pytest.approx(0.0)
    certain = np.tile([-800.0, 0.0], (3, 1))
    assert calibration_error(certain, np.zeros(3, dtype=np.int64)) == pytest.approx(1.0)


def test_a_probability_of_zero_gives_a_finite_loss_that_json_can_hold() -> None:
    log_probs = np.array([[0.0, -np.inf]])
    scores = evaluate(log_probs, np.array([1]))
    assert 700 < scores["log_loss"] < 800
    assert json.loads(json.dumps(scores.to_dict(), allow_nan=False)) == scores.to_dict()


def test_scores_are_values_by_name() -> None:
    scores = evaluate(*random_answers(0))
    assert list(scores.to_dict()) == [
        "error",
        "macro_f1",
        "log_loss",
        "calibration_error",
        "documents",
    ]


def test_an_empty_set_is_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"holds 0 documents: give at least one"):
        evaluate(np.empty((0, 2)), np.empty(0, dtype=np.int64))
