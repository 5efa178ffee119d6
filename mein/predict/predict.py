"""Files of any size in, the same files out with a label and its probability; one chunk at a time."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mein.data.columns import find_text_column
from mein.data.files import File
from mein.data.formats import open_writer
from mein.data.labels import Label
from mein.data.readers import plain_text, read_tables
from mein.data.streams import Stdout
from mein.errors import InputError
from mein.explain import Fragment, top_fragments
from mein.model.build import SoftLabelReader
from mein.model.model import Encoded, Model
from mein.predict.resume import NoParts, Parts, identity_of, open_parts
from mein.runtime.progress import Quiet, Reporter

FRAGMENTS = pa.list_(
    pa.struct(
        {"text": pa.string(), "window": pa.int64(), "contribution": pa.float64(), "probability": pa.float64()}
    )
)


class Predictor:
    """Predictions of a model, with the expert or without, and the fragments that account for them."""

    def __init__(self, model: Model, *, imitators_only: bool = False, fragments: int = 0) -> None:
        """`fragments`: how many to find for each document."""
        self.model = model
        self.imitators_only = imitators_only
        self.fragments = fragments

    def __call__(self, texts: list[str]) -> pa.Table:
        """`log_probs`, a list for each document, and `fragments` if requested."""
        log_probs, documents, alpha = self._predict(texts)
        values = pa.array(log_probs.reshape(-1))
        columns = {"log_probs": pa.FixedSizeListArray.from_arrays(values, log_probs.shape[1])}
        if self.fragments:
            columns["fragments"] = self._fragments(texts, log_probs, documents, alpha)
        return pa.table(columns)

    def log_probs(self, texts: list[str]) -> np.ndarray:
        """log p(y | X) (n, Y)."""
        return self._predict(texts)[0]

    def _predict(self, texts: list[str]) -> tuple[np.ndarray, Encoded, np.ndarray]:
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
        """The factor of each imitator's alpha (I,); () if the gates are closed."""
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


# A chunk is predicted at once; a kill loses at most one. It is larger than a reader's batch, so that many
# documents have similar lengths.
CHUNK_ROWS, SLOW_CHUNK_ROWS = 16_384, 1_000  # the latter if the expert is, or reads, an encoder
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Wanted:
    """How to predict and what to write."""

    text_column: str | None = None
    """Column with the texts. Default: guessed."""
    imitators_only: bool = False
    """Whether to predict without the expert."""
    abstain_below: float = 0.0
    """Leave the label empty if it is less probable than this."""
    all_probabilities: bool = False
    """Write `p_LABEL` for every class."""
    fragments: int = 0
    """Number of fragments to write for each document, those with the largest contributions."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.abstain_below <= 1.0:
            raise InputError(f"abstain_below is {self.abstain_below}: give a probability from 0 to 1.")


@dataclass(frozen=True)
class Columns:
    """The names of the text column and of the new columns."""

    text: str
    label: str
    probability: str
    classes: tuple[str, ...]
    fragments: str | None

    @property
    def new(self) -> list[str]:
        """The names of the columns to write."""
        return [self.label, self.probability, *self.classes, *([self.fragments] if self.fragments else [])]


def predict_file(
    model: Model,
    source: str | File,
    target: Path | Stdout,
    wanted: Wanted = Wanted(),  # noqa: B008 - frozen
    reporter: Reporter | None = None,
    *,
    resume: bool = False,
) -> int:
    """Label every document of `source` into `target`, keeping its other columns; the number of documents.

    If the source has a column `label`, the new one is `predicted_label`, and likewise for other names. With
    `resume`, finished parts are read from OUT.parts, and the output has the same bytes as without an
    interruption (on a CPU with the same number of threads).

    The source may be standard input, and the target standard output: nothing is kept then.
    """
    documents = 0
    columns: Columns | None = None
    label = Predictor(model, imitators_only=wanted.imitators_only, fragments=wanted.fragments)
    reporter = Quiet() if reporter is None else reporter
    with (
        _open_parts(model, source, target, wanted, resume, reporter) as parts,
        target.writer() if isinstance(target, Stdout) else open_writer(target) as writer,
        reporter.task("predicting", None) as task,
    ):
        for number, batches in enumerate(chunks(read_tables(source), _rows(model, wanted))):
            if columns is None:
                columns = _columns(batches[0].schema.names, wanted, source, model)
            texts = _texts(batches, columns, source, documents)
            predicted = parts.table(number, partial(label, texts))
            for batch in batches:
                writer.write(_with_predictions(model, batch, predicted.slice(0, len(batch)), columns, wanted))
                predicted = predicted.slice(len(batch))
            documents += len(texts)
            task.advance(len(texts))
    return documents


def _open_parts(
    model: Model, source: str | File, target: Path | Stdout, wanted: Wanted, resume: bool, reporter: Reporter
) -> AbstractContextManager[Parts | NoParts]:
    """The finished parts, which a stream does not have."""
    if isinstance(source, str) and isinstance(target, Path):
        return open_parts(target, _identity(model, source, wanted), resume, reporter.log)
    if resume:
        raise InputError("A prediction from or to a stream cannot be resumed: name both files.")
    return nullcontext(NoParts())


def _rows(model: Model, wanted: Wanted) -> int:
    """How many documents are predicted at a time: a kill loses at most these."""
    is_slow = model.config.expert.traits.has_encoder and not wanted.imitators_only
    return SLOW_CHUNK_ROWS if is_slow else CHUNK_ROWS


def chunks(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches of a reader in lists of about `most` rows, which depend only on the source."""
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
    """What parts depend on. Not abstaining and the classes' columns: they do not change what parts hold."""
    reader = None if wanted.imitators_only else model.indexer.reader
    digest = reader.digest() if isinstance(reader, SoftLabelReader) else None
    return identity_of(
        model,
        source,
        text_column=wanted.text_column,
        imitators_only=wanted.imitators_only,
        fragments=wanted.fragments,
        chunk=[_rows(model, wanted), CHUNK_BYTES],
        **({} if digest is None else {"soft_labels": digest}),
    )


