"""One window over the distinct pieces of a packed stream, in torch operators, for any device.

The positions of a stream are sorted by piece once per batch, for all windows.

N: channels, K = 2c+1: kernel width, S: positions of a packed stream, U: its distinct pieces, Y: classes.
P (U K, N): row u K + k is P_k of distinct piece u; the convolution's bias is in the middle one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.imitators.reference import Imitators

CHUNK = 128  # positions of one piece that are summed at once
GROUPS = 64  # on a CPU, distinct pieces are interleaved in this many groups


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

    A segment has at most `longest` positions (none: all), a chunk at most `chunk`. The numbers of pieces
    and chunks are on the device: this waits for it.

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
        # Frequent pieces often have neighboring ids: interleaved, each thread gets its share of them.
        group = torch.arange(len(ids) - 1) % GROUPS
        ids[1:] = ids[1:][group.argsort(stable=True)]
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
    """Chunks, which split a frequent piece into equal jobs, and lose less precision than one long sum."""
    counts = (starts.diff() + size - 1) // size
    start = functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    rows = torch.arange(len(counts), dtype=torch.int32, device=starts.device)
    return Chunks(size, rows.repeat_interleave(counts), start, (counts != 1).nonzero()[:, 0])


TILE_BYTES = 2**23  # of rows o_j at a time on a CPU: 4,096 positions of 512 channels fit its cache
TILE_POSITIONS = 2**12  # at most, on a CPU: more narrow rows would fit, but long sums lose precision
GPU_TILE_BYTES = 2**28


class Window(NamedTuple):
    """One imitator: its window and parameters."""

    c: int
    E: Tensor
    """(V, D), shared by all."""
    kernel: Tensor
    """(N, D, K)."""
    bias: Tensor
    """(N,)."""
    output: nn.Linear


def each_window(imitators: Imitators) -> Iterator[Window]:
    """The imitators, one by one."""
    for i, c in enumerate(imitators.windows):
        convolution = cast(nn.Conv1d, imitators.convolutions[i])
        output = cast(nn.Linear, imitators.outputs[i])
        yield Window(
            c, imitators.embedding.weight, convolution.weight, cast(Tensor, convolution.bias), output
        )


class WindowGradients(NamedTuple):
    """A window's loss and its gradients with respect to P (U K, N), W' (Y, N) and b' (Y,)."""

    loss: Tensor
    projected: Tensor
    weight: Tensor
    bias: Tensor


def window_log_probs(P: Tensor, output: nn.Linear, c: int, slope: float, rows: Tensor, gap: int) -> Tensor:
    """log p_ij (S, Y) of one imitator; rows (S + 2 gap,): where each position's piece is in P."""
    S = len(rows) - 2 * gap
    found = [output.bias.new_zeros(0, output.out_features)]
    for start, stop in _tiles(S, P, output.out_features):
        o = functional.leaky_relu_(_gather(P, c, rows, gap, start, stop), slope)
        found.append(functional.log_softmax(output(o), dim=-1))  # Eq. 8
    return torch.cat(found)


def each_tile(P: Tensor, output: nn.Linear, c: int, stream: Stream) -> Iterator[tuple[int, int, Tensor]]:
    """o_j (T, N) of one imitator, before the leaky ReLU, at positions start .. stop - 1; tile after tile."""
    for start, stop in _tiles(len(stream), P, output.out_features):
        yield start, stop, _gather(P, c, stream.rows, stream.gap, start, stop)


def rows_buffer(stream: Stream, N: int, dtype: torch.dtype) -> Tensor:
    """A buffer for the gradient rows do_j of a segment; on a CPU allocation costs more than its use."""
    longest = max((segment.size for segment in stream.segments), default=0)
    return torch.empty(longest + 4 * stream.gap, N, dtype=dtype, device=stream.rows.device)


