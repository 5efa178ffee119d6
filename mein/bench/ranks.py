"""How much sooner several processes are done than one: imitators in training, and the expert's labelling.

Processes come from torchrun, each with one thread; the clock runs in them, between two barriers, so that
their start does not count. One and several take turns.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein import ranks
from mein.bench.encode import spread
from mein.bench.hardware import hardware
from mein.data.demo import demo_corpus
from mein.errors import MeinError
from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.imitators.reference import Imitators, ImitatorsConfig
from mein.label import Tutor, label_documents
from mein.progress import Silence
from mein.seeds import numpy_generator
from mein.text.encoder import learn_vocabularies
from mein.text.pieces import PiecesConfig
from mein.text.store import Store
from mein.text.words import WordsConfig
from mein.text.writing import write_store
from mein.training.fetching import fetched
from mein.training.loop import take_step
from mein.training.scores import EXPERT_COLUMN
from mein.training.stages import LARGEST_BATCH, ImitationConfig, imitation_stage
from mein.training.standing import Standing

SHARDS = 16  # that are labelled; imitators learn from one, for a large store has large ones
EXPERT = ExpertConfig(embedding_dim=128, hidden_dim=128)


def bench_ranks(
    documents: int, processes: Sequence[int], repeats: int, imitators: ImitatorsConfig
) -> dict[str, Any]:
    """Documents a second of both steps by number of processes, and each number's ratio to the first."""
    rates: dict[str, dict[int, list[float]]] = {
        task: {count: [] for count in processes} for task in ("imitators", "labelling")
    }
    with tempfile.TemporaryDirectory() as folder:
        _write_corpus(Path(folder), documents)
        for _ in range(repeats):
            for task, found in rates.items():
                for count in processes:
                    found[count].append(documents / _seconds(Path(folder), task, count, imitators))
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
    """Two stores of the embedded corpus, one of them with a made-up word of the expert."""
    texts = demo_corpus(0, labeled=10, unlabeled=documents, test=10).unlabeled_texts
    encoder, _ = learn_vocabularies([texts], WordsConfig(), PiecesConfig())
    for task, size in (("labelling", -(-documents // SHARDS)), ("imitators", documents)):
        store = write_store(folder / task, encoder, [texts], shard_documents=size, workers=1)
    for shard, length in enumerate(store.shard_lengths):
        p = numpy_generator(0, "made up", shard).random(length, dtype=np.float32)
        store.write_column(EXPERT_COLUMN, shard, np.stack([p, 1 - p], axis=1))


def _seconds(folder: Path, task: str, processes: int, imitators: ImitatorsConfig) -> float:
    """Let so many processes do a task, and ask the first how long it took."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += [str(processes), "-m", "mein.bench.ranks", task, str(folder), imitators.model_dump_json()]
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder / task, Path(copy) / task)  # which is left labelled
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
    settings = ImitationConfig(epochs=1, batch_tokens=LARGEST_BATCH)
    stage = imitation_stage(imitators, store, store, settings, 0)
    optimizer = torch.optim.Adam(imitators.parameters(), fused=True)
    standing = Standing()
    ranks.barrier()
    started = time.perf_counter()
    for _, batch in fetched(stage.plan(0), stage.fetch):
        take_step(stage, batch, standing, settings, optimizer)
    ranks.barrier()
    return time.perf_counter() - started


def label(folder: Path) -> float:
    """Seconds in which an expert labels the store."""
    torch.manual_seed(0)
    store = Store.open(folder / "labelling")
    words = 1 + max(int(store.words(shard).values.max()) for shard in range(store.shard_count))
    expert = LSTMExpert(EXPERT, words, 2)
    ranks.barrier()
    started = time.perf_counter()
    label_documents(Tutor(expert), [store], ("a", "b"), "a made-up expert", Silence())
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
