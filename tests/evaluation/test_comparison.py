"""The final comparison: its numbers, its sentence, and its width."""

import io
import json

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import binomtest

from mein.evaluation.comparison import Row, Verdict, compare, verdict_of
from mein.evaluation.metrics import evaluate
from mein.evaluation.rendering import p_equals, p_text, render, sentence_of, title_of
from mein.evaluation.systems import (
    CLOSED_GATES,
    EXPERT,
    IMITATORS_ONLY,
    MIXTURE,
    PREVIOUS_RUN,
    RANDOM_IMITATORS,
    SYSTEMS,
    TFIDF,
)

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


def rows_of(**wrong: int) -> list[Row]:
    """The comparison of systems with so many wrong documents, the first ones."""
    return compare(LABELS, {name: answers(range(n)) for name, n in wrong.items()}, seed=0, has_lexicon=True)


def verdict(expert: int, closed: int, mixture: int) -> Verdict:
    """The verdict on systems with so many wrong documents."""
    return verdict_of(rows_of(expert=expert, closed=closed, mixture=mixture))


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
    found = verdict_of([row])
    assert (found.outcome, found.result, found.against) == ("untested", row, ())
    assert title_of(found) == "Trained on labels only"
    assert sentence_of(found) == (
        "The effect of the unlabeled text was not measured: expert only, 14.2% error."
    )


def test_a_mixture_without_controls_claims_nothing() -> None:
    systems = {TFIDF: answers(range(200)), MIXTURE: answers(range(98))}
    found = verdict_of(compare(LABELS, systems, seed=0))
    assert title_of(found) == "Trained without controls"
    assert sentence_of(found) == (
        "The effect of the unlabeled text was not measured: mixture only, 9.8% error."
    )


def test_the_reference_may_be_another_system() -> None:
    systems = {EXPERT: answers(range(50)), MIXTURE: answers(range(40))}
    expert, mixture = compare(LABELS, systems, seed=0, reference=EXPERT)
    assert expert.p_value is None
    assert mixture.difference is not None
    assert mixture.difference.difference == pytest.approx(-1.0)


def test_it_helped_where_the_mixture_beats_the_expert_and_closed_gates() -> None:
    # 44 to 0 and 9 to 0: 2 / 2^44 and 2 / 2^9 = 0.0039
    found = verdict(142, 107, 98)
    assert (found.outcome, found.credited, found.result.name) == ("helped", "unlabeled text", MIXTURE)
    assert [row.name for row in found.against] == [EXPERT, CLOSED_GATES]
    assert [row.gain for row in found.against] == pytest.approx([4.4, 0.9])
    assert [row.p_value for row in found.against] == pytest.approx([2 / 2**44, 2 / 2**9])
    assert title_of(found) == "The unlabeled text helped"
    assert sentence_of(found) == (
        "The unlabeled text helped: 14.2% -> 9.8% error (p < 0.0001, expert vs mixture) "
        "and 10.7% -> 9.8% error (p = 0.0039, expert + lexicon, fine-tuned vs mixture: "
        "the same fine-tuning without the imitators)."
    )


def test_a_gain_that_fine_tuning_alone_explains_is_no_help() -> None:
    # 4 to 0: 2 / 2^4 = 0.125, written 0.12
    found = verdict(142, 102, 98)
    assert found.outcome == "unclear"
    assert title_of(found) == "No measurable help from the unlabeled text"
    sentence = sentence_of(found)
    assert sentence.startswith("The unlabeled text did not help measurably: 14.2% -> 9.8% error")
    assert "10.2% -> 9.8% error (p = 0.12, expert + lexicon, fine-tuned vs mixture" in sentence
    assert sentence.endswith("; the difference from expert + lexicon, fine-tuned may be chance.")


def test_no_difference_at_all_is_no_help() -> None:
    sentence = sentence_of(verdict(98, 98, 98))
    assert sentence.startswith("The unlabeled text did not help measurably: 9.8% -> 9.8% error")
    assert sentence.endswith("; the difference from expert and expert + lexicon, fine-tuned may be chance.")


