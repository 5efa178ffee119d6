"""p-values and intervals equal hand arithmetic and plain resampling."""

import math
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mein.evaluation.significance import mcnemar, mean_and_spread, paired_bootstrap, wilson_interval

Correct = NDArray[np.bool_]


def answers(both: int, only_a: int, only_b: int, neither: int) -> tuple[Correct, Correct]:
    """Correctness vectors with these numbers of documents."""
    counts = [both, only_a, only_b, neither]
    a = np.repeat([True, True, False, False], counts)
    b = np.repeat([True, False, True, False], counts)
    return a, b


def test_mcnemar_by_hand() -> None:
    # 8 discordant, 1 against 7: 2 * (C(8,0) + C(8,1)) / 2^8 = 18 / 256
    a, b = answers(both=50, only_a=1, only_b=7, neither=3)
    assert mcnemar(a, b) == pytest.approx(18 / 256)
    assert mcnemar(b, a) == mcnemar(a, b)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 5))
def test_mcnemar_equals_the_sum_of_the_binomial_tails(only_a: int, only_b: int, both: int) -> None:
    p_value = mcnemar(*answers(both, only_a, only_b, neither=1))
    discordant, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(math.comb(discordant, k) for k in range(fewer + 1)) / 2**discordant
    assert p_value == pytest.approx(min(1.0, 2 * tail), rel=1e-9)


def test_the_bootstrap_equals_resampling_documents_in_a_loop() -> None:
    a, b = answers(both=120, only_a=12, only_b=28, neither=40)
    result = paired_bootstrap(a, b, seed=0, samples=20_000)
    generator, differences = np.random.default_rng(1), []
    for _ in range(20_000):
        drawn = generator.integers(0, 200, 200)
        differences.append(100 * (np.mean(~a[drawn]) - np.mean(~b[drawn])))
    assert result.difference == pytest.approx(100 * (28 - 12) / 200)
    # one document is 0.5 points: a quantile may fall on its neighbor
    assert result.low == pytest.approx(np.quantile(differences, 0.025), abs=0.51)
    assert result.high == pytest.approx(np.quantile(differences, 0.975), abs=0.51)
    p_value = 2 * float(np.mean(np.less_equal(differences, 1e-9)))
    assert result.p_value == pytest.approx(p_value, abs=0.005)


def test_the_bootstrap_over_seeds_equals_resampling_documents_in_a_loop() -> None:
    generator = np.random.default_rng(2)
    difficulty = generator.random(150)  # shared by the runs, so that they are not independent
    a = generator.random((3, 150)) < 0.9 - 0.5 * difficulty
    b = generator.random((2, 150)) < 0.97 - 0.5 * difficulty
    result = paired_bootstrap(a, b, seed=0, samples=20_000)
    differences = []
    for _ in range(20_000):
        drawn = generator.integers(0, 150, 150)
        differences.append(100 * (b[:, drawn].mean() - a[:, drawn].mean()))
    assert result.difference == pytest.approx(100 * (b.mean() - a.mean()))
    assert result.low == pytest.approx(np.quantile(differences, 0.025), abs=0.3)
    assert result.high == pytest.approx(np.quantile(differences, 0.975), abs=0.3)


def test_repeating_a_run_adds_no_certainty() -> None:
    a, b = answers(both=120, only_a=12, only_b=28, neither=40)
    once = paired_bootstrap(a, b, seed=0)
    five_times = paired_bootstrap(np.tile(a, (5, 1)), np.tile(b, (5, 1)), seed=0)
    assert five_times.low == pytest.approx(once.low)
    assert five_times.high == pytest.approx(once.high)
    assert five_times.p_value == once.p_value


def test_the_bootstrap_follows_its_seed_and_changes_sign_with_its_arguments() -> None:
    a, b = answers(both=200, only_a=11, only_b=23, neither=66)
    assert paired_bootstrap(a, b, seed=3) == paired_bootstrap(a, b, seed=3)
    assert paired_bootstrap(a, b, seed=3) != paired_bootstrap(a, b, seed=4)
    there, back = paired_bootstrap(a, b, seed=3), paired_bootstrap(b, a, seed=3)
    assert there.difference == -back.difference > 0
    assert there.low == pytest.approx(-back.high, abs=0.34)  # a document is 1/3 of a point


def test_equal_classifiers_differ_by_nothing() -> None:
    a, _ = answers(both=5, only_a=0, only_b=0, neither=5)
    result = paired_bootstrap(a, a, seed=0)
    assert (result.difference, result.low, result.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert mcnemar(a, a) == 1.0


def test_a_certain_difference_has_the_smallest_p_value_that_the_samples_can_show() -> None:
    a, b = answers(both=0, only_a=0, only_b=30, neither=0)
    assert paired_bootstrap(a, b, seed=0, samples=999).p_value == 2 / 1000


def test_fifty_thousand_documents_take_no_memory_that_matters() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random((2, 5, 50_000)) < 0.9
    tracemalloc.start()
    start = time.perf_counter()
    paired_bootstrap(a, b, seed=0, samples=10_000)
    assert time.perf_counter() - start < 10
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # n x samples would be 500 MB even at a byte each


def test_wilson_solves_its_equation() -> None:
    for wrong, n in [(0, 10), (1, 7), (142, 1_000), (2_000, 2_000)]:
        for bound in wilson_interval(wrong, n):
            p, z = bound / 100, 1.959963984540054  # both bounds are z standard errors from the rate
            assert (wrong / n - p) ** 2 == pytest.approx(z**2 * p * (1 - p) / n, abs=1e-12)
    assert wilson_interval(0, 10) == pytest.approx((0.0, 27.7533), abs=1e-4)


def test_scipy_stats_is_imported_where_it_is_used() -> None:
    code = "import sys, mein.evaluation.comparison; print('scipy.stats' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_mean_and_spread_by_hand() -> None:
    assert mean_and_spread([9.0, 10.0, 11.0, 14.0]) == pytest.approx((11.0, math.sqrt(14 / 3)))
    mean, spread = mean_and_spread([9.5])
    assert mean == 9.5
    assert math.isnan(spread)
