"""How a run's classifier, and everything it is compared with, does on labeled documents."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mein.config import Config
from mein.data.corpus import Corpus, read_all
from mein.data.soft_labels import SoftLabels
from mein.errors import RunError
from mein.evaluation.baseline import tfidf_baseline
from mein.evaluation.comparison import IMITATORS, UNLABELED_TEXT, Row, compare, headline
from mein.evaluation.systems import (
    CONTROLS,
    EXPERT,
    IMITATORS_ONLY,
    MIXTURE,
    PREVIOUS_RUN,
    SYSTEMS,
    TFIDF,
)
from mein.explain.highlights import write_highlights
from mein.mixture.inference import CachedLogits, choose_device
from mein.mixture.mixture import random_alpha
from mein.model.artefacts import seal
from mein.model.loading import load_variant
from mein.model.model import Encoded, Model
from mein.run.algorithm import train_run
from mein.run.prepare import counted
from mein.run.state import Run
from mein.run.warm_start import has_previous_run, load_previous_run
from mein.runtime.files import atomic_path
from mein.runtime.progress import QUIET, Quiet, Reporter
from mein.runtime.ranks import is_first
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import concatenate


def train_and_judge(
    config: Config,
    corpus: Corpus,
    path: Path,
    reporter: Reporter,
    *,
    resume: bool = False,
    controls: Sequence[str] = CONTROLS,
    soft_labels: SoftLabels | None = None,
    has_baseline: bool = True,
) -> list[Row]:
    """Train in the folder `path`, then read the test labels, once, and leave the verdict there.

    Of several processes only the first speaks and judges; the others return no rows.
    """
    folder, reporter = RunFolder(path), reporter if is_first() else Quiet()
    with folder.held():
        run = train_run(
            config, corpus, folder, reporter, resume=resume, controls=controls, soft_labels=soft_labels
        )
        if not is_first():
            return []
        part, texts, ids = _evaluated_part(run)
        with run.folder.timed("judging"):
            baseline = _baseline(run, texts, holds_dev=part == "dev") if has_baseline else {}
            baseline |= previous_run_log_probs(folder, config, part, texts) if has_baseline else {}
            systems = baseline | log_probs_of_all(folder, config, part, texts, soft_labels, reporter)
        rows = compare(ids, systems, seed=config.seed)
        if not folder.is_done:
            _write_predictions(folder / "predictions.parquet", ids, systems)
            write_highlights(folder, config, texts, ids, systems)
            folder.rewind("verdict", 0)
            for row in rows:
                folder.record("verdict", part=part, **as_plain(row))
            folder.record("verdict", headline=sentence(rows, config))
            seal(folder)
        return rows


def sentence(rows: Sequence[Row], config: Config) -> str:
    """What a table says, in one sentence, of a run with this config."""
    credited = IMITATORS if config.expert.reads_raw_text else UNLABELED_TEXT
    return headline(rows, credited=credited, is_self_training=config.expert.is_self_training)


def log_probs_of_all(
    folder: RunFolder,
    config: Config,
    part: str,
    texts: Sequence[str],
    soft_labels: SoftLabels | None = None,
    reporter: Reporter = QUIET,
) -> dict[str, np.ndarray]:
    """log p(y | X) (n, Y) of every network of a run, in the order of its table, on a part's texts."""
    device = choose_device(config.runtime.device)

    def load(name: str) -> Model:
        return load_variant(folder, config, name, device, soft_labels, knows_dev=part != "dev")

    mixture = load(MIXTURE)
    documents = _encoded(mixture, part, texts, reporter)
    alpha = mixture.alpha(documents)
    word, found = CachedLogits(documents.words, part, reporter), dict[str, np.ndarray]()
    for name in (EXPERT, *CONTROLS):
        if (folder / f"{name}.safetensors").exists():
            model = load(name)
            seen = _noise(config, alpha, part) if SYSTEMS[name].evidence == "random" else alpha
            found[name] = model.mixture_log_probs(documents, seen, word(model.expert))
    if len(alpha):
        found[IMITATORS_ONLY] = mixture.imitator_only_log_probs(documents, alpha)
    found[MIXTURE if len(alpha) else EXPERT] = mixture.mixture_log_probs(
        documents, alpha, word(mixture.expert)
    )
    return found


def _encoded(model: Model, part: str, texts: Sequence[str], reporter: Reporter) -> Encoded:
    """A part's texts as numbers, some at a time: a frozen encoder may be slow."""
    with reporter.task(f"encoding {part}", len(texts)) as task:
        encoded = [model.encode(chunk) for chunk in counted([texts], task)]
    words, pieces = (concatenate(getattr(one, name) for one in encoded) for name in ("words", "pieces"))
    return Encoded(words, pieces, model.indexer.reader is None)


def previous_run_log_probs(
    folder: RunFolder, config: Config, part: str, texts: Sequence[str]
) -> dict[str, np.ndarray]:
    """log p(y | X) (n, Y) of the run that a student learned from, as a system; none where it is gone."""
    if not has_previous_run(folder, config):
        return {}
    previous = load_previous_run(config, choose_device(config.runtime.device), knows_dev=part != "dev")
    return {PREVIOUS_RUN: previous.log_probs(texts)}


def _baseline(run: Run, texts: Sequence[str], holds_dev: bool) -> dict[str, np.ndarray]:
    """The baseline chooses nothing on dev, so it learns from the dev labels too, unless judged on them."""
    examples = [run.labeled.examples(part) for part in (("train",) if holds_dev else ("train", "dev"))]
    known = run.labeled.train_texts + ([] if holds_dev else run.labeled.dev_texts)
    ids, weights = (np.concatenate(arrays) for arrays in zip(*examples, strict=True))
    return {TFIDF: tfidf_baseline(known, ids, texts, run.classes, weights)}


def _evaluated_part(run: Run) -> tuple[str, list[str], np.ndarray]:
    """The test documents; where there are none, dev, on which everything was chosen."""
    if run.corpus.test is None:
        return "dev", run.labeled.dev_texts, run.labeled.dev_ids
    texts, values = read_all(run.corpus.test)
    name = run.corpus.names.get("test", "the test documents")
    return "test", texts, run.labeled.labels.encode(values, name)


def _noise(config: Config, alpha: np.ndarray, part: str) -> np.ndarray:
    """The random vectors of a part: on dev those that the control was tuned with."""
    I, n, Y = alpha.shape
    return random_alpha(I, n, Y, config.seed, part)


def as_plain(row: Row) -> dict[str, object]:
    """A row of the table as plain data."""
    return {
        "system": row.name,
        **row.scores.to_dict(),
        "interval": row.interval,
        "p_value": row.p_value,
        "difference": None if row.difference is None else vars(row.difference),
    }


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
    try:
        table = pq.read_table(path / "predictions.parquet")
    except (OSError, pa.ArrowInvalid) as problem:
        raise RunError(
            f"{path / 'predictions.parquet'} cannot be read ({str(problem).splitlines()[0]}): "
            "remove the folder, and run this again."
        ) from problem
    labels = table["label"].to_numpy()
    found = {}
    for name in table.column_names[1:]:
        log_probs = np.stack(table[name].to_numpy())
        found[name] = log_probs.argmax(axis=1) == labels
    return found
