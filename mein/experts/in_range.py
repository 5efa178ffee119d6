"""An LSTM on a GPU: in half precision, whose gradients would vanish without care."""

import copy
from collections.abc import Callable
from itertools import compress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

LARGEST = 16.0  # of the gradient that goes in: far below the 65,504 of float16, as sums of it come out

Run = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""From embeddings (B, T, D), and h and c (1, B, H) if they are not zero, to outputs (B, T, H), h and c."""
Pick = Callable[[Tensor], Tensor]
"""From outputs (B, T, H) to those that are wanted."""
Fit = Callable[[Tensor, bool], Run | None]
"""A captured run for embeddings (B, T, D), with or without gradients of weights, if there is one."""


def read_in_range(
    lstm: nn.LSTM,
    embedded: Tensor,
    state: tuple[Tensor, Tensor] | None = None,
    pick: Pick | None = None,
    fit: Fit | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`lstm(embedded, state)`: outputs (B, T, H) and the state after them, through which no gradient flows.

    Under autocast an LSTM learns in float16, and so does the gradient on its way back: that of a mean over
    some thousand words is below what float16 can tell from zero. It is scaled before it goes in and scaled
    back when it comes out, by a power of two, which changes no digit. pick: which outputs are wanted, if
    not all. fit: what finds a run to call instead of the LSTM, if some were captured; after one that pads,
    the state is that behind the padding.
    """
    if not torch.is_autocast_enabled(embedded.device.type):
        outputs, after = lstm(embedded, state)
        return outputs if pick is None else pick(outputs), after
    learns = torch.is_grad_enabled() and any(weight.requires_grad for weight in lstm.parameters())
    run = None if fit is None else fit(embedded, learns)
    run = Forward(lstm, twin_of(lstm)) if run is None else run
    if not torch.is_grad_enabled():
        outputs, h, c = run(embedded, *(state or ()))
        return (outputs if pick is None else pick(outputs)).to(embedded.dtype), (h, c)
    inputs = (run, pick, twin_of(lstm), embedded, state or (), *lstm.parameters())
    outputs, h, c = InRange.apply(*inputs)  # type: ignore[no-untyped-call]
    return outputs, (h, c)


_twins: WeakKeyDictionary[nn.LSTM, nn.LSTM] = WeakKeyDictionary()


def twin_of(lstm: nn.LSTM) -> nn.LSTM:
    """The same network in float16, made once a device: its weights lie in one piece, as cuDNN wants them."""
    twin = _twins.get(lstm)
    if twin is None or next(twin.parameters()).device != next(lstm.parameters()).device:
        twin = _twins[lstm] = new_twin(lstm)
    return twin


def new_twin(lstm: nn.LSTM) -> nn.LSTM:
    """The same network in float16; its weights learn."""
    twin = copy.deepcopy(lstm).half().requires_grad_(True)
    twin.flatten_parameters()
    return twin


class Forward(nn.Module):
    """An LSTM through its twin, which is brought up to date first."""

    def __init__(self, lstm: nn.LSTM, twin: nn.LSTM) -> None:
        super().__init__()
        self.twin = twin
        self.weights = list(lstm.parameters())  # a list hides them: only the twin's get a gradient here

    def forward(self, embedded: Tensor, *state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (B, T, H) and the state after them, a constant."""
        targets = [weight.data for weight in self.twin.parameters()]  # subtle: the same values, if read twice
        torch._foreach_copy_(targets, [weight.detach() for weight in self.weights])
        dtype = targets[0].dtype
        with torch.autocast(embedded.device.type, enabled=False):
            start = tuple(one.to(dtype) for one in state)
            outputs, (h, c) = self.twin(embedded.to(dtype), start or None)
        return outputs, h.detach(), c.detach()


class InRange(torch.autograd.Function):
    """A network with a graph of its own, which is walked with the scaled gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        run: Run,
        pick: Pick | None,
        twin: nn.Module,
        embedded: Tensor,
        state: tuple[Tensor, ...],
        *weights: Tensor,
    ) -> Any:
        ctx.run, ctx.read = run, embedded.detach().requires_grad_()
        with torch.enable_grad():
            outputs, h, c = run(ctx.read, *state)
            ctx.outputs = outputs if pick is None else pick(outputs)
        ctx.types = [weight.dtype if weight.requires_grad else None for weight in weights]
        ctx.twins = list(compress(twin.parameters(), ctx.types))
        ctx.mark_non_differentiable(h, c)
        return ctx.outputs.detach().to(embedded.dtype), h, c  # subtle: a gradient has the type of its output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        scale = power_of_two(LARGEST / torch.linalg.vector_norm(gradient, torch.inf))
        given = (gradient * scale).to(ctx.outputs.dtype)
        read, *found = torch.autograd.grad(ctx.outputs, [ctx.read, *ctx.twins], given, retain_graph=True)
        found = [one.to(dtype) for one, dtype in zip(found, filter(None, ctx.types), strict=True)]
        left = iter(torch._foreach_mul([read, *found], 1.0 / scale))
        return None, None, None, next(left), None, *(dtype and next(left) for dtype in ctx.types)


def power_of_two(number: Tensor) -> Tensor:
    """The largest that is not above a positive number; within what float32 holds of it and of its inverse.

    >>> power_of_two(torch.tensor([0.3, 8.0])).tolist()
    [0.25, 8.0]
    """
    return torch.exp2(torch.log2(number).floor().clamp(-100.0, 100.0))
