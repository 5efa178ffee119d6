"""LSTMs on a GPU: in float16 with scaled gradients, and as CUDA graphs over batches of known shapes."""

import copy
import gc
import warnings
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGEST = 16.0  # of the incoming gradient: far below the 65,504 of float16, because it is summed

RecurrentRun = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""From embeddings (B, T, D), and h and c (1, B, H) if they are not zero, to outputs (B, T, H), h and c."""
Pick = Callable[[Tensor], Tensor]
"""From outputs (B, T, H) to the selected ones."""
Fit = Callable[[Tensor, bool], RecurrentRun | None]
"""A captured run for embeddings (B, T, D), with or without gradients of weights, if there is one."""


def read_in_range(
    lstm: nn.LSTM,
    embedded: Tensor,
    state: tuple[Tensor, Tensor] | None = None,
    pick: Pick | None = None,
    fit: Fit | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`lstm(embedded, state)`: outputs (B, T, H) and the state after them, through which no gradient flows.

    Under autocast an LSTM learns in float16, and so is its gradient, which for a mean over some thousand
    words would round to zero. So it is scaled on the way in and back on the way out, by a power of two,
    which changes no digit. pick: selects outputs. fit: finds a captured run to call instead of the LSTM;
    after one that pads, the state is that after the padding.
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
    """The same network in float16, one per device, with weights in one block of memory, as cuDNN requires."""
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
    """An LSTM through its twin, whose weights are updated first."""

    def __init__(self, lstm: nn.LSTM, twin: nn.LSTM) -> None:
        super().__init__()
        self.twin = twin
        self.weights = list(lstm.parameters())  # hidden in a list: only the twin's get a gradient here

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
    """A network with its own graph, which gets the scaled gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        run: RecurrentRun,
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
    """The largest power of two that is not above a positive number, within float32, as is its inverse.

    >>> power_of_two(torch.tensor([0.3, 8.0])).tolist()
    [0.25, 8.0]
    """
    return torch.exp2(torch.log2(number).floor().clamp(-100.0, 100.0))


STEP = 32  # words: a batch is padded to the next multiple
LstmShape = tuple[int, int, bool]
"""Documents, words, and whether the weights get a gradient."""


def can_capture(device: torch.device) -> bool:
    """Whether torch can capture work on a device: only on the current GPU."""
    return device.type == "cuda" and device.index in (None, torch.cuda.current_device())


class Captures:
    """Captured runs of an LSTM over batches of these shapes, or slightly shorter; `has_state`: not from zero.

    Graphs share their memory, so only one reading may be in use, from its start to the end of its backward
    pass. Any other call in that time gets no run, and uses the LSTM itself.
    """

    def __init__(self, lstm: nn.LSTM, shapes: Iterable[LstmShape], has_state: bool) -> None:
        self.has_state = has_state
        self.runs: dict[LstmShape, RecurrentRun] = {}
        self.in_use: Callable[[], object] = lambda: None
        pool = torch.cuda.graph_pool_handle()
        wanted = sorted(shapes, reverse=True)  # the largest first: memory for all
        kinds = {learns for *_, learns in wanted}
        twins = {
            learns: twin_of(lstm) if learns else new_twin(lstm).requires_grad_(False) for learns in kinds
        }
        for documents, words, learns in wanted:
            free, memory = torch.cuda.mem_get_info(next(lstm.parameters()).device)
            if free < memory / 2:  # the rest of a step needs what is left
                break
            forward = Forward(lstm, twins[learns])
            self.runs[documents, words, learns] = _captured(forward, lstm, documents, words, has_state, pool)

    def fit(self, embedded: Tensor, learns: bool) -> RecurrentRun | None:
        """The shortest run that is long enough for embeddings (B, T, D), if any and if no other is in use."""
        B, T = embedded.shape[:2]
        widths = [words for documents, words, learn in self.runs if (documents, learn) == (B, learns)]
        widths = [words for words in widths if 0 <= words - T < (1 if self.has_state else STEP)]
        if not widths or self.in_use() is not None:
            return None
        reading = Reading(self.runs[B, min(widths), learns], min(widths))
        self.in_use = ref(reading)
        return reading


def free_captures() -> None:
    """Free the memory of captures that are no longer referenced: torch leaves reference cycles behind."""
    gc.collect()
    torch.cuda.empty_cache()


class Reading:
    """A captured run over a batch that may be shorter; it is in use while it is referenced."""

    def __init__(self, run: RecurrentRun, words: int) -> None:
        self.run, self.words = run, words

    def __call__(self, embedded: Tensor, *state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (B, T, H), and h and c after the padding, if any."""
        T = embedded.shape[1]
        padded = functional.pad(embedded, (0, 0, 0, self.words - T)) if self.words > T else embedded
        outputs, h, c = self.run(padded, *state)
        return outputs[:, :T], h, c


def _captured(
    forward: Forward, lstm: nn.LSTM, documents: int, words: int, has_state: bool, pool: Any
) -> RecurrentRun:
    device = next(lstm.parameters()).device
    embedded = torch.zeros(documents, words, lstm.input_size, device=device, requires_grad=True)
    h = torch.zeros(1, documents, lstm.hidden_size, device=device)
    state = (h, h.clone()) if has_state else ()
    warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch captures on its own stream
    return cast(RecurrentRun, torch.cuda.make_graphed_callables(forward, (embedded, *state), pool=pool))
