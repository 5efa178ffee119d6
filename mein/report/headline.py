"""The answer in one glance: did the raw text help, by how much, how sure."""

from typing import Any

import numpy as np

from mein.evaluation.table import EXPERT, MIXTURE, TEACHER, TFIDF, percent
from mein.report.charts import error_text, interval_text
from mein.report.reading import Finished
from mein.report.words import counted, p_equals

VERDICTS = {  # how the sentence of the verdict begins, and what that means in a word
    "The unlabelled text helped": ("helped", "The raw text helped"),
    "The unlabelled text hurt": ("hurt", "The raw text hurt"),
    "The unlabelled text did not": ("unclear", "No measurable help from the raw text"),
    "The imitators helped": ("helped", "The imitators helped"),
    "The imitators hurt": ("hurt", "The imitators hurt"),
    "The imitators did not": ("unclear", "No measurable help from the imitators"),
    "The student errs less": ("helped", "The student errs less than its teacher"),
    "The student errs more": ("hurt", "The student errs more than its teacher"),
    "The student cannot be told": ("unclear", "No measurable difference from its teacher"),
    "Nothing compares this student": ("alone", "A student, without its teacher beside it"),
}


def verdict(run: Finished) -> tuple[str, str]:
    """One word for the style sheet, and a few for people."""
    for beginning, words in VERDICTS.items():
        if run.headline.startswith(beginning):
            return words
    return "alone", "Trained on labels alone" if not run.gates else "Trained without controls"


def hero(run: Finished) -> dict[str, Any]:
    """The verdict, its figures, and what to be careful about."""
    css, title = verdict(run)
    best = run.rows[run.best]
    before = _before(run)
    names = _tile_names(run)
    tiles = [
        {"name": names[before], "css": "expert", **_tile(run, before)},
        {"name": names[MIXTURE], "css": "mixture", **_tile(run, MIXTURE)},
    ]
    return {
        "css": css,
        "title": title,
        "is_student": run.is_student,
        "knows_labels_alone": run.knows_labels_alone,
        "reads_raw_text": run.reads_raw_text,
        "lead": _lead(run),
        "people": _people(run),
        "tiles": [tile for tile in tiles if "error" in tile],
        "sentence": run.headline.replace("->", "→"),
        "documents": counted(best.scores.documents, f"{run.part} document"),
        "cautions": cautions(run),
    }


def _before(run: Finished) -> str:
    """What the mixture is compared with first: the expert; a student's teacher."""
    return TEACHER if TEACHER in run.rows else EXPERT


def _tile_names(run: Finished) -> dict[str, str]:
    """What each system is beside the other: raw text is between them only where the expert has read none."""
    expert = "expert alone: labels only" if run.knows_labels_alone else "expert alone"
    has_both_read_it = run.reads_raw_text and not run.is_student
    mixture = "mixture: with imitators" if has_both_read_it else "mixture: labels and raw text"
    return {EXPERT: expert, TEACHER: "its teacher: the run before", MIXTURE: mixture}


def _tile(run: Finished, system: str) -> dict[str, Any]:
    row = run.rows.get(system)
    return {} if row is None else {"error": error_text(row), "interval": interval_text(row)}


def _lead(run: Finished) -> str:
    """By how much, and how sure."""
    expert, mixture = run.rows.get(_before(run)), run.rows.get(MIXTURE)
    if expert is None or mixture is None or expert.difference is None or expert.p_value is None:
        best = run.rows[run.best]
        return f"The {run.best} errs on {error_text(best)} % (95 % interval {interval_text(best)})."
    n, gain = mixture.scores.documents, expert.difference
    if gain.difference == 0:
        return f"{_before(run).capitalize()} and mixture both err on {error_text(mixture)} %."
    direction = "fewer" if gain.difference > 0 else "more"
    low, high = sorted((gain.low, gain.high)) if gain.difference > 0 else sorted((-gain.low, -gain.high))
    return (
        f"Error went from {error_text(expert)} % to {error_text(mixture)} %: "
        f"{percent(abs(gain.difference), n)} points {direction} "
        f"(95 % interval {percent(low, n)} to {percent(high, n)}; {p_equals(expert.p_value)})."
    ).replace(" -", " −")


def _people(run: Finished) -> str:
    """The same in documents."""
    if MIXTURE not in run.rows or EXPERT not in run.rows:
        return ""
    named = (_before(run), MIXTURE)
    expert, mixture = (run.log_probs(name).argmax(axis=1) == run.label_ids for name in named)
    mended, broken = int(np.sum(mixture & ~expert)), int(np.sum(expert & ~mixture))
    return (
        f"Of {counted(len(expert), f'{run.part} document')} the {named[0]} got {np.sum(~expert):,} wrong, "
        f"the mixture {int(np.sum(~mixture)):,}: {mended:,} mended, {broken:,} newly wrong."
    )


def cautions(run: Finished) -> list[str]:
    """What a reader should know before believing the figures."""
    best, found = run.rows[run.best], []
    if run.part == "dev":
        found.append("There was no test set: these are the dev documents, by which everything was chosen.")
    baseline = run.rows.get(TFIDF)
    if baseline is not None and baseline.scores.error < best.scores.error:
        sure = "" if baseline.p_value is None else f" ({p_equals(baseline.p_value)})"
        found.append(
            f"TF-IDF with logistic regression errs less than the {run.best}: "
            f"{error_text(baseline)} %{sure}. Consider it."
        )
    if best.scores.documents < 300:
        found.append(f"{counted(best.scores.documents, 'document')} can show large differences only.")
    if run.counts.get("train_in_test", 0) + run.counts.get("dev_in_test", 0) > 0:
        found.append("Some labelled documents are also in the test set: its error looks too good.")
    return found
