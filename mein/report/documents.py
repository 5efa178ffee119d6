"""What the page shows of documents: telling fragments, and texts with their pieces' say."""

from typing import Any

import numpy as np

from mein.evaluation.table import EXPERT, MIXTURE
from mein.report.reading import Finished
from mein.report.words import signed

KINDS = {
    "mended": "Mended: the expert was wrong, the mixture is right",
    "broken": "Newly wrong: the expert was right",
    "moved": "Wrong before and after, in another way",
}
STRENGTHS = 4  # shades of a highlight


def fragments(run: Finished) -> list[dict[str, Any]]:
    """For each label, a table for each window; the label with the most training documents first."""
    tables = run.judged.get("fragments", [])
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
    """The documents that changed hands, by kind, with how many there are in all; None without a mixture."""
    if MIXTURE not in run.rows or EXPERT not in run.rows or not run.judged:
        return None
    expert, mixture = (run.log_probs(name).argmax(axis=1) for name in (EXPERT, MIXTURE))
    is_other = expert != mixture
    of_kind = {
        "mended": is_other & (mixture == run.label_ids),
        "broken": is_other & (expert == run.label_ids),
        "moved": is_other & (expert != run.label_ids) & (mixture != run.label_ids),
    }
    shown = [_document(run, document) for document in run.judged["changed"]]
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
    """The text cut at its marks: (part, class), which add up to it; "" for a part that says little.

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
