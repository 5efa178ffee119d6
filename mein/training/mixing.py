"""The order of stage 2: documents from shards far apart meet in a batch, and memory stays bounded."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from mein.seeds import numpy_generator
from mein.text.batches import PiecesOnDevice, by_tokens, to_device
from mein.text.ragged import Ragged, concatenate
from mein.text.store import EXPERT_COLUMN, Store

BYTES_TOGETHER = 64_000_000  # of pieces and of what the expert says of documents


class MixedShards:
    """Encoded texts, read by groups of shards drawn at random, the documents of a group shuffled.

    Text often lies sorted, by date, by source, or even by label. Read shard by shard, imitators lean to
    the labels of the last one (docs/log.md). Up to some 15 million pieces are one group: then an epoch's
    order is a permutation of all documents. One group is held at a time. Rows count on from store to store.
    """

    def __init__(self, stores: Sequence[Store], classes: int, device: torch.device, seed: int) -> None:
        self.shards = [(store, shard) for store in stores for shard in range(store.shard_count)]
        self.device, self.seed = device, seed
        lengths = np.array([store.shard_lengths[shard] for store, shard in self.shards], np.int64)
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        order = numpy_generator(seed, "groups of shards").permutation(len(self.shards))
        sizes = np.concatenate([_shard_bytes(store, classes) for store in stores])
        self.groups = _groups(order, sizes)
        self.group_of = np.zeros(len(self.shards), np.int64)
        self.shift = np.zeros(len(self.shards), np.int64)  # from a row of the text to one of its group
        for number, group in enumerate(self.groups):
            self.group_of[group] = number
            self.shift[group] = np.cumsum(lengths[group]) - lengths[group] - self.starts[group]
        self.held: tuple[int, PiecesOnDevice, Tensor] | None = None
        """The group that was asked for last: its number, its pieces, and the expert's word on it."""

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self.starts[-1])

    def plan(
        self, epoch: int, chosen: np.ndarray | None, tokens: int, documents: int | None
    ) -> Iterator[np.ndarray]:
        """The batches of an epoch, as rows of the text; `chosen` (n,): which take part, if not all."""
        for number in numpy_generator(self.seed, "groups", epoch).permutation(len(self.groups)):
            group = self.groups[number]
            rows = np.concatenate([np.arange(self.starts[s], self.starts[s + 1]) for s in group])
            lengths = np.concatenate([self._pieces(s).lengths for s in group])
            order = numpy_generator(self.seed, "documents", epoch, int(number)).permutation(len(rows))
            order = order if chosen is None else order[chosen[rows[order]]]
            for batch in by_tokens(lengths, order, tokens, documents):
                yield rows[batch]

    def fetch(self, rows: np.ndarray) -> tuple[PiecesOnDevice, Tensor, np.ndarray]:
        """The group that planned rows belong to, the expert's word on it, and where in it they are."""
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        number = int(self.group_of[shards[0]])
        if self.held is None or self.held[0] != number:
            self.held = None  # before the next one is made: not both at a time
            self.held = self._on_device(number)
        _, pieces, probs = self.held
        return pieces, probs, rows + self.shift[shards]

    def _on_device(self, number: int) -> tuple[int, PiecesOnDevice, Tensor]:
        group = self.groups[number]
        pieces = PiecesOnDevice(concatenate(self._pieces(shard) for shard in group), self.device)
        probs = np.concatenate([self._probs(shard) for shard in group])
        return number, pieces, to_device(probs, self.device)

    def _pieces(self, number: int) -> Ragged:
        store, shard = self.shards[number]
        return store.pieces(shard)

    def _probs(self, number: int) -> np.ndarray:
        store, shard = self.shards[number]
        return store.column(EXPERT_COLUMN, shard)


def _shard_bytes(store: Store, classes: int) -> np.ndarray:
    """What each shard takes: 4 bytes a piece, and for each document where it starts and the expert's word."""
    pieces = np.array([shard.pieces for shard in store.shards])
    if not pieces.any():  # an early store does not tell: all alike
        pieces = np.full(store.shard_count, store.manifest.pieces / max(1, store.shard_count))
    found: np.ndarray = 4 * pieces + (8 + 4 * classes) * np.asarray(store.shard_lengths)
    return found


def _groups(shards: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Shards in their order, cut wherever a group would become too large; a huge shard is one by itself."""
    groups: list[list[int]] = []
    room = 0
    for shard in shards.tolist():
        if not groups or sizes[shard] > room:
            groups.append([])
            room = BYTES_TOGETHER
        groups[-1].append(shard)
        room -= sizes[shard]
    return [np.array(group, np.int64) for group in groups]
