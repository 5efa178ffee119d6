"""One run: Algorithm 1, with each line's artefact on disk, so that a killed run goes on where it stood."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from mein.config import Config
from mein.data.corpus import Corpus
from mein.evaluation.calibration import fit_temperature
from mein.experts.lstm import LSTMExpert
from mein.imitators.reference import Imitators
from mein.inference import choose_device, expert_logits, imitator_alpha
from mein.mixture import Gates, random_alpha
from mein.model import build_imitators, load_encoder, mixed_logits, restore
from mein.prepare import LabeledTexts, prepare, read_labeled
from mein.progress import Reporter
from mein.seeds import derive_seed
from mein.text.store import Store
from mein.training.checkpoint import save_tensors
from mein.training.folder import RunFolder
from mein.training.gates import fit_gates, held_back
from mein.training.loop import Runtime
from mein.training.stages import (
    LabeledPart,
    center_evidence,
    fine_tune,
    label_documents,
    supervised_scores,
    train_expert,
    train_imitators,
)

UNLABELED_PARTS = ("unlabeled", "held_out")
CONTROLS = ("closed", "random")
Network = TypeVar("Network", bound=torch.nn.Module)


@dataclass(frozen=True)
class Run:
    """A run under way: what its steps share."""

    config: Config
    corpus: Corpus
    labeled: LabeledTexts
    counts: dict[str, int]
    runtime: Runtime
    device: torch.device

    @property
    def folder(self) -> RunFolder:
        """Where the artefacts lie."""
        return self.runtime.folder

    @property
    def classes(self) -> int:
        """Y."""
        return len(self.labeled.labels.classes)

    @property
    def is_taught(self) -> bool:
        """Whether there is unlabelled text for imitators to learn from."""
        return all(self.counts.get(part, 0) > 0 for part in UNLABELED_PARTS)

    def store(self, part: str) -> Store:
        """The encoded documents of a part."""
        return Store.open(self.folder / f"encoded/{part}")

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Record how long a step took; once, also where a kill makes it end twice."""
        started = time.monotonic()
        yield
        if not any(line["step"] == step for line in self.folder.metrics("steps")):
            self.folder.record("steps", step=step, seconds=round(time.monotonic() - started, 3))


def train_run(
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
    controls: bool = True,
) -> Run:
    """Algorithm 1 in a folder that the caller holds; with `resume`, go on where a killed run stood."""
    identity = {"config": config.model_dump(mode="json", exclude={"runtime"})}
    folder.claim({**identity, "data": corpus.names}, resume)
    labeled = read_labeled(config, corpus)
    counts = prepare(config, corpus, labeled, folder, reporter)
    runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
    device = choose_device(config.runtime.device)
    run = Run(config, corpus, labeled, counts, runtime, device)
    expert = learned_expert(run)  # line 1
    imitators = learned_imitators(run, expert)  # line 2
    tune_mixture_and_controls(run, imitators, controls)  # line 3
    return run


def learned_expert(run: Run) -> LSTMExpert:
    """Theta', from expert.safetensors or from the labels."""
    expert = _new_expert(run)
    path = run.folder / "expert.safetensors"
    if not path.exists():
        run.runtime.reporter.say("Stage 1: the expert learns from the labels (*: the best epoch so far)")
        train_part, dev_part = labeled_part(run, "train"), labeled_part(run, "dev")
        with run.timed("expert"):
            train_expert(
                expert, train_part, dev_part, run.config.expert_training, run.runtime, run.config.seed
            )
        z = expert_logits(expert, dev_part.words)
        save_tensors(path, expert.state_dict(), _facts(run, z))
    return _settled(run, expert, "expert")


def learned_imitators(run: Run, expert: LSTMExpert) -> Imitators:
    """Phi, from imitators.safetensors or from what the expert says of the unlabelled text."""
    with _drawing(run, "imitators"):
        pieces = load_encoder(run.config, run.folder).pieces.size
        imitators = build_imitators(run.config, pieces, run.classes, run.is_taught).to(run.device)
    path = run.folder / "imitators.safetensors"
    if not path.exists():
        if run.is_taught:
            _teach(run, expert, imitators)
        else:
            run.runtime.reporter.say("There is no unlabelled text: this is the plain expert.")
        together = evidence(run, imitators, "imitators", "dev").sum(0)
        save_tensors(path, imitators.state_dict(), _facts(run, together))
    return _settled(run, imitators, "imitators")


