"""Features of documents that need no labels: n-grams with idf, latent semantic analysis, word vectors.

Not part of vectors.py, which learns from running text, while these describe documents.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from mein.text.ragged import Ragged
from mein.text.words import SPECIALS

LONGEST = 2  # words of an n-gram
LEAST_DOCUMENTS = 3  # that hold an n-gram which is in no labeled document
MOST_NGRAMS = 60_000  # of these, the most frequent
LATENT = 150  # dimensions of latent semantic analysis
ENCODER = 3.0  # variance of an encoder's features, where the other blocks have 1
LARGEST_OF_TRIPLES = 2_000_000  # vocabulary whose triples have codes of 63 bits


def codes_of(rows_of: Ragged, vocabulary_size: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and codes of all numbers p, then of all pairs (p, q) of neighbors, then of triples.

    The code of a number is p, of a pair (p + 1) V + q; a triple uses the code of its first pair as p. Very
    large vocabularies have no triples.

    >>> rows, codes = codes_of(Ragged(np.array([1, 2, 3, 2]), np.array([0, 3, 4])), 10, 3)
    >>> rows.tolist(), codes.tolist()
    ([0, 0, 0, 1, 0, 0, 0], [1, 2, 3, 2, 22, 33, 233])
    """
    values = rows_of.values.astype(np.int64)
    rows = np.repeat(np.arange(len(rows_of)), rows_of.lengths)
    found, codes = [(rows, values)], values
    for length in range(2, longest + 1 if vocabulary_size < LARGEST_OF_TRIPLES else min(longest, 2) + 1):
        last = length - 1
        codes = (codes[:-1] + 1) * vocabulary_size + values[last:]
        is_one = rows[last:] == rows[: len(codes)]  # the whole n-gram is in one document
        found.append((rows[last:][is_one], codes[is_one]))
    return np.concatenate([r for r, _ in found]), np.concatenate([c for _, c in found])


def words_only(words: Ragged) -> Ragged:
    """Documents without padding and end of sequence."""
    is_word = words.values >= SPECIALS
    ends = np.concatenate([[0], np.cumsum(is_word)])[words.offsets]
    return Ragged(words.values[is_word], ends)


@dataclass(frozen=True)
class TextFeatures:
    """x: n-grams weighted by (1 + log count) idf, of norm 1; x L: their latent dimensions; v: word vectors.

    F: n-grams, V: words. v is the sum of a document's word vectors over the root of its length.
    """

    vocabulary_size: int
    codes: np.ndarray
    """Of the n-grams (F,), ascending."""
    idf: np.ndarray
    """(F,), float32."""
    latent: np.ndarray
    """L (F, d), float32, scaled so that x L has variance 1 over unlabeled text, all dimensions together."""
    vectors: np.ndarray
    """(V, D), float32, scaled so that v has variance 1 likewise."""
    dense: np.ndarray
    """What features of an encoder are multiplied by (M,), float32: then their variance is `ENCODER`."""

    def ngrams(self, words: Ragged) -> csr_array:
        """x (n, F) of documents."""
        rows, codes = codes_of(words_only(words), self.vocabulary_size, LONGEST)
        at = np.searchsorted(self.codes, codes).clip(max=max(0, len(self.codes) - 1))
        is_known = self.codes[at] == codes if len(self.codes) else np.zeros(len(codes), bool)
        return _weighted(_counted(rows[is_known], at[is_known], (len(words), len(self.codes))), self.idf)

    def sums(self, words: Ragged) -> np.ndarray:
        """v (n, D) of documents."""
        return summed(words_only(words), self.vectors)

    def blocks(self, words: Ragged, dense: np.ndarray) -> dict[str, csr_array | np.ndarray]:
        """All features of documents, of which an encoder computed dense (n, M): blocks (n, D_b) by name."""
        x = self.ngrams(words)
        return {
            "ngrams": x,
            "latent": x @ self.latent,
            "vectors": self.sums(words),
            "encoder": dense * self.dense,
        }

    def tensors(self) -> dict[str, np.ndarray]:
        """Everything but the size of the vocabulary, by name."""
        return {name: getattr(self, name) for name in ("codes", "idf", "latent", "vectors", "dense")}


