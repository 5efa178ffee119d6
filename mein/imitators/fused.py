# mypy: disable-error-code="import-not-found, no-untyped-call"
"""All windows of an embedding table together, for two classes: three matrix products and three kernels.

Import this only where triton is installed. A step is a few dozen launches, none of which waits for
the device: of small batches they, and not the work, took most of the time.

I: windows, L: kernel slices of all of them side by side, D: embedding size, N: channels, S: positions of a
packed stream, B: documents, U: distinct pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from mein.imitators.kernels import combine_kernel, gather_kernel, sum_kernel
from mein.imitators.windows import Stream, Window

CHANNELS = 512  # most channels of a program that sums bits


@dataclass(frozen=True)
class Launch:
    """Sizes that change the speed and not the result, but for rounding.

    The best found on an H200; from 4 to 32 tiles make no difference of more than 5 % at 262,144 pieces.
    """

    tile: int = 1_024
    """Elements of o (positions times channels) that a program holds in registers."""
    tiles: int = 16
    """Tiles that a program walks through; it leaves one partial sum."""
    gather_unroll: int = 3
    """Kernel slices whose rows are fetched together."""
    gather_warps: int = 2
    sum_unroll: int = 2
    """Positions of a piece whose bits are fetched together."""
    sum_warps: int = 1


LAUNCH = Launch()


class Heads(NamedTuple):
    """What follows the projection in each window, or its gradient, stacked."""

    bias: Tensor
    """Of the convolutions (I, N)."""
    weight: Tensor
    """W' (I, 2, N)."""
    output_bias: Tensor
    """b' (I, 2)."""


class Places(NamedTuple):
    """Where windows lie among the L slices, and the signs with which the two classes enter v and b."""

    edges: Tensor
    """(I + 1,): window i has slices edges[i] .. edges[i + 1] - 1."""
    window: Tensor
    """(L,): whose slice each is."""
    signs: Tensor
    """(2,): 1, -1."""


def table_gradients(
    windows: Sequence[Window],
    slope: float,
    stream: Stream,
    document: Tensor,
    expert_probs: Tensor,
    dtype: torch.dtype,
    launch: Launch = LAUNCH,
) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The loss of windows that share an embedding table, and the gradient of each of their parameters.

    document (S,), expert_probs (B, 2), a stream of one segment. `dtype` is that of rows and products.
    """
    E = windows[0].E
    E_u = E[stream.ids].to(dtype)  # (U, D)
    W = torch.cat([one.kernel.permute(1, 2, 0) for one in windows], 1).to(dtype)
    D, L, N = W.shape
    W = W.reshape(D, L * N)
    heads = Heads(
        torch.stack([one.bias for one in windows]),
        torch.stack([one.output.weight for one in windows]),
        torch.stack([one.output.bias for one in windows]),
    )
    p = expert_probs.to(E).contiguous()
    places = _places(tuple(one.c for one in windows), E.device)
    P = (E_u @ W).view(-1, L, N)
    with torch.cuda.device_of(P):  # triton launches on the current device, whatever it is given
        loss, found, g, bits = _gather(P, heads, places, slope, stream, document, p, launch)
        dP = _sum(g, bits, heads.weight, places, slope, stream, torch.empty_like(P), launch).view(-1, L * N)
    gradients: dict[Tensor, Tensor] = {}
    slices = torch.split((E_u.T @ dP).view(D, L, N), [2 * one.c + 1 for one in windows], 1)
    for one, dW, bias, weight, output_bias in zip(windows, slices, *found, strict=True):
        gradients[one.kernel] = torch.empty_like(one.kernel).copy_(dW.permute(2, 0, 1))
        gradients |= {one.bias: bias, one.output.weight: weight, one.output.bias: output_bias}
    dE_u = (dP @ W.T).to(E.dtype)
    gradients[E] = torch.zeros_like(E).index_copy_(0, stream.ids[1:], dE_u[1:])  # none for the padding
    return loss, gradients


@lru_cache(maxsize=64)
def _places(windows: tuple[int, ...], device: torch.device) -> Places:
    """Sent once: to send them at each step would make it wait."""
    widths = [2 * c + 1 for c in windows]
    edges = [0, *accumulate(widths)]
    window = [i for i, width in enumerate(widths) for _ in range(width)]
    return Places(
        torch.tensor(edges, dtype=torch.int32, device=device),
        torch.tensor(window, dtype=torch.int32, device=device),
        torch.tensor([1.0, -1.0], device=device),
    )


def _gather(
    P: Tensor,
    heads: Heads,
    places: Places,
    slope: float,
    stream: Stream,
    document: Tensor,
    expert_probs: Tensor,
    launch: Launch,
) -> tuple[Tensor, Heads, Tensor, Tensor]:
    """The loss (), the heads' gradients, g (I, S) and the bits (I, S, N / 8, up to a power of two)."""
    S, I, (_, L, N) = len(stream), len(heads.bias), P.shape
    block = max(32, triton.next_power_of_2(N))
    T = max(1, launch.tile // block)
    programs = triton.cdiv(S, T * launch.tiles)
    new = heads.bias.new_empty
    g, bits = new(I, S), new((I, S, block // 8), dtype=torch.uint8)
    rows, numbers = new(I, programs, 2, block), new(I, programs, 2)
    gather_kernel[(programs, I)](
        stream.rows, P, places.edges, *heads, document, expert_probs, g, bits, rows, numbers,
        S, len(expert_probs), stream.gap, slope,
        L=L, N=N, T=T, BLOCK_N=block, TILES=launch.tiles, UNROLL=launch.gather_unroll,
        num_warps=launch.gather_warps,
    )  # fmt: skip
    d_v, d_bias = rows.sum(1)[:, :, :N].unbind(1)  # (I, N)
    losses, d_b = numbers.sum(1).unbind(1)  # (I,)
    weight, output_bias = d_v[:, None] * places.signs[:, None], d_b[:, None] * places.signs
    return losses.sum(), Heads(d_bias, weight, output_bias), g, bits


def _sum(
    g: Tensor,
    bits: Tensor,
    weight: Tensor,
    places: Places,
    slope: float,
    stream: Stream,
    dP: Tensor,
    launch: Launch,
) -> Tensor:
    """Fill dP (U, L, N): row u of slice k is the sum of do_{t-k} over the positions t of piece u."""
    (_, S, row_bytes), (_, L, N) = bits.shape, dP.shape
    segment, chunks = stream.segments[0], stream.segments[0].chunks
    channels = min(CHANNELS, 8 * row_bytes)
    blocks = 8 * row_bytes // channels
    partial = g.new_empty(2 * triton.cdiv(len(segment.order), chunks.size), L, N)
    sum_kernel[(len(chunks.row), L, blocks)](
        segment.order, segment.starts, chunks.row, chunks.start, places.edges, places.window,
        g, bits, weight, partial, dP, S, stream.gap, slope,
        L=L, N=N, CHUNK=chunks.size, UNROLL=launch.sum_unroll, ROW_BYTES=row_bytes, BYTES=channels // 8,
        num_warps=launch.sum_warps,
    )  # fmt: skip
    combine_kernel[(len(chunks.uneven), L, blocks)](
        chunks.uneven, segment.starts, chunks.start, partial, dP, L=L, N=N, CHUNK=chunks.size, BLOCK=channels
    )
    return dP
