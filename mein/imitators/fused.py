# mypy: disable-error-code="import-not-found, untyped-decorator, no-untyped-def, no-untyped-call"
"""All windows of an embedding table together, for two classes: matrix products and three Triton kernels.

Import this only where triton is installed. A step takes a few dozen launches, none of which waits for the
device: with small batches the launches, not the arithmetic, took most of the time.

With two classes the softmax is a sigmoid of z_j = v . o_j + b, v = W'_0 - W'_1, b = b'_0 - b'_1, and the
gradient that reaches the convolution is

    do_jn = g_j v_n s_jn,   g_j = dL/dz_j,   s_jn = 1 where o_jn > 0, otherwise the leaky slope.

So g_j and one bit per channel determine all of do_j, exactly: 68 bytes for 512 channels, where the row
itself takes 1,024 in bfloat16. Sums run in a fixed order, without atomics: same input, same bits.

I: windows, L: kernel slices of all of them side by side, those of window i from edges[i] on, D: embedding
size, N: channels, S: positions of a packed stream, B: documents, U: distinct pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mein.imitators.windows import Stream, Window

CHANNELS = 512  # most channels of a program that sums bits


@triton.jit
def _difference(weight, i, n, N: tl.constexpr):
    """v of window i."""
    at = weight + i * 2 * N + n
    return tl.load(at, mask=n < N, other=0.0) - tl.load(at + N, mask=n < N, other=0.0)


@triton.jit
def _add_rows(
    o, rows, inside, projected, first, K, n, L: tl.constexpr, N: tl.constexpr, UNROLL: tl.constexpr
):
    """o + sum_k P_k[x_{j+k}]; `rows` points to the first piece that each position sees."""
    for k in tl.range(0, K, loop_unroll_factor=UNROLL):
        u = tl.load(rows + k, mask=inside, other=0).to(tl.int64)
        P_k = projected + (u * L + first + k)[:, None] * N + n[None, :]
        o += tl.load(P_k, mask=(n < N)[None, :], other=0.0).to(tl.float32)
    return o


@triton.jit
def _targets(expert_probs, document, B):
    """p / B for both classes; 0 in a gap."""
    p_0 = tl.load(expert_probs + 2 * document, mask=document < B, other=0.0)
    p_1 = tl.load(expert_probs + 2 * document + 1, mask=document < B, other=0.0)
    return p_0 / B, p_1 / B


@triton.jit
def _store_bits(bits_out, is_on, row, inside, T: tl.constexpr, BLOCK_N: tl.constexpr):
    """Eight channels to a byte, the first in its lowest bit."""
    power = (1 << tl.arange(0, 8))[None, None, :]
    packed = tl.sum(tl.reshape(is_on.to(tl.int32), [T, BLOCK_N // 8, 8]) * power, 2)
    at = row[:, None] * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)[None, :]
    tl.store(bits_out + at, packed.to(tl.uint8), mask=inside[:, None])


@triton.jit(do_not_specialize=["S", "B"])
def gather_kernel(
    rows, projected, edges, bias, weight, output_bias, document, expert_probs,
    g_out, bits_out, sums_out, scalars_out,
    S, B, gap, slope,
    L: tl.constexpr, N: tl.constexpr, T: tl.constexpr, BLOCK_N: tl.constexpr, TILES: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """z, loss, g and the bits of T positions of a window at a time; sums over positions for its heads."""
    i = tl.program_id(1).to(tl.int64)
    first = tl.load(edges + i)
    K = tl.load(edges + i + 1) - first
    n = tl.arange(0, BLOCK_N)
    v = _difference(weight, i, n, N)
    b = tl.load(output_bias + 2 * i) - tl.load(output_bias + 2 * i + 1)
    output_sum, bias_sum = tl.zeros([BLOCK_N], tl.float32), tl.zeros([BLOCK_N], tl.float32)
    loss_sum, g_sum = tl.zeros([T], tl.float32), tl.zeros([T], tl.float32)
    for tile in range(TILES):
        j = (tl.program_id(0) * TILES + tile) * T + tl.arange(0, T)
        inside = j < S
        o_0 = tl.load(bias + i * N + n, mask=n < N, other=0.0)  # in every tile: registers are scarce
        o = tl.zeros([T, BLOCK_N], tl.float32) + o_0[None, :]
        o = _add_rows(o, rows + gap - K // 2 + j, inside, projected, first, K, n, L, N, UNROLL)
        is_on = o > 0
        o = tl.where(is_on, o, slope * o)
        z = tl.sum(o * v[None, :], 1) + b
        p_0, p_1 = _targets(expert_probs, tl.load(document + j, mask=inside, other=B), B)
        soft = tl.log(1.0 + tl.exp(-tl.abs(z)))
        loss_sum += p_0 * (soft - tl.minimum(z, 0.0)) + p_1 * (soft + tl.maximum(z, 0.0))  # Eq. 12
        g = (p_0 + p_1) / (1.0 + tl.exp(-z)) - p_0
        g_sum += g
        output_sum += tl.sum(g[:, None] * o, 0)
        bias_sum += tl.sum(tl.where(is_on, g[:, None], slope * g[:, None]), 0)
        _store_bits(bits_out, is_on, i * S + j, inside, T, BLOCK_N)
        tl.store(g_out + i * S + j, g, mask=inside)
    program = i * tl.num_programs(0) + tl.program_id(0)
    tl.store(sums_out + 2 * program * BLOCK_N + n, output_sum)
    tl.store(sums_out + (2 * program + 1) * BLOCK_N + n, bias_sum * v)
    tl.store(scalars_out + 2 * program, tl.sum(loss_sum, 0))
    tl.store(scalars_out + 2 * program + 1, tl.sum(g_sum, 0))


@triton.jit
def _add(total, bits, bit: tl.constexpr, on, off):
    return total + tl.where((bits & (1 << bit)) != 0, on, off)


@triton.jit
def _shift(edges, i, at):
    """From a piece to the middle of the window i that sees it through slice `at`."""
    first = tl.load(edges + i)
    return (tl.load(edges + i + 1) - first) // 2 - (at - first)


@triton.jit(do_not_specialize=["S"])
def sum_kernel(
    order, starts, chunk_row, chunk_start, edges, window, g_in, bits_in, weight, partial, gradient,
    S, gap, slope,
    L: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, UNROLL: tl.constexpr,
    ROW_BYTES: tl.constexpr, BYTES: tl.constexpr,
):  # fmt: skip
    """Sum do_{t-k} over one chunk of the positions t of one piece, for one slice and 8 BYTES channels."""
    chunk, at = tl.program_id(0), tl.program_id(1)
    u = tl.load(chunk_row + chunk)
    first = tl.load(chunk_start + u)
    start = tl.load(starts + u) + (chunk - first) * CHUNK
    stop = tl.minimum(start + CHUNK, tl.load(starts + u + 1))
    i = tl.load(window + at).to(tl.int64)
    shift = _shift(edges, i, at) - gap
    byte = tl.program_id(2) * BYTES + tl.arange(0, BYTES)
    s0 = tl.zeros([BYTES], tl.float32)
    s1, s2, s3, s4, s5, s6, s7 = s0, s0, s0, s0, s0, s0, s0
    for p in range(start, stop, UNROLL):
        for q in tl.static_range(UNROLL):
            none = -1 - shift  # and o_j saw the piece through this slice
            j = tl.load(order + p + q, mask=stop > p + q, other=none) + shift
            on = tl.load(g_in + i * S + j, mask=(j >= 0) & (j < S), other=0.0)
            off = slope * on
            at_j = j + tl.zeros([BYTES], tl.int32)  # the interpreter cannot spread a mask of one
            is_seen = (at_j >= 0) & (at_j < S)
            bits = tl.load(bits_in + (i * S + j) * ROW_BYTES + byte, mask=is_seen, other=0).to(tl.int32)
            s0, s1 = _add(s0, bits, 0, on, off), _add(s1, bits, 1, on, off)
            s2, s3 = _add(s2, bits, 2, on, off), _add(s3, bits, 3, on, off)
            s4, s5 = _add(s4, bits, 4, on, off), _add(s5, bits, 5, on, off)
            s6, s7 = _add(s6, bits, 6, on, off), _add(s7, bits, 7, on, off)
    even = tl.interleave(tl.interleave(s0, s4), tl.interleave(s2, s6))
    odd = tl.interleave(tl.interleave(s1, s5), tl.interleave(s3, s7))
    n = tl.program_id(2) * BYTES * 8 + tl.arange(0, BYTES * 8)
    total = tl.interleave(even, odd) * _difference(weight, i, n, N)
    if tl.load(chunk_start + u + 1) - first == 1:
        into = gradient + (u.to(tl.int64) * L + at) * N + n
        tl.store(into, total.to(gradient.dtype.element_ty), mask=n < N)
    else:
        row = 2 * (start // CHUNK) + tl.minimum(chunk - first, 1)  # no two chunks of such pieces share it
        tl.store(partial + (row.to(tl.int64) * L + at) * N + n, total, mask=n < N)


@triton.jit
def combine_kernel(
    uneven, starts, chunk_start, partial, gradient,
    L: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the chunks of a piece that has several; a piece that has none gets zeros."""
    u, at = tl.load(uneven + tl.program_id(0)), tl.program_id(1)
    n = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(chunk_start + u + 1) - tl.load(chunk_start + u)
    first = tl.load(starts + u) // CHUNK
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, count, 16):
        chunk = begin + tl.arange(0, 16)
        row = (2 * (first + chunk) + tl.minimum(chunk, 1)).to(tl.int64)
        seen = partial + (row * L + at)[:, None] * N + n[None, :]
        total += tl.sum(tl.load(seen, mask=(chunk < count)[:, None] & (n < N)[None, :], other=0.0), 0)
    tl.store(gradient + (u.to(tl.int64) * L + at) * N + n, total.to(gradient.dtype.element_ty), mask=n < N)


