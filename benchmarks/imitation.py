"""Stage 2: time to the held-out KL of a plain loop's first epoch; peak memory by number of documents."""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import SHARD_DOCUMENTS, generated, hardware, peak_memory
from benchmarks.networks import device_name, wait_for
from mein.config import Config
from mein.errors import RunError
from mein.imitators.config import ImitatorsConfig
from mein.imitators.reference import Imitators, imitation_loss
from mein.model.artefacts import load_indexer
from mein.model.build import build_imitators
from mein.model.loading import read_config, read_labels
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import numpy_generator
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from mein.store.writing import write_store
from mein.text.batches import to_device
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.indexer import learn_vocabularies
from mein.training.config import Imitation
from mein.training.imitation_batches import MixedShards, fetched
from mein.training.loop import Runtime, Stage, StageState, take_step
from mein.training.stages import imitation_scores, imitation_stage, suited, train_imitators

PLAIN_DOCUMENTS, PLAIN_RATE = 32, 1e-3  # the paper's batch and learning rate
LOOKS = 40  # how often our KL is looked at in an epoch
WARM_STEPS = 3  # before the clock starts, for kernels to be made


def bench_imitate(run: Path, device: torch.device) -> dict[str, Any]:
    """Train imitators on a run's own text: plainly for an epoch, then with mein until they are as good."""
    folder = RunFolder(run)
    config = read_config(folder)
    unlabeled, held_out = _open(folder, "unlabeled"), _open(folder, "held_out")
    plain = _plain(folder, config, device, unlabeled, held_out)
    ours = _ours(folder, config, device, unlabeled, held_out, plain["kl"])
    times_sooner = plain["seconds"] / ours["seconds"] if ours["reached"] else None
    return {
        "hardware": hardware(),
        "device": device_name(device),
        "documents": len(unlabeled),
        "plain": plain,
        "ours": ours,
        "times_sooner": times_sooner,
    }


def _plain(
    folder: RunFolder, config: Config, device: torch.device, unlabeled: Store, held_out: Store
) -> dict[str, float]:
    """The paper's loop: Embedding and Conv1d in float32, 32 documents a batch, torch's own Adam."""
    imitators = new_imitators(folder, config, device)
    text = MixedShards([unlabeled], imitators.offset.shape[1], device, config.seed)
    plan = partial(text.plan, 0, None, 0, PLAIN_DOCUMENTS)
    _plain_seconds(new_imitators(folder, config, device), text, islice(plan(), WARM_STEPS))
    seconds = _plain_seconds(imitators, text, plan())
    return {"seconds": seconds, **imitation_scores(imitators, held_out)}


def _plain_seconds(imitators: Imitators, text: MixedShards, plan: Iterable[np.ndarray]) -> float:
    device = text.device
    optimizer = torch.optim.Adam(imitators.parameters(), lr=PLAIN_RATE)
    wait_for(device)
    started = time.perf_counter()
    for rows in plan:
        pieces, probs, local = text.fetch(rows)
        batch = pieces.pack(local, imitators.gap)
        optimizer.zero_grad()
        log_probs = imitators(batch.pieces)
        loss = imitation_loss(probs[to_device(local, device)], log_probs, batch.document)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    wait_for(device)
    return time.perf_counter() - started


