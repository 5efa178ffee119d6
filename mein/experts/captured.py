"""LSTMs over batches of known shapes as CUDA graphs: one launch instead of dozens or hundreds."""

import gc
import warnings
from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.experts.in_range import Forward, Run, new_twin, twin_of

STEP = 32  # words: a batch is padded up to a multiple of it, and never more
Shape = tuple[int, int, bool]
"""Documents, words, and whether the weights get a gradient."""


def can_capture(device: torch.device) -> bool:
    """Whether torch can capture what a device does: the GPU that is the current one, and no other."""
    return device.type == "cuda" and device.index in (None, torch.cuda.current_device())


class Captures:
    """An LSTM's runs over batches of these shapes, or a little shorter ones; `has_state`: not from zero.

    Graphs share their memory, so that only one reading may be under way, from its start to the end of its
    way back; who comes meanwhile finds no run, and calls the LSTM itself.
    """

    def __init__(self, lstm: nn.LSTM, shapes: Iterable[Shape], has_state: bool) -> None:
        self.has_state = has_state
        self.runs: dict[Shape, Run] = {}
        self.under_way: Callable[[], object] = lambda: None
        pool = torch.cuda.graph_pool_handle()
        wanted = sorted(shapes, reverse=True)  # the largest first: memory for all
        kinds = {learns for *_, learns in wanted}
        twins = {
            learns: twin_of(lstm) if learns else new_twin(lstm).requires_grad_(False) for learns in kinds
        }
        for documents, words, learns in wanted:
            free, memory = torch.cuda.mem_get_info(next(lstm.parameters()).device)
            if free < memory / 2:  # what is left belongs to the rest of a step
                break
            forward = Forward(lstm, twins[learns])
            self.runs[documents, words, learns] = _captured(forward, lstm, documents, words, has_state, pool)

    def fit(self, embedded: Tensor, learns: bool) -> Run | None:
        """The shortest run that is long enough for embeddings (B, T, D), if any and if no other is in use."""
        B, T = embedded.shape[:2]
        widths = [words for documents, words, learn in self.runs if (documents, learn) == (B, learns)]
        widths = [words for words in widths if 0 <= words - T < (1 if self.has_state else STEP)]
        if not widths or self.under_way() is not None:
            return None
        reading = Reading(self.runs[B, min(widths), learns], min(widths))
        self.under_way = ref(reading)
        return reading


def let_go() -> None:
    """Give back the memory of captures that nobody holds any more: torch leaves circles behind."""
    gc.collect()
    torch.cuda.empty_cache()


class Reading:
    """A captured run over a batch that may be shorter; it is under way for as long as somebody holds it."""

    def __init__(self, run: Run, words: int) -> None:
        self.run, self.words = run, words

    def __call__(self, embedded: Tensor, *state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (B, T, H), and h and c behind the padding, if there is some."""
        T = embedded.shape[1]
        padded = functional.pad(embedded, (0, 0, 0, self.words - T)) if self.words > T else embedded
        outputs, h, c = self.run(padded, *state)
        return outputs[:, :T], h, c


def _captured(forward: Forward, lstm: nn.LSTM, documents: int, words: int, has_state: bool, pool: Any) -> Run:
    device = next(lstm.parameters()).device
    embedded = torch.zeros(documents, words, lstm.input_size, device=device, requires_grad=True)
    h = torch.zeros(1, documents, lstm.hidden_size, device=device)
    state = (h, h.clone()) if has_state else ()
    warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch captures on its own one
    return cast(Run, torch.cuda.make_graphed_callables(forward, (embedded, *state), pool=pool))
