"""The heavy steps over any number of documents: rate, memory of every process, bytes at rest."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mein.bench.hardware import hardware
from mein.bench.memory import peak_memory
from mein.config import load_config
from mein.data.corpus import corpus_of_files
from mein.data.demo import demo_corpus
from mein.judge import train_and_judge
from mein.progress import Reporter, Silence
from mein.seeds import numpy_generator

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
    """A folder with a small run in `run` and, one count after another, so many documents in `raw`."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        make_small_run(folder)
        for documents in document_counts:
            write_generated(folder / "raw", documents)
            yield folder, documents


def bench_scale(
    document_counts: Sequence[int], worker_counts: Sequence[int], reporter: Reporter | None = None
) -> dict[str, Any]:
    """Encode, label and imitate so many generated documents, each step a command in processes of a core.

    `growth`: the highest peak of a process with the most documents over that with the fewest;
    `pace`: documents a second, the same way round; `speed_up`: with the most processes over the fewest.
    """
    reporter = Silence() if reporter is None else reporter
    results = []
    for folder, documents in generated_corpora(document_counts):
        for workers in worker_counts:
            reporter.say(f"{documents:,} documents, {workers} processes ...")
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
    train_and_judge(config, corpus, folder / "run", Silence())


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
    """Chunks of short documents, each of one to three sentences of the embedded corpus."""
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
            "encode": _command("encode", "--like", run, *texts, "--out", store, *spread),
            "label": _command("label", store, "--by", run, *spread),
            "imitate": _imitate(workers, store, "--like", run, "--out", out),
        }
        found["imitate"]["seconds"] = _training_seconds(out)  # less the mixture, which reads labels alone
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
        return _command("imitate", *words)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
    return peak_memory([sys.executable, *torchrun, "-m", "mein", "imitate", *map(str, words)], ONE_THREAD)


def _training_seconds(run: Path) -> float:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return float(next(line["seconds"] for line in lines if line.get("step") == "imitators"))