def _ours(
    folder: RunFolder, config: Config, device: torch.device, unlabeled: Store, held_out: Store, goal: float
) -> dict[str, Any]:
    """Our loop with the run's settings: which step brings the held-out KL down to the goal, and how soon.

    First with looks at the KL, then as many steps again without: while one looks, batches are fetched ahead.
    """
    settings = suited(config.imitator_training.resolved(config.optimizer), unlabeled)

    def begin() -> Steps:
        imitators = new_imitators(folder, config, device)
        return Steps(imitation_stage(imitators, unlabeled, held_out, settings, config.seed), settings)

    looked, curve = begin(), []
    steps_an_epoch = sum(1 for _ in looked.stage.plan(0))
    while looked.take(max(1, steps_an_epoch // LOOKS)):
        curve.append((looked.state.step, looked.stage.score()["kl"]))
        if curve[-1][1] <= goal:
            break
    begin().take(WARM_STEPS)
    timed = begin()
    wait_for(device)
    started = time.perf_counter()
    timed.take(looked.state.step)
    wait_for(device)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "kl": timed.stage.score()["kl"],
        "reached": bool(curve) and curve[-1][1] <= goal,
        "steps": timed.state.step,
        "share_of_waiting": timed.waiting / seconds,
        "curve": curve,
    }


class Steps:
    """A training of imitators, some steps at a time."""

    def __init__(self, stage: Stage, settings: Imitation) -> None:
        self.stage, self.settings, self.state, self.waiting = stage, settings, StageState(), 0.0
        parameters = list(stage.parameters.values())
        self.optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
        self.batches = _endless(stage, self.state, settings.epochs)

    def take(self, steps: int) -> int:
        """How many of these steps there were."""
        for step in range(steps):
            since = time.perf_counter()
            batch = next(self.batches, None)
            self.waiting += time.perf_counter() - since
            if batch is None:
                return step
            take_step(self.stage, batch, self.state, self.settings, self.optimizer)
            self.state.step += 1
        return steps


def _endless(stage: Stage, state: StageState, epochs: int) -> Iterator[Any]:
    """The batches of all epochs, fetched ahead."""
    for epoch in range(epochs):
        state.epoch, state.documents = epoch, 0
        for rows, batch in fetched(stage.plan(epoch), stage.fetch):
            yield batch
            state.documents += len(rows)


def _open(folder: RunFolder, part: str) -> Store:
    store = Store.open(folder / f"encoded/{part}")
    if not store.has_column(EXPERT_COLUMN):
        raise RunError(f"{folder.path} has no soft labels for {part}: give a finished run.")
    return store


def new_imitators(folder: RunFolder, config: Config, device: torch.device) -> Imitators:
    """Untrained ones for a run's vocabulary and classes, the same each time."""
    classes, pieces = len(read_labels(folder)[0].classes), load_indexer(config, folder).pieces.size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return build_imitators(config, pieces, classes, has_imitators=True).to(device)


CLASSES = 2
PIECES = 2_000  # in the vocabulary, the same for every size: the network is not what is measured
HELD_OUT_DOCUMENTS = 2_000
TINY = ImitatorsConfig(windows=(1,), embedding_dim=8, channels=8)


def bench_imitation(document_counts: Sequence[int]) -> list[dict[str, Any]]:
    """Peak memory of one epoch of stage 2 with a tiny network, at each size."""
    found = []
    for documents in document_counts:
        with tempfile.TemporaryDirectory() as folder:
            peak_memory(_command("write_generated", str(documents), folder))
            found.append({"documents": documents, **peak_memory(_command("imitate", folder))})
    return found


def write_generated(documents: str, folder: str) -> None:
    """Before what is measured: stores of generated text with made-up soft labels for each document."""
    learned_from = generated(20_000)
    indexer, _ = learn_vocabularies(learned_from, WordsConfig(), PiecesConfig(vocabulary_size=PIECES))
    for part, count in (("unlabeled", int(documents)), ("held_out", HELD_OUT_DOCUMENTS)):
        path = Path(folder) / part
        store = write_store(path, indexer, generated(count), shard_documents=SHARD_DOCUMENTS, workers=1)
        for shard, length in enumerate(store.shard_lengths):
            p = numpy_generator(0, part, shard).random(length, dtype=np.float32)
            store.write_column(EXPERT_COLUMN, shard, np.stack([p, 1 - p], axis=1))


def imitate(folder: str) -> None:
    """What is measured: one epoch over the stores."""
    run = RunFolder(Path(folder) / "run")
    unlabeled, held_out = (Store.open(Path(folder) / part) for part in ("unlabeled", "held_out"))
    with run.held():
        train_imitators(
            Imitators(TINY, PIECES, CLASSES),
            unlabeled,
            held_out,
            Imitation(epochs=1),
            Runtime(run, Quiet(), checkpoint_seconds=30.0),
            seed=0,
        )


def _command(function: str, *arguments: str) -> list[str]:
    code = f"import sys; from benchmarks.imitation import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, "-c", code, *arguments]
