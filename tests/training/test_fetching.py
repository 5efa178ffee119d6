"""Batches fetched ahead: kept as long as a GPU may read them, no longer, and complete when they are read."""

from collections import deque
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from mein.training import imitation_batches as fetching
from mein.training.imitation_batches import MOST_KEPT, SideStream, fetched


class Event:
    """The double of a CUDA event that is over when the test ends it, or when it was waited for."""

    over: ClassVar[set[int]] = set()
    made = 0
    side: SideStream

    def __init__(self) -> None:
        self.number, Event.made = Event.made, Event.made + 1

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return self.number in self.over

    def synchronize(self) -> None:
        held: list[object] = [event for _, event in self.side.kept]
        assert self in held, "the batch was let go too early"
        self.over.add(self.number)


def test_batches_are_kept_until_the_work_on_them_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "over", set())
    monkeypatch.setattr(Event, "made", 0)
    side = SideStream.__new__(SideStream)
    side.kept = deque()
    monkeypatch.setattr(Event, "side", side, raising=False)
    for number in range(MOST_KEPT):
        side.keep(number)
    assert [batch for batch, _ in side.kept] == list(range(MOST_KEPT))
    side.keep(MOST_KEPT)  # waits for the oldest
    assert Event.over == {0}
    Event.over |= {1, 2, 4}
    side.keep(MOST_KEPT + 1)
    assert [batch for batch, _ in side.kept] == list(range(3, MOST_KEPT + 2))  # work is done in its order


def test_without_a_gpu_there_is_no_side_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.delattr(fetching, "SideStream")  # to make one would fail
    plan = [np.array([number]) for number in range(5)]
    assert [batch for _, batch in fetched(plan, lambda rows: int(rows[0]))] == [0, 1, 2, 3, 4]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_reads_each_batch_before_its_memory_is_used_again() -> None:
    base = torch.arange(2**20, device="cuda")

    def fetch(rows: np.ndarray) -> Tensor:
        return base * int(rows[0])

    found = []
    for _, batch in fetched([np.array([number]) for number in range(50)], fetch):
        torch.cuda._sleep(5_000_000)  # type: ignore[no-untyped-call]  # the work is far behind
        found.append(batch[-1].clone())
        del batch
    sums = torch.stack(found).tolist()
    assert sums == [number * (2**20 - 1) for number in range(50)]
