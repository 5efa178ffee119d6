"""Word vectors from raw text. Not part of words.py because it needs scipy and scikit-learn.

The strongest singular vectors of the words' positive pointwise mutual information with their neighbors
(Levy & Goldberg 2014). They take seconds, up to half a minute, and no labels.
"""

from collections.abc import Iterable

import numpy as np
from scipy.sparse import coo_array, csr_array
from sklearn.utils.extmath import randomized_svd

from mein.text.ragged import Ragged
from mein.text.words import SPECIALS

REACH = 5  # words to either side; one at distance k counts 1 / k
SMOOTHING = 0.75  # exponent of a neighbor's frequency, so that rare neighbors do not count too much
RARE = 1e-3  # share of running text: more frequent words count less and less (Arora et al. 2017)
MOST_WORDS = 20_000_000  # of running text


def word_vectors(texts: Iterable[Ragged], vocabulary_size: int, dim: int, seed: int) -> np.ndarray:
    """Vectors (V, D), float32, of the words in texts; frequent words are shorter, those without neighbors 0.

    Over running text their mean is 0 and the deviation of all their numbers together 1.
    """
    near, counts = neighbors(texts, vocabulary_size)
    size = min(dim, vocabulary_size)
    left, strength, _ = randomized_svd(mutual_information(near), size, n_iter=3, random_state=seed)
    share = counts / max(1, counts.sum())
    found = left * np.sqrt(strength) * (RARE / (RARE + share))[:, None]
    is_known = near.sum(1) > 0
    vectors = np.zeros((vocabulary_size, dim))
    vectors[is_known, :size] = (found - share @ found)[is_known]
    deviation = np.sqrt(share @ (vectors**2).mean(1))
    return (vectors / (deviation if deviation > 0 else 1.0)).astype(np.float32)


def neighbors(texts: Iterable[Ragged], vocabulary_size: int) -> tuple[csr_array, np.ndarray]:
    """How near words are to each other (V, V), symmetric, and how often each occurs (V,).

    Reads texts up to `MOST_WORDS` words; padding and end of sequence are not words.
    """
    near = csr_array((vocabulary_size, vocabulary_size), dtype=np.float32)
    counts = np.zeros(vocabulary_size, np.int64)
    for words in texts:
        row = np.repeat(np.arange(len(words)), words.lengths)
        for distance in range(1, REACH + 1):
            a, b = words.values[:-distance], words.values[distance:]
            are_near = (row[:-distance] == row[distance:]) & (a >= SPECIALS) & (b >= SPECIALS)
            weight = np.full(int(are_near.sum()), 1.0 / distance, np.float32)
            near = near + coo_array((weight, (a[are_near], b[are_near])), shape=near.shape).tocsr()
        counts += np.bincount(words.values, minlength=vocabulary_size)
        if counts.sum() >= MOST_WORDS:
            break
    counts[:SPECIALS] = 0
    return (near + near.T).tocsr(), counts


def mutual_information(near: csr_array) -> csr_array:
    """log p(a, b) / (p(a) p(b)) of each pair of words (V, V), where it is positive."""
    word = near.sum(1)
    neighbor = near.sum(0) ** SMOOTHING
    pairs = near.tocoo()
    row, column = pairs.coords
    found = np.log(pairs.data.astype(np.float64) * neighbor.sum() / (word[row] * neighbor[column]))
    is_more = found > 0
    return coo_array((found[is_more], (row[is_more], column[is_more])), shape=near.shape).tocsr()
