"""The distinct pieces of a packed stream, its positions sorted by piece: once a batch, for all windows."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 128  # positions of one piece that are summed in one go
HANDS = 64  # on a CPU, distinct pieces are dealt out to so many hands


@dataclass(frozen=True)
class Chunks:
    """Sorted positions cut so that no chunk holds two pieces, nor more than `size` positions.

    Chunk h belongs to the piece in row row[h]; the chunks of row u are start[u] .. start[u + 1] - 1.
    `uneven` are the rows that do not have exactly one.
    """

    size: int
    row: Tensor
    start: Tensor
    uneven: Tensor


@dataclass(frozen=True)
class Segment:
    """Positions begin .. begin + size - 1 of a stream, and `gap` more at each end, sorted by piece.

    The piece in row u is at order[starts[u] : starts[u + 1]] - gap + begin, in rising order. Those beyond
    the ends belong to other segments too: windows inside this one see them.
    """

    begin: int
    size: int
    order: Tensor
    starts: Tensor
    chunks: Chunks


@dataclass(frozen=True)
class Stream:
    """S positions over U distinct pieces.

    ids (U,): the pieces, padding (0) first, whether or not it occurs.
    rows (S + 2 gap,): where in `ids` each position's piece is; padding around the stream.
    """

    ids: Tensor
    rows: Tensor
    gap: int
    segments: tuple[Segment, ...]

    def __len__(self) -> int:
        return len(self.rows) - 2 * self.gap


def read_stream(
    pieces: Tensor, vocabulary_size: int, gap: int, longest: int | None = None, chunk: int = CHUNK
) -> Stream:
    """Find the distinct pieces of `pieces` (S,) and sort its positions.

    A segment has at most `longest` positions (none: all), a chunk at most `chunk`. How many pieces and
    chunks there are, only the device knows: this waits for it.

    >>> stream = read_stream(torch.tensor([0, 7, 5, 7]), 9, gap=1)
    >>> stream.ids.tolist(), stream.rows.tolist(), stream.segments[0].order.tolist()
    ([0, 5, 7], [0, 0, 2, 1, 2, 0], [0, 1, 5, 3, 2, 4])
    """
    S, device = len(pieces), pieces.device
    is_present = torch.zeros(vocabulary_size, dtype=torch.bool, device=device)
    is_present[pieces] = True
    is_present[0] = True
    ids = is_present.nonzero()[:, 0]
    if not pieces.is_cuda:
        # Frequent pieces often have neighbouring ids: dealt out, each thread gets its share of them.
        hand = torch.arange(len(ids) - 1) % HANDS
        ids[1:] = ids[1:][hand.argsort(stable=True)]
    rank = torch.zeros(vocabulary_size, dtype=torch.int32, device=device)
    rank[ids] = torch.arange(len(ids), dtype=torch.int32, device=device)
    rows = functional.pad(rank[pieces], (gap, gap))
    longest = max(1, S if longest is None else longest)
    segments = []
    for begin in range(0, S, longest):
        size = min(longest, S - begin)
        segments.append(_sort(begin, size, rows[begin : begin + size + 2 * gap], len(ids), chunk))
    return Stream(ids, rows, gap, tuple(segments))


def _sort(begin: int, size: int, rows: Tensor, U: int, chunk: int) -> Segment:
    ordered, order = rows.sort(stable=True)
    edges = torch.arange(U + 1, dtype=torch.int32, device=rows.device)
    starts = torch.searchsorted(ordered, edges, out_int32=True)
    return Segment(begin, size, order.int(), starts, _cut(starts, chunk))


def _cut(starts: Tensor, size: int) -> Chunks:
    """Chunks, so that a frequent piece is many like jobs; and sums of sums lose less than one long one."""
    counts = (starts.diff() + size - 1) // size
    start = functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    rows = torch.arange(len(counts), dtype=torch.int32, device=starts.device)
    return Chunks(size, rows.repeat_interleave(counts), start, (counts != 1).nonzero()[:, 0])
