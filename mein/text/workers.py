"""Processes that encode shards: each loads the vocabularies once and writes its shards itself.

They are plain children that read jobs from their standard input (see worker.py): unlike a fork they
cannot hang on torch's threads, unlike multiprocessing's spawn they do not run the caller's script
again, and when the parent is gone, however it went, their input ends and so do they.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue

from mein.errors import RunError
from mein.text.encoder import Encoder
from mein.text.worker import CONFIG, PIECES, WORDS, Job, send, write_shard

Worker = subprocess.Popen[bytes]


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
        for job in jobs:
            write_shard(encoder, job)


def _run_in_processes(encoder: Encoder, jobs: Iterable[Job], workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _save(encoder, Path(folder))
        started = [_start(folder) for _ in range(workers)]
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in started:
            idle.put(worker)
        # A thread waits for each worker; none of them does work of its own.
        threads = ThreadPoolExecutor(workers)
        try:
            for future in _submit(threads, idle, jobs, waiting=workers + 1):
                future.result()
        except BaseException:
            for worker in started:
                worker.kill()  # what it was writing has a temporary name
            raise
        finally:
            threads.shutdown(cancel_futures=True)
            for worker in started:
                _end(worker)


def _submit(
    threads: ThreadPoolExecutor, idle: "SimpleQueue[Worker]", jobs: Iterable[Job], waiting: int
) -> Iterator["Future[None]"]:
    """The future of each job, oldest first, never more than `waiting` unfinished ones ahead."""
    pending: deque[Future[None]] = deque()
    for job in jobs:
        pending.append(threads.submit(_hand_over, idle, job))
        if len(pending) >= waiting:
            yield pending.popleft()
    while pending:
        yield pending.popleft()


def _hand_over(idle: "SimpleQueue[Worker]", job: Job) -> None:
    """Give a job to an idle worker and wait until it is done."""
    worker = idle.get()
    try:
        error = _ask(worker, job)
    finally:
        idle.put(worker)  # also a dead one: whoever waits for it must hear of it
    if error is not None:
        raise RunError(error)


def _ask(worker: Worker, job: Job) -> str | None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        send(job, worker.stdin)
        answer = worker.stdout.readline()
    except OSError:  # the pipe is broken
        answer = b""
    if not answer:
        return (
            f"A process that encodes text died (exit code {worker.wait()}), perhaps for want of memory; "
            "encode with one worker (runtime.workers = 1): whole shards are kept."
        )
    error: str | None = json.loads(answer)["error"]
    return error


def _save(encoder: Encoder, folder: Path) -> None:
    (folder / CONFIG).write_text(encoder.words_config.model_dump_json(), encoding="utf-8")
    encoder.words.save(folder / WORDS)
    encoder.pieces.save(folder / PIECES)


def _start(folder: str) -> Worker:
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        # -P: no module of the folder that we happen to be in
        [sys.executable, "-P", "-m", "mein.text.worker", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # Ctrl-C is for the parent alone
    )


def _end(worker: Worker) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    with suppress(OSError):  # it was killed before it had read everything
        worker.stdin.close()
    worker.wait()
    worker.stdout.close()
