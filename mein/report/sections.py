"""What the page says.

The answer in one glance: did the raw text help, by how much, how sure.

What the page says of one run, section by section, as plain data for the template.
"""

import shlex
from typing import Any

import numpy as np
from markupsafe import Markup

from mein.evaluation.comparison import percent
from mein.evaluation.metrics import calibration_error, reliability, risk_coverage
from mein.evaluation.systems import (
    CLOSED_GATES,
    EXPERT,
    IMITATORS_ONLY,
    MIXTURE,
    PREVIOUS_RUN,
    RANDOM_IMITATORS,
    TFIDF,
)
from mein.report import details as confusions
from mein.report.charts import (
    counted,
    css_of,
    error_text,
    forest,
    interval_text,
    number,
    p_equals,
    p_value,
    reliability_chart,
    risk_chart,
    seconds,
    signed,
    signed_bars,
)
from mein.report.details import changed, curves, fragments
from mein.report.record import Finished
from mein.run.parts import notes

VERDICTS = {  # how the sentence of the verdict begins, and what that means in a word
    "The unlabeled text helped": ("helped", "The raw text helped"),
    "The unlabeled text hurt": ("hurt", "The raw text hurt"),
    "The unlabeled text did not": ("unclear", "No measurable help from the raw text"),
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
        "is_self_training": run.is_self_training,
        "knows_labels_only": run.knows_labels_only,
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
    return PREVIOUS_RUN if PREVIOUS_RUN in run.rows else EXPERT


def _tile_names(run: Finished) -> dict[str, str]:
    """What each system is beside the other: raw text is between them only where the expert has read none."""
    expert = "expert alone: labels only" if run.knows_labels_only else "expert alone"
    has_both_read_it = run.reads_raw_text and not run.is_self_training
    mixture = "mixture: with imitators" if has_both_read_it else "mixture: labels and raw text"
    return {EXPERT: expert, PREVIOUS_RUN: "its teacher: the run before", MIXTURE: mixture}


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
    corrected, broken = int(np.sum(mixture & ~expert)), int(np.sum(expert & ~mixture))
    return (
        f"Of {counted(len(expert), f'{run.part} document')} the {named[0]} got {np.sum(~expert):,} wrong, "
        f"the mixture {int(np.sum(~mixture)):,}: {corrected:,} mended, {broken:,} newly wrong."
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
        found.append("Some labeled documents are also in the test set: its error looks too good.")
    return found


MEANINGS = {
    TFIDF: "labels only, no network: the baseline",
    PREVIOUS_RUN: "the mixture of the run that it learned from",
    EXPERT: "by itself, after stage 1",
    CLOSED_GATES: "tuned as the mixture is, without imitators",
    RANDOM_IMITATORS: "tuned as the mixture is, noise for imitators",
    IMITATORS_ONLY: "their summed evidence, without the expert",
    MIXTURE: "all voices: what predict uses",
}
MOST_SHOWN_CLASSES = 12


def sections(run: Finished, key: str) -> dict[str, Any]:
    """Everything that the template of a run needs; `key` keeps its figures' names apart from others'."""
    return {
        "name": run.name,
        "hero": hero(run),
        "trained": trained(run),
        "table": table(run),
        "forest": forest(
            f"{key}-forest", [(n, css_of(n), row) for n, row in run.rows.items()], "Error of each system"
        ),
        "curves": curves(run, key),
        "voices": components(run, key),
        "confusion": confusion(run, key),
        "trust": trust(run, key),
        "fragments": fragments(run),
        "changed": changed(run),
        "steps": steps(run),
        "made": made(run),
    }


def trained(run: Finished) -> dict[str, Any]:
    """Documents, classes and networks."""
    counts, config = run.counts, run.config
    judged = next(iter(run.rows.values())).scores.documents
    parts = [
        ("labeled, to learn from", counts.get("train", 0), run.data.get("labeled")),
        ("labeled, to choose by (dev)", counts.get("dev", 0), run.data.get("dev")),
        (
            "raw, without labels",
            sum(counts.get(p, 0) for p in ("unlabeled", "held_out")),
            run.data.get("unlabeled"),
        ),
        ("to judge by (test)", judged if run.part == "test" else 0, run.data.get("test")),
    ]
    order = np.argsort(-run.prior, kind="stable")
    sees = ", ".join(str(2 * c + 1) for c in run.windows)
    return {
        "parts": [(name, f"{count:,}", source) for name, count, source in parts if count],
        "classes": [
            (run.classes[y], f"{100 * run.prior[y]:.1f}") for y in order[:MOST_SHOWN_CLASSES].tolist()
        ],
        "more_classes": max(0, len(run.classes) - MOST_SHOWN_CLASSES),
        "remarks": notes(counts) if "empty" in counts else [],
        "networks": [
            ("classes", f"{len(run.classes):,}"),
            ("expert", run.expert),
            ("imitators", f"{len(run.windows)}, seeing {sees} pieces at a time" if run.windows else "none"),
            ("lexicon", "none" if run.lexicon_gate is None else "learned from the labels, those of dev too"),
            ("seed", str(config["seed"])),
        ],
    }


def table(run: Finished) -> list[dict[str, Any]]:
    """The controls, a row each."""
    best = min(row.scores.error for row in run.rows.values())
    return [
        {
            "name": name,
            "meaning": MEANINGS.get(name, ""),
            "css": css_of(name),
            "is_best": row.scores.error == best,
            "error": error_text(row),
            "interval": interval_text(row),
            "mistakes": f"{round(row.scores.error * row.scores.documents / 100):,}",
            "difference": "" if row.difference is None else signed(row.difference.difference, 1),
            "difference_interval": ""
            if row.difference is None
            else f"{signed(row.difference.low, 1)} to {signed(row.difference.high, 1)}",
            "p": p_value(row.p_value),
            "f1": f"{row.scores.macro_f1:.3f}",
            "log_loss": f"{row.scores.log_loss:.3f}",
            "calibration": f"{row.scores.calibration_error:.3f}",
        }
        for name, row in run.rows.items()
    ]


def components(run: Finished, key: str) -> dict[str, Any] | None:
    """The gates, signed, and how much each voice moved the answers; None without imitators."""
    if not run.gates:
        return None
    gates = [None, *([] if run.lexicon_gate is None else [run.lexicon_gate]), *run.gates]
    rows = [
        (name.replace("=", " = "), "mixture" if "=" in name else "expert", weight, gate)
        for (name, weight), gate in zip(run.weights, gates, strict=True)
    ]
    chart = signed_bars(
        f"{key}-gates",
        [row[:3] for row in rows],
        "Weight of each voice",
        "weight, g / T; of the expert 1 / T",
    )
    moved: Markup | None = None
    influence = run.judged.get("influence")
    if influence is not None:
        bars = [("expert" if run.lexicon_gate is None else "the rest", "expert", influence["expert"])]
        bars += [(f"c = {c}", "mixture", v) for c, v in zip(run.windows, influence["windows"], strict=True)]
        bars.append(("all windows", "mixture", influence["imitators"]))
        title = "How much each voice moves an answer"
        moved = signed_bars(f"{key}-influence", bars, title, "mean size of its log-odds")
    return {
        "chart": chart,
        "moved": moved,
        "is_closed": not any(run.gates),
        "has_lexicon": run.lexicon_gate is not None,
        "has_negative": any(gate < 0 for gate in run.gates),
        "temperature": number(run.temperature),
        "rows": [(n, "" if g is None else signed(g, 3), signed(w, 3)) for n, _, w, g in rows],
    }


def confusion(run: Finished, key: str) -> dict[str, Any]:
    """A matrix of what predict uses, and the expert's beside it; of many classes, the worst pairs."""
    Y, systems = len(run.classes), [n for n in (EXPERT, MIXTURE) if n in run.rows]
    counts = {
        name: confusions.confusion(run.label_ids, run.log_probs(name).argmax(axis=1), Y) for name in systems
    }
    is_small = Y <= confusions.MOST_CLASSES
    return {
        "matrices": [
            (name, confusions.matrix(f"{key}-confusion-{css_of(name)}", of, run.classes, name, css_of(name)))
            for name, of in counts.items()
            if is_small
        ],
        "pairs": confusions.pairs(counts[run.best], run.classes) if Y > 2 else [],
        "system": run.best,
    }


def trust(run: Finished, key: str) -> dict[str, Any]:
    """Calibration before and after, and what could be left to people."""
    ids, after, before = run.label_ids, run.log_probs(run.best), run.uncalibrated()
    errors = calibration_error(before, ids), calibration_error(after, ids)
    shown = [n for n in (TFIDF, EXPERT, MIXTURE) if n in run.rows]
    risks = {name: risk_coverage(run.log_probs(name), ids) for name in shown}
    of_best = risks[run.best]
    marks = []
    for share in (0.5, 0.8, 0.9, 1.0):
        at = min(int(np.searchsorted(of_best.coverage, share - 1e-9)), len(of_best.error) - 1)
        of = "all" if share == 1 else f"the surest {100 * share:.0f} %"
        marks.append(f"{percent(float(of_best.error[at]), len(ids))} % of {of}")
    return {
        "reliability": reliability_chart(
            f"{key}-reliability", reliability(before, ids), reliability(after, ids), errors
        ),
        "before": f"{errors[0]:.3f}",
        "after": f"{errors[1]:.3f}",
        "temperature": number(run.temperature),
        "risk": risk_chart(f"{key}-risk", risks),
        "marks": marks,
        "system": run.best,
    }


def steps(run: Finished) -> list[dict[str, Any]]:
    """The slowest first: how long each took, its share of all, and its rate."""
    lines = sorted(run.stage("steps"), key=lambda line: -line["seconds"])
    total = sum(line["seconds"] for line in lines) or 1.0
    return [
        {
            "name": line["step"].replace("_", " "),
            "time": seconds(line["seconds"]),
            "share": f"{100 * line['seconds'] / total:.0f}",
            "rate": _rate(run, line["step"], line["seconds"]),
        }
        for line in lines
    ]


def _rate(run: Finished, step: str, taken: float) -> str:
    """Documents a second: over the epochs of a stage, or once over what a step reads."""
    counts, evaluated = run.counts, len(run.label_ids)
    raw, held_out, train = (counts.get(part, 0) for part in ("unlabeled", "held_out", "train"))
    passes = sum(line["epoch"] > 0 for line in run.stage(step))
    inside = sum(line["seconds"] for line in run.stage(step)) or taken
    training = run.config["imitator_training"]
    also = train if training.get("reads_labeled") else 0
    drawn = min(raw, training.get("documents") or raw) + also
    documents = {"labeling": raw + held_out + also, "evaluation": evaluated, "imitators": drawn * passes}
    expert = run.config["expert"]
    labeled = min(raw + held_out, expert["self_training_documents"]) if expert.get("from_run") else 0
    documents |= {"self_training": labeled, "expert": (train + labeled) * passes}
    documents["language_model"] = (train + raw) * passes
    count = documents.get(step, train * passes)
    spent = taken if step in ("labeling", "evaluation", "self_training") else inside
    return f"{number(count / spent)} documents/s" if count and spent else ""


def made(run: Finished) -> dict[str, Any]:
    """The command, the versions, and every setting."""
    told = run.provenance
    return {
        "command": shlex.join(told.get("command", [])),
        "versions": list(told.get("versions", {}).items()),
        "machine": [(name, str(told[name])) for name in ("system", "device", "threads") if name in told],
        "settings": settings(run.config),
    }


def settings(config: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Every setting by its dotted name."""
    found: list[tuple[str, str]] = []
    for name, value in config.items():
        if isinstance(value, dict):
            found += settings(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, "none" if value is None else str(value)))
    return found
