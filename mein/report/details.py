"""Sections of the report in detail: learning curves, confusion between classes, fragments, documents."""

from typing import Any

import numpy as np
from markupsafe import Markup

from mein.evaluation.metrics import percent
from mein.evaluation.rendering import signed
from mein.evaluation.systems import EXPERT, MIXTURE, SYSTEMS, control_names
from mein.report.charts import CHARACTER, WIDTH, Figure, Series, counted, lines, shortened
from mein.report.record import Finished

STAGES = {  # as they are recorded: the heading and the class of the color
    "language_model": ("Before: the language model is pre-trained on all training text", "other"),
    EXPERT: ("Stage 1: the expert learns from the labels", EXPERT),
    "imitators": ("Stage 2: the imitators learn from the unlabeled text", MIXTURE),
    MIXTURE: ("Stage 3: the mixture is tuned on the labels", MIXTURE),
}
NAMES = {
    "dev_error": "dev error, %",
    "dev_log_loss": "log-loss, nats",
    "dev_log_loss_calibrated": "calibrated log-loss, nats",
    "document_loss": "loss on held-out documents, nats",
    "kl": "KL to their teacher by position, nats",
}
COMMON = {"stage", "epoch", "loss", "seconds", "not_finite"}  # in the lines of every stage, unlike its scores


def curves(run: Finished, key: str) -> list[dict[str, Any]]:
    """A group of charts for each stage that was trained."""
    found = []
    has_lexicon = run.lexicon_gate is not None
    controls = {name: (f"Control: {SYSTEMS[name].title_in(has_lexicon)}", name) for name in control_names()}
    for stage, (title, css) in (STAGES | controls).items():
        recorded = run.stage(stage)
        if recorded:
            charts = _charts(f"{key}-{stage}", recorded, title, css)
            epochs = counted(recorded[-1]["epoch"], "epoch")
            is_control = stage in controls
            found.append({"title": title, "charts": charts, "epochs": epochs, "is_control": is_control})
    return found


def _charts(key: str, recorded: list[dict[str, Any]], title: str, css: str) -> list[Any]:
    """One chart per score; epochs are selected on the first, so its lowest point is marked."""
    charts = []
    for i, score in enumerate(name for name in recorded[0] if name not in COMMON):
        points = [(line["epoch"], line[score]) for line in recorded if line[score] is not None]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        series = [Series("dev" if score.startswith("dev_log_loss") else score, css, x, y)]
        if score == "dev_log_loss":
            losses = [(line["epoch"], line["loss"]) for line in recorded if line["loss"] is not None]
            if losses:
                series.append(Series("training", "raw", *zip(*losses, strict=True)))
        lowest = min(range(len(y)), key=lambda k: y[k]) if i == 0 else None
        name = NAMES.get(score, score.replace("_", " "))
        charts.append(lines(f"{key}-{score}", series, "epoch", name, f"{title}: {name}", lowest))
    return charts


MOST_CLASSES = 10  # that a matrix on a phone can show
MOST_PAIRS = 12


