"""Batches hold every document once, whole, and keep documents apart."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from mein.text.batches import bucketed, by_tokens, pack_pieces, pad_words
from mein.text.ragged import Ragged

CPU = torch.device("cpu")
documents_strategy = st.lists(st.lists(st.integers(1, 99), max_size=12), min_size=1, max_size=20)


def ragged(documents: list[list[int]]) -> Ragged:
    values = np.array([x for document in documents for x in document], dtype=np.int32)
    return Ragged(values, np.cumsum([0, *map(len, documents)]))


@given(documents_strategy, st.integers(0, 4))
def test_packing_lays_documents_apart_and_loses_nothing(documents: list[list[int]], gap: int) -> None:
    batch = pack_pieces(ragged(documents), gap, CPU)
    for row, text in enumerate(documents):
        assert batch.pieces[batch.document == row].tolist() == text
    assert batch.pieces[batch.document == len(documents)].eq(0).all()
    expected: list[int] = [0] * gap
    for text in documents:
        expected += text + [0] * gap
    assert batch.pieces.tolist() == expected
    assert batch.lengths.tolist() == [len(text) for text in documents]


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=9))
def test_padding_puts_zeros_after_the_end(documents: list[list[int]]) -> None:
    batch = pad_words(ragged(documents), CPU)
    T = max(map(len, documents))
    assert batch.words.tolist() == [text + [0] * (T - len(text)) for text in documents]
    assert batch.lengths.tolist() == [len(text) for text in documents]


def test_batches_of_rows_taken_from_the_middle() -> None:
    documents = ragged([[1, 2], [3], [4, 5, 6]]).take(np.array([2, 1]))
    assert pad_words(documents, CPU).words.tolist() == [[4, 5, 6], [3, 0, 0]]
    assert pack_pieces(documents, 1, CPU).pieces.tolist() == [0, 4, 5, 6, 0, 3, 0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=500), st.integers(1, 9), st.integers(0, 5))
def test_bucketing_is_a_partition_of_like_lengths(lengths: list[int], size: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(lengths))
    batches = bucketed(np.array(lengths), size, order)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len(batch) <= size for batch in batches)


def test_bucketing_wastes_less_than_chance_and_shuffles_batches() -> None:
    lengths = np.arange(1600)
    order = np.random.default_rng(0).permutation(1600)
    batches = bucketed(lengths, 32, order)
    spread = [np.ptp(lengths[batch]) for batch in batches]
    assert max(spread) < 40
    firsts = [int(batch.min()) for batch in batches]
    assert firsts != sorted(firsts)


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 50))
def test_token_batches_keep_the_order_and_the_budget(lengths: list[int], tokens: int) -> None:
    order = np.arange(len(lengths))[::-1]
    array = np.array(lengths, dtype=np.int64)
    batches = list(by_tokens(array, order, tokens, None))
    assert [row for batch in batches for row in batch] == order.tolist()
    for batch in batches:
        assert (array[batch[:-1]] + 1).sum() < tokens + 31  # a document may go beyond it


def test_batches_by_documents() -> None:
    batches = by_tokens(np.full(7, 5), np.arange(7), 1, 3)
    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
