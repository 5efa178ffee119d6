"""Processes that encode shards: each gets the encoder once, and writes its shards itself."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import wait
from pathlib import Path

from mein.errors import RunError
from mein.text.encoder import Encoder
from mein.text.shards import write_arrays


@dataclass(frozen=True)
class Job:
    """A shard to be: its file, its texts, and facts to write with it."""

    path: Path
    texts: Sequence[str]
    facts: dict[str, str]


def run_jobs(encoder: Encoder, jobs: Iterable[Job], workers: int) -> None:
    """Encode and write every job, in this process where there is one worker.

    At most `workers + 2` shards of text are in memory: those in work or waiting, and the one that
    `jobs` is reading.
    """
    jobs = iter(jobs)
    head = list(islice(jobs, 2))
    workers = workers if len(head) > 1 else 1  # one shard is not worth the start of a process
    jobs = chain(head, jobs)
    del head  # subtle: its texts must not stay in memory
    if workers > 1:
        _run_in_processes(encoder, jobs, workers)
    else:
        _run_here(encoder, jobs)


def write_shard(encoder: Encoder, job: Job) -> None:
    """Encode one shard and write it."""
    words, pieces = encoder.encode_ragged(job.texts)
    totals = {"words": str(len(words.values)), "pieces": str(len(pieces.values))}
    write_arrays(job.path, {"words": words, "pieces": pieces}, {**job.facts, **totals})


def _run_here(encoder: Encoder, jobs: Iterable[Job]) -> None:
    for job in jobs:
        write_shard(encoder, job)


def _run_in_processes(encoder: Encoder, jobs: Iterable[Job], workers: int) -> None:
    # spawn: a fork of a process in which torch has started threads may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (encoder,))
    try:
        for future in _submit(pool, jobs, waiting=workers + 1):
            future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "A process that encodes text died, perhaps for want of memory, or because the calling "
            'script lacks `if __name__ == "__main__":`; encode with workers=1 (whole shards are kept).'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, jobs: Iterable[Job], waiting: int) -> Iterator["Future[None]"]:
    """The future of each job, oldest first, never more than `waiting` unfinished ones ahead."""
    pending: deque[Future[None]] = deque()
    for job in jobs:
        pending.append(pool.submit(_work, job))
        if len(pending) >= waiting:
            yield pending.popleft()
    yield from pending


_encoder: Encoder | None = None  # of this process, if it is a worker


def _start_worker(encoder: Encoder) -> None:
    global _encoder  # the only way for a pool to give a worker something to keep
    _encoder = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Do not outlive a parent that was killed: the pool's queue would keep us waiting for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _work(job: Job) -> None:
    assert _encoder is not None
    write_shard(_encoder, job)
