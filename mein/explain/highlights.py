"""Highlights of the evaluated documents: informative fragments, and labels that the mixture changed.

They are stored in highlights.json, so that the report needs nothing but the run folder. The file has excerpts
of the user's texts, a few hundred at most, and is never shared.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mein.evaluation.systems import EXPERT, MIXTURE
from mein.explain.imitated import piece_scores
from mein.explain.layout import lay_out
from mein.model.model import Model
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import Ragged

SAMPLE_DOCUMENTS, SAMPLE_PIECES = 2_000, 200_000  # searched for fragments
MOST_LABELS, FRAGMENTS = 20, 8  # labels with fragments, fragments per window and label
LOOKED_AT = 1_000  # candidates for these
LEAST_SHARE = 0.005  # of the sampled documents that a fragment should occur in
CHANGED = 12  # documents of each kind
LONGEST_MARKED = 20_000  # characters of a document that is marked


def write_highlights(
    folder: RunFolder,
    model: Model,
    texts: Sequence[str],
    ids: np.ndarray,
    systems: dict[str, np.ndarray],
) -> None:
    """Write highlights.json for the predictions of `systems` on these texts; nothing without imitators."""
    if EXPERT not in systems or MIXTURE not in systems:
        return
    rows, pieces = _sample(model, texts)
    shown = np.argsort(-np.bincount(ids, minlength=len(model.labels.classes)), kind="stable")[:MOST_LABELS]
    folder.write_json(
        "highlights.json",
        {
            "documents": len(rows),
            "influence": influence(model, pieces, systems[MIXTURE][rows]),
            "fragments": informative_fragments(model, pieces, np.sort(shown)),
            "changed": changed(model, texts, ids, systems),
        },
    )


def _sample(model: Model, texts: Sequence[str]) -> tuple[np.ndarray, Ragged]:
    """Rows of documents, spread evenly over all of them, up to a number of pieces; and their pieces."""
    rows = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), SAMPLE_DOCUMENTS)).astype(np.int64))
    pieces = model.indexer.pieces_of([texts[row] for row in rows])
    lengths = np.where(pieces.lengths <= SAMPLE_PIECES // 4, pieces.lengths, 0)  # no giant may fill it
    kept = np.flatnonzero((np.cumsum(lengths) <= SAMPLE_PIECES) & (lengths == pieces.lengths))
    return rows[kept], pieces.take(kept)


def influence(model: Model, pieces: Ragged, log_probs: np.ndarray) -> dict[str, Any]:
    """Mean |log-odds| of each component between the two most probable labels; log_probs (n, Y).

    Log-odds are a sum: the rest beside the imitators is the expert's part, with the lexicon's if any.
    """
    filled = pieces.lengths > 0
    alpha = model.networks.alpha(pieces)[:, filled].astype(np.float64)
    log_probs = log_probs[filled]
    first, second = np.argsort(-log_probs, axis=1, kind="stable")[:, :2].T
    n = np.arange(len(log_probs))
    parts = model.weights[:, None] * (alpha[:, n, first] - alpha[:, n, second])  # (I, n)
    of_expert = log_probs[n, first] - log_probs[n, second] - parts.sum(0)
    size = max(1, len(n))
    return {
        "expert": round(float(np.abs(of_expert).sum() / size), 4),
        "windows": [round(float(part / size), 4) for part in np.abs(parts).sum(1)],
        "imitators": round(float(np.abs(parts.sum(0)).sum() / size), 4),
    }


def informative_fragments(model: Model, pieces: Ragged, labels: np.ndarray) -> list[dict[str, Any]]:
    """For each window and label the fragments with the highest p_ij, and how often they occur.

    p_ij is a function of the fragment, so equal fragments have equal p_ij.
    """
    read = [
        (stream, document, p[:, :, labels].astype(np.float32))
        for _, stream, document, p in model.networks.window_probs(pieces)
    ]
    found: list[dict[str, Any]] = []
    for i, c in enumerate(model.windows if pieces.lengths.sum() else ()):
        seen = [
            np.lib.stride_tricks.sliding_window_view(np.pad(stream, c), 2 * c + 1)[document >= 0]
            for stream, document, _ in read
        ]
        of_document = np.concatenate([document[document >= 0] for _, document, _ in read])
        p = np.concatenate([p[i, document >= 0] for _, document, p in read])
        found += _of_window(model, c, labels, np.concatenate(seen), of_document, p, len(pieces))
    return found


def _of_window(
    model: Model,
    c: int,
    labels: np.ndarray,
    seen: np.ndarray,
    document: np.ndarray,
    p: np.ndarray,
    documents: int,
) -> list[dict[str, Any]]:
    """The informative fragments of one window: seen (S, 2c+1), document (S,), p (S, Y)."""
    distinct, at, which, times = np.unique(
        seen, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    pairs = np.unique(np.stack([which.ravel(), document]), axis=1)
    in_documents = np.bincount(pairs[0], minlength=len(distinct))
    common = _common(in_documents, documents)
    tables = []
    for y, label in enumerate(labels.tolist()):
        ranked = common[np.lexsort((common, -in_documents[common], -p[at[common], y]))]
        best = [
            {
                "text": "".join(model.indexer.pieces.fragments(distinct[k].tolist())).strip(),
                "probability": round(float(p[at[k], y]), 4),
                "documents": int(in_documents[k]),
                "occurrences": int(times[k]),
            }
            for k in _unlike(ranked[:LOOKED_AT].tolist(), distinct)
        ]
        tables.append({"window": c, "label": label, "average": round(float(p[:, y].mean()), 4), "best": best})
    return tables


def _unlike(ranked: list[int], distinct: np.ndarray) -> list[int]:
    """The first fragments that share at most half of their pieces with an earlier one."""
    chosen: list[int] = []
    sets: list[set[int]] = []
    for k in ranked:
        pieces = set(distinct[k].tolist()) - {0}
        if all(2 * len(pieces & other) <= min(len(pieces), len(other)) for other in sets):
            chosen.append(k)
            sets.append(pieces)
        if len(chosen) == FRAGMENTS:
            break
    return chosen


def _common(in_documents: np.ndarray, documents: int) -> np.ndarray:
    """Fragments that occur often enough, and rarer ones where there are too few of these."""
    least = max(2, round(LEAST_SHARE * documents))
    while least > 1 and np.sum(in_documents >= least) < 10 * FRAGMENTS:
        least //= 2
    return np.flatnonzero(in_documents >= least)


def changed(
    model: Model, texts: Sequence[str], ids: np.ndarray, systems: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Documents whose label the mixture changed: corrected, broken, wrong in both; most confident first."""
    expert, mixture = (systems[name].argmax(axis=1) for name in (EXPERT, MIXTURE))
    n = np.arange(len(ids))
    lead = systems[MIXTURE][n, mixture] - systems[MIXTURE][n, expert]  # log-odds of new over old
    kinds = {
        "corrected": mixture == ids,
        "broken": expert == ids,
        "moved": (mixture != ids) & (expert != ids),
    }
    found = []
    for kind, is_kind in kinds.items():
        rows = np.flatnonzero(is_kind & (mixture != expert))
        for row in rows[np.argsort(-lead[rows], kind="stable")][:CHANGED].tolist():
            labels = {"label": int(ids[row]), "expert": int(expert[row]), "mixture": int(mixture[row])}
            log_odds = round(float(lead[row]), 4)
            found.append(
                {
                    "row": row,
                    "kind": kind,
                    **labels,
                    "log_odds": log_odds,
                    **_imitators_part(model, texts[row], labels),
                }
            )
    return found


