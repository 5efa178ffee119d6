"""Label a file of any size.

A model that is asked about one chunk of documents after another.

Files of any size in, the same files out with a label and its probability; a chunk at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mein.data.columns import find_text_column
from mein.data.formats import open_writer
from mein.data.readers import plain_text, read_tables
from mein.errors import InputError
from mein.explain import Fragment, top_fragments
from mein.model.build import SoftLabelReader
from mein.model.model import Encoded, Model
from mein.predict.resume import identity_of, open_parts
from mein.runtime.progress import Quiet, Reporter

FRAGMENTS = pa.list_(
    pa.struct(
        {"text": pa.string(), "window": pa.int64(), "contribution": pa.float64(), "probability": pa.float64()}
    )
)


class Predictor:
    """What `model.log_probs` says, or without the expert `model.imitator_log_probs`, and who moved it."""

    def __init__(self, model: Model, *, imitators_only: bool = False, fragments: int = 0) -> None:
        """`fragments`: how many to name for each document."""
        self.model = model
        self.imitators_only = imitators_only
        self.fragments = fragments

    def __call__(self, texts: list[str]) -> pa.Table:
        """`log_probs`, a list for each document, and `fragments` where they are wanted."""
        log_probs, documents, alpha = self._ask(texts)
        values = pa.array(log_probs.reshape(-1))
        columns = {"log_probs": pa.FixedSizeListArray.from_arrays(values, log_probs.shape[1])}
        if self.fragments:
            columns["fragments"] = self._fragments(texts, log_probs, documents, alpha)
        return pa.table(columns)

    def log_probs(self, texts: list[str]) -> np.ndarray:
        """log p(y | X) (n, Y)."""
        return self._ask(texts)[0]

    def _ask(self, texts: list[str]) -> tuple[np.ndarray, Encoded, np.ndarray]:
        documents = self.model.encode(texts, imitators_only=self.imitators_only)
        alpha = self.model.alpha(documents)
        log = self.model.imitator_only_log_probs if self.imitators_only else self.model.mixture_log_probs
        return log(documents, alpha), documents, alpha

    def _fragments(
        self, texts: list[str], log_probs: np.ndarray, documents: Encoded, alpha: np.ndarray
    ) -> pa.Array:
        weights = self._weights()
        if not len(weights):
            return pa.array([[]] * len(log_probs), FRAGMENTS)
        found = top_fragments(self.model, texts, documents.pieces, alpha, log_probs, weights, self.fragments)
        best = log_probs.argmax(axis=1).tolist()
        rows = [[_plain(one, y) for one in row] for y, row in zip(best, found, strict=True)]
        return pa.array(rows, FRAGMENTS)

    def _weights(self) -> np.ndarray:
        """What each imitator's alpha is multiplied by (I,); () where the gates are closed."""
        model = self.model
        gates = np.ones(len(model.gates)) if self.imitators_only else model.gates
        weights: np.ndarray = gates / (
            model.imitator_temperature if self.imitators_only else model.temperature
        )
        return weights


def _plain(fragment: Fragment, label: int) -> dict[str, Any]:
    """A fragment as a row; `probability` is its own p_ij of the predicted label."""
    return {
        "text": fragment.text,
        "window": fragment.window,
        "contribution": fragment.contribution,
        "probability": fragment.probabilities[label],
    }