@pytest.mark.parametrize(("expert", "closed_gates"), [(98, 98), (200, 98), (98, 200), (150, 98)])
def test_it_hurt_where_either_control_beats_the_mixture(expert: int, closed_gates: int) -> None:
    found = verdict(expert, closed_gates, 150)
    assert found.outcome == "hurt"
    assert title_of(found) == "The unlabeled text hurt"
    assert sentence_of(found).startswith("The unlabeled text hurt: ")


def test_without_closed_gates_the_effect_is_unknown() -> None:
    rows = rows_of(expert=142, mixture=98)
    assert verdict_of(rows).outcome == "untested"
    assert sentence_of(verdict_of(rows)) == (
        "Without closed gates the effect of the unlabeled text is unknown: "
        "14.2% -> 9.8% error (p < 0.0001, expert vs mixture)."
    )
    assert sentence_of(verdict_of(rows, "imitators")).startswith(
        "Without closed gates the effect of the imitators is unknown: "
    )


@pytest.mark.parametrize(
    ("mixture", "effect"), [(98, "helped"), (140, "did not help measurably"), (200, "hurt")]
)
def test_imitators_get_the_credit_where_the_expert_was_trained_on_the_text_itself(
    mixture: int, effect: str
) -> None:
    found = verdict_of(rows_of(expert=142, closed=142, mixture=mixture), "imitators")
    assert sentence_of(found).startswith(f"The imitators {effect}: 14.2% -> ")
    assert "imitators" in title_of(found)


@pytest.mark.parametrize(
    ("errors", "outcome", "sentence", "title"),
    [
        (400, "helped", "has a lower error than", "Lower error than the previous run"),
        (102, "unclear", "does not differ measurably from", "No measurable difference from the previous run"),
        (50, "hurt", "has a higher error than", "Higher error than the previous run"),
    ],
)
def test_a_self_training_round_is_compared_with_the_previous_run_only(
    errors: int, outcome: str, sentence: str, title: str
) -> None:
    rows = rows_of(**{PREVIOUS_RUN: errors}, expert=600, closed=600, mixture=98)
    found = verdict_of(rows, "self-training")
    assert (found.outcome, title_of(found)) == (outcome, title)
    assert sentence_of(found).startswith(f"This self-training round {sentence} the previous run: ")
    assert "expert" not in sentence_of(found)
    lone = verdict_of(rows_of(expert=600, mixture=98), "self-training")
    assert sentence_of(lone) == (
        "Self-training was not compared with the previous run: mixture only, 9.8% error."
    )


def test_rows_and_verdicts_are_the_same_after_json() -> None:
    rows = rows_of(expert=142, closed=107, mixture=98)
    assert [Row.from_dict(json.loads(json.dumps(row.to_dict()))) for row in rows] == rows
    found = verdict_of(rows)
    line = json.loads(json.dumps({"stage": "verdict", **found.to_dict()}))
    assert Verdict.from_dict(line) == found
    with pytest.raises(ValueError, match="unknown verdict: 'won'"):
        Verdict.from_dict(line | {"outcome": "won"})


def test_p_values_have_one_form() -> None:
    assert [p_text(p) for p in (None, 1.0, 0.41, 0.032, 0.0003, 0.00001)] == [
        "", "1.00", "0.41", "0.0320", "0.0003", "<0.0001"
    ]  # fmt: skip
    assert [p_equals(p) for p in (0.41, 0.00001)] == ["p = 0.41", "p < 0.0001"]


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
    titles = [SYSTEMS[name].title_in(has_lexicon=True) for name in names]
    assert [line[:28].rstrip() for line in lines[4:10]] == titles
    assert "…" not in "".join(lines)


def test_large_test_sets_earn_a_second_decimal() -> None:
    systems = {EXPERT: answers(range(1_013), 10_000), MIXTURE: answers(range(969), 10_000)}
    text = "\n".join(print_table(systems, 10_000, width=80))
    assert "10.13" in text
    assert "9.69" in text


def print_table(systems: dict[str, NDArray[np.float64]], n: int, width: int) -> list[str]:
    """The lines of the table on a plain terminal."""
    out = io.StringIO()
    rows = compare(np.arange(n) % 2, systems, seed=0, has_lexicon=True)
    Console(file=out, width=width, color_system=None).print(render(rows))
    return out.getvalue().splitlines()
