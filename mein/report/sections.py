"""The page about one run, section by section, as plain data for the template."""

import shlex
from typing import Any

import numpy as np
from markupsafe import Markup

from mein.evaluation.metrics import (
    calibration_error,
    metrics_beside_error,
    percent,
    reliability,
    risk_coverage,
)
from mein.evaluation.rendering import (
    effect_of,
    error_text,
    footnote,
    interval_text,
    p_text,
    signed,
    title_of,
)
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, PREVIOUS_RUN, SYSTEMS
from mein.experts.config import SELF_TRAINING_DOCUMENTS
from mein.report import details as confusions
from mein.report.charts import (
    counted,
    forest,
    number,
    reliability_chart,
    risk_chart,
    seconds,
    signed_bars,
)
from mein.report.details import changed, curves, fragments
from mein.report.first_screen import hero, verdict_in
from mein.report.record import Finished
from mein.run.prepare import notes

MOST_SHOWN_CLASSES = 12


def sections(run: Finished, key: str) -> dict[str, Any]:
    """Everything that the template of a run needs; `key` keeps its figures' names apart from others'."""
    bars = [(row.title, name, row) for name, row in run.rows.items()]
    return {
        "name": run.name,
        "hero": hero(run),
        "controls": controls(run),
        "trained": trained(run),
        "table": table(run),
        "forest": forest(f"{key}-forest", bars, "Error of each system"),
        "curves": curves(run, key),
        "components": components(run, key),
        "confusion": confusion(run, key),
        "trust": trust(run, key),
        "fragments": fragments(run),
        "changed": changed(run),
        "steps": steps(run),
        "made": made(run),
    }


def controls(run: Finished) -> dict[str, Any]:
    """What the comparison with the controls shows: who gets the credit, and how many documents changed."""
    verdict = verdict_in(run)
    return {
        "css": verdict.outcome,
        "title": title_of(verdict),
        "sentence": effect_of(verdict),
        "is_self_training": run.is_self_training,
        "knows_labels_only": run.knows_labels_only,
        "learns_from_unlabeled": run.learns_from_unlabeled,
        "fine_tuned": SYSTEMS[CLOSED_GATES].title_in(
            run.lexicon_gate is not None, is_tuned=not run.traits.is_fitted
        ),
        "in_documents": _in_documents(run),
    }


def _in_documents(run: Finished) -> str:
    """How many labels the mixture corrected, and how many it broke."""
    if MIXTURE not in run.rows or EXPERT not in run.rows:
        return ""
    names = (PREVIOUS_RUN if PREVIOUS_RUN in run.rows else EXPERT, MIXTURE)
    before, mixture = (run.log_probs(name).argmax(axis=1) == run.label_ids for name in names)
    corrected, broken = int(np.sum(mixture & ~before)), int(np.sum(before & ~mixture))
    return (
        f"Of {counted(len(before), f'{run.part} document')} the {run.rows[names[0]].title} got "
        f"{np.sum(~before):,} wrong, the mixture {int(np.sum(~mixture)):,}: "
        f"{corrected:,} corrected, {broken:,} broken."
    )


def trained(run: Finished) -> dict[str, Any]:
    """Documents, classes and networks."""
    counts, config = run.counts, run.config
    evaluated = next(iter(run.rows.values())).scores.documents
    parts = [
        ("labeled, for training", counts.get("train", 0), run.data.get("labeled")),
        ("labeled, for validation (dev)", counts.get("dev", 0), run.data.get("dev")),
        (
            "unlabeled",
            sum(counts.get(p, 0) for p in ("unlabeled", "held_out")),
            run.data.get("unlabeled"),
        ),
        ("labeled, for evaluation (test)", evaluated if run.part == "test" else 0, run.data.get("test")),
    ]
    order = np.argsort(-run.prior, kind="stable")
    sees = ", ".join(str(2 * c + 1) for c in run.windows)
    return {
        "parts": [(name, f"{count:,}", source) for name, count, source in parts if count],
        "classes": [
            (run.classes[y], f"{100 * run.prior[y]:.1f}") for y in order[:MOST_SHOWN_CLASSES].tolist()
        ],
        "more_classes": max(0, len(run.classes) - MOST_SHOWN_CLASSES),
        "notes": notes(counts) if "empty" in counts else [],
        "networks": [
            ("classes", f"{len(run.classes):,}"),
            ("expert", run.expert),
            ("imitators", f"{len(run.windows)}, with windows of {sees} pieces" if run.windows else "none"),
            ("lexicon", "none" if run.lexicon_gate is None else "n-gram log-odds, learned from the labels"),
            ("seed", str(config["seed"])),
        ],
    }


