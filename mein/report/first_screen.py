"""The first screen of the page: for somebody who must decide whether to use the model."""

from typing import Any

import numpy as np

from mein.evaluation.comparison import Row, Verdict
from mein.evaluation.metrics import percent
from mein.evaluation.rendering import (
    ADVICE,
    beside_baseline,
    capitalized,
    effect_of,
    error_text,
    interval_text,
    p_of,
    reason_of,
    signed,
)
from mein.evaluation.systems import ENCODER, MIXTURE, TFIDF
from mein.report.charts import counted
from mein.report.record import Finished

MOST_NAMED = 3  # classes that are never predicted


def hero(run: Finished) -> dict[str, Any]:
    """What to use, the errors of the model and of the baseline, how sure that is, and what to mind."""
    verdict = verdict_in(run)
    model = verdict.result
    tiles = []
    if verdict.outcome != "seen":  # its error means nothing
        tiles.append({"title": "This model", "css": MIXTURE, **_tile(model)})
    if verdict.baseline is not None:
        tiles.append(
            {
                "title": capitalized(verdict.baseline.title),
                "css": verdict.baseline.name,
                **_tile(verdict.baseline),
            }
        )
    return {
        "css": verdict.advice,
        "title": ADVICE[verdict.advice],
        "reason": reason_of(verdict),
        "lead": beside_baseline(verdict),
        "tiles": tiles,
        "facts": _facts(run),
        "documents": f"Evaluated on {counted(model.scores.documents, f'{run.part} document')}",
        "cautions": cautions(run),
    }


def verdict_in(run: Finished) -> Verdict:
    """The verdict of a run with measurements."""
    assert run.verdict is not None, run.path  # write_report refuses runs without measurements
    return run.verdict


def _tile(row: Row) -> dict[str, str]:
    return {"error": error_text(row), "interval": interval_text(row), "wrong": _one_in(row.scores.error)}


def _one_in(error: float) -> str:
    """An error as one would say it."""
    if error == 0:
        return "no label was wrong"
    if error > 40:
        return f"about {error / 10:.0f} of 10 labels are wrong"
    return f"about 1 label in {100 / error:.0f} is wrong"


def _facts(run: Finished) -> list[tuple[str, str]]:
    """How sure the difference is, what the unlabeled text gave, and how to get the baseline."""
    verdict, facts = verdict_in(run), []
    row, n = verdict.baseline, counted(len(run.label_ids), f"{run.part} document")
    if row is not None and row.difference is not None:
        low, high = (signed(bound, 1) for bound in (row.difference.low, row.difference.high))
        facts.append(
            (
                "How sure",
                f"The model is {_better(row)} (95% interval {low} to {high}; {p_of(verdict, row)}), on {n}.",
            )
        )
    effect = effect_of(verdict)
    if run.learns_from_unlabeled:
        effect += " Imitators are small networks that learn from the unlabeled text."
    facts.append(("Self-training" if run.is_self_training else "Unlabeled text", effect))
    if row is not None and verdict.advice in ("baseline", "labels"):
        facts.append(("The baseline", RECIPES[row.name]))
    return [(name, fact.replace("p = ", "p\u00a0=\u00a0")) for name, fact in facts]


RECIPES = {
    TFIDF: "In scikit-learn: TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), then LogisticRegression "
    "with C by cross-validation.",
    ENCODER: "In scikit-learn: LogisticRegression with C by cross-validation, on the encoder's features.",
}


def _better(row: Row) -> str:
    if row.gain == 0:
        return "as good as the baseline"
    points = percent(abs(row.gain), row.scores.documents)
    return f"{points} points {'better' if row.gain > 0 else 'worse'} than the baseline"


def cautions(run: Finished) -> list[str]:
    """What a reader should know before believing the figures."""
    verdict, found = verdict_in(run), []
    if run.part == "dev":
        found.append(run.about_dev)
    if run.part == "labeled":
        found.append(
            "There was no test set. Each labeled document was evaluated by what had not seen its label, in "
            "five folds. The folds share documents, so p is approximate."
        )
    if verdict.has_few_documents:
        n = counted(verdict.result.scores.documents, "document")
        found.append(f"Only large differences are measurable on {n}.")
    found += _never_predicted(run)
    if run.counts.get("train_in_test", 0) + run.counts.get("dev_in_test", 0) > 0:
        found.append("Some labeled documents are also in the test set: its error looks too good.")
    return found


def _never_predicted(run: Finished) -> list[str]:
    """Classes that evaluated documents have and that the model predicts for none."""
    predicted = np.unique(run.log_probs(run.best).argmax(axis=1))
    missed = np.setdiff1d(np.unique(run.label_ids), predicted)
    if not len(missed):
        return []
    n = counted(int(np.isin(run.label_ids, missed).sum()), f"{run.part} document")
    names = ", ".join(run.classes[y] for y in missed[:MOST_NAMED])
    more = f" and {len(missed) - MOST_NAMED} more classes" if len(missed) > MOST_NAMED else ""
    return [f"The model never predicts {names}{more}, the label of {n}."]