# A chunk is labeled at once and is what a kill can cost. It is larger than a reader's batch, so that
# documents of like length are many.
CHUNK_ROWS, SLOW_CHUNK_ROWS = 16_384, 1_000  # the latter where the expert is, or reads, an encoder
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Wanted:
    """What to label with and what to write."""

    text_column: str | None = None
    """Where the texts are; else guessed."""
    imitators_only: bool = False
    """Do without the expert."""
    abstain_below: float = 0.0
    """Leave the label empty where it is less probable than this."""
    all_probabilities: bool = False
    """Write `p_LABEL` for every class."""
    fragments: int = 0
    """Write so many of the fragments that moved a prediction most."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.abstain_below <= 1.0:
            raise InputError(
                f"Nothing can be less probable than {self.abstain_below}; choose between 0 and 1."
            )


@dataclass(frozen=True)
class Columns:
    """Where the texts are, and what the new columns are called."""

    text: str
    label: str
    probability: str
    classes: tuple[str, ...]
    fragments: str | None

    @property
    def new(self) -> list[str]:
        """Those that are written."""
        return [self.label, self.probability, *self.classes, *([self.fragments] if self.fragments else [])]


def predict_file(
    model: Model,
    source: str,
    target: Path,
    wanted: Wanted = Wanted(),  # noqa: B008 - frozen
    reporter: Reporter | None = None,
    *,
    resume: bool = False,
) -> int:
    """Label every document of `source` into `target`, keeping its other columns; how many there were.

    Where the source has a column `label`, the new one is `predicted_label`; so with the others. With
    `resume`, what was labeled before a kill is taken from OUT.parts, and the output is the same, byte for
    byte, as one that was never interrupted (on a CPU with the same number of threads).
    """
    documents = 0
    columns: Columns | None = None
    label = Predictor(model, imitators_only=wanted.imitators_only, fragments=wanted.fragments)
    reporter = Quiet() if reporter is None else reporter
    with (
        open_parts(target, _identity(model, source, wanted), resume, reporter.log) as parts,
        open_writer(target) as writer,
        reporter.task("predicting", None) as task,
    ):
        for number, batches in enumerate(chunks(read_tables(source), _rows(model, wanted))):
            if columns is None:
                columns = _columns(batches[0].schema.names, wanted, source, model)
            texts = _texts(batches, columns, source, documents)
            said = parts.table(number, partial(label, texts))
            for batch in batches:
                writer.write(_with_predictions(model, batch, said.slice(0, len(batch)), columns, wanted))
                said = said.slice(len(batch))
            documents += len(texts)
            task.advance(len(texts))
    return documents


def _rows(model: Model, wanted: Wanted) -> int:
    """How many documents are labeled at a time: what a kill may lose."""
    is_slow = model.config.expert.traits.has_encoder and not wanted.imitators_only
    return SLOW_CHUNK_ROWS if is_slow else CHUNK_ROWS


def chunks(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches of a reader in runs of about so many rows, which depend on nothing but the source."""
    run: list[pa.RecordBatch] = []
    rows = size = 0
    parts = (batch.slice(start, most) for batch in batches for start in range(0, len(batch), most))
    for batch in parts:
        run.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= most or size >= CHUNK_BYTES:
            yield run
            run, rows, size = [], 0, 0
    if run:
        yield run


def _identity(model: Model, source: str, wanted: Wanted) -> dict[str, Any]:
    """Abstaining and the classes' columns are left out: they do not change what is kept in parts."""
    reader = None if wanted.imitators_only else model.indexer.reader
    said = reader.digest() if isinstance(reader, SoftLabelReader) else None
    return identity_of(
        model,
        source,
        text_column=wanted.text_column,
        imitators_only=wanted.imitators_only,
        fragments=wanted.fragments,
        chunk=[_rows(model, wanted), CHUNK_BYTES],
        **({} if said is None else {"soft_labels": said}),
    )


def _columns(names: list[str], wanted: Wanted, source: str, model: Model) -> Columns:
    free = partial(free_name, names)
    classes = model.labels.classes if wanted.all_probabilities else ()
    return Columns(
        find_text_column(names, wanted.text_column, source),
        free("label"),
        free("probability"),
        tuple(free(f"p_{label}") for label in classes),
        free("fragments") if wanted.fragments else None,
    )


def free_name(taken: list[str], name: str) -> str:
    """label, else predicted_label, else predicted_label_2 ..."""
    numbered = (f"predicted_{name}_{number}" for number in count(2))
    return next(free for free in chain((name, f"predicted_{name}"), numbered) if free not in taken)


def _texts(batches: list[pa.RecordBatch], columns: Columns, source: str, done: int) -> list[str]:
    """The texts of batches, whose columns must still mean what those of the first one meant."""
    texts: list[str] = []
    for batch in batches:
        names, above = batch.schema.names, done + len(texts)
        for name in set(columns.new) & set(names):
            raise InputError(
                f"{source} has a column {name!r} below row {above} that it lacks above: rename it, since "
                "predictions are written under that name."
            )
        values = batch.column(find_text_column(names, columns.text, source)).to_pylist()
        texts += [plain_text(value, f"{source} row {row}") for row, value in enumerate(values, above + 1)]
    return texts


def _with_predictions(
    model: Model, batch: pa.RecordBatch, said: pa.Table, columns: Columns, wanted: Wanted
) -> pa.Table:
    Y = len(model.labels.classes)
    log_probs = said["log_probs"].combine_chunks().flatten().to_numpy().reshape(-1, Y)
    best = log_probs.argmax(axis=1)
    probabilities = np.exp(log_probs)
    probability = probabilities[np.arange(len(best)), best]
    is_kept = probability >= wanted.abstain_below
    classes: list[Any] = list(model.labels.classes)
    if len({type(label) for label in classes}) > 1:
        classes = [str(label) for label in classes]  # a column has one type
    labels = [classes[y] if kept else None for y, kept in zip(best.tolist(), is_kept.tolist(), strict=True)]
    table = pa.Table.from_batches([batch])
    table = table.append_column(columns.label, pa.array(labels, pa.array(classes).type))
    table = table.append_column(columns.probability, pa.array(probability))
    for y, name in enumerate(columns.classes):
        table = table.append_column(name, pa.array(probabilities[:, y]))
    if columns.fragments is not None:
        table = table.append_column(columns.fragments, said["fragments"])
    return table
