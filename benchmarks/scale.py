"""The expensive steps over any number of documents, processes, and engines, and what corpora cost.

For each step: rate, memory of every process, bytes at rest; and the gain of several processes over one.

Processes come from torchrun, each with one thread; the clock runs in them, between two barriers, so that
their start does not count. One and several take turns.

Encoding and labeling with Ray, beside plain processes of the same machine: complete commands, in turns.

docs/scale.md: what corpora of any size cost, from what `python -m benchmarks scale` and `pipeline` measured.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.encode import spread
from benchmarks.measure import hardware, peak_memory, read_figures
from mein.config import load_config
from mein.data.corpus import corpus_of_files
from mein.data.demo import demo_corpus
from mein.errors import InputError, MeinError
from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.imitators.config import ImitatorsConfig
from mein.imitators.reference import Imitators
from mein.run.pipeline import train_and_evaluate
from mein.run.teacher import Teacher, label_documents
from mein.runtime import ranks
from mein.runtime.progress import Quiet, Reporter
from mein.runtime.seeds import numpy_generator
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from mein.store.writing import write_store
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.indexer import learn_vocabularies
from mein.training.config import Imitation
from mein.training.imitation_batches import fetched
from mein.training.loop import StageState, take_step
from mein.training.stages import LARGEST_BATCH, imitation_stage

CHUNK_DOCUMENTS, FILE_DOCUMENTS = 10_000, 500_000
SEED_DOCUMENTS = 200  # whose sentences, a few KB, are put together anew
MOST_SENTENCES = 3
SMALL = {
    "expert.kind": "lstm",
    "expert.embedding_dim": 32,
    "expert.hidden_dim": 32,
    "expert.mlp_dim": 16,
    "expert_training.epochs": 2,
    "imitators.windows": [1, 2],
    "imitators.embedding_dim": 32,
    "imitators.channels": 32,
    "imitator_training.epochs": 1,
    "fine_tuning.epochs": 1,
    "pieces.vocabulary_size": 2_000,
    "runtime.device": "cpu",
}
STEPS = ("encode", "label", "imitate")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def generated_corpora(document_counts: Sequence[int]) -> Iterator[tuple[Path, int]]:
    """A folder with a small run in `run` and, for each count, that many documents in `raw`."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        make_small_run(folder)
        for documents in document_counts:
            write_generated(folder / "raw", documents)
            yield folder, documents


def bench_scale(
    document_counts: Sequence[int], worker_counts: Sequence[int], reporter: Reporter | None = None
) -> dict[str, Any]:
    """Encode, label, and imitate generated documents, each step a command in processes of one core.

    `growth`: the highest peak of a process with the most documents over that with the fewest;
    `pace`: documents a second, the same way round; `speed_up`: with the most processes over the fewest.
    """
    reporter = Quiet() if reporter is None else reporter
    results = []
    for folder, documents in generated_corpora(document_counts):
        for workers in worker_counts:
            reporter.log(f"{documents:,} documents, {workers} processes ...")
            results.append(_measured(folder, documents, workers))
    return {"hardware": hardware(), "threads_per_process": 1, "results": results, **ratios(results)}


