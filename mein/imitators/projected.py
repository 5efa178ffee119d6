"""Fast exact imitators: project each distinct piece once, then sum rows.

A convolution commutes with the look-up of embeddings:

    o_j = b + sum_k W_k E[x_{j+k}] = sum_k P_k[x_{j+k}],    P_k = E W_k, with the bias b added to P_0.

I: imitators, D: embedding size, N: channels, K = 2c+1: kernel width, S: positions of a packed stream,
U: its distinct pieces, Y: classes. The padding piece 0 must be embedded as zeros, and stays so.
"""

from importlib.util import find_spec
from itertools import groupby
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.imitators.windows import (
    Stream,
    each_tile,
    each_window,
    read_stream,
    rows_buffer,
    window_gradients,
    window_log_probs,
)

Precision = Literal["bf16", "float32"]
SEGMENT_BYTES = 2**29  # of gradient rows kept at a time: 262,144 positions of 512 channels in float32


def projected_log_probs(imitators: Imitators, pieces: Tensor) -> Tensor:
    """log p_ij (I, S, Y) of a packed stream of pieces (S,), as `imitators(pieces)` gives it.

    Differentiable; for the gradient of the loss, `projected_loss` is faster and needs less memory.
    """
    stream = read_stream(pieces, len(next(each_window(imitators)).E), imitators.gap)
    found = []
    for c, E, kernel, bias, output in each_window(imitators):
        E_u = functional.embedding(stream.ids, E, padding_idx=0)  # (U, D)
        P = _project(E_u, _slices(kernel), bias)  # (U K, N)
        found.append(window_log_probs(P, output, c, imitators.leaky_slope, stream.rows, stream.gap))
    return torch.stack(found)


def projected_loss(
    imitators: Imitators,
    pieces: Tensor,
    document: Tensor,
    expert_probs: Tensor,
    precision: Precision = "bf16",
    segment_bytes: int = SEGMENT_BYTES,
    stream: Stream | None = None,
) -> Tensor:
    """`imitation_loss` of a packed stream; its `backward` fills the gradient of every parameter.

    pieces and document (S,), expert_probs (B, Y). `precision` applies to rows and matrix products on a
    GPU; a CPU uses the type of the parameters. The same input gives the same bits. With two classes, a
    GPU, and `stream` from `stream_of` for these pieces, nothing here waits for the device.
    """
    if not torch.is_grad_enabled():
        return imitation_loss(expert_probs, projected_log_probs(imitators, pieces), document)
    if stream is None:
        stream = stream_of(imitators, pieces, expert_probs.shape[1], precision, segment_bytes)
    given = (imitators, stream, document, expert_probs, precision)
    return cast(Tensor, _ImitationLoss.apply(*given, *imitators.parameters()))  # type: ignore[no-untyped-call]


def stream_of(
    imitators: Imitators,
    pieces: Tensor,
    classes: int,
    precision: Precision = "bf16",
    segment_bytes: int = SEGMENT_BYTES,
) -> Stream:
    """The stream of packed pieces (S,) that `projected_loss` needs. It waits for the device."""
    E, bias = next(each_window(imitators)).E, next(each_window(imitators)).bias
    row_bytes = len(bias) * _row_type(E, precision).itemsize
    longest = None if _is_fused(pieces, classes) else segment_bytes // row_bytes
    return read_stream(pieces, len(E), imitators.gap, longest)


@torch.no_grad()
def blanked_probs(imitators: Imitators, pieces: Tensor, labels: list[int]) -> tuple[Tensor, Tensor]:
    """sum_j p_ij of some labels (I, L) over pieces (J,) of one document, and its change when one piece is
    blanked, for each of them (I, J, L); float64.

    Blanking x_t replaces P_k[x_t] by P_k[0] in o_j, where k = t - j + c: only the 2c+1 windows that see it
    change, each by one row.
    """
    J, gap = len(pieces), imitators.gap
    stream = read_stream(pieces, imitators.embedding.num_embeddings, gap)
    total = pieces.new_zeros(len(imitators.windows), len(labels), dtype=torch.float64)
    change = pieces.new_zeros(len(imitators.windows), J, len(labels), dtype=torch.float64)
    for i, (c, E, kernel, bias, output) in enumerate(each_window(imitators)):
        P = _project(functional.embedding(stream.ids, E, padding_idx=0), _slices(kernel), bias)
        K = 2 * c + 1

        def probs(o: Tensor, output: nn.Linear = output) -> Tensor:
            o = functional.leaky_relu_(o, imitators.leaky_slope)
            return functional.softmax(output(o), dim=-1)[:, labels].double()  # Eq. 8

        for start, stop, o in each_tile(P, output, c, stream):
            p = probs(o.clone())
            total[i] += p.sum(0)
            for k in range(K):  # of the windows at start .. stop - 1, each without its piece k
                first, last = max(0, start + k - c), min(J, stop + k - c)
                if first >= last:  # beyond the document's ends
                    continue
                row = stream.rows[gap + first : gap + last] * K + k
                here = slice(first + c - k - start, last + c - k - start)
                change[i, first:last] += probs(o[here] - P[row] + P[k]) - p[here]
    return total, change