def _imitators_part(model: Model, text: str, labels: dict[str, int]) -> dict[str, Any]:
    """The imitators' log-odds of the mixture's label over the expert's on a text, and those of its pieces."""
    a, b = labels["mixture"], labels["expert"]
    pieces = model.indexer.pieces_of([text[:LONGEST_MARKED]])
    alpha = model.networks.alpha(model.indexer.pieces_of([text]))[:, 0]
    lead = model.weights @ (alpha[:, a].astype(np.float64) - alpha[:, b])
    scores = piece_scores(model, pieces, a, b).tolist()
    layout = lay_out(model.indexer, text[:LONGEST_MARKED])
    places = zip(layout.starts.tolist(), layout.stops.tolist(), scores, strict=True)
    marks = [[start, stop, round(score, 4)] for start, stop, score in places]
    shown, marks = excerpt(text, [mark for mark in marks if mark[0] < mark[1]])
    return {"imitators": round(float(lead), 4), "text": shown, "marks": marks}


LONGEST = 900  # characters of a text that are shown
Mark = list[float]  # start, stop, score: [int, int, float] in JSON


def excerpt(text: str, marks: list[Mark], longest: int = LONGEST) -> tuple[str, list[Mark]]:
    """The excerpt of a long text with the largest total score, cut at words, with the marks inside it.

    >>> excerpt("one two three four five six", [[8, 13, 2.0]], longest=20)
    ('… two three four …', [[6, 11, 2.0]])
    """
    if len(text) <= longest:
        return text, marks
    weight = np.zeros(len(text) + 1)
    for start, _, score in marks:
        weight[int(start) + 1] += abs(score)
    total = np.cumsum(weight)
    size = longest - 4
    inside_each = total[size:] - total[: len(total) - size]  # excerpts of this size
    fullest = np.flatnonzero(inside_each >= inside_each.max() - 1e-9)
    first = int(fullest[len(fullest) // 2])  # the scores are in its middle
    stop = first + size
    first, stop = _at_words(text, first, stop)
    before, after = ("… " if first > 0 else ""), (" …" if stop < len(text) else "")
    shift = len(before) - first
    inside = [
        [start + shift, end + shift, score] for start, end, score in marks if first <= start and end <= stop
    ]
    return before + text[first:stop].rstrip() + after, inside


def _at_words(text: str, first: int, stop: int) -> tuple[int, int]:
    """The excerpt without the words that it cuts; unchanged where no complete word is left."""
    start = first if first == 0 else text.find(" ", first - 1) + 1
    end = stop if stop == len(text) else text.rfind(" ", 0, stop + 1)
    return (start, end) if 0 <= start < end else (first, stop)
