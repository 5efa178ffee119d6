# mypy: disable-error-code="import-not-found, untyped-decorator, no-untyped-def, no-untyped-call"
"""Triton kernels for two classes: a window's loss and gradient at the price of its gathered rows.

Import this only where triton is installed. With two classes the softmax is a sigmoid of
z_j = v . o_j + b, v = W'_0 - W'_1, b = b'_0 - b'_1, and the gradient that reaches the convolution is

    do_jn = g_j v_n s_jn,   g_j = dL/dz_j,   s_jn = 1 where o_jn > 0, else the leaky slope.

So g_j and one bit for each channel say all of do_j, exactly: 68 bytes for 512 channels, where the
row itself would take 1,024 in bfloat16. Sums run in a fixed order, without atomics: same input, same bits.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from mein.imitators.stream import Stream
from mein.imitators.windows import WindowGradients

CHANNELS = 512  # most channels of a program that sums bits


@dataclass(frozen=True)
class Launch:
    """Sizes that change the speed and not the result, but for rounding; the best found on an H200."""

    tile: int = 1_024
    """Elements of o (positions times channels) that a program holds in registers."""
    tiles: int = 8
    """Tiles that a program walks through; it leaves one partial sum."""
    gather_unroll: int = 3
    """Kernel slices whose rows are fetched together."""
    gather_warps: int = 2
    sum_unroll: int = 2
    """Positions of a piece whose bits are fetched together."""
    sum_warps: int = 1


LAUNCH = Launch()


@triton.jit(do_not_specialize=["S"])
def _gather_kernel(
    rows, projected, output, difference, document, targets, g_out, bits_out, loss_out, output_out,
    S, slope,
    K: tl.constexpr, N: tl.constexpr, T: tl.constexpr, BLOCK_N: tl.constexpr, TILES: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """z, loss, g and the bits of T positions at a time; sums over positions for the output layer."""
    n = tl.arange(0, BLOCK_N)
    v = tl.load(output + n, mask=n < N, other=0.0)
    b = tl.load(difference)
    output_sum = tl.zeros([BLOCK_N], tl.float32)
    loss_sum = tl.zeros([T], tl.float32)
    byte = tl.arange(0, BLOCK_N // 8)
    weight = (1 << tl.arange(0, 8))[None, None, :]
    for tile in range(TILES):
        j = (tl.program_id(0) * TILES + tile) * T + tl.arange(0, T)
        inside = j < S
        o = tl.zeros([T, BLOCK_N], tl.float32)
        for k in tl.range(0, K, loop_unroll_factor=UNROLL):
            u = tl.load(rows + j + k, mask=inside, other=0).to(tl.int64)
            P_k = projected + (u * K + k)[:, None] * N + n[None, :]
            o += tl.load(P_k, mask=(n < N)[None, :], other=0.0).to(tl.float32)
        is_on = o > 0
        o = tl.where(is_on, o, slope * o)
        z = tl.sum(o * v[None, :], 1) + b
        d = tl.load(document + j, mask=inside, other=0)
        p_0 = tl.load(targets + 2 * d, mask=inside, other=0.0)
        p_1 = tl.load(targets + 2 * d + 1, mask=inside, other=0.0)
        soft = tl.log(1.0 + tl.exp(-tl.abs(z)))
        loss_sum += p_0 * (soft - tl.minimum(z, 0.0)) + p_1 * (soft + tl.maximum(z, 0.0))  # Eq. 12
        g = (p_0 + p_1) / (1.0 + tl.exp(-z)) - p_0
        output_sum += tl.sum(g[:, None] * o, 0)
        packed = tl.sum(tl.reshape(is_on.to(tl.int32), [T, BLOCK_N // 8, 8]) * weight, 2)
        at = j.to(tl.int64)[:, None] * (BLOCK_N // 8) + byte[None, :]
        tl.store(bits_out + at, packed.to(tl.uint8), mask=inside[:, None])
        tl.store(g_out + j, g, mask=inside)
    tl.store(output_out + tl.program_id(0) * BLOCK_N + n, output_sum)
    tl.store(loss_out + tl.program_id(0), tl.sum(loss_sum, 0))


@triton.jit
def _add(total, bits, bit: tl.constexpr, on, off):
    return total + tl.where((bits & (1 << bit)) != 0, on, off)


@triton.jit(do_not_specialize=["S"])
def _sum_kernel(
    order, starts, chunk_row, chunk_start, g_in, bits_in, output, partial, gradient,
    S, slope, shift,
    K: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, UNROLL: tl.constexpr,
    ROW_BYTES: tl.constexpr, BYTES: tl.constexpr,
):  # fmt: skip
    """Sum do_{t-k} over one chunk of the positions t of one piece, for one k and 8 BYTES channels."""
    chunk, k = tl.program_id(0), tl.program_id(1)
    u = tl.load(chunk_row + chunk)
    first = tl.load(chunk_start + u)
    start = tl.load(starts + u) + (chunk - first) * CHUNK
    stop = tl.minimum(start + CHUNK, tl.load(starts + u + 1))
    byte = tl.program_id(2) * BYTES + tl.arange(0, BYTES)
    s0 = tl.zeros([BYTES], tl.float32)
    s1, s2, s3, s4, s5, s6, s7 = s0, s0, s0, s0, s0, s0, s0
    for p in range(start, stop, UNROLL):
        for i in tl.static_range(UNROLL):
            t = tl.load(order + p + i, mask=p + i < stop, other=0)
            j = t + shift - k  # o_j saw this piece through kernel slice k
            is_seen = (p + i < stop) & (j >= 0) & (j < S)
            on = tl.load(g_in + j, mask=is_seen, other=0.0)
            off = slope * on
            bits = tl.load(bits_in + j.to(tl.int64) * ROW_BYTES + byte, mask=is_seen, other=0)
            bits = bits.to(tl.int32)
            s0, s1 = _add(s0, bits, 0, on, off), _add(s1, bits, 1, on, off)
            s2, s3 = _add(s2, bits, 2, on, off), _add(s3, bits, 3, on, off)
            s4, s5 = _add(s4, bits, 4, on, off), _add(s5, bits, 5, on, off)
            s6, s7 = _add(s6, bits, 6, on, off), _add(s7, bits, 7, on, off)
    even = tl.interleave(tl.interleave(s0, s4), tl.interleave(s2, s6))
    odd = tl.interleave(tl.interleave(s1, s5), tl.interleave(s3, s7))
    n = tl.program_id(2) * BYTES * 8 + tl.arange(0, BYTES * 8)
    total = tl.interleave(even, odd) * tl.load(output + n, mask=n < N, other=0.0)
    if tl.load(chunk_start + u + 1) - first == 1:
        tl.store(gradient + (u.to(tl.int64) * K + k) * N + n, total.to(gradient.dtype.element_ty), mask=n < N)
    else:
        tl.store(partial + (chunk.to(tl.int64) * K + k) * N + n, total, mask=n < N)


@triton.jit
def _combine_kernel(chunk_start, partial, gradient, K: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """Add the chunks of a piece that has several; a piece that has none gets zeros."""
    u, k = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    first, last = tl.load(chunk_start + u), tl.load(chunk_start + u + 1)
    if last - first != 1:
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(first, last, 16):
            chunk = start + tl.arange(0, 16).to(tl.int64)
            at = (chunk * K + k)[:, None] * N + n[None, :]
            total += tl.sum(
                tl.load(partial + at, mask=(chunk < last)[:, None] & (n < N)[None, :], other=0.0), 0
            )
        tl.store(gradient + (u * K + k) * N + n, total.to(gradient.dtype.element_ty), mask=n < N)


def two_class_window(
    P: Tensor,
    output: nn.Linear,
    c: int,
    slope: float,
    stream: Stream,
    document: Tensor,
    targets: Tensor,
    launch: Launch = LAUNCH,
) -> WindowGradients:
    """`window_gradients` for two classes and a stream that is one chunked segment.

    float32, but for P and its gradient, which have P's own type.
    """
    v, b = (p.detach()[0] - p.detach()[1] for p in (output.weight, output.bias))
    g, bits, loss, d_v = _gather(P, v, b, c, slope, stream, document, targets, launch)
    dP = torch.empty_like(P)
    _sum(g, bits, v, c, slope, stream, dP, launch)
    d_b = g.sum()
    return WindowGradients(loss, dP, torch.stack([d_v, -d_v]), torch.stack([d_b, -d_b]))


def _gather(
    P: Tensor,
    v: Tensor,
    b: Tensor,
    c: int,
    slope: float,
    stream: Stream,
    document: Tensor,
    targets: Tensor,
    launch: Launch,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """g (S,), the bits (S, N / 8, rounded up to a power of two), the loss () and dL/dv (N,)."""
    S, N = len(stream), P.shape[1]
    block = max(32, triton.next_power_of_2(N))
    T = max(1, launch.tile // block)
    programs = triton.cdiv(S, T * launch.tiles)
    g, bits = v.new_empty(S), v.new_empty((S, block // 8), dtype=torch.uint8)
    loss, d_v = v.new_empty(programs), v.new_empty((programs, block))
    _gather_kernel[(programs,)](
        stream.rows[stream.gap - c :], P, v, b, document, targets, g, bits, loss, d_v, S, slope,
        K=2 * c + 1, N=N, T=T, BLOCK_N=block, TILES=launch.tiles, UNROLL=launch.gather_unroll,
        num_warps=launch.gather_warps,
    )  # fmt: skip
    return g, bits, loss.sum(), d_v.sum(0)[:N]


def _sum(
    g: Tensor, bits: Tensor, v: Tensor, c: int, slope: float, stream: Stream, dP: Tensor, launch: Launch
) -> None:
    """Fill dP_k[u] (U K, N): the sum of do_{t-k} over the positions t of piece u."""
    (S, row_bytes), N, K = bits.shape, len(v), 2 * c + 1
    segment, chunks = stream.segments[0], stream.segments[0].chunks
    partial = v.new_empty((len(chunks.row), K, N))
    channels = min(CHANNELS, 8 * row_bytes)
    blocks = row_bytes * 8 // channels
    _sum_kernel[(len(chunks.row), K, blocks)](
        segment.order, segment.starts, chunks.row, chunks.start, g, bits, v, partial, dP,
        S, slope, c - stream.gap,
        K=K, N=N, CHUNK=chunks.size, UNROLL=launch.sum_unroll, ROW_BYTES=row_bytes, BYTES=channels // 8,
        num_warps=launch.sum_warps,
    )  # fmt: skip
    _combine_kernel[(len(stream.ids), K, blocks)](chunks.start, partial, dP, K=K, N=N, BLOCK=channels)
