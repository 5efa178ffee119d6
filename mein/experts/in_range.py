"""An LSTM on a GPU: in half precision, whose gradients would vanish without care."""

import copy
import warnings
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

LARGEST = 16.0  # of the gradient that goes in: far below the 65,504 of float16, as sums of it come out

Run = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From embeddings (B, T, D), h and c (1, B, H) to outputs (B, T, H), h and c."""


def read_in_range(
    lstm: nn.LSTM, embedded: Tensor, state: tuple[Tensor, Tensor] | None = None, run: Run | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`lstm(embedded, state)`: outputs (B, T, H) and the state after them, through which no gradient flows.

    Under autocast an LSTM learns in float16, and so does the gradient on its way back: that of a mean over
    some thousand words is below what float16 can tell from zero. It is scaled before it goes in and scaled
    back when it comes out, by a power of two, which changes no digit. run: what to call instead of the
    LSTM, if it was captured.
    """
    if not (torch.is_grad_enabled() and torch.is_autocast_enabled(embedded.device.type)):
        outputs, after = lstm(embedded, state)
        return outputs, after
    h = embedded.new_zeros(1, len(embedded), lstm.hidden_size) if state is None else state[0]
    c = h if state is None else state[1]
    twin = twin_of(lstm)
    inputs = (run or Forward(lstm, twin), twin, embedded, h, c, *lstm.parameters())
    outputs, h, c = InRange.apply(*inputs)  # type: ignore[no-untyped-call]
    return outputs, (h, c)


_twins: WeakKeyDictionary[nn.LSTM, nn.LSTM] = WeakKeyDictionary()


def twin_of(lstm: nn.LSTM) -> nn.LSTM:
    """The same network in float16, made once: its weights lie in one piece, as cuDNN wants them."""
    if lstm not in _twins:
        twin = copy.deepcopy(lstm).half().requires_grad_(True)
        twin.flatten_parameters()
        _twins[lstm] = twin
    return _twins[lstm]


class Forward(nn.Module):
    """An LSTM through its twin, which is brought up to date first."""

    def __init__(self, lstm: nn.LSTM, twin: nn.LSTM) -> None:
        super().__init__()
        self.twin = twin
        self.weights = list(lstm.parameters())  # a list hides them: only the twin's get a gradient here

    def forward(self, embedded: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (B, T, H) and the state after them, a constant."""
        targets = [weight.data for weight in self.twin.parameters()]  # subtle: the same values, if read twice
        torch._foreach_copy_(targets, [weight.detach() for weight in self.weights])
        dtype = targets[0].dtype
        with torch.autocast(embedded.device.type, enabled=False):
            outputs, (h, c) = self.twin(embedded.to(dtype), (h.to(dtype), c.to(dtype)))
        return outputs, h.detach(), c.detach()


def captured(lstm: nn.LSTM, documents: int, words: int) -> Run:
    """An LSTM over batches of one shape as a CUDA graph: hundreds of launches become one."""
    device = next(lstm.parameters()).device
    embedded = torch.zeros(documents, words, lstm.input_size, device=device, requires_grad=True)
    h = torch.zeros(1, documents, lstm.hidden_size, device=device)
    forward = Forward(lstm, twin_of(lstm))
    warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch captures on its own one
    return cast(Run, torch.cuda.make_graphed_callables(forward, (embedded, h, h.clone())))


class InRange(torch.autograd.Function):
    """A network with a graph of its own, which is walked with the scaled gradient."""

    @staticmethod
    def forward(
        ctx: Any, run: Run, twin: nn.Module, embedded: Tensor, h: Tensor, c: Tensor, *weights: Tensor
    ) -> Any:
        ctx.read = embedded.detach().requires_grad_()
        with torch.enable_grad():
            ctx.outputs, h, c = run(ctx.read, h, c)
        ctx.twins = list(twin.parameters())
        ctx.types = [weight.dtype for weight in weights]
        ctx.mark_non_differentiable(h, c)
        return ctx.outputs.detach().to(embedded.dtype), h, c  # subtle: a gradient has the type of its output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        scale = power_of_two(LARGEST / gradient.abs().max())
        given = (gradient * scale).to(ctx.outputs.dtype)
        read, *found = torch.autograd.grad(ctx.outputs, [ctx.read, *ctx.twins], given, retain_graph=True)
        found = [one.to(dtype) for one, dtype in zip(found, ctx.types, strict=True)]
        return None, None, *_times([read], 1.0 / scale), None, None, *_times(found, 1.0 / scale)


def _times(tensors: list[Tensor], factor: Tensor) -> tuple[Tensor, ...]:
    return torch._foreach_mul(tensors, factor)


def power_of_two(number: Tensor) -> Tensor:
    """The largest that is not above a positive number; within what float32 holds of it and of its inverse.

    >>> power_of_two(torch.tensor([0.3, 8.0])).tolist()
    [0.25, 8.0]
    """
    return torch.exp2(torch.log2(number).floor().clamp(-100.0, 100.0))
