"""What the steps of a run share: its parts, the evidence on them, and what is minimized."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mein.config import Config
from mein.data.corpus import Corpus
from mein.evaluation.metrics import fit_temperature
from mein.evaluation.systems import SYSTEMS
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.inference import CachedLogits, imitator_alpha
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN, Lexicon, learn_lexicon, load_lexicon
from mein.mixture.mixture import random_alpha
from mein.run.prepare import Split
from mein.runtime import ranks
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import derive_seed
from mein.runtime.tensors import save_tensors
from mein.store.repair import drop_damaged_labels
from mein.store.store import Store
from mein.text.indexer import Indexer
from mein.text.ragged import Ragged, concatenate
from mein.training.loop import Runtime
from mein.training.objectives import OBJECTIVES, Draw, Ingredients, Objective, UnlabeledBatches
from mein.training.parallel import shared_logits
from mein.training.stages import LabeledPart

UNLABELED_PARTS = ("unlabeled", "held_out")


@dataclass(frozen=True)
class Run:
    """A run under way: what its steps share."""

    config: Config
    corpus: Corpus
    labeled: Split
    counts: dict[str, int]
    indexer: Indexer
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
        """Whether there is unlabeled text for imitators to learn from."""
        return all(self.counts.get(part, 0) > 0 for part in UNLABELED_PARTS)

    @property
    def has_lexicon(self) -> bool:
        """Whether a lexicon speaks in the mixture, which there is only with imitators."""
        return self.is_taught and self.config.mixture.uses_lexicon

    def store(self, part: str) -> Store:
        """The encoded documents of a part."""
        return Store.open(self.folder / f"encoded/{part}")

    def store_to_label(self, part: str, by: str) -> Store:
        """The same for an expert to label; of what it said before, it is asked again where that is damaged.

        Not in a store of others, to which the run has but a link, nor where somebody else has a word.
        """
        if ranks.is_first():
            store, path = self.store(part), (self.folder / f"encoded/{part}").resolve()
            if store.place.address == str(path) and store.labeled_by == {by}:
                for told in drop_damaged_labels(store, by):
                    self.runtime.reporter.log(told)
        ranks.barrier()
        return self.store(part)

    @cached_property
    def dev_logits(self) -> CachedLogits:
        """What the expert says of dev, by the weights that it had when last asked."""
        return CachedLogits(self.store("dev").words(), "dev", self.runtime.reporter, shared_logits, _agreed)


def _agreed(is_so: bool) -> bool:
    """What the first process says of it."""
    return bool(ranks.agreed({"is_so": is_so})["is_so"])


def evidence(run: Run, imitators: Imitators, name: str, part: str) -> np.ndarray:
    """alpha (I, n, Y) on a part: the imitators', or a control's."""
    return evidence_on(run, imitators, name, run.store(part).pieces(), part)


def evidence_on(run: Run, imitators: Imitators, name: str, pieces: Ragged, stream: str) -> np.ndarray:
    """alpha (I, n, Y) of a system: the imitators', random vectors of a stream, or none (I = 0).

    A lexicon's comes last; on train and in unlabeled batches it is zero.
    """
    system = SYSTEMS[name]
    if system.evidence == "none":
        alpha = np.zeros((0, len(pieces), run.classes), np.float32)
    elif system.evidence == "random":
        count = len(imitators.windows)
        alpha = random_alpha(count, len(pieces), run.classes, run.config.seed, stream)
    else:
        alpha = imitator_alpha(imitators, pieces, run.classes)
    if not (system.uses_lexicon and run.has_lexicon):
        return alpha
    said = np.zeros((1, len(pieces), run.classes), np.float32)  # subtle: it knows train's labels by heart
    if stream == "dev":
        said[0] = learned_lexicon(run).log_probs(pieces)
    return np.concatenate([alpha, said])


def learned_lexicon(run: Run) -> Lexicon:
    """The lexicon of train, by which its gate is fitted on dev; beside it that of both, which predicts."""
    for name, parts in {LEXICON_OF_TRAIN: ("train",), LEXICON: ("train", "dev")}.items():
        if not ranks.exists(run.folder / name):
            examples = [run.labeled.examples(part) for part in parts]
            with run.folder.timed(name.removesuffix(".safetensors")):
                lexicon = learn_lexicon(
                    concatenate(run.store(part).pieces() for part in parts),
                    np.concatenate([ids for ids, _ in examples]),
                    np.concatenate([weights for _, weights in examples]),
                    run.classes,
                    run.indexer.pieces.size,
                )
            save_tensors(run.folder / name, lexicon.tensors(), {})
            ranks.barrier()  # the first may still be writing
    return load_lexicon(run.folder / LEXICON_OF_TRAIN)


def labeled_part(run: Run, part: str, alpha: np.ndarray | None = None) -> LabeledPart:
    """The train or the dev part, encoded, with its labels; without evidence where none is given."""
    if part == "train":
        ids, weights = run.labeled.train_ids, run.labeled.train_weights
    else:
        ids, weights = run.labeled.dev_ids, run.labeled.dev_weights
    if alpha is None:
        alpha = np.zeros((0, len(ids), run.classes), np.float32)
    if part == "train":
        return LabeledPart(run.store(part).words(), ids, weights, alpha)
    return LabeledPart(run.dev_logits.words, ids, weights, alpha, run.dev_logits)


def objective_of(run: Run, expert: Expert, imitators: Imitators | None, name: str) -> Objective:
    """What a supervised stage minimizes, with unlabeled batches where it wants them."""
    config, steps = run.config.perturbation, 0.0
    if name == "expert":  # in stage 3 the network knows enough to withstand a full perturbation
        steps = len(run.labeled.train_ids) / run.config.expert_training.batch_documents

    def unlabeled() -> Draw:
        parts = ("train", "unlabeled") if run.is_taught else ("train",)
        stores = [run.store(part) for part in parts]
        batches = UnlabeledBatches(stores, config.unlabeled_documents, run.config.seed)

        def draw(step: int) -> tuple[Ragged, np.ndarray]:
            words, pieces = batches(step)
            if imitators is None:
                return words, np.zeros((0, len(words), run.classes), np.float32)
            return words, evidence_on(run, imitators, name, pieces, f"{name} step {step}")

        return draw

    warm_up_steps = round(config.warm_up_epochs * steps)
    train_words = run.store("train").words()
    return OBJECTIVES[run.config.expert.training](
        Ingredients(expert, train_words, config, warm_up_steps, unlabeled)
    )


def facts(
    run: Run, dev_logits: np.ndarray, gates: np.ndarray | None = None, tau: float = 1.0
) -> dict[str, object]:
    """What is kept beside weights: the gates, and the temperature, about tau, that calibrates them on dev."""
    temperature = fit_temperature(dev_logits, run.labeled.dev_ids, tau, run.labeled.dev_weights)
    return {"gates": [] if gates is None else gates.tolist(), "temperature": temperature}


@contextmanager
def drawing(run: Run, name: str) -> Iterator[None]:
    """Initial weights come from a stream of their own and disturb no other."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(run.config.seed, "initial weights", name))
        yield
