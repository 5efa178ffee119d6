"""How processes share a step: documents for experts; windows, then documents, for imitators; gradients.

Gradients are summed once per step; of tables, only the rows that have one.
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

MOST_UNEVEN = 1.25  # largest work of a group of windows, relative to an even share


@dataclass(frozen=True)
class Share:
    """A process's part of a batch of `of` rows: those at `rows`, at least one, which count or do not.

    If there are more processes than rows, the others work on the first row, which does not count.
    """

    rows: np.ndarray
    of: int
    counts: bool

    @property
    def part(self) -> float:
        """The share of the batch's rows that this is."""
        return len(self.rows) / self.of if self.counts else 0.0


def own_share(costs: np.ndarray) -> Share | None:
    """This process's share of a batch whose rows have these costs; none if it has the complete batch."""
    return None if ranks.world() == 1 else share_of(costs, ranks.rank(), ranks.world())


def share_of(costs: np.ndarray, number: int, processes: int) -> Share:
    """The rows of a batch for process `number` of `processes`; each gets about the same cost.

    >>> [share_of(np.array([9, 1, 5, 4]), number, 2).rows.tolist() for number in (0, 1)]
    [[0, 1], [2, 3]]
    """
    place = np.empty(len(costs), dtype=np.int64)  # of each row, the most expensive first
    place[np.argsort(-costs, kind="stable")] = np.arange(len(costs))
    turn, seat = np.divmod(place, processes)
    owner = np.where(turn % 2 == 0, seat, processes - 1 - seat)  # there and back again
    rows = np.flatnonzero(owner == number)
    return Share(rows, len(costs), True) if len(rows) else Share(np.zeros(1, np.int64), len(costs), False)


def shared_logits(expert: Expert, words: Ragged, task: Task = QUIET) -> np.ndarray:
    """`expert_logits`, computed by all processes together; the same result on all."""
    share = own_share(words.lengths)
    if share is None:
        return expert_logits(expert, words, task)
    logits = np.zeros((len(words), expert.classes), np.float32)
    if share.counts:
        logits[share.rows] = expert_logits(expert, words.take(share.rows), task)
    found = torch.from_numpy(logits).to(next(expert.parameters()).device)
    ranks.add_up(found)
    gathered: np.ndarray = found.cpu().numpy()
    return gathered


def own_windows(imitators: Imitators) -> tuple[Imitators, int, int]:
    """The imitators of this process, its number among the processes that share them, and their number."""
    groups = window_groups(imitators.windows, ranks.world())
    own = imitators if len(groups) == 1 else imitators.only(groups[ranks.rank() % len(groups)])
    return own, ranks.rank() // len(groups), ranks.world() // len(groups)


def window_groups(windows: Sequence[int], processes: int) -> list[list[int]]:
    """Places of windows in groups of similar work; each group has the same number of processes.

    The most expensive part of a step, projecting the distinct pieces, hardly shrinks with the documents but
    does with the windows: so there are as many groups as divide the processes and are even enough.

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

    Of a matrix, only the rows with a gradient in some process are sent: few, for embeddings. A parameter
    without a gradient in any process stays without one.
    """
    if ranks.world() == 1:
        return loss
    sent: list[tuple[nn.Parameter, Tensor | None]] = []  # parameters with a gradient, and their rows
    parts: list[Tensor] = []
    for parameter, has_gradient in zip(parameters, _agree_on_rows(parameters), strict=True):
        if has_gradient is None:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        rows = None if has_gradient.all() else has_gradient.nonzero()[:, 0].to(parameter.device)
        sent.append((parameter, rows))
        parts.append(parameter.grad if rows is None else parameter.grad[rows])
    payload = torch.cat([*(part.flatten() for part in parts), loss.reshape(1).to(parts[0])])
    ranks.add_up(payload)
    sizes = [part.numel() for part in parts]
    for (parameter, rows), part in zip(sent, torch.split(payload[:-1], sizes), strict=True):
        if rows is None:
            parameter.grad = part.view_as(parameter)  # no copy: the payload is kept until the next step
        elif parameter.grad is not None:
            parameter.grad[rows] = part.view(len(rows), *parameter.shape[1:])
    return payload[-1]


def _agree_on_rows(parameters: Sequence[nn.Parameter]) -> list[Tensor | None]:
    """Which rows of each parameter have a gradient in some process; none if no process has one."""
    flags: list[Tensor] = []
    for parameter in parameters:
        gradient = parameter.grad
        rows = len(parameter) if parameter.dim() == 2 else 1
        own = torch.zeros(1 + rows, dtype=torch.uint8, device=parameter.device)  # is there one? which rows?
        if gradient is not None:
            own[0] = 1
            own[1:] = gradient.any(1) if parameter.dim() == 2 else 1  # NaN counts as a gradient
        flags.append(own)
    together = torch.cat(flags)
    ranks.add_up(together, largest=True)
    found = torch.split(together.cpu().bool(), [len(own) for own in flags])
    return [own[1:] if own[0] else None for own in found]
