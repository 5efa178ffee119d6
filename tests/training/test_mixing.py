"""The order of stage 2: each document once an epoch, far ones side by side, the same order for a seed."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from mein.store.store import Store
from mein.text.ragged import Ragged, concatenate, ragged
from mein.training import imitation_batches as mixing
from mein.training.imitation_batches import MixedShards

CPU = torch.device("cpu")
SHARDS = [4, 0, 7, 1, 5, 3]  # documents in each, of 2 pieces on the mean: 8 bytes, and 16 for where and what
SOME = 24 * 8


class Shelf:
    """A store in memory; the pieces and the probabilities of a document identify it."""

    shard_count, shard_lengths, least = len(SHARDS), tuple(SHARDS), 0.0

    def __init__(self) -> None:
        rows = [[10 * row + j for j in range(1 + row % 3)] for row in range(sum(SHARDS))]
        ends = np.cumsum(SHARDS)
        self.parts = [ragged(rows[end - size : end]) for size, end in zip(SHARDS, ends, strict=True)]
        self.first = ends - np.array(SHARDS)
        self.shards = [SimpleNamespace(pieces=len(part.values)) for part in self.parts]
        self.loaded: list[int] = []

    def pieces(self, shard: int) -> Ragged:
        return self.parts[shard]

    def column(self, name: str, shard: int) -> np.ndarray:
        self.loaded.append(shard)
        p = self.least + (self.first[shard] + np.arange(SHARDS[shard])) / 100
        return np.stack([p, 1 - p], axis=1).astype(np.float32)


def mixed(seed: int = 0) -> MixedShards:
    return MixedShards([cast(Store, Shelf())], 2, CPU, seed)


@pytest.fixture(params=[10**9, SOME, 1])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes make a group: all of them, some, or those of a shard alone."""
    monkeypatch.setattr(mixing, "BYTES_TOGETHER", request.param)
    return int(request.param)


def batches(text: MixedShards, epoch: int, chosen: np.ndarray | None = None) -> list[list[int]]:
    return [rows.tolist() for rows in text.plan(epoch, chosen, 6, None)]


def test_each_document_comes_once_an_epoch(together: int) -> None:
    for epoch in range(3):
        rows = [row for batch in batches(mixed(), epoch) for row in batch]
        assert sorted(rows) == list(range(sum(SHARDS)))


def test_the_order_is_another_in_each_epoch_and_the_same_for_a_seed(together: int) -> None:
    first, second = batches(mixed(), 0), batches(mixed(), 1)
    assert first == batches(mixed(), 0)
    assert first != second
    assert first != batches(mixed(seed=1), 0)


def test_what_is_fetched_are_the_planned_documents(together: int) -> None:
    text, shelf = mixed(), Shelf()
    whole = concatenate(shelf.parts).to_lists()
    for rows in text.plan(0, None, 6, None):
        pieces, probs, local = text.fetch(rows)
        packed = pieces.pack(local, 1)
        found = [packed.pieces[packed.document == number].tolist() for number in range(len(rows))]
        assert found == [whole[row] for row in rows]
        np.testing.assert_allclose(probs[torch.from_numpy(local)][:, 0], rows / 100, rtol=1e-6)


def test_only_the_chosen_take_part(together: int) -> None:
    chosen = np.arange(sum(SHARDS)) % 3 == 0
    rows = [row for batch in batches(mixed(), 2, chosen) for row in batch]
    assert sorted(rows) == np.flatnonzero(chosen).tolist()


def test_a_small_text_is_one_group_and_its_shards_meet_in_batches() -> None:
    text = mixed()
    assert len(text.groups) == 1
    shard_of = np.repeat(np.arange(len(SHARDS)), SHARDS)
    assert max(len(set(shard_of[rows])) for rows in batches(text, 0)) > 1


def test_a_large_text_is_read_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "BYTES_TOGETHER", SOME)
    text = mixed()
    assert len(text.groups) > 2
    assert sorted(shard for group in text.groups for shard in group) == list(range(len(SHARDS)))
    for group in text.groups:
        pieces = sum(len(Shelf().parts[shard].values) for shard in group)
        size = 4 * pieces + (8 + 4 * 2) * sum(SHARDS[shard] for shard in group)
        assert size <= SOME or len(group) == 1
    shard_of = np.repeat(np.arange(len(SHARDS)), SHARDS)
    for rows in batches(text, 0):
        assert len({int(text.group_of[shard_of[row]]) for row in rows}) == 1


def test_groups_are_drawn_at_random_and_so_is_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "BYTES_TOGETHER", SOME)
    drawn = {tuple(tuple(group) for group in mixed(seed).groups) for seed in range(5)}
    assert len(drawn) == 5
    shard_of = np.repeat(np.arange(len(SHARDS)), SHARDS)
    text = mixed()
    first = {int(text.group_of[shard_of[batches(text, epoch)[0][0]]]) for epoch in range(8)}
    assert len(first) > 1


def test_no_shards_are_no_groups() -> None:
    assert mixing._groups(np.zeros(0, np.int64), np.zeros(0)) == []


def test_one_group_is_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "BYTES_TOGETHER", 1)
    text = mixed()
    shelf = cast(Shelf, text.shards[0][0])
    first, last = np.array([0]), np.array([sum(SHARDS) - 1])
    for rows in (first, first, last, last, first):
        text.fetch(rows)
    assert shelf.loaded == [0, 5, 0]


def test_several_stores_are_read_as_one(together: int) -> None:
    """Rows count on: the documents of the second store come after those of the first, with its own pieces."""
    first, second = Shelf(), Shelf()
    second.parts = [ragged([[1_000 + x for x in row] for row in part.to_lists()]) for part in second.parts]
    second.least = 0.5
    text = MixedShards([cast(Store, first), cast(Store, second)], 2, CPU, 0)
    n = sum(SHARDS)
    assert len(text) == 2 * n
    seen: dict[int, int] = {}
    for rows in text.plan(0, None, 6, None):
        pieces, probs, local = text.fetch(rows)
        values = pieces.values[torch.from_numpy(pieces.starts[local])].tolist()
        seen |= dict(zip(rows.tolist(), values, strict=True))
        expected = [0.5 * (row >= n) + (row % n) / 100 for row in rows.tolist()]
        assert probs[local, 0].tolist() == pytest.approx(expected)
    assert seen == {row: 10 * (row % n) + 1_000 * (row >= n) for row in range(2 * n)}
