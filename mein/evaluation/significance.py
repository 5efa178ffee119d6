"""Significance tests for two classifiers on the same documents, and intervals for one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mein.runtime.seeds import numpy_generator


@dataclass(frozen=True)
class BootstrapResult:
    """The error of a minus the error of b, in points of %: above 0 where b is better."""

    difference: float
    low: float
    high: float
    """[low, high] holds the middle 95% of the resampled differences."""
    p_value: float
    """Two-sided; never below 2 / (samples + 1), the resolution of the resampling."""


def mcnemar(correct_a: NDArray[np.bool_], correct_b: NDArray[np.bool_]) -> float:
    """The exact two-sided p-value that two classifiers have the same error, from (n,) and (n,).

    Only documents on which exactly one classifier is correct count. If both are equally good, each is
    correct on half of these: a binomial with probability 1/2.

    >>> mcnemar(np.array([True] * 5), np.array([False] * 5))  # 2 * (1/2)^5
    0.0625
    """
    only_a = int(np.sum(correct_a & ~correct_b))
    only_b = int(np.sum(correct_b & ~correct_a))
    if only_a + only_b == 0:
        return 1.0
    from scipy.stats import binomtest  # half a second to import

    return float(binomtest(only_a, only_a + only_b).pvalue)


def paired_bootstrap(
    correct_a: NDArray[np.bool_], correct_b: NDArray[np.bool_], seed: int, samples: int = 10_000
) -> BootstrapResult:
    """Resample the documents, with both predictions for each, and measure the difference in error.

    `correct` is (n,) for one run or (seeds, n) for several. Seeds are pooled: a document is drawn
    with its predictions in all runs, so that runs do not count as independent documents. The two
    classifiers may have different numbers of runs.

    A resample matters only through how often each distinct per-document difference was drawn (for
    one run: only a correct, only b correct, no difference). Those counts follow a multinomial, which is
    drawn instead of documents: the same distribution, with memory that does not grow with n.
    """
    runs_a, runs_b = np.atleast_2d(correct_a), np.atleast_2d(correct_b)
    n = runs_a.shape[1]
    assert n > 0, "no documents to resample"
    assert runs_b.shape[1] == n, (runs_a.shape, runs_b.shape)
    # In integers, so that equal differences are one outcome: points = gain * scale.
    gain = runs_b.sum(axis=0) * len(runs_a) - runs_a.sum(axis=0) * len(runs_b)
    scale = 100 / (n * len(runs_a) * len(runs_b))
    outcomes, counts = np.unique(gain, return_counts=True)
    generator = numpy_generator(seed, "paired bootstrap")
    resampled = generator.multinomial(n, counts / n, size=samples) @ outcomes
    low, high = np.quantile(resampled, [0.025, 0.975]) * scale
    return BootstrapResult(float(gain.sum() * scale), float(low), float(high), _two_sided(resampled))


def wilson_interval(wrong: int, documents: int) -> tuple[float, float]:
    """The 95% interval of Wilson for an error rate, in %, from the number of wrong documents."""
    from scipy.stats import binomtest

    interval = binomtest(wrong, documents).proportion_ci(method="wilson")
    return 100 * float(interval.low), 100 * float(interval.high)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation (n - 1); a single value has no spread: nan."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return float(np.mean(values)), spread


def _two_sided(resampled: NDArray[np.int64]) -> float:
    """Twice the rarer side of 0, the observed sample counted as one of them."""
    rarer = min(int(np.sum(resampled <= 0)), int(np.sum(resampled >= 0)))
    return min(1.0, 2 * (rarer + 1) / (len(resampled) + 1))
