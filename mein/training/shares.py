"""How processes share the work of a step: documents for experts; windows, then documents, for imitators."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mein import ranks
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.inference import expert_logits
from mein.progress import SILENCE, Task
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


def shared_logits(expert: Expert, words: Ragged, task: Task = SILENCE) -> np.ndarray:
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