@dataclass(frozen=True)
class Launch:
    """Sizes that change the speed but not the result, up to rounding.

    The best found on an H200. Between 4 and 32 tiles the speed at 262,144 pieces differs by at most 5%.
    """

    tile: int = 1_024
    """Elements of o (positions times channels) that a program holds in registers."""
    tiles: int = 16
    """Tiles per program; each program writes one partial sum."""
    gather_unroll: int = 3
    """Kernel slices whose rows are loaded together."""
    gather_warps: int = 2
    sum_unroll: int = 2
    """Positions of a piece whose bits are loaded together."""
    sum_warps: int = 1


LAUNCH = Launch()


class Heads(NamedTuple):
    """The parameters after the projection, of all windows, or their gradients."""

    bias: Tensor
    """Of the convolutions (I, N)."""
    weight: Tensor
    """W' (I, 2, N)."""
    output_bias: Tensor
    """b' (I, 2)."""


class Places(NamedTuple):
    """The slices of each window among all L, and the signs of the two classes in v and b."""

    edges: Tensor
    """(I + 1,): window i has slices edges[i] .. edges[i + 1] - 1."""
    window: Tensor
    """(L,): the window of each slice."""
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
    with torch.cuda.device_of(P):  # triton launches on the current device, not on that of its arguments
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
    """Copied to the device once, because a copy in each step would wait for it."""
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
