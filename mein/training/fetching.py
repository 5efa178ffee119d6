# mypy: disable-error-code="no-untyped-call"
"""Batches fetched ahead of the work on them, by a thread; on a GPU, on a stream of its own."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch

AHEAD = 2  # batches that are fetched before the one at work is done
MOST_KEPT = 8  # batches that a GPU may still have to work on: each takes memory


def fetched(
    plan: Iterable[np.ndarray], fetch: Callable[[np.ndarray], Any]
) -> Iterator[tuple[np.ndarray, Any]]:
    """Each planned batch with what was fetched for it, by a thread, while those before were at work."""
    side = SideStream() if torch.cuda.is_initialized() else None
    work = fetch if side is None else side.working(fetch)
    with ThreadPoolExecutor(1, "fetch") as thread:
        waiting: deque[tuple[np.ndarray, Future[Any]]] = deque()
        left = iter(plan)
        while True:
            waiting.extend(
                (rows, thread.submit(work, rows)) for rows in islice(left, AHEAD + 1 - len(waiting))
            )
            if not waiting:
                return
            ready, future = waiting.popleft()
            batch = future.result()
            yield ready, batch
            if side is not None:
                side.keep(batch)


class SideStream:
    """Where a GPU fetches: beside its work, so that whoever fetches need not wait for that to be done.

    The memory of a batch belongs to this stream, which would take it for the next batch while the other
    still reads it: batches are kept until that is over.
    """

    def __init__(self) -> None:
        self.stream = _side_stream(torch.cuda.current_device())
        self.stream.wait_stream(torch.cuda.current_stream())  # what is fetched from may be on its way
        self.kept: deque[tuple[Any, torch.cuda.Event]] = deque()

    def working(self, fetch: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
        """`fetch` on this stream, and done when it returns."""

        def work(rows: np.ndarray) -> Any:
            with torch.cuda.stream(self.stream):
                batch = fetch(rows)
                self.stream.synchronize()
            return batch

        return work

    def keep(self, batch: Any) -> None:
        """Keep a batch until the work that was queued on it is done; so are at most a few."""
        event = torch.cuda.Event()
        event.record()
        self.kept.append((batch, event))
        while self.kept and (len(self.kept) > MOST_KEPT or self.kept[0][1].query()):
            self.kept[0][1].synchronize()  # subtle: first; once let go, its memory is the next batch's
            self.kept.popleft()


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One for good: torch keeps freed memory for the stream that it was given to."""
    return torch.cuda.Stream(device, priority=-1)  # its work is short, and awaited
