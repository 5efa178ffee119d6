"""The linear expert computes what its fit says: x W + b over all features, whatever batch a text is in."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from mein.experts.linear import NgramExpert
from mein.mixture.inference import expert_logits
from mein.run.linear_fits import VIEWS, LinearTables, ViewFits
from mein.text.batches import pad_words
from mein.text.features import learn_features
from mein.text.ragged import Ragged, beside, ragged

V, Y, D = 11, 3, 4
RNG = np.random.default_rng(0)
WORDS = [[2, 3, 2, 3, 3, 1], [4, 1], [1], [5, 6, 7, 2, 3, 9, 1], [], [10, 10, 1], [3, 4, 1]]
NEW = [*WORDS, [8, 8, 8, 1], [2, 3], [9, 2, 3, 2, 1]]


def learned(size: int) -> tuple[ViewFits, np.ndarray]:
    """Fits that were drawn, over features with an encoder's of this size; the encoder's answers for NEW."""
    dense = RNG.normal(size=(len(NEW), size)).astype(np.float16).astype(np.float32)  # as rows keep them
    vectors = RNG.normal(size=(V, D)).astype(np.float32)
    features = learn_features(ragged(WORDS), ragged(WORDS[2:]), vectors, dense, V, seed=0)
    views = tuple(VIEWS) if size else tuple(VIEWS)[:2]
    n, K = len(WORDS), 3
    blocks = features.blocks(ragged(WORDS), dense[:n])
    duals, bias = RNG.normal(size=(len(views), K + 1, n, Y)), RNG.normal(size=(len(views), K + 1, Y))
    fits = ViewFits(
        views,
        (),
        LinearTables(features, blocks, views, duals, bias),
        out_of_fold=RNG.normal(size=(len(views), n, Y)),
        labels=np.arange(n) % Y,
        weights=np.ones((K + 1, n)),
        fold=np.arange(n) % K,
        match=np.linspace(0.5, 1.0, len(views)),
    )
    return fits, dense


def tables_of(fits: ViewFits) -> LinearTables:
    assert isinstance(fits.tables_of, LinearTables)
    return fits.tables_of


def logits(fits: ViewFits, dense: np.ndarray, weights: np.ndarray, k: int) -> np.ndarray:
    """z (n, Y) of NEW, view by view."""
    tables = tables_of(fits)
    blocks, z = tables.features.blocks(ragged(NEW), dense), np.zeros((len(NEW), Y))
    for v, view in enumerate(fits.views):
        of = sum(blocks[name] @ (tables.blocks[name].T @ tables.duals[v, k]) for name in VIEWS[view])
        z += weights[v] * (of + tables.bias[v, k])
    return z


def rows_of(dense: np.ndarray) -> Ragged:
    n, size = dense.shape
    words = ragged(NEW)
    return beside(Ragged(dense.ravel(), np.arange(n + 1) * size), words) if size else words


@pytest.mark.parametrize("size", [0, 1, 2, 3])
@pytest.mark.parametrize("k", [-1, 1])
def test_the_expert_is_the_sum_of_its_views_multiplied_out(size: int, k: int) -> None:
    fits, dense = learned(size)
    expert = NgramExpert(V, Y, size)
    expert.load_state_dict(fits.expert_of(k))
    weights = fits.weights_of_views() * fits.match if k < 0 else fits.weights_of_views(k)
    wanted = logits(fits, dense, weights, k)
    rows = rows_of(dense)
    batch = pad_words(rows, torch.device("cpu"))
    together = expert(batch.words, batch.lengths).detach().numpy()
    assert_allclose(together, wanted, atol=1e-5)
    for i in range(len(NEW)):
        alone = pad_words(rows.take(np.array([i])), torch.device("cpu"))
        assert_allclose(expert(alone.words, alone.lengths).detach().numpy()[0], wanted[i], atol=1e-5)
    assert_allclose(expert_logits(expert, rows), wanted, atol=1e-5)


def test_a_fold_s_labels_do_not_reach_the_weights_of_its_views() -> None:
    fits, _ = learned(2)
    other = replace(fits, labels=np.where(fits.fold == 1, (fits.labels + 1) % Y, fits.labels))
    assert_array_equal(fits.weights_of_views(1), other.weights_of_views(1))
    assert (fits.weights_of_views() != other.weights_of_views()).any()
    held = fits.fold == 1
    assert_array_equal(fits.expert_out_of_fold()[held], other.expert_out_of_fold()[held])


def test_a_document_without_words_gets_the_bias() -> None:
    fits, _ = learned(0)
    expert = NgramExpert(V, Y)
    tables = fits.tables(np.ones(2))
    expert.load_state_dict(tables)
    assert_allclose(
        expert_logits(expert, ragged([[], [1]])),
        np.stack([tables_of(fits).bias[:, -1].sum(0)] * 2),
        rtol=1e-6,
    )


def test_the_number_of_ngrams_is_that_of_what_is_loaded() -> None:
    fits, _ = learned(0)
    expert = NgramExpert(V, Y)
    assert_array_equal(expert_logits(expert, ragged([[2, 3]])), 0.0)  # before it is fitted
    for _ in range(2):
        expert.load_state_dict(fits.expert_of(-1))
        assert len(expert.codes) == len(tables_of(fits).features.codes) == len(expert.weights)
    other = NgramExpert(V, Y)
    other.load_state_dict(expert.state_dict())
    assert_array_equal(expert_logits(other, ragged(NEW)), expert_logits(expert, ragged(NEW)))


@pytest.mark.parametrize("other", [NgramExpert(V, Y + 1), NgramExpert(V + 1, Y), NgramExpert(V, Y, 2)])
def test_other_classes_words_and_features_are_refused(other: NgramExpert) -> None:
    fits, _ = learned(0)
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict(fits.expert_of(-1))


def test_large_vocabularies_have_codes_of_their_own() -> None:
    """Pairs of 1e6 words need 64 bits."""
    size = 1_000_000
    words = ragged([[999_999, 999_998], [999_998, 999_999]])
    vectors = np.zeros((size, 1), np.float32)
    features = learn_features(words, ragged([]), vectors, np.zeros((2, 0), np.float32), size, seed=0)
    assert len(features.codes) == 4
    assert (features.ngrams(words).toarray() > 0).sum(1).tolist() == [3, 3]
