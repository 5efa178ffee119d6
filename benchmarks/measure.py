"""Spread of measurements, hardware, JSON of earlier ones, and peak memory by number of documents."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mein.errors import InputError, MeinError
from mein.runtime.processes import cores
from mein.runtime.seeds import numpy_generator
from mein.store.writing import write_store
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.indexer import learn_vocabularies


def hardware() -> dict[str, str | int]:
    """Processor, cores that this process may use, system and Python."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    """The model name, which `platform.processor` does not know on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def read_figures(path: Path) -> dict[str, Any] | None:
    """The figures in a file; none where there is no such file."""
    if not path.exists():
        return None
    try:
        return {**json.loads(path.read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError) as problem:
        raise InputError(f"{path} is no result of a benchmark: measure again, or remove it.") from problem


CHUNK_DOCUMENTS = 1_000
SHARD_DOCUMENTS = 10_000
WORDS_PER_DOCUMENT = 12
COMMON_WORDS = 300  # half of all tokens are among this many words
LETTERS = "abcdefghijklmnopqrstuvwxyz"
POLL_SECONDS = 0.02


def bench_memory(document_counts: Sequence[int], workers: int = 2) -> dict[str, Any]:
    """Peak memory of learning the vocabularies and writing the store, at each size.

    `growth` is the peak of the last size over that of the first.
    """
    peaks = [_encode_apart(documents, workers) for documents in document_counts]
    growth = peaks[-1]["peak_megabytes"] / peaks[0]["peak_megabytes"]
    return {"hardware": hardware(), "workers": workers, "encode": peaks, "growth": {"encode": growth}}


def encode_generated(documents: int, workers: int, folder: Path) -> None:
    """What is measured: both passes over a generated corpus, as a stream."""
    indexer, _ = learn_vocabularies(generated(documents), WordsConfig(), PiecesConfig())
    chunks = generated(documents)
    write_store(folder, indexer, chunks, shard_documents=SHARD_DOCUMENTS, workers=workers)


def generated(documents: int) -> Iterator[list[str]]:
    """Chunks of short documents; new words keep coming, about as fast as in film reviews.

    P(rank >= r) = 300 / (r + 300), so n tokens hold about sqrt(pi * 300 * n) distinct words:
    47,000 for 2.4 million tokens (200,000 documents), 150,000 for ten times as many.
    """
    draws = numpy_generator(0, "generated documents")
    known: dict[int, str] = {rank: spelled(rank) for rank in range(20_000)}
    for start in range(0, documents, CHUNK_DOCUMENTS):
        shape = (min(CHUNK_DOCUMENTS, documents - start), WORDS_PER_DOCUMENT)
        ranks = (COMMON_WORDS * (1 / (1 - draws.random(shape)) - 1)).astype(np.int64)
        yield [" ".join(known.get(rank) or spelled(rank) for rank in row) for row in ranks.tolist()]


def spelled(rank: int) -> str:
    """A word of its own for every rank, shorter for lower ranks.

    >>> [spelled(rank) for rank in (0, 25, 26, 702)]
    ['a', 'z', 'aa', 'aaa']
    """
    word = ""
    rank += 1
    while rank:
        rank, letter = divmod(rank - 1, len(LETTERS))
        word = LETTERS[letter] + word
    return word


def peak_memory(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command and watch it: the sum of the peaks of its processes, each its own highest.

    The peaks need not fall together, so the sum is an upper bound on what was resident at once.
    """
    if not Path("/proc/self/status").exists():
        raise MeinError("Memory is measured through /proc, which this system lacks; measure on Linux.")
    started = time.perf_counter()
    peaks: dict[int, float] = {}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            list(arguments),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        )
        while process.poll() is None:
            for pid in _family(process.pid):
                peaks[pid] = max(peaks.get(pid, 0.0), _peak_megabytes(pid))
            time.sleep(POLL_SECONDS)
        if process.returncode:
            errors.seek(0)
            raise MeinError(_failed(process.returncode, errors.read().decode("utf-8", "replace")))
    return {
        "peak_megabytes": sum(peaks.values()),
        "process_megabytes": sorted(peaks.values(), reverse=True),
        "seconds": time.perf_counter() - started,
    }


def _failed(code: int, errors: str) -> str:
    last = [line for line in errors.splitlines() if line.strip()][-1:]
    return f"The measured process failed with code {code}: {' '.join(last)}"


def _encode_apart(documents: int, workers: int) -> dict[str, Any]:
    code = (
        "import sys; from pathlib import Path; from benchmarks.measure import encode_generated; "
        "encode_generated(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))"
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-c", code, str(documents), str(workers), folder]
        return {"documents": documents, **peak_memory(arguments)}


def _family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text(encoding="utf-8").split()
        except OSError:  # it has just ended
            continue
        for child in found:
            yield from _family(int(child))


def _peak_megabytes(pid: int) -> float:
    """VmHWM: the most that was resident, of the program itself (ru_maxrss counts its parent's too)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:  # it has just ended
        return 0.0
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kilobytes[0]) * 1024 / 1e6 if kilobytes else 0.0
