"""What the steps of a run share: artefacts, encoded parts, the evidence on them, the objective."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from mein.config import Config
from mein.data.corpus import Corpus
from mein.evaluation.metrics import fit_temperature
from mein.evaluation.systems import MIXTURE, SYSTEMS, control_names
from mein.experts.base import Expert
from mein.experts.perturb import WARM_UP_EPOCHS
from mein.imitators.reference import Imitators
from mein.mixture.gates import GATES, Weights
from mein.mixture.inference import CachedLogits, imitator_alpha
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN, Lexicon, learn_lexicon, load_lexicon
from mein.mixture.mixture import random_alpha
from mein.model.artefacts import ArtefactContent, leave, restore
from mein.run.documents import Split
from mein.runtime import ranks
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import derive_seed
from mein.store.repair import drop_damaged_labels
from mein.store.store import Store
from mein.text.indexer import Indexer
from mein.text.ragged import Ragged, concatenate
from mein.training.loop import Runtime
from mein.training.objectives import OBJECTIVES, Draw, Ingredients, Objective, UnlabeledBatches
from mein.training.parallel import shared_logits
from mein.training.stages import LabeledPart

SEEN = "dev_seen"  # dev documents whose labels given probabilities know
UNLABELED_PARTS = ("unlabeled", "held_out")
MOST_LABELS = 5_000  # with more, those of dev are a tenth
Network = TypeVar("Network", bound=torch.nn.Module)
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A run under way."""

    config: Config
    corpus: Corpus
    labeled: Split
    counts: dict[str, int]
    indexer: Indexer
    runtime: Runtime
    device: torch.device
    controls: Sequence[str] = field(default_factory=control_names)
    """The systems that are tuned beside the mixture, where there are imitators."""
    stores: dict[str, Store] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    """What this process computed once, by name."""

    @property
    def folder(self) -> RunFolder:
        """Where the artefacts lie."""
        return self.runtime.folder

    @property
    def classes(self) -> int:
        """Y."""
        return len(self.labeled.labels.classes)

    @property
    def row_size(self) -> int:
        """How many numbers of an encoder come before the words of a document; 0 without one."""
        reader = self.indexer.reader
        return reader.size or 0 if reader is not None and reader.is_beside_words else 0

    @property
    def has_imitators(self) -> bool:
        """Whether there is unlabeled text for imitators to learn from."""
        return all(self.counts.get(part, 0) > 0 for part in UNLABELED_PARTS)

    @property
    def systems(self) -> tuple[str, ...]:
        """What stage 3 tunes, in this order."""
        return (*self.controls, MIXTURE) if self.has_imitators else (MIXTURE,)

    @property
    def has_seen_labels(self) -> bool:
        """Whether soft labels were made with the labels that gates would be fitted on."""
        return self.counts.get(SEEN, 0) > 0

    @property
    def is_folded(self) -> bool:
        """Whether all labels teach, in folds."""
        return self.config.expert.traits.is_fitted

    @property
    def is_refitted(self) -> bool:
        """Whether networks that learned by gradients learn again, from all labels."""
        labels = self.counts["train"] + self.counts["dev"]
        is_of_paper = not GATES[self.config.mixture.method].is_fitted
        learns = self.config.expert.traits.learns and not self.is_folded
        return learns and not is_of_paper and self.corpus.dev is None and labels <= MOST_LABELS

    @property
    def has_lexicon(self) -> bool:
        """Whether the mixture has a lexicon, which there is only with imitators."""
        return self.has_imitators and self.config.mixture.has_lexicon

    @property
    def lexicons(self) -> tuple[str, ...]:
        """The artefacts of the lexicon: of train, by which its gate is fitted, and of train with dev."""
        names = (LEXICON_OF_TRAIN, LEXICON)[self.is_folded :] if self.has_lexicon else ()
        return tuple(name.removesuffix(".safetensors") for name in names)

    def artefact(
        self, name: str, new: "Callable[[], Network]", learn: "Callable[[Network], Weights]"
    ) -> Network:
        """A network with the weights of its artefact: those on the disk, or those that are learned now."""
        network = new().to(self.device)

        def trained() -> ArtefactContent:
            facts = learn(network).to_facts()
            return network.state_dict(), facts

        if not leave(self.folder, name, trained):
            restore(self.folder, name, network)
        return network

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed once in this process."""
        if name not in self.kept:
            self.kept[name] = compute()
        found: T = self.kept[name]
        return found

    def log(self, line: str) -> None:
        """Report one line."""
        self.runtime.reporter.log(line)

    def has(self, *names: str) -> bool:
        """Whether all these artefacts are complete."""
        return all(ranks.exists(self.folder / f"{name}.safetensors") for name in names)

    def store(self, part: str) -> Store:
        """The encoded documents of a part, opened once."""
        if part not in self.stores:
            self.stores[part] = Store.open(self.folder / f"encoded/{part}")
        return self.stores[part]

    def store_to_label(self, part: str, by: str) -> Store:
        """The same for a teacher to label; labels of its own that are damaged are dropped first.

        Not in a store of others, to which the run has but a link, nor where another teacher labeled.
        """
        store = self.store(part)
        store.look_for_labels()
        if ranks.is_first():
            path = (self.folder / f"encoded/{part}").resolve()
            if store.place.address == str(path) and store.labeled_by == {by}:
                for note in drop_damaged_labels(store, by):
                    self.runtime.reporter.log(note)
        ranks.barrier()
        store.look_for_labels()
        return store

    @cached_property
    def dev_logits(self) -> CachedLogits:
        """The expert's logits on dev, kept until its weights change."""
        return CachedLogits(self.store("dev").words(), "dev", self.runtime.reporter, shared_logits, _agreed)

    @cached_property
    def lexicon(self) -> Lexicon:
        """The lexicon of train, by which its gate is fitted on dev; where all labels teach, the only one."""
        return self._learned_lexicon(LEXICON if self.is_folded else LEXICON_OF_TRAIN, ("train",))

    def learn_lexicons(self) -> None:
        """Leave the lexicon of train and the one of train with dev, which predicts."""
        if self.has_lexicon:
            _ = self.lexicon
        if self.has_lexicon and not self.is_folded:
            self._learned_lexicon(LEXICON, ("train", "dev"))

    def _learned_lexicon(self, name: str, parts: Sequence[str]) -> Lexicon:
        found: list[Lexicon] = []

        def learned() -> ArtefactContent:
            examples = [self.labeled.examples(part) for part in parts]
            lexicon = learn_lexicon(
                concatenate(self.store(part).pieces() for part in parts),
                np.concatenate([ids for ids, _ in examples]),
                np.concatenate([weights for _, weights in examples]),
                self.classes,
                self.indexer.pieces.size,
            )
            found.append(lexicon)
            return lexicon.tensors(), {}

        is_new = leave(self.folder, name.removesuffix(".safetensors"), learned)
        return found[0] if is_new else load_lexicon(self.folder / name)


