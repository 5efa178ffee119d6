"""Micro-batches: texts of concurrent requests go through the model together; explanations one by one.

One thread predicts. It takes the waiting texts, up to `batch_texts`. An idle model waits `gather_seconds`
for others to join the first text; for a busy one they gather meanwhile. Explanations, which may take
seconds, have a thread of their own.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mein.serve.guard import Metrics, Refused
from mein.serve.schema import ServeSettings

T = TypeVar("T")
Predict = Callable[[list[str]], np.ndarray]  # texts -> log p(y | X) (n, Y)


@dataclass
class Job:
    """The texts whose log-probabilities one caller waits for."""

    texts: list[str]
    answer: "asyncio.Future[Any]"


@dataclass(frozen=True)
class BatchOutcome:
    """The outcome of a batch: a result for each job, or one problem of all."""

    jobs: list[Job]
    results: list[Any]
    problem: Exception | None
    seconds: float


class Batcher:
    """Runs a model in a thread of its own, for many callers of one event loop."""

    def __init__(self, predict: Predict, settings: ServeSettings, metrics: Metrics) -> None:
        self._predict = predict
        self._settings = settings
        self._metrics = metrics
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to work, for the event loop that is running."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="mein-model", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Finish what waits, then end the thread."""
        assert self._thread is not None, "started before"
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y), n > 0; long lists go batch by batch, so that others get their turn."""
        size = self._settings.batch_texts
        parts = [list(texts[start : start + size]) for start in range(0, len(texts), size)]
        found: list[np.ndarray] = [await self._wait(part) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    async def _wait(self, texts: list[str]) -> Any:
        assert self._loop is not None, "started before"
        answer = self._loop.create_future()
        self._metrics.waiting_texts.inc(len(texts))
        try:
            self._jobs.put(Job(texts, answer))
            return await answer
        finally:
            self._metrics.waiting_texts.dec(len(texts))

    def _work(self) -> None:
        """The thread: gather, run, hand back, until a None comes."""
        following: Job | None = None
        while True:
            job = self._jobs.get() if following is None else following
            if job is None:
                return
            jobs, following, is_last = self._gather(job)
            self._run(jobs)
            if is_last:
                return

    def _gather(self, first: Job) -> tuple[list[Job], Job | None, bool]:
        """The jobs of a batch, a job that must wait for the next one, and whether none will come."""
        jobs, size = [first], len(first.texts)
        deadline = time.monotonic() + self._settings.gather_seconds
        while size < self._settings.batch_texts:
            try:
                job = self._jobs.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if job is None:
                return jobs, None, True
            if size + len(job.texts) > self._settings.batch_texts:
                return jobs, job, False
            jobs.append(job)
            size += len(job.texts)
        return jobs, None, False

    def _run(self, jobs: list[Job]) -> None:
        jobs = [job for job in jobs if not job.answer.cancelled()]  # their callers have gone
        if not jobs:
            return
        started = time.perf_counter()
        results, problem = [], None
        try:
            results = self._results(jobs)
        except Exception as raised:  # handed to the callers, so that the thread continues
            problem = raised
        outcome = BatchOutcome(jobs, results, problem, time.perf_counter() - started)
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._deliver, outcome)
        except RuntimeError:  # the loop is closed: no caller waits
            return

    def _results(self, jobs: list[Job]) -> list[Any]:
        log_probs = self._predict([text for job in jobs for text in job.texts])
        ends = np.cumsum([len(job.texts) for job in jobs])
        return list(np.split(log_probs, ends[:-1]))

    def _deliver(self, outcome: BatchOutcome) -> None:
        """Wake the callers; runs in the event loop, once a batch."""
        texts = sum(len(job.texts) for job in outcome.jobs)
        if texts:
            self._metrics.batch_texts.observe(texts)
            self._metrics.batch_seconds.observe(outcome.seconds)
        for place, job in enumerate(outcome.jobs):
            if job.answer.done():
                continue
            if outcome.problem is not None:
                job.answer.set_exception(outcome.problem)
            else:
                job.answer.set_result(outcome.results[place])


class Explainer:
    """Runs functions in a thread of its own, one after another, for a limited number of callers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_hand = 0
        self._thread = ThreadPoolExecutor(1, "mein-explain")

    async def call(self, function: Callable[[], T]) -> T:
        """What a function returns; refused while `most` others wait or run."""
        if self._in_hand >= self._most:
            sentence = f"{self._in_hand} texts are being explained: try again in a moment."
            raise Refused(503, sentence, retry_after="1")
        loop = asyncio.get_running_loop()
        self._in_hand += 1
        # one that runs counts until it ends, also if its caller has gone; one that waits is then dropped
        work = self._thread.submit(function)
        work.add_done_callback(lambda _: self._release(loop))
        return await asyncio.wrap_future(work)

    async def stop(self) -> None:
        """Finish what waits, then end the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(self._count_one_less)

    def _count_one_less(self) -> None:
        self._in_hand -= 1
