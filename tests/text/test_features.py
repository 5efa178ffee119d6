"""Features of documents equal plain loops over their words, and learn from words alone."""

import math
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mein.text import features
from mein.text.features import TextFeatures, learn_features, summed
from mein.text.ragged import Ragged, beside, parted, ragged

V = 9
END = 1
LABELED = [[3, 4, 3, END], [5, END], [], [3, 3, 3, 4, END]]
UNLABELED = [[6, 7, END], [6, 7, 5, END], [6, 7, 3, END], [END], [8, 6, END]]
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(V, 3)).astype(np.float32)
DENSE = RNG.normal(3.0, 2.0, size=(5, 2)).astype(np.float32)


def grams(row: Sequence[int]) -> list[tuple[int, ...]]:
    """The words and the pairs of neighbors of a document, without its end."""
    words = [word for word in row if word >= 2]
    return [(word,) for word in words] + list(pairwise(words))


def code(gram: tuple[int, ...]) -> int:
    return gram[0] if len(gram) == 1 else (gram[0] + 1) * V + gram[1]


def learned(labeled: list[list[int]] = LABELED, unlabeled: list[list[int]] = UNLABELED) -> TextFeatures:
    return learn_features(ragged(labeled), ragged(unlabeled), VECTORS, DENSE, V, seed=1)


def test_ngrams_are_those_of_plain_loops() -> None:
    """All of labeled documents, of the others those in at least 3; idf is over both."""
    documents = LABELED + UNLABELED
    number = Counter(gram for row in documents for gram in set(grams(row)))
    own = {gram for row in LABELED for gram in grams(row)}
    kept = sorted({gram for gram, n in number.items() if n >= 3} | own, key=code)
    assert (6, 7) in kept
    assert (8,) not in kept
    found = learned()
    assert found.codes.tolist() == [code(gram) for gram in kept]
    new = [*documents, [8, 8], [2, 3, 2, 4], [4, 3, 4, 3, END]]
    x = found.ngrams(ragged(new)).toarray()
    for i, row in enumerate(new):
        counts = Counter(gram for gram in grams(row) if gram in kept)
        wanted = np.zeros(len(kept))
        for j, gram in enumerate(kept):
            if counts[gram]:
                idf = math.log((1 + len(documents)) / (1 + number[gram])) + 1
                wanted[j] = (1 + math.log(counts[gram])) * idf
        wanted /= max(math.sqrt((wanted**2).sum()), 1e-300)
        assert_allclose(x[i], wanted, rtol=1e-5, atol=1e-7)


def test_of_frequent_ngrams_the_most_frequent_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "MOST_NGRAMS", 1)
    found = learned([[2]])
    assert found.codes.tolist() == [2, 6]  # labeled, and in four documents


def test_without_words_or_known_ngrams_all_features_are_zero() -> None:
    found = learned()
    rows = ragged([[], [END], [2, 8], [8, END]])
    assert found.ngrams(rows).nnz == 0
    assert_array_equal(found.sums(rows)[:2], 0.0)
    nothing = learn_features(ragged([[], [END]]), ragged([]), VECTORS, np.zeros((0, 0), np.float32), V, 1)
    assert nothing.ngrams(rows).shape == (4, 0)
    assert nothing.latent.shape == (0, 0)
    assert np.isfinite(nothing.vectors).all()


def test_no_documents_have_no_features() -> None:
    assert learned().ngrams(ragged([])).shape[0] == 0
    assert learned().sums(ragged([])).shape == (0, 3)


def spread(rows: np.ndarray) -> float:
    return float(np.mean([((row - rows.mean(0)) ** 2).sum() for row in rows]))


def test_blocks_have_variance_1_and_an_encoder_s_has_its_own() -> None:
    found = learned()
    x = found.ngrams(ragged(LABELED + UNLABELED)).toarray()
    assert spread(x @ found.latent) == pytest.approx(1.0, rel=1e-4)
    assert spread(found.sums(ragged(UNLABELED))) == pytest.approx(1.0, rel=1e-4)
    assert spread(DENSE * found.dense) == pytest.approx(features.ENCODER, rel=1e-4)
    without = learned(unlabeled=[])
    assert spread(without.sums(ragged(LABELED))) == pytest.approx(1.0, rel=1e-4)


