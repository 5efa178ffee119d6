"""Documents per second from text to probabilities; answers per second of a server to many clients.

Prediction is measured beside a linear model, the server beside the same model called in a loop.
"""

import asyncio
import gc
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks.encode import rates, spread
from benchmarks.measure import hardware
from mein.errors import InputError, MeinError
from mein.evaluation.baseline import STEPS, USUAL
from mein.model.loading import load_model
from mein.model.model import Model
from mein.predict.predict import Predictor

LINEAR = "tf-idf + logistic regression"
TRAINING_DOCUMENTS = 1_000  # that the linear model learns from, with the mixture's labels
CHUNK = 16_384

Ask = Callable[[list[str]], object]


def bench_predict(model: Model, texts: Sequence[str], threads: int, repeats: int = 5) -> dict[str, Any]:
    """Time each on the same documents, in turns; `ratio` is the linear model's rate over each one's.

    The documents are in memory: reading and writing files is not counted. Chunks are as large as those of
    `mein predict`. A ratio is the median over pairs of runs that followed each other.
    """
    if not texts:
        raise InputError("There is no text to measure; give a file with at least one document.")
    torch.set_num_threads(threads)
    seconds = _in_turns(_systems(model, list(texts)), list(texts), repeats)
    megabytes = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
    pairs = {name: zip(taken, seconds[LINEAR], strict=True) for name, taken in seconds.items()}
    return {
        "documents": len(texts),
        "megabytes": megabytes,
        "threads": threads,
        "repeats": repeats,
        "hardware": hardware(),
        "systems": {name: rates(taken, len(texts), megabytes) for name, taken in seconds.items()},
        "ratio": {name: spread([ours / linear for ours, linear in both]) for name, both in pairs.items()},
    }


def _systems(model: Model, texts: list[str]) -> dict[str, Ask]:
    mixture = Predictor(model)
    systems: dict[str, Ask] = {
        "mixture": mixture.log_probs,
        "expert": lambda chunk: model.expert_logits(model.encode(chunk)),
    }
    if len(model.gates):
        systems["imitators"] = Predictor(model, imitators_only=True).log_probs
    learned_from = texts[:TRAINING_DOCUMENTS]
    return {**systems, LINEAR: linear_model(learned_from, mixture.log_probs(learned_from).argmax(axis=1))}


def linear_model(texts: list[str], labels: np.ndarray) -> Ask:
    """TF-IDF with logistic regression, as the baseline has it; what it learns does not change its speed."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    features = vectorizer.fit_transform(texts)
    if len(np.unique(labels)) < 2:
        labels = np.arange(len(texts)) % 2
    model = LogisticRegression(C=USUAL, max_iter=STEPS).fit(features, labels)
    return lambda chunk: model.predict_proba(vectorizer.transform(chunk))


def _in_turns(systems: dict[str, Ask], texts: list[str], repeats: int) -> dict[str, list[float]]:
    """The seconds of each run of each, run in turns, so that a busy machine is busy for all."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for ask in systems.values():
        ask(texts[:CHUNK])  # what is made once is made before
    for _ in range(repeats):
        for name, ask in systems.items():
            gc.collect()
            started = time.perf_counter()
            for start in range(0, len(texts), CHUNK):
                ask(texts[start : start + CHUNK])
            seconds[name].append(time.perf_counter() - started)
    return seconds


START_SECONDS = 60.0
LONG_TEXT = ("The battery of this film died in a week. " * 2_500)[:100_000]  # as long as a text may be


@dataclass(frozen=True)
class Load:
    """The load on a server."""

    clients: int = 32
    """Connections that each wait for an answer before they ask again."""
    seconds: float = 5.0
    """Of one measurement."""
    requests: int = 100_000
    """Largest number of texts in one measurement."""
    texts: int = 1
    """In a request."""
    explanations: int = 0
    """Connections that meanwhile ask for explanations of long texts, one after another."""
    repeats: int = 3


