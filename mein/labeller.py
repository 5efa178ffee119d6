"""A model that is asked about one chunk of documents after another."""

from typing import Any

import numpy as np
import pyarrow as pa

from mein.explain import Fragment, top_fragments
from mein.model import Encoded, Model

FRAGMENTS = pa.list_(
    pa.struct(
        {"text": pa.string(), "window": pa.int64(), "contribution": pa.float64(), "probability": pa.float64()}
    )
)


class Labeller:
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
        say = self.model.said_by_imitators if self.imitators_only else self.model.said
        return say(documents, alpha), documents, alpha

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
