"""The lexicon: logistic regression on pieces, pairs, and triples of pieces, learned from labeled documents.

The paper has none. Imitators only learn what the expert predicts; n-grams carry label information that an
expert with few labels has not learned yet. Entries are weighted by naive Bayes (Wang & Manning 2012).
"""

import hashlib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.special import log_softmax

from mein.errors import RunError
from mein.evaluation.prior import log_prior, with_absent_classes
from mein.runtime.seeds import numpy_generator
from mein.runtime.tensors import load_tensors, save_tensors
from mein.text.features import codes_of
from mein.text.ragged import Ragged

LEXICON = "lexicon.safetensors"  # in a run folder: used for prediction, learned from train and dev
LEXICON_OF_TRAIN = "lexicon-of-train.safetensors"  # the one that may be evaluated on dev
INVERSE_REGULARIZATION = 30.0  # the baseline's
LONGEST = 3  # pieces of an entry
LEAST_DOCUMENTS = 2  # that hold an entry
MOST_ENTRIES = 200_000  # the most frequent
MOST_WEIGHTS = 5_000_000  # entries times classes
MOST_PIECES = 10_000_000  # to learn from: 1.6 GB and 15 s where there are two classes
ARRAYS = ("entries", "informativeness", "weights", "bias")


@dataclass(frozen=True)
class Lexicon:
    """log p(y | X) = log softmax(W' x + b), x the weighted entries of a document. F: entries, Y: classes."""

    entries: np.ndarray
    """Codes (F,) of pieces, pairs, and triples of pieces, ascending."""
    informativeness: np.ndarray
    """The naive Bayes weight of each entry (F,): larger where it distinguishes a class better."""
    weights: np.ndarray
    """W (F, Y)."""
    bias: np.ndarray
    """b (Y,)."""
    vocabulary_size: int
    """The number of pieces."""
    gate: float = 1.0
    """The weight of its log-probabilities in a mixture."""

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused later
    def log_probs(self, pieces: Ragged) -> np.ndarray:
        """log p(y | X) (n, Y), float32, of documents."""
        rows, codes = codes_of(pieces, self.vocabulary_size, LONGEST)
        if not len(self.entries):
            codes = codes[:0]
        at = np.searchsorted(self.entries, codes).clip(max=max(0, len(self.entries) - 1))
        known = self.entries[at] == codes
        holds = _present(rows[: len(codes)][known], at[known], (len(pieces), len(self.entries)))
        logits = weighted(holds, self.informativeness) @ self.weights + self.bias
        found: np.ndarray = log_softmax(logits.astype(np.float64), axis=1).astype(np.float32)
        return found

    @np.errstate(over="ignore", invalid="ignore")
    def logits(self, pieces: Ragged) -> np.ndarray:
        """What it adds to the logits of a mixture (n, Y): its gate times its log-probabilities."""
        return self.gate * self.log_probs(pieces).astype(np.float64)

    def digest(self) -> str:
        """Equal for lexicons that predict the same."""
        parts = [getattr(self, name).tobytes() for name in ARRAYS]
        return hashlib.sha256(
            b"".join([*parts, repr((self.vocabulary_size, self.gate)).encode()])
        ).hexdigest()

    def with_gate(self, gate: float) -> "Lexicon":
        """The same lexicon with another gate."""
        return replace(self, gate=gate)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything but the gate."""
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in ARRAYS}
        return arrays | {"vocabulary_size": torch.tensor(self.vocabulary_size)}

    def save(self, path: Path) -> None:
        """Write what `load_lexicon` reads: everything but the gate."""
        save_tensors(path, self.tensors(), {})


def load_lexicon(path: Path) -> Lexicon:
    """The lexicon whose tensors lie in a file."""
    tensors, _ = load_tensors(path)
    try:
        entries, informativeness, weights, bias = (tensors[name].numpy() for name in ARRAYS)
        found = Lexicon(entries, informativeness, weights, bias, int(tensors["vocabulary_size"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as problem:
        raise RunError(
            f"{path}: this version of mein cannot read the lexicon. Train the run again."
        ) from problem
    F, Y = len(entries) if entries.ndim else 0, len(bias) if bias.ndim else 0
    fits = (entries.shape, informativeness.shape, weights.shape, bias.shape) == ((F,), (F,), (F, Y), (Y,))
    numbers = (informativeness, weights, bias)
    is_sound = entries.dtype == np.int64 and all(array.dtype == np.float32 for array in numbers)
    if not (fits and is_sound and all(np.isfinite(array).all() for array in numbers)):
        raise RunError(f"{path} is damaged, its arrays do not fit: restore it from a copy of its own run.")
    return found


def learn_lexicon(
    pieces: Ragged, labels: np.ndarray, sample_weight: np.ndarray, classes: int, vocabulary_size: int
) -> Lexicon:
    """Learn a lexicon from documents with labels (n,), or from a fixed sample where there are very many."""
    kept = _few_enough(pieces.lengths)
    pieces, labels, sample_weight = pieces.take(kept), labels[kept], sample_weight[kept]
    rows, codes = codes_of(pieces, vocabulary_size, LONGEST)
    entries, places = np.unique(codes, return_inverse=True)
    holds = _present(rows, places, (len(pieces), len(entries)))
    documents = np.bincount(holds.indices, minlength=len(entries))
    most = min(MOST_ENTRIES, MOST_WEIGHTS // classes)
    chosen = np.argsort(-documents, kind="stable")[:most]
    chosen = np.sort(chosen[documents[chosen] >= LEAST_DOCUMENTS])
    holds = holds[:, chosen]
    informativeness = informativeness_of(holds, labels, sample_weight)
    weights, bias = np.zeros((len(chosen), classes), np.float32), np.zeros(classes, np.float32)
    present = np.unique(labels)
    if len(chosen) and len(present) > 1:
        from sklearn.linear_model import LogisticRegression  # half a second that prediction does not need

        model = LogisticRegression(C=INVERSE_REGULARIZATION, max_iter=1000)
        with warnings.catch_warnings():  # of more than one class for two documents
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            model.fit(weighted(holds, informativeness), labels, sample_weight=sample_weight)
        is_pair = len(present) == 2  # scikit-learn has coefficients of the second class only
        weights[:, present[1:] if is_pair else present] = model.coef_.T
        bias[present[1:] if is_pair else present] = model.intercept_
    absent = np.setdiff1d(np.arange(classes), present)
    bias = with_absent_classes(bias, log_prior(labels, sample_weight, classes), absent).astype(np.float32)
    return Lexicon(entries[chosen], informativeness, weights, bias, vocabulary_size)


def _few_enough(lengths: np.ndarray) -> np.ndarray:
    """Indices of all documents, or of a fixed sample that has at most `MOST_PIECES`, without giant ones."""
    if lengths.sum() <= MOST_PIECES:
        return np.arange(len(lengths))
    order = numpy_generator(0, "lexicon").permutation(np.flatnonzero(lengths <= MOST_PIECES // 10))
    found: np.ndarray = np.sort(order[np.cumsum(lengths[order]) <= MOST_PIECES])
    return found


def informativeness_of(holds: csr_array, labels: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
    """max_y |log p(entry | y) - log p(entry | not y)| (F,), from the entries (n, F) that documents contain.

    p is an entry's share of all entries in documents of a class, each counted once per document, plus 1.
    For two classes this is the absolute value of the naive Bayes log-odds.
    """
    classes, which = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return np.ones(holds.shape[1], np.float32)
    documents = (which, np.arange(len(labels)))
    is_of = csr_array((sample_weight.astype(np.float64), documents), shape=(len(classes), len(labels)))
    within = (is_of @ holds).toarray() + 1.0
    outside = within.sum(0) - within
    ratio = np.log(within / within.sum(1, keepdims=True)) - np.log(outside / outside.sum(1, keepdims=True))
    found: np.ndarray = np.abs(ratio).max(0).astype(np.float32)
    return found


def weighted(holds: csr_array, informativeness: np.ndarray) -> csr_array:
    """The weighted entries of each document (n, F), normalized to norm 1."""
    rows = np.repeat(np.arange(holds.shape[0]), np.diff(holds.indptr))
    values = informativeness[holds.indices]
    norms = np.sqrt(np.bincount(rows, values.astype(np.float64) ** 2, minlength=holds.shape[0]))
    values = (values / np.where(norms > 0, norms, 1.0)[rows]).astype(np.float32)
    return csr_array((values, holds.indices, holds.indptr), shape=holds.shape)


def _present(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """1 where a row has an entry, 0 elsewhere."""
    found = coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape).tocsr()
    found.data[:] = 1.0
    return found