def bench_serve(run: Path, texts: Sequence[str], load: Load) -> dict[str, Any]:
    """Time the loop here and a server in a process of its own, in turns; and watch its memory.

    `ratio` is the server's rate over the loop's: the median over pairs that followed each other.
    """
    model = load_model(run)
    loops, servers, latencies, memory = [], [], [], []
    with server(run) as (port, process):
        asyncio.run(ask(port, texts, Load(load.clients, 1.0, load.requests, load.texts)))  # warm both
        looped(model, texts, 1.0)
        for _ in range(load.repeats):
            loops.append(looped(model, texts, load.seconds))
            taken, seconds = asyncio.run(ask(port, texts, load))
            servers.append(len(taken) * load.texts / seconds)
            latencies.append(taken)
            memory.append(_resident_megabytes(process))
    ranks = [np.percentile(taken, [50, 99]) * 1e3 for taken in latencies]
    return {
        "hardware": hardware(),
        "clients": load.clients,
        "texts_per_request": load.texts,
        "explanations": load.explanations,
        "requests": sum(map(len, latencies)),
        "loop_texts_per_second": spread(loops),
        "server_texts_per_second": spread(servers),
        "ratio": spread([b / a for a, b in zip(loops, servers, strict=True)]),
        "p50_milliseconds": spread([float(low) for low, _ in ranks]),
        "p99_milliseconds": spread([float(high) for _, high in ranks]),
        "server_megabytes": memory,
    }


def looped(model: Model, texts: Sequence[str], seconds: float) -> float:
    """Texts per second of a loop that calls the model with one text at a time."""
    started, count = time.perf_counter(), 0
    for text in cycle(texts):
        model.log_probs([text])
        count += 1
        if time.perf_counter() - started >= seconds:
            break
    return count / (time.perf_counter() - started)


@contextmanager
def server(run: Path) -> Iterator[tuple[int, int]]:
    """A server of a run in a process of its own: its port and its process number."""
    command = [sys.executable, "-u", "-m", "mein", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+) ", process.stdout.readline())
            if found is None:
                raise MeinError(f"The server of {run} did not start: try `mein serve` to see why.")
            yield int(found.group(1)), process.pid
        finally:
            process.terminate()


async def ask(port: int, texts: Sequence[str], load: Load) -> tuple[list[float], float]:
    """The seconds of each request, and of all together, of clients that ask at the same time."""
    requests = cycle(_requests(texts, load.texts))
    deadline = time.perf_counter() + load.seconds
    taken: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < deadline and len(taken) < load.requests:
            started = time.perf_counter()
            writer.write(next(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            taken.append(time.perf_counter() - started)
        writer.close()

    async def explained() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            writer.write(_request("/explain", LONG_TEXT))
            await reader.readexactly(_length(await reader.readuntil(b"\r\n\r\n")))

    explaining = [asyncio.create_task(explained()) for _ in range(load.explanations)]
    started = time.perf_counter()
    async with asyncio.timeout(START_SECONDS + load.seconds):
        await asyncio.gather(*(client() for _ in range(load.clients)))
    seconds = time.perf_counter() - started
    for task in explaining:
        if task.done():
            task.result()  # raises what ended it
        task.cancel()
    return taken, seconds


def _requests(texts: Sequence[str], each: int) -> list[bytes]:
    starts = range(0, len(texts) - each + 1, each)
    return [_request("/predict", list(texts[start : start + each])) for start in starts]


def _request(path: str, text: str | list[str]) -> bytes:
    body = json.dumps({"text": text}).encode("utf-8")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _length(head: bytes) -> int:
    """The length of a body, from a head that must report success."""
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    if not head.startswith(b"HTTP/1.1 200") or length is None:
        raise MeinError(f"The server answered {head[:40]!r}: measure it alone.")
    return int(length.group(1))


def _resident_megabytes(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, "Linux reports it"
    return int(found.group(1)) / 1e3
