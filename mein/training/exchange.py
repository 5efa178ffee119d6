"""Gradients on their way between processes: summed once a step, of tables only the rows that were touched."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mein import ranks


def sum_gradients(parameters: Sequence[nn.Parameter], loss: Tensor) -> Tensor:
    """Add up all processes' gradients, and their parts of the loss, which is returned.

    A row of a matrix travels where some process has touched it, which for the embeddings of a batch is
    a few of many. A parameter that no process has a gradient of stays without, as it would in one.
    """
    if ranks.world() == 1:
        return loss
    sent: list[tuple[nn.Parameter, Tensor | None]] = []  # each that has a gradient somewhere, and its rows
    parts: list[Tensor] = []
    for parameter, touched in zip(parameters, _agree_on_rows(parameters), strict=True):
        if touched is None:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        rows = None if touched.all() else touched.nonzero()[:, 0].to(parameter.device)
        sent.append((parameter, rows))
        parts.append(parameter.grad if rows is None else parameter.grad[rows])
    luggage = torch.cat([*(part.flatten() for part in parts), loss.reshape(1).to(parts[0])])
    ranks.add_up(luggage)
    sizes = [part.numel() for part in parts]
    for (parameter, rows), part in zip(sent, torch.split(luggage[:-1], sizes), strict=True):
        if rows is None:
            parameter.grad = part.view_as(parameter)  # no copy: until the next step the luggage is kept
        elif parameter.grad is not None:
            parameter.grad[rows] = part.view(len(rows), *parameter.shape[1:])
    return luggage[-1]


def _agree_on_rows(parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """Which rows of each parameter some process has touched; none where no process has a gradient."""
    flags: list[Tensor] = []
    for parameter in parameters:
        gradient = parameter.grad
        rows = len(parameter) if parameter.dim() == 2 else 1
        own = torch.zeros(1 + rows, dtype=torch.uint8, device=parameter.device)  # is there one? which rows?
        if gradient is not None:
            own[0] = 1
            own[1:] = gradient.any(1) if parameter.dim() == 2 else 1  # NaN counts as touched
        flags.append(own)
    together = torch.cat(flags)
    ranks.add_up(together, largest=True)
    found = torch.split(together.cpu().bool(), [len(own) for own in flags])
    return [own[1:] if own[0] else None for own in found]
