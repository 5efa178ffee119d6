"""From raw text to trained imitators: how long each step takes on this machine."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.imitation import new_imitators
from benchmarks.measure import hardware
from benchmarks.networks import device_name, wait_for
from mein.config import Config
from mein.data.corpus import DocumentStream
from mein.model.artefacts import load_indexer
from mein.model.loading import read_config, read_labels
from mein.run.prepare import SHARD_CHARACTERS, SHARD_DOCUMENTS
from mein.run.teacher import label_documents, load_teacher
from mein.runtime.processes import cores
from mein.runtime.progress import Reporter
from mein.runtime.run_folder import RunFolder
from mein.store.store import Store
from mein.store.writing import write_store
from mein.text.indexer import Indexer
from mein.training.loop import Runtime
from mein.training.stages import suited, train_imitators


def bench_pipeline(
    run: Path, source: DocumentStream, epochs: int, device: torch.device, reporter: Reporter
) -> dict[str, Any]:
    """Encode a text with a run's vocabularies, let its expert label it, train imitators anew on that."""
    folder = RunFolder(run)
    config = read_config(folder)
    teacher, classes = load_teacher(folder, config, device), read_labels(folder)[0].classes
    indexer = load_indexer(config, folder)
    training = replace(config.imitator_training.resolved(config.optimizer), epochs=epochs, patience=None)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        runtime = Runtime(RunFolder(Path(name)), reporter, config.runtime.checkpoint_seconds)
        with _timed("encoding", seconds, device):
            store = _encoded(Path(name) / "unlabeled", config, indexer, source)
        with _timed("labeling", seconds, device):
            label_documents(teacher, [store], classes, "bench", reporter)
        imitators = new_imitators(folder, config, device)
        gradient_bytes = sum(p.numel() * p.element_size() for p in imitators.parameters())
        held_out = Store.open(folder / "encoded/held_out")
        with _timed("imitators", seconds, device):
            outcome = train_imitators(imitators, store, held_out, training, runtime, config.seed)
        pieces = store.manifest.pieces
        step_pieces = suited(training, store).batch_tokens
        sizes = _sizes(Path(name) / "unlabeled")
        processes = min(_workers(config), store.shard_count)
    total = sum(seconds.values())
    return {
        "hardware": hardware(),
        "device": device_name(device),
        "documents": len(store),
        "pieces": pieces,
        "epochs": epochs,
        "encoding_processes": processes,
        "bytes_per_document": {kind: size / len(store) for kind, size in sizes.items()},
        "step": {"pieces": step_pieces, "gradient_bytes": gradient_bytes},
        "held_out": outcome.score,
        "seconds": seconds | {"total": total},
        "share": {step: value / total for step, value in seconds.items()},
        "imitator_pieces_per_second": pieces * epochs / seconds["imitators"],
    }


@contextmanager
def _timed(step: str, seconds: dict[str, float], device: torch.device) -> Iterator[None]:
    started = time.perf_counter()
    yield
    wait_for(device)
    seconds[step] = time.perf_counter() - started


def _encoded(path: Path, config: Config, indexer: Indexer, source: DocumentStream) -> Store:
    return write_store(
        path,
        indexer,
        (chunk.texts for chunk in source()),
        shard_documents=SHARD_DOCUMENTS,
        shard_characters=SHARD_CHARACTERS,
        workers=_workers(config),
    )


def _workers(config: Config) -> int:
    return config.runtime.workers or cores()


def _sizes(store: Path) -> dict[str, int]:
    """Bytes at rest: of the encoded text, and of the expert's word on it."""
    patterns = {"encoded": "*.arrow", "labels": "*.parquet"}
    return {
        kind: sum(file.stat().st_size for file in store.glob(pattern)) for kind, pattern in patterns.items()
    }
