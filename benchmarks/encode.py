"""How fast text becomes a store, beside sentencepiece's own `encode` on the same text."""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from benchmarks.measure import hardware
from mein.errors import InputError
from mein.store.writing import write_store
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.indexer import learn_vocabularies

SHARDS_PER_WORKER = 4


def bench_encode(texts: Sequence[str], workers: int, repeats: int = 5) -> dict[str, Any]:
    """Time ours (words, pieces, store, start of workers) and theirs (pieces alone), in turns.

    `ratio` is our rate over theirs: the median over pairs of runs that followed each other, with
    the lowest and the highest. Learning the vocabularies is timed once, apart.
    """
    if not texts:
        raise InputError("There is no text to measure; give a file with at least one document.")
    started = time.perf_counter()
    indexer, documents = learn_vocabularies([texts], WordsConfig(), PiecesConfig())
    learning = time.perf_counter() - started
    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=indexer.pieces.model)
    shard_documents = -(-documents // (SHARDS_PER_WORKER * workers))

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_store(Path(folder), indexer, [texts], shard_documents=shard_documents, workers=workers)

    def theirs() -> None:
        processor.encode(list(texts), num_threads=workers)

    our_seconds, their_seconds = take_turns(ours, theirs, repeats)
    megabytes = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
    return {
        "documents": documents,
        "megabytes": megabytes,
        "workers": workers,
        "repeats": repeats,
        "hardware": hardware(),
        "learning": rates([learning], documents, megabytes),
        "mein": rates(our_seconds, documents, megabytes),
        "sentencepiece": rates(their_seconds, documents, megabytes),
        "ratio": spread([b / a for a, b in zip(our_seconds, their_seconds, strict=True)]),
    }


def take_turns(
    first: Callable[[], None], second: Callable[[], None], repeats: int
) -> tuple[list[float], list[float]]:
    """The seconds of each run of both, run in turns, so that a busy machine is busy for both."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for run, taken in zip((first, second), seconds, strict=True):
            gc.collect()  # the lists of the run before are not this one's to clear away
            started = time.perf_counter()
            run()
            taken.append(time.perf_counter() - started)
    return seconds


def rates(seconds: Sequence[float], documents: int, megabytes: float) -> dict[str, dict[str, float]]:
    """Seconds and what was done a second, each with its spread over the runs.

    >>> rates([2.0, 4.0, 1.0], 100, 8.0)["megabytes_per_second"]
    {'median': 4.0, 'lowest': 2.0, 'highest': 8.0}
    """
    return {
        "seconds": spread(seconds),
        "documents_per_second": spread([documents / taken for taken in seconds]),
        "megabytes_per_second": spread([megabytes / taken for taken in seconds]),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