class Tabulated:
    """Frozen imitators with P_k tabulated for all V pieces, without matrix products with embeddings.

    The tables take V K N numbers for each imitator, 1 GB at the paper's sizes (20,000 x 24 x 512 x 4 bytes).
    """

    @torch.no_grad()
    def __init__(self, imitators: Imitators) -> None:
        self.imitators = imitators
        self.tables = [_project(one.E, _slices(one.kernel), one.bias) for one in each_window(imitators)]

    @torch.no_grad()
    def log_probs(self, pieces: Tensor) -> Tensor:
        """log p_ij (I, S, Y), as `imitators(pieces)` gives it."""
        gap, slope = self.imitators.gap, self.imitators.leaky_slope
        rows = functional.pad(pieces, (gap, gap))
        each = zip(self.tables, each_window(self.imitators), strict=True)
        return torch.stack(
            [window_log_probs(table, one.output, one.c, slope, rows, gap) for table, one in each]
        )

    def alpha(self, pieces: Tensor, document: Tensor, lengths: Tensor) -> Tensor:
        """alpha_i (I, B, Y) of the documents of a packed stream."""
        return average_windows(self.log_probs(pieces), document, lengths)


class _ImitationLoss(torch.autograd.Function):
    """The loss, whose forward also computes the gradients, so that neither P nor o_j is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        imitators: Imitators,
        stream: Stream,
        document: Tensor,
        expert_probs: Tensor,
        precision: Precision,
        *parameters: Tensor,
    ) -> Tensor:
        is_fused = len(stream) > 0 and _is_fused(stream.rows, expert_probs.shape[1])
        run = _fused_gradients if is_fused else _gradients
        dtype = _row_type(parameters[0], precision)
        loss, gradients = run(imitators, stream, document, expert_probs, dtype)
        ctx.save_for_backward(*(gradients[parameter] for parameter in parameters))
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None,) * 5 + tuple(torch._foreach_mul(ctx.saved_tensors, upstream))


def has_triton() -> bool:
    """Whether the fused kernels can be compiled here."""
    return find_spec("triton") is not None


def _is_fused(pieces: Tensor, classes: int) -> bool:
    return pieces.is_cuda and classes == 2 and has_triton()


def _row_type(E: Tensor, precision: Precision) -> torch.dtype:
    return torch.bfloat16 if E.is_cuda and precision == "bf16" else E.dtype


def _fused_gradients(
    imitators: Imitators, stream: Stream, document: Tensor, expert_probs: Tensor, dtype: torch.dtype
) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The loss, and the gradient of each parameter: the windows of one table together."""
    from mein.imitators.fused import table_gradients

    losses: list[Tensor] = []
    gradients: dict[Tensor, Tensor] = {}
    for _, sharing in groupby(each_window(imitators), lambda one: id(one.E)):
        given = (imitators.leaky_slope, stream, document, expert_probs, dtype)
        loss, found = table_gradients(list(sharing), *given)
        losses.append(loss)
        gradients |= found
    return sum(losses[1:], start=losses[0]), gradients


def _gradients(
    imitators: Imitators, stream: Stream, document: Tensor, expert_probs: Tensor, dtype: torch.dtype
) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The loss, and the gradient of each parameter: one window after another, P of one at a time."""
    gap = torch.zeros_like(expert_probs[:1])
    targets = torch.cat([expert_probs, gap]).to(next(imitators.parameters())) / len(expert_probs)
    buffer = rows_buffer(stream, len(next(each_window(imitators)).bias), dtype)
    loss = targets.new_zeros(())
    gradients: dict[Tensor, Tensor] = {}
    dE_u: dict[Tensor, Tensor] = {}
    for c, E, kernel, bias, output in each_window(imitators):
        E_u, W = E[stream.ids].to(dtype), _slices(kernel).to(dtype)  # (U, D), (D, K N)
        P = _project(E_u, W, bias)
        found = window_gradients(P, output, c, imitators.leaky_slope, stream, document, targets, buffer)
        loss += found.loss
        gradients |= {output.weight: found.weight, output.bias: found.bias}
        N, D, K = kernel.shape
        dP = found.projected.view(-1, K * N)  # (U, K N)
        gradients[bias] = dP[:, c * N : (c + 1) * N].sum(0, dtype=E.dtype)
        gradients[kernel] = (E_u.T @ dP).to(E.dtype).view(D, K, N).permute(2, 0, 1).contiguous()
        dE_u[E] = dE_u.get(E, 0) + (dP @ W.T).to(E.dtype)
    for E, rows in dE_u.items():
        gradients[E] = torch.zeros_like(E).index_copy_(0, stream.ids[1:], rows[1:])  # none for the padding
    return loss, gradients


def _project(E_u: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    """P (U K, N) of embeddings (U, D) and kernel slices (D, K N), with the bias in the middle slice."""
    around = (W.shape[1] - len(bias)) // 2
    return torch.addmm(functional.pad(bias, (around, around)).to(E_u), E_u, W).view(-1, len(bias))


def _slices(kernel: Tensor) -> Tensor:
    """The kernel slices W_k side by side (D, K N)."""
    N, D, K = kernel.shape
    return kernel.permute(1, 2, 0).reshape(D, K * N)