def table(run: Finished) -> dict[str, Any]:
    """The comparison: headings of the metrics, and one entry per system."""
    best = min(row.scores.error for row in run.rows.values())
    return {
        "metrics": [metric.title for metric in metrics_beside_error()],
        "footnote": footnote(is_approximate=run.part == "labeled"),
        "reference": run.best,
        "rows": [
            {
                "title": row.title,
                "meaning": SYSTEMS[name].meaning if name in SYSTEMS else "",
                "css": name,
                "is_reference": name == run.best,
                "is_best": row.scores.error == best,
                "error": error_text(row),
                "interval": interval_text(row),
                "mistakes": f"{round(row.scores.error * row.scores.documents / 100):,}",
                "difference": "" if row.difference is None else signed(row.difference.difference, 1),
                "difference_interval": ""
                if row.difference is None
                else f"{signed(row.difference.low, 1)} to {signed(row.difference.high, 1)}",
                "p": p_text(row.p_value),
                "metrics": [row.scores.text(metric) for metric in metrics_beside_error()],
            }
            for name, row in run.rows.items()
        ],
    }


def components(run: Finished, key: str) -> dict[str, Any] | None:
    """The gates, signed, and how much each component moved the predictions; None without imitators."""
    if not run.gates:
        return None
    gates = [None, *([] if run.lexicon_gate is None else [run.lexicon_gate]), *run.gates]
    rows = [
        (name.replace("=", " = "), MIXTURE if "=" in name else EXPERT, weight, gate)
        for (name, weight), gate in zip(run.weights, gates, strict=True)
    ]
    chart = signed_bars(
        f"{key}-gates",
        [row[:3] for row in rows],
        "Weight of each component",
        "weight, g / T; of the expert 1 / T",
    )
    moved: Markup | None = None
    influence = run.highlights.get("influence")
    if influence is not None:
        bars = [("expert" if run.lexicon_gate is None else "the rest", EXPERT, influence["expert"])]
        bars += [(f"c = {c}", MIXTURE, v) for c, v in zip(run.windows, influence["windows"], strict=True)]
        bars.append(("all windows", MIXTURE, influence["imitators"]))
        title = "How much each component moves a prediction"
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
    """The confusion matrices of the mixture and the expert; for many classes, the most confused pairs."""
    Y, systems = len(run.classes), [n for n in (MIXTURE, EXPERT) if n in run.rows]
    predicted = {name: run.log_probs(name).argmax(axis=1) for name in systems}
    is_small = Y <= confusions.MOST_CLASSES
    counts = {
        name: confusions.confusion(run.label_ids, ids, Y) for name, ids in predicted.items() if is_small
    }
    return {
        "matrices": [
            (name, confusions.matrix(f"{key}-confusion-{name}", of, run.classes, name, name))
            for name, of in counts.items()
        ],
        "pairs": confusions.pairs(run.label_ids, predicted[run.best], run.classes) if Y > 2 else [],
        "system": run.best,
    }


def trust(run: Finished, key: str) -> dict[str, Any]:
    """Calibration before and after temperature scaling, and the error at several shares of documents."""
    ids, after, before = run.label_ids, run.log_probs(run.best), run.uncalibrated()
    errors = calibration_error(before, ids), calibration_error(after, ids)
    shown = [name for name in run.rows if name in SYSTEMS and SYSTEMS[name].is_prominent]
    risks = {name: risk_coverage(run.log_probs(name), ids) for name in shown}
    of_best = risks[run.best]
    marks = []
    for share in (0.5, 0.8, 0.9, 1.0):
        at = min(int(np.searchsorted(of_best.coverage, share - 1e-9)), len(of_best.error) - 1)
        of = "all" if share == 1 else f"the most confident {100 * share:.0f}%"
        marks.append(f"{percent(float(of_best.error[at]), len(ids))}% of {of}")
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
    """Each step with its time, its share of the total, and its rate; the slowest first."""
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
    labeled = min(raw + held_out, SELF_TRAINING_DOCUMENTS) if expert.get("from_run") else 0
    documents |= {"self_training": labeled, "expert": (train + labeled) * passes}
    documents["language_model"] = (train + raw) * passes
    count = documents.get(step, train * passes)
    spent = taken if step in ("labeling", "evaluation", "self_training") else inside
    return f"{number(count / spent)} documents/s" if count and spent else ""


def made(run: Finished) -> dict[str, Any]:
    """The command, the versions, and every setting."""
    known = run.provenance
    return {
        "command": shlex.join(known.get("command", [])),
        "versions": list(known.get("versions", {}).items()),
        "machine": [(name, str(known[name])) for name in ("system", "device", "threads") if name in known],
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
