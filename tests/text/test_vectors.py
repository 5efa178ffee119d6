"""Word vectors of raw text: neighbors counted by loops, information by hand, and words that are alike."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from mein.text import vectors
from mein.text.ragged import ragged
from mein.text.vectors import REACH, SMOOTHING, mutual_information, neighbors, word_vectors
from mein.text.words import SPECIALS

VOCABULARY = 12
TEXTS = [[3, 7, 4, 2, 9, 3, 3, 11, 5, 4, 1], [5, 1], [1], [], [8, 4, 4, 6, 10, 3, 1], [6, 1, 5]]
# Words 3 and 4 stand in the same places, as do 5 and 6; both pairs beside words of their own.
ALIKE = [[7, word, 8, 7, word, 8] for word in (3, 4)] + [[9, word, 10, 9, word, 10] for word in (5, 6)]


def neighbors_by_loops(texts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    near, counts = np.zeros((VOCABULARY, VOCABULARY)), np.zeros(VOCABULARY, int)
    for text in texts:
        for i, a in enumerate(text):
            counts[a] += a >= SPECIALS
            for j, b in enumerate(text):
                if 1 <= abs(i - j) <= REACH and a >= SPECIALS and b >= SPECIALS:
                    near[a, b] += 1 / abs(i - j)
    return near, counts


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("shards", [[TEXTS], [TEXTS[:2], TEXTS[2:4], TEXTS[4:]], [[text] for text in TEXTS]])
def test_neighbors_are_those_of_plain_loops(shards: Sequence[Sequence[Sequence[int]]]) -> None:
    near, counts = neighbors([ragged(shard) for shard in shards], VOCABULARY)
    expected, expected_counts = neighbors_by_loops(TEXTS)
    assert_allclose(near.toarray(), expected, rtol=1e-6)
    assert_array_equal(counts, expected_counts)


def test_no_more_text_is_read_than_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MOST_WORDS", 12)
    _, counts = neighbors((ragged([text]) for text in TEXTS), VOCABULARY)
    assert_array_equal(counts, neighbors_by_loops(TEXTS[:2])[1])


def test_mutual_information_by_hand() -> None:
    """Of three words; the pair (1, 1) is rarer than chance, and so 0."""
    near = np.array([[0.0, 4.0, 1.0], [4.0, 0.5, 0.0], [1.0, 0.0, 0.0]])
    context = [total**SMOOTHING for total in (5.0, 4.5, 1.0)]
    found = mutual_information(csr_array(near)).toarray()
    expected = np.zeros((3, 3))
    for a, b in ((0, 1), (0, 2), (1, 0), (2, 0)):
        p_a = near[a].sum() / 10.5
        expected[a, b] = math.log(near[a, b] / 10.5 / (p_a * context[b] / sum(context)))
    assert 4.5 / 10.5 * context[1] / sum(context) > 0.5 / 10.5
    assert_allclose(found, expected, rtol=1e-6)


def test_words_that_stand_in_the_same_places_have_the_same_vector() -> None:
    found = word_vectors([ragged(ALIKE)], VOCABULARY, dim=4, seed=1)
    assert found.shape == (VOCABULARY, 4)
    assert found.dtype == np.float32
    assert cosine(found[3], found[4]) > 0.99
    assert cosine(found[5], found[6]) > 0.99
    assert cosine(found[3], found[5]) < 0.1


def test_over_running_text_their_mean_is_0_and_their_deviation_1() -> None:
    found = word_vectors([ragged(TEXTS)], VOCABULARY, dim=5, seed=1).astype(float)
    running = np.array([found[word] for text in TEXTS for word in text if word >= SPECIALS])
    assert_allclose(running.mean(0), 0, atol=1e-6)
    assert_allclose((running**2).mean(), 1, rtol=1e-5)


def test_frequent_words_are_shorter() -> None:
    """Word 11 stands where word 3 does, but at a hundredth of its rate."""
    texts = [[7, 3, 8]] * 100 + [[7, 11, 8]] + [[9, 5, 10]] * 100
    found = word_vectors([ragged(texts)], VOCABULARY, dim=4, seed=1)
    assert np.linalg.norm(found[3]) < 0.5 * np.linalg.norm(found[11])


def test_the_seed_decides() -> None:
    texts = ragged(np.random.default_rng(3).integers(SPECIALS, 300, (50, 40)).tolist())
    some, same, others = (word_vectors([texts], 300, 5, seed) for seed in (5, 5, 6))
    assert_array_equal(some, same)
    assert not np.array_equal(some, others)


@pytest.mark.parametrize("texts", [[], [[]], [[3, 1], [4, 1]]], ids=["no text", "empty", "lone words"])
def test_without_neighbors_they_are_0(texts: Sequence[Sequence[int]]) -> None:
    assert_array_equal(word_vectors([ragged(texts)], VOCABULARY, dim=3, seed=1), np.zeros((VOCABULARY, 3)))


def test_a_vocabulary_smaller_than_the_vectors_leaves_the_rest_0() -> None:
    found = word_vectors([ragged(TEXTS)], VOCABULARY, dim=20, seed=1)
    assert found.shape == (VOCABULARY, 20)
    assert np.isfinite(found).all()
    assert_array_equal(found[:, VOCABULARY:], 0)
    assert np.abs(found[3]).max() > 0


def test_words_that_never_occur_and_signs_that_are_no_words_are_0() -> None:
    found = word_vectors([ragged([[3, 4, 5, 1], [4, 3, 1]])], VOCABULARY, dim=3, seed=1)
    assert_array_equal(np.flatnonzero(np.abs(found).sum(1)), [3, 4, 5])
