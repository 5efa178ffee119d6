"""Imitators at the price of their distinct pieces: project each once, then add up rows. Exact.

A convolution commutes with the look-up of embeddings:

    o_j = b + sum_k W_k E[x_{j+k}] = sum_k P_k[x_{j+k}],    P_k = E W_k, with the bias b added to P_0.

I: imitators, D: embedding size, N: channels, K = 2c+1: kernel width, S: positions of a packed stream,
U: its distinct pieces, Y: classes. The padding piece 0 must be embedded as zeros, and stays so.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.imitators.stream import Stream, read_stream
from mein.imitators.windows import WindowGradients, room_for_rows, window_gradients, window_log_probs

Precision = Literal["bf16", "float32"]
SEGMENT_BYTES = 2**29  # of gradient rows kept at a time: 262,144 positions of 512 channels in float32


def projected_log_probs(imitators: Imitators, pieces: Tensor) -> Tensor:
    """log p_ij (I, S, Y) of a packed stream of pieces (S,), as `imitators(pieces)` gives it.

    Differentiable; where only the gradient of the loss is wanted, `projected_loss` is faster and smaller.
    """
    stream = read_stream(pieces, len(next(_each(imitators)).E), imitators.gap)
    found = []
    for c, E, kernel, bias, output in _each(imitators):
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
) -> Tensor:
    """`imitation_loss` of a packed stream; its `backward` fills the gradient of every parameter.

    pieces and document (S,), expert_probs (B, Y). `precision` is that of rows and matrix products on a
    GPU; a CPU keeps the parameters' own. The same input gives the same bits.
    """
    if not torch.is_grad_enabled():
        return imitation_loss(expert_probs, projected_log_probs(imitators, pieces), document)
    given = (imitators, pieces, document, expert_probs, precision, segment_bytes)
    return cast(Tensor, _ImitationLoss.apply(*given, *imitators.parameters()))  # type: ignore[no-untyped-call]


class Tabulated:
    """Frozen imitators with P_k tabulated for all V pieces: no matrix product with embeddings remains.

    The tables take V K N numbers for each imitator, 1 GB at the paper's sizes (20,000 x 24 x 512 x 4 bytes).
    """

    @torch.no_grad()
    def __init__(self, imitators: Imitators) -> None:
        self.imitators = imitators
        self.tables = [_project(one.E, _slices(one.kernel), one.bias) for one in _each(imitators)]

    @torch.no_grad()
    def log_probs(self, pieces: Tensor) -> Tensor:
        """log p_ij (I, S, Y), as `imitators(pieces)` gives it."""
        gap, slope = self.imitators.gap, self.imitators.leaky_slope
        rows = functional.pad(pieces, (gap, gap))
        each = zip(self.tables, _each(self.imitators), strict=True)
        return torch.stack(
            [window_log_probs(table, one.output, one.c, slope, rows, gap) for table, one in each]
        )

    def alpha(self, pieces: Tensor, document: Tensor, lengths: Tensor) -> Tensor:
        """alpha_i (I, B, Y) of the documents of a packed stream."""
        return average_windows(self.log_probs(pieces), document, lengths)


class _ImitationLoss(torch.autograd.Function):
    """The loss, with its gradients computed beside it: neither P nor o_j is kept until `backward`."""

    @staticmethod
    def forward(
        ctx: Any,
        imitators: Imitators,
        pieces: Tensor,
        document: Tensor,
        expert_probs: Tensor,
        precision: Precision,
        segment_bytes: int,
        *parameters: Tensor,
    ) -> Tensor:
        E = parameters[0]
        is_fused = pieces.is_cuda and expert_probs.shape[1] == 2 and has_triton()
        dtype = torch.bfloat16 if pieces.is_cuda and precision == "bf16" else E.dtype
        N = len(next(_each(imitators)).bias)
        longest = None if is_fused else segment_bytes // (N * dtype.itemsize)
        stream = read_stream(pieces, len(E), imitators.gap, longest)
        targets = torch.cat([expert_probs, torch.zeros_like(expert_probs[:1])]).to(E) / len(expert_probs)
        if is_fused and len(pieces) > 0:
            from mein.imitators.kernels import two_class_window as run  # triton is not everywhere
        else:
            run = partial(window_gradients, room=room_for_rows(stream, N, dtype))
        loss, gradients = _loss_and_gradients(imitators, stream, document, targets, dtype, run)
        ctx.save_for_backward(*(gradients[parameter] for parameter in parameters))
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None,) * 6 + tuple(upstream * gradient for gradient in ctx.saved_tensors)


def has_triton() -> bool:
    """Whether the fused kernels can be compiled here."""
    return find_spec("triton") is not None


def _loss_and_gradients(
    imitators: Imitators,
    stream: Stream,
    document: Tensor,
    targets: Tensor,
    dtype: torch.dtype,
    run: Callable[..., WindowGradients],
) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """The loss, and the gradient of each parameter. targets (B + 1, Y): p / B, then zeros for the gaps."""
    loss = targets.new_zeros(())
    gradients: dict[Tensor, Tensor] = {}
    dE_u: dict[Tensor, Tensor] = {}
    for c, E, kernel, bias, output in _each(imitators):
        E_u, W = E[stream.ids].to(dtype), _slices(kernel).to(dtype)  # (U, D), (D, K N)
        found = run(_project(E_u, W, bias), output, c, imitators.leaky_slope, stream, document, targets)
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


class _Imitator(NamedTuple):
    """One imitator: its window and parameters."""

    c: int
    E: Tensor
    """(V, D), perhaps shared."""
    kernel: Tensor
    """(N, D, K)."""
    bias: Tensor
    """(N,)."""
    output: nn.Linear


def _each(imitators: Imitators) -> Iterator[_Imitator]:
    for i, c in enumerate(imitators.windows):
        embedding = cast(nn.Embedding, imitators.embeddings[i % len(imitators.embeddings)])
        convolution = cast(nn.Conv1d, imitators.convolutions[i])
        output = cast(nn.Linear, imitators.outputs[i])
        yield _Imitator(c, embedding.weight, convolution.weight, cast(Tensor, convolution.bias), output)
