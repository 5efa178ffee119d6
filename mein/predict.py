"""Files of any size in, the same files out with a label and its probability; a batch at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
import pyarrow as pa

from mein.data.readers import find_text_column, plain_text, read_tables
from mein.data.writers import open_writer
from mein.errors import InputError
from mein.model import Model
from mein.progress import Reporter

Predict = Callable[[list[str]], np.ndarray]  # texts -> log p(y | X) (n, Y)


@dataclass(frozen=True)
class Columns:
    """Where the texts are, and what the new columns are called."""

    text: str
    label: str
    probability: str


def predict_file(
    model: Model,
    source: str,
    target: Path,
    text_column: str | None,
    reporter: Reporter,
    predict: Predict | None = None,
) -> int:
    """Label every document of `source` into `target`, keeping its other columns; how many there were.

    Where the source has a column `label`, the new one is `predicted_label`; so with `probability`.
    """
    predict = model.log_probs if predict is None else predict
    documents = 0
    columns: Columns | None = None
    with open_writer(target) as writer, reporter.task("predicting", None) as task:
        for batch in read_tables(source):
            if columns is None:
                columns = _columns(batch.schema.names, text_column, source)
            texts = _texts(batch, columns, source, documents)
            writer.write(_with_predictions(model, batch, predict(texts), columns))
            documents += len(texts)
            task.advance(len(texts))
    return documents


def _columns(names: list[str], text_column: str | None, source: str) -> Columns:
    text = find_text_column(names, text_column, source)
    return Columns(text, _free("label", names), _free("probability", names))


def _free(name: str, taken: list[str]) -> str:
    """label, else predicted_label, else predicted_label_2 ..."""
    numbered = (f"predicted_{name}_{number}" for number in count(2))
    return next(free for free in chain((name, f"predicted_{name}"), numbered) if free not in taken)


def _texts(batch: pa.RecordBatch, columns: Columns, source: str, done: int) -> list[str]:
    """The texts of a batch, whose columns must still mean what those of the first one meant."""
    names = batch.schema.names
    for name in {columns.label, columns.probability} & set(names):
        raise InputError(
            f"{source} has a column {name!r} below row {done} that it lacks above: rename it, since "
            "predictions are written under that name."
        )
    column = batch.column(find_text_column(names, columns.text, source))
    return [
        plain_text(value, f"{source} row {row}")
        for row, value in enumerate(column.to_pylist(), start=done + 1)
    ]


def _with_predictions(
    model: Model, batch: pa.RecordBatch, log_probs: np.ndarray, columns: Columns
) -> pa.Table:
    best = log_probs.argmax(axis=1)
    labels = model.labels.decode(best)
    if len({type(label) for label in model.labels.classes}) > 1:
        labels = [str(label) for label in labels]  # a column has one type
    probabilities = np.exp(log_probs[np.arange(len(best)), best])
    table = pa.Table.from_batches([batch])
    table = table.append_column(columns.label, pa.array(labels))
    return table.append_column(columns.probability, pa.array(probabilities))
