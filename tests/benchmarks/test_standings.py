"""Scores, paired tests, ratios, and bars, each against arithmetic by hand."""

import base64
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.draws import PROBLEMS
from benchmarks.standings import (
    Line,
    bars,
    correct_of,
    holm,
    overall,
    pairs,
    ratios,
    score,
    suite_of,
    summary,
)


def line(system: str, problem: str, draw: int, wrong: list[int], documents: int = 100, **more: Any) -> Line:
    """A line of the suite whose system got these documents wrong."""
    bits = np.zeros(documents, bool)
    bits[wrong] = True
    return {
        "problem": problem, "draw": draw, "labels": PROBLEMS[problem].labels, "share": 1.0, "system": system,
        "raw": 10, "error": 100 * len(wrong) / documents, "macro_f1": 0.5, "log_loss": 0.5,
        "calibration_error": 0.04, "seconds": 1.0, "documents": documents,
        "wrong": base64.b64encode(np.packbits(bits).tobytes()).decode("ascii"), **more,
    }  # fmt: skip


def test_scores_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    truth = np.array(["a", "b", "b", "c"])
    found = score(probabilities, np.array(["a", "b"]), truth)
    assert found["error"] == 50.0  # right, wrong, right, and a class that was never seen
    # a: TP 1, FP 2 (documents 2 and 4), FN 0: 2/4; b: TP 1, FN 1: 2/3; c: 0.
    assert found["macro_f1"] == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
    logs = [math.log(0.9), math.log(0.1), math.log(0.6), math.log(1e-6)]
    assert found["log_loss"] == pytest.approx(-sum(logs) / 4)
    # Bins of 1/15: 0.9 twice, half of them right; 0.6 right; 0.5 wrong.
    assert found["calibration_error"] == pytest.approx((0.4 * 2 + 0.4 + 0.5) / 4)
    assert correct_of(found).tolist() == [True, False, True, False]


def test_certain_answers_are_in_the_last_bin() -> None:
    found = score(np.array([[1.0, 0.0], [0.96, 0.04]]), np.array(["a", "b"]), np.array(["b", "a"]))
    assert found["calibration_error"] == pytest.approx(abs(0.5 - 0.98))  # not (1 + 0.04) / 2


def test_holm_by_hand() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, and 0.04, which is raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_pairs_are_corrected_over_the_cells_of_a_peer() -> None:
    lines = [
        line("mein", "trec", 0, list(range(12))), line("tf-idf", "trec", 0, []),
        line("mein", "cr", 0, [0]), line("tf-idf", "cr", 0, [1, 2]),
        line("mein", "cr", 1, []), line("tf-idf", "cr", 1, list(range(14))),
        line("minilm", "cr", 0, [0]),
    ]  # fmt: skip
    found = pairs(suite_of(lines), "mein", "tf-idf")
    counts = [(pair.problem, pair.draw, pair.gained, pair.lost) for pair in found]
    assert counts == [("trec", 0, 0, 12), ("cr", 0, 2, 1), ("cr", 1, 14, 0)]
    p_values = [2 / 2**12, 1.0, 2 / 2**14]  # of 12, 3, and 14 coins
    assert [pair.p for pair in found] == pytest.approx(p_values)
    assert [pair.adjusted_p for pair in found] == pytest.approx([2 * 2 / 2**12, 1.0, 3 * 2 / 2**14])
    assert [pair.is_worse for pair in found] == [True, False, False]