def window_gradients(
    P: Tensor,
    output: nn.Linear,
    c: int,
    slope: float,
    stream: Stream,
    document: Tensor,
    targets: Tensor,
    buffer: Tensor,
) -> WindowGradients:
    """The imitation loss of one window, and its gradients, a segment of the stream at a time.

    document (S,); targets (B + 1, Y): the expert's p / B, then zeros for the gaps; buffer: gradient rows.
    """
    N, K = P.shape[1], 2 * c + 1
    W, b = output.weight.to(P.dtype), output.bias
    dP = torch.empty_like(P) if stream.segments else torch.zeros_like(P)  # zeros cost a pass over memory
    total = WindowGradients(targets.new_zeros(()), dP, torch.zeros_like(output.weight), torch.zeros_like(b))
    for segment in stream.segments:
        ends = stream.gap + c  # zero rows there: what lies beyond belongs to the next segment
        do = buffer[: segment.size + 2 * ends]
        do[:ends] = do[ends + segment.size :] = 0.0
        for start, stop in _tiles(segment.size, P, len(b)):
            here = slice(segment.begin + start, segment.begin + stop)
            o = functional.leaky_relu_(_gather(P, c, stream.rows, stream.gap, here.start, here.stop), slope)
            p = targets[document[here]]  # (T, Y)
            log_probs = functional.log_softmax(o @ W.T + b, dim=-1, dtype=p.dtype)  # Eq. 8
            g = log_probs.exp() * p.sum(1, keepdim=True) - p  # dL/d logits
            total.loss.sub_((p * log_probs).sum())  # Eqs. 11, 12
            total.bias.add_(g.sum(0))
            g = g.to(P.dtype)
            total.weight.add_(g.T @ o)
            # o > 0 exactly where it was before the leaky ReLU; torch.where is 25 times slower on a CPU
            into = do[ends + start : ends + stop]
            torch.mm(g, W, out=into)
            torch.ops.aten.leaky_relu_backward.grad_input(into, o, slope, True, grad_input=into)
        _add_by_piece(dP.view(-1, K, N), do, segment)
    return total


def _tiles(size: int, P: Tensor, Y: int) -> Iterator[tuple[int, int]]:
    """Cut positions so that the rows o_j of each tile, and its logits, stay in the cache."""
    tile_bytes, most = (GPU_TILE_BYTES, size) if P.is_cuda else (TILE_BYTES, TILE_POSITIONS)
    tile = max(1, min(most, tile_bytes // (max(P.shape[1], Y) * P.element_size())))
    for start in range(0, size, tile):
        yield start, min(start + tile, size)


def _gather(P: Tensor, c: int, rows: Tensor, gap: int, start: int, stop: int) -> Tensor:
    """o_j = sum_k P_k[x_{j+k}] (T, N) at positions start .. stop - 1."""
    K = 2 * c + 1
    k = torch.arange(K, dtype=rows.dtype, device=rows.device)
    seen = rows[gap + start - c : gap + stop + c].unfold(0, K, 1)  # (T, K)
    return functional.embedding_bag(seen * K + k, P, mode="sum")


def _add_by_piece(dP: Tensor, do: Tensor, segment: Segment) -> None:
    """dP_k[u] += the sum of do_{t-k} over the positions t of piece u; = for the first segment. dP (U, K, N).

    Each chunk is a bag, summed in its order by one thread, then each piece's chunks: deterministic.
    """
    K, chunks = dP.shape[1], segment.chunks
    number = torch.arange(len(chunks.row), dtype=torch.int32, device=do.device)
    bags = segment.starts[chunks.row] + (number - chunks.start[chunks.row]) * chunks.size
    for k in range(K):
        summed = functional.embedding_bag(segment.order + (K - 1 - k), do, bags, mode="sum")
        summed = functional.embedding_bag(number, summed, chunks.start[:-1], mode="sum")
        dP[:, k].copy_(summed) if segment.begin == 0 else dP[:, k].add_(summed)
