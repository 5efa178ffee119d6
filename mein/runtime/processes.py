"""Processes that work through jobs: each is started once, takes a job at a time and answers with JSON.

They are plain children that read jobs from their standard input: unlike a fork they cannot hang on
torch's threads, unlike multiprocessing's spawn they do not run the caller's script again, and when
the parent is gone, however it went, their input ends and so do they.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, TypeVar

from mein.errors import RunError

Worker = subprocess.Popen[bytes]
T = TypeVar("T")


def cores() -> int:
    """Cores that this process may use: those that it is bound to, where the system reports that."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_worker(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> Worker:
    """A child that runs a module of this package; only the parent gets Ctrl-C."""
    return subprocess.Popen(
        # -P: no module of the folder that we happen to be in
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {}), "PYTHONPATH": own_path()},
        start_new_session=True,
    )


def own_path() -> str:
    """PYTHONPATH for a child that shall find this very package."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.pathsep.join(paths)


def answers(
    workers: Sequence[Worker], jobs: Iterable[T], send: Callable[[T, IO[bytes]], None], died: str
) -> Iterator[dict[str, Any]]:
    """What the workers answer to each job, in the jobs' order; they end with the last answer.

    An answer's `error`, where it is not none, is raised; `died` is what to do where a worker is gone.
    At most one job more than there are workers is in work or waiting.
    """
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)
    # A thread waits for each worker; none of them does work of its own.
    threads = ThreadPoolExecutor(len(workers))
    try:
        for future in _submitted(threads, idle, jobs, send, died, waiting=len(workers) + 1):
            yield future.result()
    except BaseException:
        for worker in workers:
            worker.kill()  # what it was writing has a temporary name
        raise
    finally:
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            _end(worker)


def answer(**content: Any) -> None:
    """What a worker reports when a job is done; ends the worker where the parent is gone."""
    try:
        os.write(sys.stdout.fileno(), json.dumps({"error": None, **content}).encode("utf-8") + b"\n")
    except BrokenPipeError:
        sys.exit(0)


def _submitted(
    threads: ThreadPoolExecutor,
    idle: "SimpleQueue[Worker]",
    jobs: Iterable[T],
    send: Callable[[T, IO[bytes]], None],
    died: str,
    waiting: int,
) -> Iterator["Future[dict[str, Any]]"]:
    """The future of each job, oldest first, never more than `waiting` unfinished ones ahead."""
    pending: deque[Future[dict[str, Any]]] = deque()
    for job in jobs:
        pending.append(threads.submit(_hand_over, idle, job, send, died))
        if len(pending) >= waiting:
            yield pending.popleft()
    while pending:
        yield pending.popleft()


def _hand_over(
    idle: "SimpleQueue[Worker]", job: T, send: Callable[[T, IO[bytes]], None], died: str
) -> dict[str, Any]:
    """Give a job to an idle worker and wait until it is done."""
    worker = idle.get()
    try:
        found = _ask(worker, job, send, died)
    finally:
        idle.put(worker)  # also a dead one: whoever waits for it must hear of it
    if found["error"] is not None:
        raise RunError(found["error"])
    return found


def _ask(worker: Worker, job: T, send: Callable[[T, IO[bytes]], None], died: str) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        send(job, worker.stdin)
        line = worker.stdout.readline()
    except OSError:  # the pipe is broken
        line = b""
    if not line:
        raise RunError(died.format(code=worker.wait()))
    found: dict[str, Any] = json.loads(line)
    return found


def _end(worker: Worker) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    with suppress(OSError):  # it was killed before it had read everything
        worker.stdin.close()
    worker.wait()
    worker.stdout.close()
