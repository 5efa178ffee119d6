"""How a run's classifier, and everything it is compared with, does on labeled documents."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mein.config import Config
from mein.data.corpus import digest_of_texts, read_all
from mein.errors import InputError
from mein.evaluation.baseline import logistic_regression, tfidf_baseline
from mein.evaluation.comparison import Credited, EvaluatedPart, Row, Verdict, compare, verdict_of
from mein.evaluation.rendering import sentence_of
from mein.evaluation.systems import (
    ENCODER,
    EXPERT,
    IMITATORS_ONLY,
    MIXTURE,
    PREVIOUS_RUN,
    SYSTEMS,
    TFIDF,
    control_names,
)
from mein.explain.highlights import write_highlights
from mein.mixture.mixture import random_alpha
from mein.model.artefacts import read_done, seal, verify
from mein.model.loading import Classifiers
from mein.model.model import Encoded, Model
from mein.run.folds import log_probs_out_of_fold
from mein.run.prepare import counted
from mein.run.state import Run
from mein.run.warm_start import has_previous_run, load_previous_run
from mein.runtime.device import choose_device
from mein.runtime.files import atomic_path
from mein.runtime.progress import QUIET, Reporter
from mein.runtime.ranks import is_first
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import concatenate, parted


def evaluate(run: Run, *, has_baseline: bool = True) -> list[Row]:
    """Read the test labels, once, and leave the table and the verdict; a finished run keeps what it has.

    Of several processes only the first evaluates; the others return no rows.
    """
    if not is_first():
        return []
    folder, config = run.folder, run.config
    if folder.is_done:
        return read_rows(folder)
    part, texts, ids = _evaluated_part(run)
    knows_dev = part != "dev" or run.is_folded
    with folder.timed("evaluation"):
        classifiers = Classifiers(folder, config, run.device, knows_dev=knows_dev, indexer=run.indexer)
        if part == "labeled":  # by what has not seen their labels
            held, systems = log_probs_out_of_fold(run)
            texts, ids = [texts[row] for row in held], ids[held]
        else:
            documents = encoded(classifiers.mixture, part, texts, run.runtime.reporter)
            systems = _baselines(run, texts, documents, holds_dev=part == "dev") if has_baseline else {}
            systems |= previous_run_log_probs(folder, config, part, texts) if has_baseline else {}
            systems |= log_probs_of_all(classifiers, part, documents, run.runtime.reporter)
    is_tuned = not run.is_folded
    rows = compare(ids, systems, seed=config.seed, has_lexicon=run.has_lexicon, is_tuned=is_tuned)
    _write_predictions(folder / "predictions.parquet", ids, systems)
    if run.has_imitators:
        write_highlights(folder, classifiers.mixture, texts, ids, systems)
    folder.rewind("verdict", 0)
    for row in rows:
        folder.record("verdict", part=part, **row.to_dict())
    has_seen = part == "dev" and run.has_seen_labels
    verdict = verdict_of(rows, credited(config), part, has_seen=has_seen)
    folder.record("verdict", **verdict.to_dict(), headline=sentence_of(verdict))
    seal(folder)
    return rows


def read_rows(folder: RunFolder) -> list[Row]:
    """The table of a finished run, as `evaluate` left it."""
    verify(folder, read_done(folder).listed, ["metrics.jsonl"])
    return [Row.from_dict(line) for line in folder.metrics("verdict") if "system" in line]


def read_verdict(folder: RunFolder) -> Verdict:
    """The verdict of a finished run, as `evaluate` left it."""
    return Verdict.from_dict(next(line for line in folder.metrics("verdict") if "outcome" in line))


def credited(config: Config) -> Credited:
    """What gets the credit where the mixture of a run with this config wins."""
    if config.expert.is_self_training:
        return "self-training"
    return "imitators" if config.expert.learns_from_unlabeled else "unlabeled text"


def log_probs_of_all(
    classifiers: Classifiers, part: str, documents: Encoded, reporter: Reporter = QUIET
) -> dict[str, np.ndarray]:
    """log p(y | X) (n, Y) of every network of a run, in the order of its table, on a part's documents."""
    mixture = classifiers.mixture
    alpha = mixture.alpha(documents)
    found = dict[str, np.ndarray]()
    known: tuple[Model, np.ndarray] | None = None

    def expert_logits(model: Model) -> np.ndarray:
        nonlocal known  # fine-tuning may have left the weights of an expert as they were
        if known is None or not model.networks.has_expert_of(known[0].networks):
            known = None  # gives its memory back first
            with reporter.task(f"expert on {part}", len(documents.words)) as task:
                known = model, model.networks.logits(documents.words, task)
        return known[1]

    for name in (EXPERT, *control_names()):
        if name in classifiers.systems:
            model = classifiers.load(name)
            seen = _noise(classifiers.config, alpha, part) if SYSTEMS[name].evidence == "random" else alpha
            found[name] = model.mixture_log_probs(documents, seen, expert_logits(model))
    if len(alpha):
        found[IMITATORS_ONLY] = mixture.imitator_only_log_probs(documents, alpha)
    last = MIXTURE if len(alpha) else EXPERT
    found[last] = mixture.mixture_log_probs(documents, alpha, expert_logits(mixture))
    return found


