"""A lexicon: what pieces, and pairs of them, say of the labels, learned from labelled documents alone.

The paper has none. Imitators know no more than the expert told them; with few labels, counts of words
know what an LSTM has not learned yet. It is logistic regression on TF-IDF, as the baseline is.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from mein.errors import RunError
from mein.text.ragged import Ragged
from mein.training.checkpoint import load_tensors

LEXICON = "lexicon.safetensors"  # in a run folder: what predicts, learned from train and dev
LEXICON_OF_TRAIN = "lexicon-of-train.safetensors"  # the one that may be asked about dev
SPEAKS_IN = ("mixture", "closed", "random")  # also in the controls: no imitator taught it
INVERSE_REGULARISATION = 30.0  # the baseline's
LEAST_DOCUMENTS = 2  # that hold an entry
MOST_ENTRIES = 200_000  # the most frequent
MOST_WEIGHTS = 20_000_000  # entries times classes


@dataclass(frozen=True)
class Lexicon:
    """log p(y | X) = log softmax(W' x + b), x the TF-IDF of a document's entries. F: entries, Y: classes."""

    entries: np.ndarray
    """Codes (F,) of pieces and of pairs of pieces, rising."""
    idf: np.ndarray
    """How much each entry counts (F,): the rarer, the more."""
    weights: np.ndarray
    """W (F, Y)."""
    bias: np.ndarray
    """b (Y,)."""
    vocabulary_size: int
    """How many pieces there are."""
    gate: float = 1.0
    """What its word counts in a mixture."""

    def log_probs(self, pieces: Ragged) -> np.ndarray:
        """log p(y | X) (n, Y), float32, of documents."""
        rows, codes = codes_of(pieces, self.vocabulary_size)
        if not len(self.entries):
            codes = codes[:0]
        at = np.searchsorted(self.entries, codes).clip(max=max(0, len(self.entries) - 1))
        known = self.entries[at] == codes
        counts = _counted(rows[: len(codes)][known], at[known], (len(pieces), len(self.entries)))
        logits = weighed(counts, self.idf) @ self.weights + self.bias
        found: np.ndarray = log_softmax(logits.astype(np.float64), axis=1).astype(np.float32)
        return found

    def logits(self, pieces: Ragged) -> np.ndarray:
        """What it adds to the logits of a mixture (n, Y): its gate times its word."""
        return self.gate * self.log_probs(pieces).astype(np.float64)

    def with_gate(self, gate: float) -> "Lexicon":
        """The same, whose word counts so much."""
        return replace(self, gate=gate)

    def tensors(self) -> dict[str, Tensor]:
        """What `load_lexicon` makes it from again, but for the gate."""
        arrays = {"entries": self.entries, "idf": self.idf, "weights": self.weights, "bias": self.bias}
        size = torch.tensor(self.vocabulary_size)
        return {name: torch.from_numpy(array) for name, array in arrays.items()} | {"vocabulary_size": size}


def load_lexicon(path: Path) -> Lexicon:
    """The lexicon whose tensors lie in a file."""
    tensors, _ = load_tensors(path)
    try:
        names = ("entries", "idf", "weights", "bias")
        entries, idf, weights, bias = (tensors[name].numpy() for name in names)
        return Lexicon(entries, idf, weights, bias, int(tensors["vocabulary_size"]))
    except KeyError as problem:
        raise RunError(f"{path} holds no lexicon: restore it from a copy.") from problem


def learn_lexicon(
    pieces: Ragged, labels: np.ndarray, sample_weight: np.ndarray, classes: int, vocabulary_size: int
) -> Lexicon:
    """The lexicon of documents with labels (n,). Nothing is drawn at random."""
    rows, codes = codes_of(pieces, vocabulary_size)
    entries, places = np.unique(codes, return_inverse=True)
    counts = _counted(rows, places, (len(pieces), len(entries)))
    documents = np.bincount(counts.indices, minlength=len(entries))
    most = min(MOST_ENTRIES, MOST_WEIGHTS // classes)
    chosen = np.argsort(-documents, kind="stable")[:most]
    chosen = np.sort(chosen[documents[chosen] >= LEAST_DOCUMENTS])
    idf = (np.log((1 + len(pieces)) / (1 + documents[chosen])) + 1).astype(np.float32)
    weights, bias = np.zeros((len(chosen), classes), np.float32), np.zeros(classes, np.float32)
    present = np.unique(labels)
    if len(chosen) and len(present) > 1:
        model = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=1000)
        model.fit(weighed(counts[:, chosen], idf), labels, sample_weight=sample_weight)
        is_pair = len(present) == 2  # of which scikit-learn has the second's alone
        weights[:, present[1:] if is_pair else present] = model.coef_.T
        bias[present[1:] if is_pair else present] = model.intercept_
    absent = np.setdiff1d(np.arange(classes), present)
    bias[absent] = bias.min() - np.log(1 + len(pieces))  # as rare as can be
    return Lexicon(entries[chosen], idf, weights, bias, vocabulary_size)


def codes_of(pieces: Ragged, vocabulary_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and codes of all pieces p, then of all pairs (p, q) of neighbours: p, and (p + 1) V + q.

    >>> rows, codes = codes_of(Ragged(np.array([1, 2, 2]), np.array([0, 2, 3])), 10)
    >>> rows.tolist(), codes.tolist()
    ([0, 0, 1, 0], [1, 2, 2, 22])
    """
    values = pieces.values.astype(np.int64)
    rows = np.repeat(np.arange(len(pieces)), pieces.lengths)
    is_pair = rows[1:] == rows[:-1]
    pairs = (values[:-1] + 1) * vocabulary_size + values[1:]
    return np.concatenate([rows, rows[:-1][is_pair]]), np.concatenate([values, pairs[is_pair]])


def weighed(counts: csr_array, idf: np.ndarray) -> csr_array:
    """TF-IDF (n, F), of norm 1, from counts (n, F): (1 + log count) idf."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    values = (1 + np.log(counts.data)) * idf[counts.indices]
    norms = np.sqrt(np.bincount(rows, values.astype(np.float64) ** 2, minlength=counts.shape[0]))
    values = (values / norms[rows]).astype(np.float32)
    return csr_array((values, counts.indices, counts.indptr), shape=counts.shape)


def _counted(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """How often each entry stands in each row."""
    return coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape).tocsr()
