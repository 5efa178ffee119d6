"""The final comparison: its numbers, its sentence, and its width."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import binomtest

from mein.evaluation.comparison import IMITATORS, compare, headline, render
from mein.evaluation.metrics import evaluate
from mein.evaluation.systems import CLOSED_GATES, EXPERT, IMITATORS_ONLY, MIXTURE, RANDOM_IMITATORS, TFIDF

N = 1_000
LABELS = np.arange(N) % 2


def answers(wrong: range, n: int = N) -> NDArray[np.float64]:
    """Log-probabilities of two classes that are wrong on exactly these documents."""
    labels = np.arange(n) % 2
    is_wrong = np.isin(np.arange(n), list(wrong))
    of_one = np.where(labels == 1, 0.9, 0.1)
    of_one = np.where(is_wrong, 1 - of_one, of_one)
    log_probs: NDArray[np.float64] = np.log(np.stack([1 - of_one, of_one], axis=1))
    return log_probs


def log(expert: range, closed_gates: range, mixture: range) -> str:
    """The sentence for systems that are wrong on these documents."""
    wrong = {EXPERT: expert, CLOSED_GATES: closed_gates, MIXTURE: mixture}
    return headline(compare(LABELS, {k: answers(v) for k, v in wrong.items()}, seed=0))


def test_rows_keep_their_order_and_hold_each_comparison() -> None:
    systems = {TFIDF: answers(range(200)), MIXTURE: answers(range(98)), EXPERT: answers(range(142))}
    rows = compare(LABELS, systems, seed=0)
    assert [row.name for row in rows] == [TFIDF, MIXTURE, EXPERT]
    tfidf, mixture, expert = rows
    assert expert.scores == evaluate(systems[EXPERT], LABELS)
    assert expert.p_value == pytest.approx(binomtest(0, 142 - 98).pvalue)
    assert expert.difference is not None
    assert expert.difference.difference == pytest.approx(14.2 - 9.8)
    assert 0 < expert.difference.low < 4.4 < expert.difference.high < 7
    assert tfidf.interval[0] < 20.0 < tfidf.interval[1]
    assert mixture.p_value is None
    assert mixture.difference is None


def test_without_the_reference_nothing_is_compared() -> None:
    (row,) = compare(LABELS, {EXPERT: answers(range(142))}, seed=0)
    assert row.p_value is None
    assert headline([row]) == ("Nothing tells whether unlabeled text helps here: expert alone, 14.2 % error.")


def test_a_mixture_without_controls_claims_nothing() -> None:
    systems = {TFIDF: answers(range(200)), MIXTURE: answers(range(98))}
    assert headline(compare(LABELS, systems, seed=0)) == (
        "Nothing tells whether unlabeled text helps here: mixture alone, 9.8 % error."
    )


def test_the_reference_may_be_another_system() -> None:
    systems = {EXPERT: answers(range(50)), MIXTURE: answers(range(40))}
    expert, mixture = compare(LABELS, systems, seed=0, reference=EXPERT)
    assert expert.p_value is None
    assert mixture.difference is not None
    assert mixture.difference.difference == pytest.approx(-1.0)


def test_it_helped_where_the_mixture_beats_the_expert_and_closed_gates() -> None:
    # 44 to 0 and 9 to 0: 2 / 2^44 and 2 / 2^9 = 0.0039
    assert log(range(142), range(107), range(98)) == (
        "The unlabeled text helped: 14.2 % -> 9.8 % error (p < 0.0001, expert vs mixture) "
        "and 10.7 % -> 9.8 % error (p = 0.0039, closed gates vs mixture: the same fine-tuning "
        "without the imitators)."
    )


def test_a_gain_that_fine_tuning_alone_explains_is_no_help() -> None:
    # 4 to 0: 2 / 2^4 = 0.125, written 0.12
    sentence = log(range(142), range(102), range(98))
    assert sentence.startswith("The unlabeled text did not help measurably: 14.2 % -> 9.8 % error")
    assert "10.2 % -> 9.8 % error (p = 0.12, closed gates vs mixture" in sentence
    assert sentence.endswith("; the difference from closed gates may be chance.")


def test_no_difference_at_all_is_no_help() -> None:
    sentence = log(range(98), range(98), range(98))
    assert sentence.startswith("The unlabeled text did not help measurably: 9.8 % -> 9.8 % error")
    assert sentence.endswith("; the difference from expert and closed gates may be chance.")


@pytest.mark.parametrize(("expert", "closed_gates"), [(98, 98), (200, 98), (98, 200), (150, 98)])
def test_it_hurt_where_either_control_beats_the_mixture(expert: int, closed_gates: int) -> None:
    sentence = log(range(expert), range(closed_gates), range(150))
    assert sentence.startswith("The unlabeled text hurt: ")


def test_where_closed_gates_were_not_run_nothing_tells_what_the_text_did() -> None:
    systems = {EXPERT: answers(range(142)), MIXTURE: answers(range(98))}
    assert headline(compare(LABELS, systems, seed=0)) == (
        "Nothing tells what the unlabeled text did, without closed gates: "
        "14.2 % -> 9.8 % error (p < 0.0001, expert vs mixture)."
    )
    assert headline(compare(LABELS, systems, seed=0), credited=IMITATORS).startswith(
        "Nothing tells what the imitators did, without closed gates: "
    )


@pytest.mark.parametrize(
    ("mixture", "verdict"), [(98, "helped"), (140, "did not help measurably"), (200, "hurt")]
)
def test_imitators_get_the_credit_where_the_expert_has_read_the_text_itself(
    mixture: int, verdict: str
) -> None:
    wrong = {EXPERT: 142, CLOSED_GATES: 142, MIXTURE: mixture}
    rows = compare(LABELS, {name: answers(range(n)) for name, n in wrong.items()}, seed=0)
    assert headline(rows, credited=IMITATORS).startswith(f"The imitators {verdict}: 14.2 % -> ")


def test_the_table_is_read_as_printed() -> None:
    systems = {EXPERT: answers(range(142)), MIXTURE: answers(range(98))}
    lines = print_table(systems, N, width=80)
    assert lines[0].strip() == "1,000 test documents"
    assert lines[4].split() == ["expert", "14.2", "12.2–16.5", "0.858", "0.417", "0.042", "<0.0001"]
    assert lines[5].split()[:2] == ["mixture", "9.8"]


@pytest.mark.parametrize("n", [1_000, 25_000])
def test_the_table_fits_80_columns_with_a_line_for_each_system(n: int) -> None:
    names = [TFIDF, EXPERT, CLOSED_GATES, RANDOM_IMITATORS, IMITATORS_ONLY, MIXTURE]
    wrong = [400, 343, 338, 333, 334, 329]
    systems = {k: answers(range(w * n // 1000), n) for k, w in zip(names, wrong, strict=True)}
    lines = print_table(systems, n, width=80)
    assert max(len(line.rstrip()) for line in lines) <= 79
    assert len(lines) == 1 + 2 + 1 + len(names) + 1  # title, header, rule, rows, caption
    assert [line[:28].rstrip() for line in lines[4:10]] == names
    assert "…" not in "".join(lines)


def test_large_test_sets_earn_a_second_decimal() -> None:
    systems = {EXPERT: answers(range(1_013), 10_000), MIXTURE: answers(range(969), 10_000)}
    text = "\n".join(print_table(systems, 10_000, width=80))
    assert "10.13" in text
    assert "9.69" in text


def print_table(systems: dict[str, NDArray[np.float64]], n: int, width: int) -> list[str]:
    """The lines of the table on a plain terminal."""
    out = io.StringIO()
    rows = compare(np.arange(n) % 2, systems, seed=0)
    Console(file=out, width=width, color_system=None).print(render(rows))
    return out.getvalue().splitlines()
