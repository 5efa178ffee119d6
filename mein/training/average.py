"""The running mean of weights over steps: steadier than the weights of any one step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

FIRST_STEPS = 10  # how fast the mean forgets where the weights started


class Average:
    """a <- d a + (1 - d) w after every step, with d = min(decay, (1 + step) / (10 + step)).

    Early on d is small, so that the mean is one of trained weights and not of the start. A decay of 0
    keeps no mean: the weights of the last step stand for it.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.parameters = list(parameters.values())
        self.decay = decay
        names = list(parameters) if decay > 0.0 else []
        self.tensors: dict[str, Tensor] = {name: parameters[name].detach().clone() for name in names}

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Take in the weights after a step."""
        if self.tensors:
            decay = min(self.decay, (1 + step) / (FIRST_STEPS + step))
            weights: list[Tensor] = [*self.parameters]
            torch._foreach_lerp_(list(self.tensors.values()), weights, 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The mean in the place of the weights, for as long as it lasts."""
        kept = [p.detach().clone() for p in self.parameters] if self.tensors else []
        self._fill(list(self.tensors.values()))
        try:
            yield
        finally:
            self._fill(kept)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=False):  # there may be no mean
            parameter.copy_(value)
