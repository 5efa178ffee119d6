"""Files of any size in, the same files out with a label and its probability; a batch at a time."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from mein.data.columns import find_text_column
from mein.data.readers import read_tables
from mein.data.writers import open_writer
from mein.model import Model
from mein.progress import Reporter


def predict_file(model: Model, source: str, target: Path, text_column: str | None, reporter: Reporter) -> int:
    """Label every document of `source` into `target`, keeping its other columns; how many there were."""
    documents = 0
    with open_writer(target) as writer, reporter.task("predicting", None) as task:
        for batch in read_tables(source):
            column = find_text_column(batch.schema.names, text_column, source)
            texts = ["" if text is None else str(text) for text in batch.column(column).to_pylist()]
            writer.write(_with_predictions(model, batch, texts))
            documents += len(texts)
            task.advance(len(texts))
    return documents


def _with_predictions(model: Model, batch: pa.RecordBatch, texts: list[str]) -> pa.Table:
    log_probs = model.log_probs(texts)
    best = log_probs.argmax(axis=1)
    labels = pa.array(model.labels.decode(best))
    probabilities = pa.array(np.exp(log_probs[np.arange(len(best)), best]))
    names = batch.schema.names
    table = pa.Table.from_batches([batch])
    table = table.append_column("predicted_label" if "label" in names else "label", labels)
    return table.append_column(
        "predicted_probability" if "probability" in names else "probability", probabilities
    )
