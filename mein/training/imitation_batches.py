# mypy: disable-error-code="no-untyped-call"
"""Batches of stage 2: documents from distant shards, with bounded memory, fetched ahead by a thread."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mein.runtime.seeds import numpy_generator
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from mein.text.batches import PiecesOnDevice, by_tokens, to_device
from mein.text.ragged import Ragged, concatenate

BYTES_TOGETHER = 64_000_000  # of pieces and soft labels


class MixedShards:
    """Encoded texts, read by groups of shards drawn at random, the documents of a group shuffled.

    Text is often sorted by date, source, or even label. Read shard by shard, imitators are biased towards
    the labels of the last one (log/). Up to about 15 million pieces are one group: then an epoch's order is
    a permutation of all documents. One group is held at a time. Rows are numbered across stores.
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
        """The last group: its number, pieces, and soft labels."""

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
        """The pieces and soft labels of the group of planned rows, and their places in it."""
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        number = int(self.group_of[shards[0]])
        if self.held is None or self.held[0] != number:
            self.held = None  # frees it before the next one is made
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
    """Memory of each shard: 4 bytes per piece, and for each document its start and soft labels."""
    pieces = np.array([shard.pieces for shard in store.shards])
    if not pieces.any():  # early stores do not list them: assume equal shares
        pieces = np.full(store.shard_count, store.manifest.pieces / max(1, store.shard_count))
    found: np.ndarray = 4 * pieces + (8 + 4 * classes) * np.asarray(store.shard_lengths)
    return found


def _groups(shards: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Shards in order, cut where a group would become too large; a huge shard is its own group."""
    groups: list[list[int]] = []
    left = 0
    for shard in shards.tolist():
        if not groups or sizes[shard] > left:
            groups.append([])
            left = BYTES_TOGETHER
        groups[-1].append(shard)
        left -= sizes[shard]
    return [np.array(group, np.int64) for group in groups]


AHEAD = 2  # batches that are fetched before the current one is done
MOST_KEPT = 8  # batches queued on a GPU: each takes memory


def fetched(
    plan: Iterable[np.ndarray], fetch: Callable[[np.ndarray], Any]
) -> Iterator[tuple[np.ndarray, Any]]:
    """Each planned batch, fetched by a thread while earlier ones are in use."""
    side = SideStream() if torch.cuda.is_initialized() else None
    work = fetch if side is None else side.working(fetch)
    with ThreadPoolExecutor(1, "fetch") as thread:
        waiting: deque[tuple[np.ndarray, Future[Any]]] = deque()
        left = iter(plan)
        while True:
            waiting.extend(
                (rows, thread.submit(work, rows)) for rows in islice(left, AHEAD + 1 - len(waiting))
            )
            if not waiting:
                return
            ready, future = waiting.popleft()
            batch = future.result()
            yield ready, batch
            if side is not None:
                side.keep(batch)


class SideStream:
    """A second stream of a GPU, so that fetching does not wait for the work on earlier batches.

    The memory of a batch belongs to this stream, which would reuse it for the next batch while the other
    stream still reads it: so batches are kept until they are no longer used.
    """

    def __init__(self) -> None:
        self.stream = _side_stream(torch.cuda.current_device())
        self.stream.wait_stream(torch.cuda.current_stream())  # what is fetched from may still be copied
        self.kept: deque[tuple[Any, torch.cuda.Event]] = deque()

    def working(self, fetch: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
        """`fetch` on this stream, complete when it returns."""

        def work(rows: np.ndarray) -> Any:
            with torch.cuda.stream(self.stream):
                batch = fetch(rows)
                self.stream.synchronize()
            return batch

        return work

    def keep(self, batch: Any) -> None:
        """Keep a batch until the work queued on it is done; at most a few batches are kept."""
        event = torch.cuda.Event()
        event.record()
        self.kept.append((batch, event))
        while self.kept and (len(self.kept) > MOST_KEPT or self.kept[0][1].query()):
            self.kept[0][1].synchronize()  # subtle: first; once freed, its memory is the next batch's
            self.kept.popleft()


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One stream per device: torch reuses freed memory only on the stream that allocated it."""
    return torch.cuda.Stream(device, priority=-1)  # its work is short and urgent