def _columns(names: list[str], wanted: Wanted, source: str | File, model: Model) -> Columns:
    free = partial(free_name, names)
    classes = model.labels.classes if wanted.all_probabilities else ()
    return Columns(
        find_text_column(names, wanted.text_column, str(source)),
        free("label"),
        free("probability"),
        tuple(free(f"p_{label}") for label in classes),
        free("fragments") if wanted.fragments else None,
    )


def free_name(taken: list[str], name: str) -> str:
    """The first free name of label, predicted_label, predicted_label_2 ..."""
    numbered = (f"predicted_{name}_{number}" for number in count(2))
    return next(free for free in chain((name, f"predicted_{name}"), numbered) if free not in taken)


def _texts(batches: list[pa.RecordBatch], columns: Columns, source: str | File, done: int) -> list[str]:
    """The texts of batches, whose columns must have the same meaning as in the first one."""
    texts: list[str] = []
    for batch in batches:
        names, above = batch.schema.names, done + len(texts)
        for name in set(columns.new) & set(names):
            raise InputError(
                f"{source} has a column {name!r} below row {above} that it lacks above: rename it, since "
                "predictions are written under that name."
            )
        values = batch.column(find_text_column(names, columns.text, str(source))).to_pylist()
        texts += [plain_text(value, f"{source} row {row}") for row, value in enumerate(values, above + 1)]
    return texts


def _with_predictions(
    model: Model, batch: pa.RecordBatch, predicted: pa.Table, columns: Columns, wanted: Wanted
) -> pa.Table:
    Y = len(model.labels.classes)
    log_probs = predicted["log_probs"].combine_chunks().flatten().to_numpy().reshape(-1, Y)
    best = log_probs.argmax(axis=1)
    probabilities = np.exp(log_probs)
    probability = probabilities[np.arange(len(best)), best]
    is_kept = probability >= wanted.abstain_below
    classes = _of_one_type(model.labels.classes)
    labels = classes.take(pa.array(best, mask=~is_kept))
    table = pa.Table.from_batches([batch])
    table = table.append_column(columns.label, labels)
    table = table.append_column(columns.probability, pa.array(probability))
    for y, name in enumerate(columns.classes):
        table = table.append_column(name, pa.array(probabilities[:, y]))
    if columns.fragments is not None:
        table = table.append_column(columns.fragments, predicted["fragments"])
    return table


def _of_one_type(classes: Sequence[Label]) -> pa.Array:
    """The classes as a column, which has one type; strings where no other can hold them unchanged."""
    if len({type(label) for label in classes}) == 1:
        for kind in (None, pa.uint64()):
            with suppress(OverflowError, pa.ArrowInvalid):
                return pa.array(classes, kind)
    return pa.array([str(label) for label in classes])