def confusion(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many documents of class t (row) were predicted as class p (column): (Y, Y)."""
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def matrix(key: str, counts: np.ndarray, classes: list[str], system: str, css: str) -> Markup:
    """The confusion matrix as a picture: a cell's color is its share of the true class."""
    Y = len(classes)
    longest = 13 if Y <= 6 else 9
    names = [shortened(name, longest) for name in classes]
    left = 12 + CHARACTER * max(4, *(len(name) for name in names))
    cell = min(92.0, (WIDTH - left - 2) / Y)
    height = min(cell, 58.0)
    figure = Figure(
        key, WIDTH, int(50 + height * Y), f"Confusion matrix of {system}", _described(counts, classes)
    )
    figure.text(left, 13, "predicted", "name")
    figure.text(0, 13, "truth", "name")
    for t in range(Y):
        total = max(1, counts[t].sum())
        figure.text(left - 8, 44 + height * (t + 0.5), names[t], "tick", "end")
        figure.text(left + cell * (t + 0.5), 33, names[t] if cell > 60 else shortened(names[t], 4), "tick",
                    "middle")  # fmt: skip
        for p in range(Y):
            share = float(counts[t, p] / total)
            x, y = left + cell * p, 40 + height * t
            figure.box(x, y, cell - 2, height - 2, "cell", 1.0)
            figure.box(x, y, cell - 2, height - 2, f"bar {css if t == p else 'bad'}", share)
            count = f"{counts[t, p]:,}"
            is_dark = " on-dark" if share > 0.55 else ""
            figure.text(x + cell / 2 - 1, y + height / 2 + 4, count, f"count{is_dark}", "middle")
    return figure.svg()


def _described(counts: np.ndarray, classes: list[str]) -> str:
    rows = [f"{name}: {counts[t, t]:,} of {counts[t].sum():,} correct" for t, name in enumerate(classes)]
    return "; ".join(rows) + "."


def pairs(labels: np.ndarray, predicted: np.ndarray, classes: list[str]) -> list[dict[str, Any]]:
    """The most frequent mistakes: true class, predicted class, number, and share of the true class.

    Counted without a matrix, which would be larger than memory for very many classes.
    """
    Y, is_wrong = len(classes), labels != predicted
    codes, counts = np.unique(labels[is_wrong] * Y + predicted[is_wrong], return_counts=True)
    found = []
    for place in np.argsort(-counts, kind="stable")[:MOST_PAIRS]:
        (t, p), count = divmod(int(codes[place]), Y), int(counts[place])
        total = int((labels == t).sum())
        share = percent(100 * count / total, total)
        found.append({"truth": classes[t], "predicted": classes[p], "count": count, "share": share})
    return found


KINDS = {
    "corrected": "Corrected: the expert was wrong, the mixture is right",
    "broken": "Broken: the expert was right, the mixture is wrong",
    "moved": "Wrong in both, with different labels",
}
STRENGTHS = 4  # shades of a highlight


def fragments(run: Finished) -> list[dict[str, Any]]:
    """For each label, a table per window width; the label with the most training documents first."""
    tables = run.highlights.get("fragments", [])
    weights = {c: g / run.temperature for c, g in zip(run.windows, run.gates, strict=True)}
    labels = sorted({table["label"] for table in tables}, key=lambda y: (-run.prior[y], y))
    return [
        {
            "label": run.classes[y],
            "windows": [
                {
                    "window": table["window"],
                    "sees": 2 * table["window"] + 1,
                    "weight": signed(weights[table["window"]]),
                    "is_reversed": weights[table["window"]] < 0,
                    "average": f"{table['average']:.2f}",
                    "best": table["best"],
                }
                for table in tables
                if table["label"] == y
            ],
        }
        for y in labels
    ]


def changed(run: Finished) -> dict[str, Any] | None:
    """The documents whose label the mixture changed, by kind, with their number; None without a mixture."""
    if MIXTURE not in run.rows or EXPERT not in run.rows or not run.highlights:
        return None
    expert, mixture = (run.log_probs(name).argmax(axis=1) for name in (EXPERT, MIXTURE))
    is_other = expert != mixture
    of_kind = {
        "corrected": is_other & (mixture == run.label_ids),
        "broken": is_other & (expert == run.label_ids),
        "moved": is_other & (expert != run.label_ids) & (mixture != run.label_ids),
    }
    shown = [_document(run, document) for document in run.highlights["changed"]]
    return {
        "count": int(is_other.sum()),
        "kinds": [
            {
                "title": title,
                "kind": kind,
                "count": int(np.sum(of_kind[kind])),
                "documents": [document for document in shown if document["kind"] == kind],
            }
            for kind, title in KINDS.items()
            if of_kind[kind].any()
        ],
    }


def _document(run: Finished, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": document["kind"],
        "number": document["row"] + 1,
        "truth": run.classes[document["label"]],
        "expert": run.classes[document["expert"]],
        "mixture": run.classes[document["mixture"]],
        "log_odds": signed(document["log_odds"], 1),
        "imitators": signed(document["imitators"], 1),
        "parts": parts_of(document["text"], document["marks"]),
    }


def parts_of(text: str, marks: list[list[Any]]) -> list[tuple[str, str]]:
    """The text cut at its marks: (part, class), in order; the class of a part with little influence is "".

    >>> parts_of("not bad", [[0, 3, 2.0], [4, 7, -1.0]])
    [('not', 'pro4'), (' ', ''), ('bad', 'con2')]
    """
    largest = max((abs(score) for _, _, score in marks), default=0.0) or 1.0
    found: list[tuple[str, str]] = []
    at = 0
    for start, stop, score in marks:
        strength = int(STRENGTHS * abs(score) / largest)  # below a quarter of the strongest: none
        css = f"{'pro' if score > 0 else 'con'}{strength}" if strength else ""
        _add(found, text[at:start], "")
        _add(found, text[start:stop], css)
        at = stop
    _add(found, text[at:], "")
    return found


def _add(found: list[tuple[str, str]], part: str, css: str) -> None:
    """Append a part; to the last one where both look alike."""
    if part and found and found[-1][1] == css:
        found[-1] = (found[-1][0] + part, css)
    elif part:
        found.append((part, css))
