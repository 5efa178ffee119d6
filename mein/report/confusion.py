"""Which classes are taken for which: a matrix where it can be read, else the worst of it."""

from typing import Any

import numpy as np
from markupsafe import Markup

from mein.evaluation.table import percent
from mein.report.charts import WIDTH, shortened
from mein.report.svg import CHARACTER, Figure

MOST_CLASSES = 10  # that a matrix on a phone can show
MOST_PAIRS = 12


def confusion(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many documents of class t (row) were given class p (column): (Y, Y)."""
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def matrix(key: str, counts: np.ndarray, classes: list[str], system: str, css: str) -> Markup:
    """The confusion matrix as a picture: a cell's colour is its share of the true class."""
    Y = len(classes)
    longest = 13 if Y <= 6 else 9
    names = [shortened(name, longest) for name in classes]
    left = 12 + CHARACTER * max(4, *(len(name) for name in names))
    cell = min(92.0, (WIDTH - left - 2) / Y)
    height = min(cell, 58.0)
    figure = Figure(key, WIDTH, int(50 + height * Y), f"Confusion matrix of {system}", _told(counts, classes))
    figure.text(left, 13, "given as", "name")
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
            words = f"{counts[t, p]:,}"
            is_dark = " on-dark" if share > 0.55 else ""
            figure.text(x + cell / 2 - 1, y + height / 2 + 4, words, f"count{is_dark}", "middle")
    return figure.svg()


def _told(counts: np.ndarray, classes: list[str]) -> str:
    rows = [f"{name}: {counts[t, t]:,} of {counts[t].sum():,} right" for t, name in enumerate(classes)]
    return "; ".join(rows) + "."


def pairs(counts: np.ndarray, classes: list[str]) -> list[dict[str, Any]]:
    """The commonest mistakes: truth, given, how many, and their share of the true class."""
    mistakes = counts.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MOST_PAIRS]
    found = []
    for t, p in zip(*np.unravel_index(order, mistakes.shape), strict=True):
        if mistakes[t, p]:
            total = int(counts[t].sum())
            share = percent(100 * mistakes[t, p] / total, total)
            found.append(
                {"truth": classes[t], "given": classes[p], "count": int(mistakes[t, p]), "share": share}
            )
    return found
