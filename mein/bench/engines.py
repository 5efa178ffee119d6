"""Encoding and labelling by Ray, beside plain processes of the same machine: whole commands, by turns."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from os import environ
from pathlib import Path
from typing import Any

from mein.bench.encode import spread
from mein.bench.hardware import hardware
from mein.bench.scale import ONE_THREAD, generated_corpora
from mein.errors import MeinError
from mein.progress import Reporter, Silence

STEPS = ("encode", "label")
ENGINES = ("processes", "ray")


def bench_engines(
    document_counts: Sequence[int],
    workers: int,
    turns: int,
    address: str | None,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Seconds of each step on each engine, start and end included; `slower`: Ray's over the processes'.

    Without the address of a cluster each command starts one and ends it. `fixed` is what no document
    costs, `a_million` what a million more do: a line through the medians of the fewest and the most.
    """
    reporter = Silence() if reporter is None else reporter
    results = []
    for folder, documents in generated_corpora(document_counts):
        reporter.say(f"{documents:,} documents, {turns} turns ...")
        taken = [{name: _turn(folder, workers, name, address) for name in ENGINES} for _ in range(turns)]
        results.append({"documents": documents, "steps": {step: _compared(taken, step) for step in STEPS}})
    cluster = "started by each command" if address is None else "up before"
    found = {"hardware": hardware(), "workers": workers, "cluster": cluster, "results": results}
    return found | ({"lines": _lines(results)} if len(results) > 1 else {})


def _turn(folder: Path, workers: int, engine: str, address: str | None) -> dict[str, float]:
    """Seconds of both steps on an engine, in a store that is then thrown away."""
    words = ["--workers", str(workers), "--engine", engine]
    words += ["--address", address] if engine == "ray" and address is not None else []
    texts = [word for file in sorted((folder / "raw").iterdir()) for word in ("--text", str(file))]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        store, run = f"{work}/store", str(folder / "run")
        return {
            "encode": _seconds("encode", "--like", run, *texts, "--out", store, *words),
            "label": _seconds("label", store, "--by", run, *words),
        }


def _seconds(*words: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "mein", *words]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", env=environ | ONE_THREAD, check=False
    )
    if done.returncode:
        raise MeinError(f"`mein {words[0]}` failed with code {done.returncode}: {done.stderr.strip()}")
    return time.perf_counter() - started


def _compared(taken: Sequence[dict[str, dict[str, float]]], step: str) -> dict[str, Any]:
    """The figures of one step over all turns."""
    seconds = {name: [turn[name][step] for turn in taken] for name in ENGINES}
    slower = [ours / plain for plain, ours in zip(*seconds.values(), strict=True)]
    return {"seconds": {name: spread(found) for name, found in seconds.items()}, "slower": spread(slower)}


def _lines(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds that are fixed and seconds that a million documents take, by step and engine."""
    few, many = (sorted(results, key=lambda found: found["documents"])[place] for place in (0, -1))
    millions = (many["documents"] - few["documents"]) / 1e6

    def line(step: str, name: str) -> dict[str, float]:
        low, high = (found["steps"][step]["seconds"][name]["median"] for found in (few, many))
        slope = (high - low) / millions
        return {"fixed": low - slope * few["documents"] / 1e6, "a_million": slope}

    return {step: {name: line(step, name) for name in ENGINES} for step in STEPS}