def _teach(run: Run, expert: LSTMExpert, imitators: Imitators) -> None:
    run.runtime.reporter.say("Stage 2: the imitators learn what the expert says")
    unlabeled, held_out = (run.store(part) for part in UNLABELED_PARTS)
    with run.timed("labelling"):
        label_documents(expert, [unlabeled, held_out], run.runtime.reporter)
    with run.timed("imitators"):
        train_imitators(
            imitators, unlabeled, held_out, run.config.imitator_training, run.runtime, run.config.seed
        )
    if run.config.mixture.centers_evidence:
        center_evidence(imitators, held_out)


def tune_mixture_and_controls(run: Run, imitators: Imitators, controls: bool) -> None:
    """Theta and Lambda, to mixture.safetensors; beside it closed gates and random vectors."""
    if run.is_taught and not (run.folder / "mixture.safetensors").exists():
        run.runtime.reporter.say("Stage 3: the mixture is tuned on the labels, and so are its controls")
    for name in (*CONTROLS, "mixture") if run.is_taught and controls else ("mixture",):
        path = run.folder / f"{name}.safetensors"
        if not path.exists():
            expert = _settled(run, _new_expert(run), "expert")
            gates = np.zeros(0)
            if run.is_taught:
                with run.timed(name):
                    gates = _tune(run, expert, imitators, name)
            z = expert_logits(expert, run.store("dev").words(0))
            logits = mixed_logits(z, evidence(run, imitators, name, "dev"), gates)
            save_tensors(path, expert.state_dict(), _facts(run, logits, gates))
        _drop_checkpoint(run, name)


def _tune(run: Run, expert: LSTMExpert, imitators: Imitators, name: str) -> np.ndarray:
    """The gates after stage 3 on Theta'; where dev is worse after it than before, undo it: all 0."""
    train_part, dev_part = (
        labeled_part(run, part, evidence(run, imitators, name, part)) for part in ("train", "dev")
    )
    z = expert_logits(expert, dev_part.words)
    before = supervised_scores(torch.from_numpy(z), dev_part.labels)
    gates = Gates(run.config.mixture, len(dev_part.alpha))
    if gates.kind == "free" and len(dev_part.alpha):
        fitted = fit_gates(z, dev_part.alpha, dev_part.labels)
        gates.set(held_back(z, dev_part.alpha, dev_part.labels, fitted))
    outcome = fine_tune(
        name,
        expert,
        gates.to(run.device),
        train_part,
        dev_part,
        run.config.fine_tuning,
        run.runtime,
        run.config.seed,
    )
    values: np.ndarray = gates().detach().cpu().double().numpy()
    if outcome.score["dev_error"] > before["dev_error"]:
        _settled(run, expert, "expert")
        return np.zeros_like(values)
    return values


def _facts(run: Run, dev_logits: np.ndarray, gates: np.ndarray | None = None) -> dict[str, object]:
    """What is kept beside weights: the gates, and the temperature that calibrates them on dev."""
    temperature = fit_temperature(dev_logits, run.labeled.dev_ids)
    return {"gates": [] if gates is None else gates.tolist(), "temperature": temperature}


def evidence(run: Run, imitators: Imitators, name: str, part: str) -> np.ndarray:
    """alpha (I, n, Y) on a part: the imitators', or a control's: random vectors, or none (I = 0)."""
    pieces = run.store(part).pieces(0)
    if name == "closed":
        return np.zeros((0, len(pieces), run.classes), np.float32)
    if name == "random":
        count = len(imitators.windows)
        return random_alpha(count, len(pieces), run.classes, run.config.seed, part)
    return imitator_alpha(imitators, pieces, run.classes)


def labeled_part(run: Run, part: str, alpha: np.ndarray | None = None) -> LabeledPart:
    """The train or the dev part, encoded, with its labels; without evidence where none is given."""
    if part == "train":
        ids, weights = run.labeled.train_ids, run.labeled.train_weights
    else:
        ids, weights = run.labeled.dev_ids, np.ones(len(run.labeled.dev_ids), np.float32)
    if alpha is None:
        alpha = np.zeros((0, len(ids), run.classes), np.float32)
    return LabeledPart(run.store(part).words(0), ids, weights, alpha)


def _new_expert(run: Run) -> LSTMExpert:
    with _drawing(run, "expert"):
        size = load_encoder(run.config, run.folder).words.size
        return LSTMExpert(run.config.expert, size, run.classes).to(run.device)


@contextmanager
def _drawing(run: Run, name: str) -> Iterator[None]:
    """Initial weights come from a stream of their own and disturb no other."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(run.config.seed, "initial weights", name))
        yield


def _settled(run: Run, network: Network, name: str) -> Network:
    """The network with the weights of its artefact, whose checkpoint is then of no more use."""
    restore(run.folder, name, network)
    _drop_checkpoint(run, name)
    return network


def _drop_checkpoint(run: Run, name: str) -> None:
    (run.folder / f"{name}.checkpoint.safetensors").unlink(missing_ok=True)
