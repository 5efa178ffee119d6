"""Tiny finished runs for the report and the card, with made-up verdicts where a test needs them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mein.data.corpus import Corpus, source_of_lists
from mein.evaluation.comparison import compare, verdict_of
from mein.evaluation.rendering import sentence_of
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, TFIDF
from mein.explain.highlights import write_highlights
from mein.model.artefacts import seal
from mein.model.loading import load_model
from mein.runtime.run_folder import RunFolder
from tests.support import tiny

SCRIPT = "<script>alert(1)</script>"


def corpus_of(classes: Sequence[str], repeats: int = 6) -> Corpus:
    """Every class has a word of its own; dev is given, so that each class is in it."""
    texts = [f"{SCRIPT} word{y} is the word number {y} & more" for y in range(len(classes))]
    return Corpus(
        labeled=source_of_lists(texts * repeats, list(classes) * repeats),
        unlabeled=source_of_lists([f"{text}, said {n}" for text in texts for n in ("one", "two", "three")]),
        dev=source_of_lists(texts, list(classes)),
        test=source_of_lists(texts * 2, list(classes) * 2),
        names={"labeled": "https://me:secret@host/a.csv?key=hidden", "test": "/home/me/<b>test.csv"},
    )


def evaluate_as(path: Path, ids: np.ndarray, systems: dict[str, np.ndarray], texts: Sequence[str]) -> None:
    """Replace the evaluation of a run by these log-probabilities (n, Y), everywhere it is stored."""
    folder = RunFolder(path)
    rows = compare(ids, systems, seed=0)
    folder.rewind("verdict", 0)
    for row in rows:
        folder.record("verdict", part="test", **row.to_dict())
    verdict = verdict_of(rows)
    folder.record("verdict", **verdict.to_dict(), headline=sentence_of(verdict))
    columns = {"label": pa.array(ids)} | {
        name: pa.FixedSizeListArray.from_arrays(pa.array(p.astype(np.float32).ravel()), p.shape[1])
        for name, p in systems.items()
    }
    pq.write_table(pa.table(columns), path / "predictions.parquet")
    write_highlights(folder, load_model(path, "cpu"), texts, ids, systems)
    seal(folder)


def verdict_like(ids: np.ndarray, classes: int, wrong: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Log-probabilities that are right but for the rows given, where the next class wins.

    Closed gates err where the expert does.
    """
    systems = {}
    wrong = {CLOSED_GATES: wrong.get(EXPERT, np.zeros(0))} | wrong
    for name in (TFIDF, EXPERT, CLOSED_GATES, MIXTURE):
        predicted = np.where(np.isin(np.arange(len(ids)), wrong.get(name, [])), (ids + 1) % classes, ids)
        confidence = np.linspace(0.6, 0.95, len(ids))
        p = np.repeat(((1 - confidence) / (classes - 1))[:, None], classes, axis=1)
        p[np.arange(len(ids)), predicted] = confidence
        systems[name] = np.log(p)
    return systems


def fabricated(path: Path, classes: Sequence[str], copies: int, wrong: dict[str, np.ndarray]) -> Path:
    """A run on `corpus_of` with a verdict like this; every class has `copies` evaluated documents."""
    tiny.run(path, corpus_of(classes), expert_training__epochs=1, imitator_training__epochs=1)
    ids = np.tile(np.arange(len(classes)), copies)
    texts = [f"{SCRIPT} Word{y} is the\nword <b>{y}</b> & more" for y in ids]
    evaluate_as(path, ids, verdict_like(ids, len(classes), wrong), texts)
    return path
