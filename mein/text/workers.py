"""Processes that encode shards: each loads the vocabularies once and writes its shards itself."""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from mein.processes import Worker, answers, start_worker
from mein.text.encoder import Encoder
from mein.text.manifest import Shard
from mein.text.place import Place
from mein.text.worker import CONFIG, PIECES, WORDS, Job, send, write_shard

DIED = (
    "A process that encodes text died (exit code {code}), perhaps for want of memory; "
    "encode with one worker (runtime.workers = 1): whole shards are kept."
)


def run_jobs(encoder: Encoder, place: Place, jobs: Iterable[Job], workers: int) -> Iterator[Shard]:
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
        yield from _run_in_processes(encoder, place, jobs, workers)
    else:
        for job in jobs:
            yield write_shard(encoder, place, job)


def _run_in_processes(encoder: Encoder, place: Place, jobs: Iterable[Job], workers: int) -> Iterator[Shard]:
    with tempfile.TemporaryDirectory() as folder:
        _save(encoder, Path(folder))
        started = [_start(folder, str(place)) for _ in range(workers)]
        for found in answers(started, jobs, send, DIED):
            yield Shard(**found["shard"])


def _save(encoder: Encoder, folder: Path) -> None:
    (folder / CONFIG).write_text(encoder.words_config.model_dump_json(), encoding="utf-8")
    encoder.words.save(folder / WORDS)
    encoder.pieces.save(folder / PIECES)


def _start(folder: str, place: str) -> Worker:
    return start_worker("mein.text.worker", [folder, place])