def summed(words: Ragged, vectors: np.ndarray) -> np.ndarray:
    """The sum of each document's vectors over the root of its length (n, D); 0 without words."""
    shape = (len(words), len(vectors))
    holds = csr_array((np.ones(len(words.values), np.float32), words.values, words.offsets), shape=shape)
    found: np.ndarray = (holds @ vectors) / np.sqrt(np.maximum(1, words.lengths))[:, None]
    return found.astype(np.float32)


def learn_features(
    labeled: Ragged,
    unlabeled: Ragged,
    vectors: np.ndarray,
    dense: np.ndarray,
    vocabulary_size: int,
    seed: int,
) -> TextFeatures:
    """Features learned from the words of labeled and unlabeled documents, and from word vectors (V, D).

    dense (m, M): features that an encoder computed of unlabeled documents, or of the labeled ones.

    N-grams of labeled documents are all kept: of the others a linear model learns by L alone.
    """
    rows, codes = codes_of(words_only(labeled), vocabulary_size, LONGEST)
    own = np.unique(codes)
    both = [labeled, unlabeled]
    everything = [codes_of(words_only(words), vocabulary_size, LONGEST) for words in both]
    found, places = np.unique(np.concatenate([codes for _, codes in everything]), return_inverse=True)
    rows = np.concatenate([everything[0][0], everything[1][0] + len(labeled)])
    documents = len(labeled) + len(unlabeled)
    holds = _counted(rows, places, (documents, len(found)))
    in_documents = np.bincount(holds.indices, minlength=len(found))
    frequent = np.argsort(-in_documents, kind="stable")[:MOST_NGRAMS]
    is_kept = np.isin(found, own)
    is_kept[frequent[in_documents[frequent] >= LEAST_DOCUMENTS]] = True
    kept = np.flatnonzero(is_kept)
    idf = (np.log((1 + documents) / (1 + in_documents[kept])) + 1).astype(np.float32)
    x = _weighted(holds[:, kept], idf)
    latent = _latent(x, seed)
    of_vectors = summed(words_only(unlabeled if len(unlabeled) else labeled), vectors)
    return TextFeatures(
        vocabulary_size,
        found[kept],
        idf,
        latent / np.float32(_spread(x @ latent)),
        vectors / np.float32(_spread(of_vectors)),
        np.full(dense.shape[1], np.sqrt(ENCODER) / _spread(dense), np.float32),
    )


def _latent(x: csr_array, seed: int) -> np.ndarray:
    """The strongest right singular vectors of x (F, d)."""
    from sklearn.utils.extmath import randomized_svd  # prediction needs no scikit-learn

    size = min(LATENT, *x.shape)
    if size == 0 or x.nnz == 0:
        return np.zeros((x.shape[1], 0), np.float32)
    _, _, right = randomized_svd(x, size, n_iter=3, random_state=seed % 2**32)
    found: np.ndarray = np.ascontiguousarray(right.T, np.float32)
    return found


def _spread(rows: np.ndarray) -> float:
    """The root of the mean squared distance of rows from their mean; 1 where they are all equal."""
    found = float(np.sqrt(((rows - rows.mean(0)) ** 2).sum(1).mean())) if rows.size else 0.0
    return found if found > 0 else 1.0


def _counted(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """How often each row has each column (n, F), without duplicate entries."""
    found = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    found.sum_duplicates()
    return found


def _weighted(counts: csr_array, idf: np.ndarray) -> csr_array:
    """Counts (n, F) weighted by (1 + log count) idf, each row of norm 1."""
    values = (1 + np.log(counts.data)) * idf[counts.indices]
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    norms = np.sqrt(np.bincount(rows, values.astype(np.float64) ** 2, minlength=counts.shape[0]))
    values = (values / np.where(norms > 0, norms, 1.0)[rows]).astype(np.float32)
    return csr_array((values, counts.indices, counts.indptr), shape=counts.shape)