def encoded(model: Model, part: str, texts: Sequence[str], reporter: Reporter = QUIET) -> Encoded:
    """A part's texts as numbers, some at a time: a frozen encoder may be slow."""
    with reporter.task(f"encoding {part}", len(texts)) as task:
        chunks = [model.encode(chunk) for chunk in counted([texts], task)]
    words, pieces = (concatenate(getattr(one, name) for one in chunks) for name in ("words", "pieces"))
    return Encoded(words, pieces, model.indexer.reader is None)


def previous_run_log_probs(
    folder: RunFolder, config: Config, part: str, texts: Sequence[str]
) -> dict[str, np.ndarray]:
    """log p(y | X) (n, Y) of the run that a student learned from, as a system; none where it is gone."""
    if not has_previous_run(folder, config):
        return {}
    previous = load_previous_run(config, choose_device(config.runtime.device), knows_dev=part != "dev")
    return {PREVIOUS_RUN: previous.log_probs(texts)}


def _baselines(run: Run, texts: Sequence[str], documents: Encoded, holds_dev: bool) -> dict[str, np.ndarray]:
    """log p(y | X) (n, Y) of the baselines, on TF-IDF and on the features of a frozen encoder.

    They choose nothing on dev, so they learn from the dev labels too, unless evaluated on them.
    """
    parts = ("train",) if holds_dev or run.labeled.is_folded else ("train", "dev")
    examples = [run.labeled.examples(part) for part in parts]
    known = run.labeled.train_texts + (run.labeled.dev_texts if "dev" in parts else [])
    ids, weights = (np.concatenate(arrays) for arrays in zip(*examples, strict=True))
    found = {TFIDF: tfidf_baseline(known, ids, texts, run.classes, weights)}
    if run.row_size:
        features = np.concatenate([parted(run.store(part).words(), run.row_size)[0] for part in parts])
        fit = logistic_regression(features, ids, weights, run.classes)
        found[ENCODER] = fit.log_probs(parted(documents.words, run.row_size)[0])
    return found


def _evaluated_part(run: Run) -> tuple[EvaluatedPart, list[str], np.ndarray]:
    """The test documents; where there are none, dev, on which everything was chosen, or all in folds."""
    if run.corpus.test is None and run.labeled.is_folded:
        return "labeled", run.labeled.train_texts, run.labeled.train_ids
    if run.corpus.test is None:
        return "dev", run.labeled.dev_texts, run.labeled.dev_ids
    texts, values = read_all(run.corpus.test)
    name = run.corpus.names.get("test", "the test documents")
    if digest_of_texts(texts) != run.corpus.test_survey.digest:
        raise InputError(f"{name}: the documents have changed since the run began. Restore them, and resume.")
    return "test", texts, run.labeled.labels.encode(values, name)


def _noise(config: Config, alpha: np.ndarray, part: str) -> np.ndarray:
    """The random vectors of a part: on dev those that the control was tuned with."""
    I, n, Y = alpha.shape
    return random_alpha(I, n, Y, config.seed, part)


def _write_predictions(path: Path, ids: np.ndarray, systems: dict[str, np.ndarray]) -> None:
    """One row a document: its label's id, and log p(y | X) of each system as a list."""
    columns: dict[str, pa.Array] = {"label": pa.array(ids)}
    for name, log_probs in systems.items():
        flat = pa.array(log_probs.astype(np.float32).ravel())
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, log_probs.shape[1])
    with atomic_path(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def read_correct(path: Path) -> dict[str, np.ndarray]:
    """Which documents each system of a finished run got right (n,)."""
    folder = RunFolder(path)
    verify(folder, read_done(folder).listed, ["predictions.parquet"])
    table = pq.read_table(path / "predictions.parquet")
    labels = table["label"].to_numpy()
    found = {}
    for name in table.column_names[1:]:
        log_probs = np.stack(table[name].to_numpy())
        found[name] = log_probs.argmax(axis=1) == labels
    return found
