"""The final comparison: its numbers, its sentence, and its width."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import binomtest

from mein.evaluation.comparison import Row, Verdict, compare, verdict_of
from mein.evaluation.metrics import evaluate
from mein.evaluation.rendering import (
    ADVICE,
    footnote,
    lines_of,
    p_equals,
    p_text,
    reason_of,
    render,
    sentence_of,
    title_of,
)
from mein.evaluation.systems import (
    CLOSED_GATES,
    ENCODER,
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
    assert (found.baseline, found.advice) == (None, "unknown")
    assert sentence_of(found) == "14.2% error. It was trained on labels only."
    assert reason_of(found) == "No baseline was evaluated on these documents."


def test_without_a_mixture_the_expert_is_compared() -> None:
    rows = rows_of(**{TFIDF: 200}, expert=142)
    assert [row.p_value for row in rows] == [pytest.approx(2 / 2**58), None]
    found = verdict_of(rows)
    assert (found.outcome, found.advice) == ("untested", "model")
    assert lines_of(found) == [
        "Use this model.",
        "14.2% error, 5.8 points below TF-IDF + logistic regression (p < 0.0001).",
        "It was trained on labels only.",
    ]


def test_a_mixture_without_controls_claims_nothing() -> None:
    systems = {TFIDF: answers(range(200)), MIXTURE: answers(range(98))}
    found = verdict_of(compare(LABELS, systems, seed=0))
    assert title_of(found) == "Trained without controls"
    assert sentence_of(found) == (
        "9.8% error, 10.2 points below TF-IDF + logistic regression (p < 0.0001). "
        "The effect of the unlabeled text is unknown: the controls were not trained."
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
        "9.8% error. The unlabeled text helped: 10.7% error without it (p = 0.0039)."
    )


def test_a_gain_that_fine_tuning_alone_explains_is_no_help() -> None:
    # 4 to 0: 2 / 2^4 = 0.125, written 0.12
    found = verdict(142, 102, 98)
    assert found.outcome == "unclear"
    assert title_of(found) == "No measurable help from the unlabeled text"
    assert sentence_of(found) == (
        "9.8% error. The unlabeled text did not help measurably: 10.2% error without it (p = 0.12)."
    )


def test_no_difference_at_all_is_no_help() -> None:
    assert sentence_of(verdict(98, 98, 98)) == (
        "9.8% error. The unlabeled text did not help measurably: 9.8% error without it (p = 1.00)."
    )


@pytest.mark.parametrize(("expert", "closed_gates"), [(98, 98), (200, 98), (98, 200), (150, 98)])
def test_it_hurt_where_either_control_beats_the_mixture(expert: int, closed_gates: int) -> None:
    found = verdict(expert, closed_gates, 150)
    assert found.outcome == "hurt"
    assert title_of(found) == "The unlabeled text hurt"
    assert sentence_of(found) == ("15.0% error. The unlabeled text hurt: 9.8% error without it (p < 0.0001).")


def test_it_hurt_by_the_control_that_is_measurably_better() -> None:
    """One of 20 documents fewer, but as many more on others: not measurable; the other of 10, all won."""
    systems = {
        EXPERT: answers(range(300, 340)),
        CLOSED_GATES: answers(range(50)),
        MIXTURE: answers(range(60)),
    }
    found = verdict_of(compare(LABELS, systems, seed=0))
    assert found.outcome == "hurt"
    assert [row.is_measurable for row in found.against] == [False, True]
    assert "5.0% error without it (p = 0.0020)" in sentence_of(found)


def test_what_did_not_help_is_compared_with_the_best_control() -> None:
    """Not with the one that is as good as the mixture."""
    systems = {
        EXPERT: answers(range(90, 180)),
        CLOSED_GATES: answers(range(100)),
        MIXTURE: answers(range(100)),
    }
    assert "9.0% error without it" in sentence_of(verdict_of(compare(LABELS, systems, seed=0)))


def test_without_closed_gates_the_effect_is_unknown() -> None:
    rows = rows_of(expert=142, mixture=98)
    assert verdict_of(rows).outcome == "untested"
    assert sentence_of(verdict_of(rows, "imitators")) == (
        "9.8% error. The effect of the imitators is unknown: the controls were not trained."
    )


@pytest.mark.parametrize(
    ("mixture", "effect"), [(98, "helped"), (140, "did not help measurably"), (200, "hurt")]
)
def test_imitators_get_the_credit_where_the_expert_was_trained_on_the_text_itself(
    mixture: int, effect: str
) -> None:
    found = verdict_of(rows_of(expert=142, closed=142, mixture=mixture), "imitators")
    assert f"% error. The imitators {effect}: 14.2% error without them (p " in sentence_of(found)
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
    assert sentence_of(found).startswith(
        f"9.8% error. This self-training round {sentence} the previous run, {errors / 10:.1f}% (p "
    )
    assert "expert" not in sentence_of(found)
    lone = verdict_of(rows_of(expert=600, mixture=98), "self-training")
    assert sentence_of(lone) == (
        "9.8% error. This self-training round was not compared with the previous run."
    )


@pytest.mark.parametrize(
    ("baseline", "model", "n", "advice", "sentence"),
    [
        (range(213), range(128), 1_000, "model", "12.8% error, 8.5 points below {} (p < 0.0001)."),
        (range(380), range(382), 1_000, "baseline", "No better than {}: 38.2% against 38.0% error (p "),
        (range(382), range(10, 390), 1_000, "baseline", "No better than {}: 38.0% against 38.2% error (p "),
        (range(100), range(150), 1_000, "baseline", "Worse than {}: 15.0% against 10.0% error (p < 0.0001). "
         "Use the baseline."),
        (range(30), range(10, 37), 100, "labels", "No better than {}: 27.0% against 30.0% error (p = 0.63)."),
        (range(30), range(5, 36), 100, "labels", "No better than {}: 31.0% against 30.0% error (p = 1.00)."),
        (range(0), range(0), 100, "baseline", "No better than {}: 0.0% against 0.0% error (p = 1.00)."),
    ],
)  # fmt: skip
def test_the_verdict_advises_what_is_measurably_better(
    baseline: range, model: range, n: int, advice: str, sentence: str
) -> None:
    """Where nothing is, the baseline, unless a gain of a tenth of its errors is likely enough."""
    systems = {TFIDF: answers(baseline, n), EXPERT: answers(range(60), n), MIXTURE: answers(model, n)}
    found = verdict_of(compare(np.arange(n) % 2, systems, seed=0))
    assert found.advice == advice
    assert sentence_of(found).startswith(sentence.format("TF-IDF + logistic regression"))
    assert (found.enough_documents is not None) == (advice == "labels")


def test_the_best_baseline_is_named() -> None:
    for tfidf, encoder, name in [(200, 150, ENCODER), (150, 200, TFIDF), (150, 150, TFIDF)]:
        found = verdict_of(rows_of(**{TFIDF: tfidf, ENCODER: encoder}, expert=90, closed=90, mixture=98))
        assert found.baseline is not None
        assert (found.baseline.name, found.advice) == (name, "model")
        assert f"below {SYSTEMS[name].title}" in sentence_of(found)
        assert SYSTEMS[name].title in reason_of(found)


def test_enough_documents_are_four_times_as_many_for_half_the_width() -> None:
    """30 to 27 of 100, of which 10 and 7 are wrong in one only: about 3 +- 8 points."""
    systems = {TFIDF: answers(range(30), 100), MIXTURE: answers(range(10, 37), 100)}
    found = verdict_of(compare(np.arange(100) % 2, systems, seed=0))
    assert found.enough_documents is not None
    assert found.enough_documents == pytest.approx(100 * (8 / 3) ** 2 * (2.8 / 1.96) ** 2, rel=0.1)
    assert "too few test documents to tell whether the model beats TF-IDF" in reason_of(found)
    assert "So far its lower error may be chance" in reason_of(found)


def test_on_dev_the_model_does_not_win() -> None:
    """It was selected there."""
    rows = rows_of(**{TFIDF: 200}, expert=150, closed=140, mixture=98)
    assert [verdict_of(rows, part=part).advice for part in ("test", "labeled", "dev")] == [
        "model", "model", "labels"
    ]  # fmt: skip
    assert reason_of(verdict_of(rows, part="dev")).endswith("Evaluate it on a test set.")
    worse = rows_of(**{TFIDF: 50}, expert=150, closed=140, mixture=98)
    assert verdict_of(worse, part="dev").advice == "baseline"


def test_p_of_documents_out_of_fold_is_called_approximate() -> None:
    rows = rows_of(**{TFIDF: 200}, expert=150, closed=140, mixture=98)
    found = verdict_of(rows, "imitators", "labeled")
    assert sentence_of(found).count("(approximate p < 0.0001)") == 2
    assert footnote(is_approximate=True).endswith("p: McNemar, approximate")
    assert "approximate" not in sentence_of(verdict_of(rows)) + footnote()


def test_each_sentence_is_short() -> None:
    """At most 25 words, whatever is advised."""
    seen = set()
    for tfidf, mixture, n in [(213, 128, 1_000), (380, 382, 1_000), (100, 150, 1_000), (30, 27, 100)]:
        for part in ("test", "dev", "labeled"):
            systems = {ENCODER: answers(range(tfidf), n), EXPERT: answers(range(20), n)}
            systems |= {CLOSED_GATES: answers(range(20), n), MIXTURE: answers(range(mixture), n)}
            found = verdict_of(compare(np.arange(n) % 2, systems, seed=0), "imitators", part)
            seen.add(found.advice)
            for text in (sentence_of(found), reason_of(found)):
                for sentence in text.split(". "):
                    assert len(sentence.split()) <= 25, sentence
    assert seen == set(ADVICE) - {"unknown"}


def test_rows_and_verdicts_are_the_same_after_json() -> None:
    rows = rows_of(**{TFIDF: 200}, expert=142, closed=107, mixture=98)
    assert [Row.from_dict(json.loads(json.dumps(row.to_dict()))) for row in rows] == rows
    found = verdict_of(rows, part="labeled")
    line = json.loads(json.dumps({"stage": "verdict", **found.to_dict()}))
    assert Verdict.from_dict(line) == found
    assert line["advice"] == "model"
    earlier = {name: value for name, value in line.items() if name not in ("baseline", "part", "advice")}
    assert Verdict.from_dict(earlier) == replace(found, baseline=None, part="test")
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
    names = [TFIDF, ENCODER, EXPERT, CLOSED_GATES, RANDOM_IMITATORS, IMITATORS_ONLY, MIXTURE]
    wrong = [400, 390, 343, 338, 333, 334, 329]
    systems = {k: answers(range(w * n // 1000), n) for k, w in zip(names, wrong, strict=True)}
    lines = print_table(systems, n, width=80)
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert len(lines) == 1 + 2 + 1 + len(names) + 1  # title, header, rule, rows, caption
    titles = [SYSTEMS[name].title_in(has_lexicon=True) for name in names]
    assert [line[:29].rstrip() for line in lines[4:11]] == titles
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


@pytest.mark.parametrize(
    ("has_lexicon", "is_tuned", "title"),
    [
        (True, True, "expert + lexicon, fine-tuned"),
        (True, False, "expert + lexicon, not tuned"),
        (False, True, "expert, fine-tuned"),
        (False, False, "expert, not tuned"),
    ],
)
def test_closed_gates_are_named_by_what_they_are(has_lexicon: bool, is_tuned: bool, title: str) -> None:
    systems = {name: answers(range(5)) for name in (EXPERT, CLOSED_GATES, MIXTURE)}
    rows = compare(LABELS, systems, seed=0, has_lexicon=has_lexicon, is_tuned=is_tuned)
    assert [row.title for row in rows] == ["expert", title, "mixture"]
