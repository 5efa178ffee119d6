"""How soon imitators know what the plain loop knows after an epoch: held-out KL against the clock."""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.artefacts import load_encoder
from mein.bench.experts import device_name, wait_for
from mein.bench.hardware import hardware
from mein.building import build_imitators
from mein.config import Config
from mein.errors import RunError
from mein.imitators.reference import Imitators, imitation_loss
from mein.loading import read_config, read_labels
from mein.text.batches import to_device
from mein.text.store import Store
from mein.training.fetching import fetched
from mein.training.folder import RunFolder
from mein.training.loop import take_step
from mein.training.mixing import MixedShards
from mein.training.scores import EXPERT_COLUMN, imitation_scores
from mein.training.stages import ImitationConfig, imitation_stage, suited
from mein.training.standing import Stage, Standing

PLAIN_DOCUMENTS, PLAIN_RATE = 32, 1e-3  # the paper's batch and learning rate
LOOKS = 40  # how often our KL is looked at in an epoch
WARM_STEPS = 3  # before the clock starts, for kernels to be made


def bench_imitate(run: Path, device: torch.device) -> dict[str, Any]:
    """Train imitators on a run's own text: plainly for an epoch, then ours until they are as good."""
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
    settings = suited(config.imitator_training, unlabeled)

    def begin() -> Steps:
        imitators = new_imitators(folder, config, device)
        return Steps(imitation_stage(imitators, unlabeled, held_out, settings, config.seed), settings)

    looked, curve = begin(), []
    steps_an_epoch = sum(1 for _ in looked.stage.plan(0))
    while looked.take(max(1, steps_an_epoch // LOOKS)):
        curve.append((looked.standing.step, looked.stage.score()["kl"]))
        if curve[-1][1] <= goal:
            break
    begin().take(WARM_STEPS)
    timed = begin()
    wait_for(device)
    started = time.perf_counter()
    timed.take(looked.standing.step)
    wait_for(device)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "kl": timed.stage.score()["kl"],
        "reached": bool(curve) and curve[-1][1] <= goal,
        "steps": timed.standing.step,
        "share_of_waiting": timed.waiting / seconds,
        "curve": curve,
    }


class Steps:
    """A training of imitators, some steps at a time."""

    def __init__(self, stage: Stage, settings: ImitationConfig) -> None:
        self.stage, self.settings, self.standing, self.waiting = stage, settings, Standing(), 0.0
        parameters = list(stage.parameters.values())
        self.optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
        self.batches = _endless(stage, self.standing, settings.epochs)

    def take(self, steps: int) -> int:
        """How many of so many steps there were."""
        for step in range(steps):
            asked = time.perf_counter()
            batch = next(self.batches, None)
            self.waiting += time.perf_counter() - asked
            if batch is None:
                return step
            take_step(self.stage, batch, self.standing, self.settings, self.optimizer)
            self.standing.step += 1
        return steps


def _endless(stage: Stage, standing: Standing, epochs: int) -> Iterator[Any]:
    """The batches of all epochs, fetched ahead."""
    for epoch in range(epochs):
        standing.epoch, standing.documents = epoch, 0
        for rows, batch in fetched(stage.plan(epoch), stage.fetch):
            yield batch
            standing.documents += len(rows)


def _open(folder: RunFolder, part: str) -> Store:
    store = Store.open(folder / f"encoded/{part}")
    if not store.has_column(EXPERT_COLUMN):
        raise RunError(f"{folder.path} holds no word of its expert on {part}: give a run that is done.")
    return store


def new_imitators(folder: RunFolder, config: Config, device: torch.device) -> Imitators:
    """Untrained ones for a run's vocabulary and classes, the same each time."""
    classes, pieces = len(read_labels(folder)[0].classes), load_encoder(config, folder).pieces.size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return build_imitators(config, pieces, classes, is_taught=True).to(device)