def test_latent_dimensions_are_the_strongest_singular_vectors() -> None:
    found = learned()
    x = found.ngrams(ragged(LABELED + UNLABELED)).toarray()
    _, strength, right = np.linalg.svd(x, full_matrices=False)
    kept = strength > 1e-4
    unit = found.latent / np.linalg.norm(found.latent, axis=0)
    assert_allclose(np.abs((right[kept] * unit.T[: kept.sum()]).sum(1)), 1.0, rtol=1e-4)
    assert_array_equal(found.latent, learned().latent)  # to the bit


def test_the_sum_of_vectors_is_a_loop_over_words() -> None:
    found = learned()
    for row, v in zip(LABELED, found.sums(ragged(LABELED)), strict=True):
        words = [word for word in row if word >= 2]
        wanted = sum((found.vectors[word] for word in words), np.zeros(3)) / math.sqrt(max(1, len(words)))
        assert_allclose(v, wanted, rtol=1e-5, atol=1e-6)
    assert_allclose(found.vectors, VECTORS * (found.vectors[2, 0] / VECTORS[2, 0]), rtol=1e-5)
    assert_array_equal(summed(ragged([[]]), VECTORS), np.zeros((1, 3)))


def test_features_do_not_depend_on_the_order_of_documents() -> None:
    found, other = learned(), learned(LABELED[::-1], UNLABELED[::-1])
    assert_array_equal(found.codes, other.codes)
    assert_array_equal(found.idf, other.idf)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_what_was_put_beside_comes_apart_rounded_to_float16(size: int) -> None:
    dense = RNG.normal(size=(4, size)).astype(np.float32)
    rows = Ragged(dense.ravel(), np.arange(5) * size)
    words = ragged([[5, 6], [], [70_000, 2, 3], []])
    row = beside(rows, words)
    assert row.values.dtype == np.int32
    assert row.lengths.tolist() == [n + (size + 1) // 2 for n in (2, 0, 3, 0)]  # two features in a number
    first, rest = parted(row, size)
    assert first.dtype == np.float32
    assert_array_equal(first, dense.astype(np.float16))
    assert rest.to_lists() == words.to_lists()
    both = row.take(np.array([2, 1]))  # as rows of a batch
    assert parted(both, size)[1].to_lists() == [[70_000, 2, 3], []]
    assert_array_equal(parted(both, size)[0], dense[[2, 1]].astype(np.float16))


def test_to_part_rows_takes_little_more_memory_than_what_it_gives() -> None:
    n, size = 2_000, 384
    words = Ragged(np.ones(10 * n, np.int32), 10 * np.arange(n + 1))
    rows = beside(Ragged(np.ones(n * size, np.float32), size * np.arange(n + 1)), words)
    tracemalloc.start()
    first, rest = parted(rows, size)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2 * (first.nbytes + rest.values.nbytes)


def test_no_documents_are_put_beside_nothing() -> None:
    assert beside(Ragged(np.zeros(0, np.float32), np.zeros(1, np.int64)), ragged([])).to_lists() == []


def test_features_too_large_for_float16_stay_finite_and_tiny_ones_keep_their_sign() -> None:
    rows = Ragged(np.array([1e30, -7e4, 1e-6, -1e-7]), np.array([0, 4]))
    found = parted(beside(rows, ragged([[2]])), 4)[0][0]
    assert found[:2].tolist() == [65_504.0, -65_504.0]
    assert_allclose(found[2:], [1e-6, -1e-7], rtol=0.2)


def test_word_numbers_up_to_the_largest_vocabulary_survive_beside_features() -> None:
    words = ragged([[2**24 + 1, 10**8]])  # float32 would round both
    assert parted(beside(ragged([[1]]), words), 1)[1].to_lists() == words.to_lists()
