"""Shares of a batch, summed gradients.

How processes share the work of a step: documents for experts; windows, then documents, for imitators.

Gradients on their way between processes: summed once a step, of tables only the rows that were touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.inference import expert_logits
from mein.runtime import ranks
from mein.runtime.progress import QUIET, Task
from mein.text.ragged import Ragged

MOST_UNEVEN = 1.25  # times its even share of a step's work that a group of windows may have


@dataclass(frozen=True)
class Share:
    """What one process has of a batch of `of` rows: those at `rows`, one at least, which count or do not.

    Where there are more processes than rows, those left over work on the first row, and it counts nothing.
    """

    rows: np.ndarray
    of: int
    counts: bool

    @property
    def part(self) -> float:
        """The share of the batch's rows that this is."""
        return len(self.rows) / self.of if self.counts else 0.0


def own_share(costs: np.ndarray) -> Share | None:
    """This process's share of a batch whose rows have these costs; none where it has the whole."""
    return None if ranks.world() == 1 else share_of(costs, ranks.rank(), ranks.world())


def share_of(costs: np.ndarray, number: int, processes: int) -> Share:
    """The rows of a batch that process `number` of so many has; each gets about the same cost.

    >>> [share_of(np.array([9, 1, 5, 4]), number, 2).rows.tolist() for number in (0, 1)]
    [[0, 1], [2, 3]]
    """
    place = np.empty(len(costs), dtype=np.int64)  # of each row, the dearest first
    place[np.argsort(-costs, kind="stable")] = np.arange(len(costs))
    turn, seat = np.divmod(place, processes)
    owner = np.where(turn % 2 == 0, seat, processes - 1 - seat)  # there and back again
    rows = np.flatnonzero(owner == number)
    return Share(rows, len(costs), True) if len(rows) else Share(np.zeros(1, np.int64), len(costs), False)


def shared_logits(expert: Expert, words: Ragged, task: Task = QUIET) -> np.ndarray:
    """`expert_logits`, each process some of the documents; the same on all."""
    share = own_share(words.lengths)
    if share is None:
        return expert_logits(expert, words, task)
    logits = np.zeros((len(words), expert.classes), np.float32)
    if share.counts:
        logits[share.rows] = expert_logits(expert, words.take(share.rows), task)
    found = torch.from_numpy(logits).to(next(expert.parameters()).device)
    ranks.add_up(found)
    told: np.ndarray = found.cpu().numpy()
    return told


def own_windows(imitators: Imitators) -> tuple[Imitators, int, int]:
    """The imitators that this process works on, its number among those who do, and how many they are."""
    groups = window_groups(imitators.windows, ranks.world())
    own = imitators if len(groups) == 1 else imitators.only(groups[ranks.rank() % len(groups)])
    return own, ranks.rank() // len(groups), ranks.world() // len(groups)


def window_groups(windows: Sequence[int], processes: int) -> list[list[int]]:
    """Places of windows in groups of like work; each group is worked on by as many processes.

    A step's dearest part, to project the distinct pieces, hardly shrinks with the documents but does with
    the windows: there are as many groups as divide the processes and are even enough.

    >>> window_groups((1, 2, 3, 4), 2), window_groups((1, 2), 3)
    ([[3, 0], [2, 1]], [[1, 0]])
    """
    costs = [2 * c + 1 for c in windows]
    for count in range(min(processes, len(windows)), 1, -1):
        groups: list[list[int]] = [[] for _ in range(count)]
        for place in sorted(range(len(windows)), key=lambda i: -costs[i]):
            min(groups, key=lambda group: sum(costs[i] for i in group)).append(place)
        heaviest = max(sum(costs[i] for i in group) for group in groups)
        if processes % count == 0 and heaviest <= MOST_UNEVEN * sum(costs) / count:
            return groups
    return [sorted(range(len(windows)), key=lambda i: -costs[i])]


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