def test_ratios_average_draws_first() -> None:
    lines = [
        line("mein", "trec", 0, list(range(10))), line("mein", "trec", 1, list(range(30))),
        line("tf-idf", "trec", 0, list(range(40))), line("tf-idf", "trec", 1, list(range(40))),
        line("minilm", "trec", 0, list(range(5))), line("minilm", "trec", 1, list(range(45))),
        line("mein", "cr", 0, list(range(9))), line("tf-idf", "cr", 0, list(range(10))),
    ]  # fmt: skip
    suite = suite_of(lines)
    assert ratios(suite, "mein", ["tf-idf"]) == {"trec": ("tf-idf", 20 / 40), "cr": ("tf-idf", 0.9)}
    # (10 + 30) / (5 + 45), not the mean of 2 and 2/3; minilm is the best of trec and absent from cr.
    assert ratios(suite, "mein", ["tf-idf", "minilm"]) == {"trec": ("minilm", 40 / 50), "cr": ("tf-idf", 0.9)}
    assert overall(suite, "mein", "error", ["trec", "cr"]) == pytest.approx((20 + 9) / 2)
    assert overall(suite, "minilm", "error", ["trec", "cr"]) is None


def test_a_ratio_needs_every_draw_of_ours_at_the_peer() -> None:
    lines = [line("mein", "cr", 0, [0]), line("mein", "cr", 1, [0]), line("tf-idf", "cr", 0, [0])]
    assert ratios(suite_of(lines), "mein", ["tf-idf"]) == {}


def test_failed_lines_and_other_sizes_are_no_part_of_the_suite() -> None:
    failed = line("mein", "cr", 0, [0], error=None)
    others = [line("mein", "cr", 1, [0], labels=50), line("mein", "cr", 2, [0], share=0.5)]
    assert suite_of([failed, *others]) == {}


def test_bars_without_encoder() -> None:
    lines = [
        line("mein", "imdb", 0, list(range(15)), log_loss=0.3, calibration_error=0.09),
        line("tf-idf", "imdb", 0, list(range(20)), log_loss=0.4),
        line("mein", "trec", 0, list(range(12)), log_loss=0.6, calibration_error=0.01),
        line("tf-idf", "trec", 0, list(range(20)), log_loss=0.4),
    ]
    found = {bar.name: (round(bar.found, 3), bar.bar, bar.is_met) for bar in bars(suite_of(lines))}
    assert found == {
        "mein / tf-idf, mean ratio": (0.675, 0.75, True),  # 15/20 and 12/20
        "mein / tf-idf, mean ratio of long texts": (0.75, 0.8, True),
        "mein, cells significantly worse than tf-idf": (0, 0, True),
        "mein, mean log loss, to the best peer's": (0.45, 0.4, False),
        "mein, mean calibration error": (0.05, 0.05, True),
        "mein, largest calibration error": (0.09, 0.08, False),
    }


def test_bars_with_encoder() -> None:
    lines = [
        line("mein + minilm", "trec", 0, list(range(18))),
        line("minilm", "trec", 0, list(range(20))),
        line("tf-idf", "trec", 0, list(range(40))),
        line("mein + minilm", "imdb", 0, list(range(40))),
        line("minilm", "imdb", 0, list(range(24))),
        line("tf-idf", "imdb", 0, list(range(20))),
    ]
    found = {bar.name: (round(bar.found, 3), bar.count, bar.is_met) for bar in bars(suite_of(lines))}
    of = "mein + minilm / best linear peer"
    assert found[f"{of}, mean ratio"] == (1.45, 2, False)  # 18/20 and 40/20
    assert found[f"{of}, mean ratio where that has an encoder"] == (0.9, 1, True)
    assert found[f"{of}, problems at least 10% better"] == (1, 2, False)
    assert found[f"{of}, short ones among them"] == (1, 2, False)
    assert found["mein + minilm, cells significantly worse than that peer"] == (1, 2, False)


def test_the_summary_holds_means_ratios_and_pairs() -> None:
    found = summary([line("mein", "cr", 0, [0]), line("tf-idf", "cr", 0, [1, 2])])
    assert found["means"]["tf-idf"]["error"] == 2.0
    assert found["ratios"] == {"mein": {"tf-idf": {"mean": 0.5, "problems": {"cr": 0.5}}}}
    assert [(pair["peer"], pair["gained"], pair["lost"]) for pair in found["pairs"]["mein"]] == [
        ("tf-idf", 2, 1)
    ]
    assert found["bars"][0]["is_met"] is True