def _agreed(is_so: bool) -> bool:
    """What the first process decides."""
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
    if not has_lexicon(run, name):
        return alpha
    of_lexicon = np.zeros((1, len(pieces), run.classes), np.float32)  # subtle: it knows train's labels
    if stream == "dev":
        of_lexicon[0] = run.lexicon.log_probs(pieces)
    return np.concatenate([alpha, of_lexicon])


def has_lexicon(run: Run, name: str) -> bool:
    """Whether the last row of a system's evidence is the lexicon's."""
    return SYSTEMS[name].uses_lexicon and run.has_lexicon


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
        parts = ("train", "unlabeled") if run.has_imitators else ("train",)
        stores = [run.store(part) for part in parts]
        batches = UnlabeledBatches(stores, config.unlabeled_documents, run.config.seed)

        def draw(step: int) -> tuple[Ragged, np.ndarray]:
            words, pieces = batches(step)
            if imitators is None:
                return words, np.zeros((0, len(words), run.classes), np.float32)
            return words, evidence_on(run, imitators, name, pieces, f"{name} step {step}")

        return draw

    warm_up_steps = round(WARM_UP_EPOCHS * steps)
    train_words = run.store("train").words()
    return OBJECTIVES[run.config.expert.training](
        Ingredients(expert, train_words, config, warm_up_steps, unlabeled)
    )


def calibrated(run: Run, dev_logits: np.ndarray, weights: Weights, tau: float = 1.0) -> Weights:
    """The same weights with the temperature, about tau, that calibrates logits (n, Y) on dev."""
    labeled = run.labeled
    temperature = fit_temperature(dev_logits, labeled.dev_ids, tau, labeled.dev_weights)
    return replace(weights, temperature=temperature)


@contextmanager
def initializing(run: Run, name: str) -> Iterator[None]:
    """Initial weights are drawn by a generator of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(run.config.seed, "initial weights", name))
        yield
