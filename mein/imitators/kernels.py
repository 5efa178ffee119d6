# mypy: disable-error-code="import-not-found, untyped-decorator, no-untyped-def, no-untyped-call"
"""Triton kernels for two classes: loss and gradient of all windows of a table, at the price of gathered rows.

Import this only where triton is installed. With two classes the softmax is a sigmoid of
z_j = v . o_j + b, v = W'_0 - W'_1, b = b'_0 - b'_1, and the gradient that reaches the convolution is

    do_jn = g_j v_n s_jn,   g_j = dL/dz_j,   s_jn = 1 where o_jn > 0, else the leaky slope.

So g_j and one bit for each channel say all of do_j, exactly: 68 bytes for 512 channels, where the
row itself would take 1,024 in bfloat16. Sums run in a fixed order, without atomics: same input, same bits.

I: windows, L: kernel slices of all of them, side by side, those of window i from edges[i] on.
"""

import triton
import triton.language as tl


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
def _asked(expert_probs, document, B):
    """p / B for both classes; a gap asks nothing."""
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
        o_0 = tl.load(bias + i * N + n, mask=n < N, other=0.0)  # again and again: registers are scarce
        o = tl.zeros([T, BLOCK_N], tl.float32) + o_0[None, :]
        o = _add_rows(o, rows + gap - K // 2 + j, inside, projected, first, K, n, L, N, UNROLL)
        is_on = o > 0
        o = tl.where(is_on, o, slope * o)
        z = tl.sum(o * v[None, :], 1) + b
        p_0, p_1 = _asked(expert_probs, tl.load(document + j, mask=inside, other=B), B)
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