def ratios(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How memory and rate change with the documents, and rate with the processes, by step."""
    by_size = sorted(results, key=lambda found: (found["documents"], found["workers"]))
    few, many = by_size[0]["documents"], by_size[-1]["documents"]
    by_workers = sorted(results, key=lambda found: (found["workers"], found["documents"]))
    slow = next(found for found in by_workers if found["documents"] == many)

    def rate(found: dict[str, Any], step: str) -> float:
        return float(found["steps"][step]["documents_per_second"])

    def peak(documents: int, step: str) -> float:
        chosen = [found for found in results if found["documents"] == documents]
        return max(float(found["steps"][step]["process_megabytes"][0]) for found in chosen)

    last_of_few = next(found for found in reversed(by_size) if found["documents"] == few)
    return {
        "growth": {step: peak(many, step) / peak(few, step) for step in STEPS},
        "pace": {step: rate(by_size[-1], step) / rate(last_of_few, step) for step in STEPS},
        "speed_up": {step: rate(by_size[-1], step) / rate(slow, step) for step in STEPS},
    }


def make_small_run(folder: Path) -> None:
    """A run with a small expert in folder/run, with its documents in files beside it."""
    texts = demo_corpus(seed=0, labeled=300, unlabeled=2_000, test=200)
    parts: dict[str, dict[str, list[str]]] = {
        "train": {"text": texts.labeled_texts, "label": texts.labeled_labels},
        "test": {"text": texts.test_texts, "label": texts.test_labels},
        "unlabeled": {"text": texts.unlabeled_texts},
    }
    for part, columns in parts.items():
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    config = load_config("small", overrides=SMALL)
    paths = (str(folder / f"{part}.parquet") for part in ("train", "unlabeled", "test"))
    labeled, unlabeled, test = paths
    corpus = corpus_of_files(labeled, unlabeled, None, test, config.columns)
    train_and_evaluate(config, corpus, folder / "run", Quiet())


def write_generated(folder: Path, documents: int) -> None:
    """Raw text as Parquet files of half a million documents, as a stream."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    chunks = generated_documents(documents)
    for number in range(-(-documents // FILE_DOCUMENTS)):
        with pq.ParquetWriter(
            folder / f"raw-{number:04d}.parquet", pa.schema({"text": pa.string()})
        ) as writer:
            for _ in range(FILE_DOCUMENTS // CHUNK_DOCUMENTS):
                texts = next(chunks, None)
                if texts is None:
                    return
                writer.write_batch(pa.record_batch({"text": texts}))


def generated_documents(documents: int) -> Iterator[list[str]]:
    """Chunks of short documents, each of one to three sentences of the demo corpus."""
    texts = demo_corpus(seed=1, labeled=2, unlabeled=SEED_DOCUMENTS, test=2).unlabeled_texts
    sentences = sorted({f"{part.rstrip('.')}." for text in texts for part in text.split(". ")})
    draws = numpy_generator(0, "scale")
    for start in range(0, documents, CHUNK_DOCUMENTS):
        rows = min(CHUNK_DOCUMENTS, documents - start)
        chosen = draws.integers(len(sentences), size=(rows, MOST_SENTENCES)).tolist()
        counts = draws.integers(1, MOST_SENTENCES + 1, size=rows).tolist()
        yield [
            " ".join([sentences[i] for i in row[:count]]) for row, count in zip(chosen, counts, strict=True)
        ]


def _measured(folder: Path, documents: int, workers: int) -> dict[str, Any]:
    """What each step took, in a store and a run that are then thrown away."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        store, run, out = Path(work) / "store", folder / "run", Path(work) / "large"
        raw = sorted((folder / "raw").iterdir())
        spread = ("--workers", str(workers))
        texts = [word for file in raw for word in ("--text", str(file))]
        found = {
            "encode": _command("store", "encode", "--like", run, *texts, "--out", store, *spread),
            "label": _command("store", "label", store, "--by", run, *spread),
            "imitate": _imitate(workers, store, "--like", run, "--out", out),
        }
        found["imitate"]["seconds"] = _training_seconds(out)  # without the mixture, which uses labels only
        manifest = json.loads((store / "store.json").read_text(encoding="utf-8"))
        labels = sum(file.stat().st_size for file in store.glob("*.parquet"))
    tokens = {"encode": "pieces", "label": "words", "imitate": "pieces"}
    for step, took in found.items():
        took["documents_per_second"] = documents / took["seconds"]
        took["tokens_per_second"] = manifest[tokens[step]] / took["seconds"]
    at_rest = {
        "raw": sum(file.stat().st_size for file in raw),
        "encoded": manifest["bytes"],
        "labels": labels,
    }
    return {
        "documents": documents,
        "workers": workers,
        "steps": found,
        "tokens": {name: manifest[name] for name in ("words", "pieces")},
        "bytes_per_document": {name: size / documents for name, size in at_rest.items()},
    }


def _command(*words: object) -> dict[str, Any]:
    return peak_memory([sys.executable, "-m", "mein", *map(str, words)], ONE_THREAD)


def _imitate(workers: int, *words: object) -> dict[str, Any]:
    """One process, or as many as torchrun starts."""
    if workers == 1:
        return _command("store", "train", *words)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
    return peak_memory(
        [sys.executable, *torchrun, "-m", "mein", "store", "train", *map(str, words)], ONE_THREAD
    )


def _training_seconds(run: Path) -> float:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return float(next(line["seconds"] for line in lines if line.get("step") == "imitators"))


SHARDS = 16  # that are labeled; imitators learn from one, for a large store has large ones
EXPERT_SETTINGS = ExpertConfig(embedding_dim=128, hidden_dim=128)


def bench_ranks(
    documents: int, processes: Sequence[int], repeats: int, imitators: ImitatorsConfig
) -> dict[str, Any]:
    """Documents a second of both steps by number of processes, and each number's ratio to the first."""
    rates: dict[str, dict[int, list[float]]] = {
        task: {count: [] for count in processes} for task in ("imitators", "labeling")
    }
    with tempfile.TemporaryDirectory() as folder:
        _write_corpus(Path(folder), documents)
        for _ in range(repeats):
            for task, found in rates.items():
                for count in processes:
                    found[count].append(documents / _rank_seconds(Path(folder), task, count, imitators))
    figures: dict[str, Any] = {"hardware": hardware(), "documents": documents, "threads_per_process": 1}
    for task, found in rates.items():
        first = found[processes[0]]
        pairs = {count: zip(found[count], first, strict=True) for count in processes}
        figures[task] = {
            "documents_per_second": {count: spread(found[count]) for count in processes},
            "ratio": {count: spread([own / one for own, one in pairs[count]]) for count in processes},
        }
    return figures


def _write_corpus(folder: Path, documents: int) -> None:
    """Two stores of the demo corpus, one of them with made-up soft labels."""
    texts = demo_corpus(0, labeled=10, unlabeled=documents, test=10).unlabeled_texts
    indexer, _ = learn_vocabularies([texts], WordsConfig(), PiecesConfig())
    for task, size in (("labeling", -(-documents // SHARDS)), ("imitators", documents)):
        store = write_store(folder / task, indexer, [texts], shard_documents=size, workers=1)
    for shard, length in enumerate(store.shard_lengths):
        p = numpy_generator(0, "made up", shard).random(length, dtype=np.float32)
        store.write_column(EXPERT_COLUMN, shard, np.stack([p, 1 - p], axis=1))


def _rank_seconds(folder: Path, task: str, processes: int, imitators: ImitatorsConfig) -> float:
    """Let `processes` processes do a task; returns the time of the first."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += [str(processes), "-m", "benchmarks.scale", task, str(folder), imitators.model_dump_json()]
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder / task, Path(copy) / task)  # which is left labeled
        command[-2] = copy
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise MeinError(f"The measured processes failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(json.loads(done.stdout)["seconds"])


def imitate(folder: Path, config: ImitatorsConfig) -> float:
    """Seconds of an epoch of imitators."""
    torch.manual_seed(0)
    store = Store.open(folder / "imitators")
    imitators = Imitators(config, 1 + int(store.pieces(0).values.max()), 2)
    settings = Imitation(epochs=1, batch_tokens=LARGEST_BATCH)
    stage = imitation_stage(imitators, store, store, settings, 0)
    optimizer = torch.optim.Adam(imitators.parameters(), fused=True)
    state = StageState()
    ranks.barrier()
    started = time.perf_counter()
    for _, batch in fetched(stage.plan(0), stage.fetch):
        take_step(stage, batch, state, settings, optimizer)
    ranks.barrier()
    return time.perf_counter() - started


def label(folder: Path) -> float:
    """Seconds in which an expert labels the store."""
    torch.manual_seed(0)
    store = Store.open(folder / "labeling")
    words = 1 + max(int(store.words(shard).values.max()) for shard in range(store.shard_count))
    expert = LSTMExpert(EXPERT_SETTINGS, words, 2)
    ranks.barrier()
    started = time.perf_counter()
    label_documents(Teacher(expert), [store], ("a", "b"), "a made-up expert", Quiet())
    ranks.barrier()
    return time.perf_counter() - started


def _work(task: str, folder: str, imitators: str) -> None:
    """What each process does."""
    ranks.join()
    config = ImitatorsConfig.model_validate_json(imitators)
    seconds = imitate(Path(folder), config) if task == "imitators" else label(Path(folder))
    if ranks.is_first():
        print(json.dumps({"seconds": seconds}))
    ranks.leave()


if __name__ == "__main__":
    _work(*sys.argv[1:])


ENGINE_STEPS = ("encode", "label")
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
    reporter = Quiet() if reporter is None else reporter
    results = []
    for folder, documents in generated_corpora(document_counts):
        reporter.log(f"{documents:,} documents, {turns} turns ...")
        taken = [{name: _turn(folder, workers, name, address) for name in ENGINES} for _ in range(turns)]
        results.append(
            {"documents": documents, "steps": {step: _compared(taken, step) for step in ENGINE_STEPS}}
        )
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
            "encode": _engine_seconds("store", "encode", "--like", run, *texts, "--out", store, *words),
            "label": _engine_seconds("store", "label", store, "--by", run, *words),
        }


def _engine_seconds(*words: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "mein", *words]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", env=environ | ONE_THREAD, check=False
    )
    if done.returncode:
        raise MeinError(
            f"`mein {words[0]} {words[1]}` failed with code {done.returncode}: {done.stderr.strip()}"
        )
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

    return {step: {name: line(step, name) for name in ENGINES} for step in ENGINE_STEPS}


CORPORA = (1_000_000, 100_000_000, 10_000_000_000)
TIMED_STEPS = ("encode", "label", "imitate")
HOURS = 24.0  # in which a corpus is to be done
LINK = 12.5e9  # bytes a second of a network of 100 gigabit
PRICES = {"core": 0.05, "GPU": 4.0, "gigabyte": 0.02}  # $ an hour, an hour, a month; put your own
HEAD = """# The cost of large corpora

Made by `python -m benchmarks costs` from measurements under `results/`; do not edit. Measured: documents per
second of each step and bytes per document, on the named machine. Projected: everything else, in proportion,
which holds while steps are parallel over shards. Encoding and labeling share nothing between shards.
Imitators exchange gradients at every step, so their projection over many machines is the least certain."""


@dataclass(frozen=True)
class Measured:
    """One machine's rates for one kind of document: documents a second of one unit, a core or a GPU."""

    title: str
    rates: dict[str, float]
    units: dict[str, str]
    bytes_per_document: dict[str, float]
    wire: str
    """What travels, and where that is the limit."""


def costs_page(results: Path) -> str:
    """The page, with a note on a kind of machine that was not measured."""
    found = [_of_cores(results / "bench-scale.json"), _of_gpu(results / "bench-pipeline.json")]
    measured = [one for one in found if one is not None]
    if not measured:
        raise InputError(
            f"{results} holds neither bench-scale.json nor bench-pipeline.json: measure with "
            f"`python -m benchmarks scale --out {results}/bench-scale.json`."
        )
    parts = [HEAD, *map(_section, measured)]
    if len(measured) < len(found):
        parts.append("One of the two kinds of machine, cores or GPU, has not been measured yet.")
    return "\n\n".join(parts) + "\n"


def _of_cores(path: Path) -> Measured | None:
    figures = read_figures(path)
    if figures is None:
        return None
    largest = max(figures["results"], key=lambda found: (found["documents"], found["workers"]))
    workers, tokens = largest["workers"], largest["tokens"]
    rates = {step: largest["steps"][step]["documents_per_second"] / workers for step in TIMED_STEPS}
    title = (
        f"Short documents, {tokens['pieces'] / largest['documents']:.0f} pieces each, small networks, "
        f"CPU cores ({largest['documents']:,} documents, {workers} processes)"
    )
    sizes = largest["bytes_per_document"]
    return Measured(title, rates, dict.fromkeys(TIMED_STEPS, "core"), sizes, _documents_on_the_wire(sizes))


def _of_gpu(path: Path) -> Measured | None:
    figures = read_figures(path)
    if figures is None:
        return None
    documents, seconds = figures["documents"], figures["seconds"]
    cores = min(figures["hardware"]["cores"], figures["encoding_processes"])
    rates = {
        "encode": documents / seconds["encoding"] / cores,
        "label": documents / seconds["labeling"],
        "imitate": documents * figures["epochs"] / seconds["imitators"],
    }
    title = f"Reviews of {figures['pieces'] / documents:.0f} pieces, the paper's sizes, {figures['device']}"
    units = {"encode": "core", "label": "GPU", "imitate": "GPU"}
    sizes = figures["bytes_per_document"]
    wire = f"{_documents_on_the_wire(sizes)} {_gradients_on_the_wire(figures, rates['imitate'])}"
    return Measured(title, rates, units, sizes, wire)


def _documents_on_the_wire(sizes: dict[str, float]) -> str:
    encoded, labels = f"{sizes['encoded']:,.0f} bytes", f"{sizes['labels']:,.0f}"
    return (
        f"Network traffic per document: its text from the reading process to an encoding one, and "
        f"{encoded} to the store; {encoded} to a labeling process, and {labels} back; {encoded} to each "
        "training process, once per epoch."
    )


def _gradients_on_the_wire(figures: dict[str, Any], rate: float) -> str:
    """Each process sends the sum of gradients and gets it, once a step, however many they are."""
    documents = figures["step"]["pieces"] / figures["pieces"] * figures["documents"]
    gradients = figures["step"]["gradient_bytes"]
    limit = documents * LINK / (2 * gradients)
    return (
        f"Imitators that share each step also exchange at most {gradients / 1e6:,.0f} MB of gradients per "
        f"step of {documents:,.0f} documents: a network of 100 gigabit per second is full at "
        f"{limit:,.0f} documents per second, {limit / rate:.1f} times the rate of one GPU. Beyond that the "
        "network is the bottleneck: raise imitator_training.batch_documents."
    )


def _section(measured: Measured) -> str:
    """Rates, then a table of corpora."""
    rates = ", ".join(
        f"{step} {measured.rates[step]:,.0f} documents per second and {measured.units[step]}"
        for step in TIMED_STEPS
    )
    sizes = ", ".join(f"{name} {size:,.0f}" for name, size in measured.bytes_per_document.items())
    head = [
        "documents",
        *(f"{step}, {measured.units[step]}-hours" for step in TIMED_STEPS),
        f"units for {HOURS:.0f} hours",
        "storage, GB",
        "$ for work",
        "$ per month of storage",
        "longest step",
    ]
    rows = [_row(measured, documents) for documents in CORPORA]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    about = (
        f"Measured: {rates} (imitate: one epoch). Bytes per document at rest: {sizes}. Projected, with one "
        f"epoch of imitators, ${PRICES['core']} per core-hour, ${PRICES['GPU']} per GPU-hour, and "
        f"${PRICES['gigabyte']} per gigabyte and month:"
    )
    return "\n\n".join([f"## {measured.title}", about, "\n".join(lines), measured.wire])


def _row(measured: Measured, documents: int) -> list[str]:
    hours = {step: documents / measured.rates[step] / 3600 for step in TIMED_STEPS}
    needed: dict[str, float] = {}
    for step in TIMED_STEPS:
        needed[measured.units[step]] = needed.get(measured.units[step], 0.0) + hours[step] / HOURS
    gigabytes = documents * sum(measured.bytes_per_document.values()) / 1e9
    work = sum(hours[step] * PRICES[measured.units[step]] for step in TIMED_STEPS)
    units = [(max(1, math.ceil(count)), kind) for kind, count in needed.items()]
    return [
        f"{documents:,}",
        *(_told(hours[step]) for step in TIMED_STEPS),
        ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for count, kind in units),
        _told(gigabytes),
        _told(work),
        _told(gigabytes * PRICES["gigabyte"]),
        max(TIMED_STEPS, key=lambda step: hours[step]),
    ]


def _told(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
