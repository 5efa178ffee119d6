"""From the folder of a run to its classifiers: the mixture, and what it is compared with."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.config import Config, make_config
from mein.data.labels import Labels
from mein.data.soft_labels import SoftLabelSource
from mein.errors import ConfigError, RunError
from mein.evaluation.systems import EXPERT, MIXTURE, SYSTEMS
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.gates import Weights
from mein.mixture.inference import TorchNetworks
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN, Lexicon, load_lexicon
from mein.model.artefacts import (
    EXPERT_OF_ALL,
    HUB,
    Done,
    damaged,
    fill,
    load_indexer,
    of_train,
    read_done,
    refuse_larger,
    unfit,
    verified,
)
from mein.model.build import build_expert, build_imitators, open_reader
from mein.model.model import Model
from mein.runtime.device import choose_device
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.text.indexer import Indexer


@dataclass(frozen=True)
class FinishedRun:
    """A finished run whose artefacts are as it left them: its settings and its classes."""

    folder: RunFolder
    config: Config
    labels: Labels
    done: Done

    @classmethod
    def open(cls, path: Path) -> "FinishedRun":
        """The run in a folder, which must be finished."""
        folder = RunFolder(path)
        done = verified(folder)
        if f"{MIXTURE}.safetensors" not in done.required:
            raise RunError(
                f"The run in {path} holds no classifier: it is a language model for "
                "`mein train --set expert.language_model`; give the folder of a `mein train`."
            )
        return cls(folder, read_config(folder), read_labels(folder)[0], done)

    def indexer(self, soft_labels: SoftLabelSource | None = None) -> Indexer:
        """Its vocabularies, with what its expert reads texts with."""
        device = choose_device(self.config.runtime.device)
        reader = open_reader(self.config, self.folder, self.labels.classes, device, soft_labels)
        return load_indexer(self.config, self.folder, reader)


def load_model(path: Path, device: str = "auto", soft_labels: SoftLabelSource | None = None) -> Model:
    """The classifier that a finished run left in its folder; give its soft labels, or new ones."""
    run = FinishedRun.open(path)
    return Classifiers(run.folder, run.config, choose_device(device), soft_labels).mixture


def read_config(folder: RunFolder) -> Config:
    """The configuration of a run."""
    content = folder.read_json("config.json")
    try:
        return make_config(content["config"])
    except (KeyError, TypeError, ValueError, ConfigError) as problem:
        raise RunError(
            f"{folder / 'config.json'} is damaged or of another version of mein ({problem}): "
            "restore it from a copy, or use that version."
        ) from problem


class Classifiers:
    """The classifiers in a run folder: the mixture, and what it is compared with.

    What they share is read once: vocabularies, the reader, the imitators. They differ in the weights of
    their expert, in their gates, and in whether they have the lexicon.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        device: torch.device,
        soft_labels: SoftLabelSource | None = None,
        *,
        knows_dev: bool = True,
        indexer: Indexer | None = None,
    ) -> None:
        """knows_dev: whether lexicon and networks may have learned from the labels of dev, too."""
        self.folder, self.config, self.device = folder, config, device
        self.labels, self.prior = read_labels(folder)
        if indexer is None:
            reader = open_reader(config, folder, self.labels.classes, device, soft_labels)
            indexer = load_indexer(config, folder, reader)
        self.indexer = indexer
        self.knows_dev = knows_dev
        self._lexicon_file = LEXICON if knows_dev else LEXICON_OF_TRAIN
        self._expert: Expert | None = None

    @cached_property
    def artefacts(self) -> set[str]:
        """The names of artefacts: those that `done` lists; before it is written, those there are."""
        if self.folder.is_done:
            names = set(read_done(self.folder).required)
        else:
            names = {path.name for path in self.folder.path.glob("*.safetensors")}
        return {name.removesuffix(".safetensors") for name in names}

    @property
    def systems(self) -> set[str]:
        """The systems with an artefact."""
        return SYSTEMS.keys() & self.artefacts

    def _artefact(self, system: str) -> str:
        """The artefact of a system that has, or has not, learned from dev, where there are two."""
        if system == EXPERT:
            return EXPERT_OF_ALL if self.knows_dev and EXPERT_OF_ALL in self.artefacts else EXPERT
        other = of_train(system)
        return other if not self.knows_dev and other in self.artefacts else system

    def load(self, name: str) -> Model:
        """The classifier of a system."""
        path = self.folder / f"{self._artefact(name)}.safetensors"
        tensors, facts = load_tensors(path)
        expert = self._expert = self._new_expert(tensors, path)
        fill(expert, tensors, path)
        weights = _weights(path, facts)
        imitators, imitator_temperature = self._imitators
        if len(weights.gates) not in (0, len(imitators.windows)):
            raise damaged(path)
        lexicon = None
        if weights.lexicon is not None:
            lexicon = self._lexicon.with_gate(weights.lexicon)
        return Model(
            config=self.config,
            labels=self.labels,
            prior=self.prior,
            indexer=self.indexer,
            networks=TorchNetworks(expert.to(self.device), imitators),
            gates=weights.gates,
            temperature=weights.temperature,
            imitator_temperature=imitator_temperature,
            hub=self.folder / HUB if (self.folder / HUB).exists() else None,
            lexicon=lexicon,
        )

    @cached_property
    def mixture(self) -> Model:
        """The classifier that the run is for."""
        return self.load(MIXTURE)

    def _new_expert(self, weights: Mapping[str, torch.Tensor], path: Path) -> Expert:
        """An expert to be filled with weights; what lies on the disk for that is read once."""
        if self._expert is not None:
            return deepcopy(self._expert)
        classes = len(self.labels.classes)
        build = partial(build_expert, self.config, self.folder, self.indexer, classes)
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and then replaced
            if self.config.expert.traits.reads != "tokens":  # a transformer's sizes are in its own files
                refuse_larger(build, weights, path)
            return build()

    @cached_property
    def _imitators(self) -> tuple[Imitators, float]:
        """The imitators, on the device, and their temperature."""
        path = self.folder / "imitators.safetensors"
        tensors, facts = load_tensors(path)
        has_imitators = any(name.startswith("outputs.") for name in tensors)
        pieces, classes = self.indexer.pieces.size, len(self.labels.classes)
        build = partial(build_imitators, self.config, pieces, classes, has_imitators)
        with torch.random.fork_rng(devices=[]):
            refuse_larger(build, tensors, path)
            imitators = build()
        fill(imitators, tensors, path)
        return imitators.to(self.device), _weights(path, {"gates": [], **facts}).temperature

    @cached_property
    def _lexicon(self) -> Lexicon:
        found = load_lexicon(self.folder / self._lexicon_file)
        if (found.vocabulary_size, len(found.bias)) != (self.indexer.pieces.size, len(self.labels.classes)):
            raise unfit(self.folder / self._lexicon_file)
        return found


def _weights(path: Path, facts: dict[str, Any]) -> Weights:
    try:
        return Weights.from_facts(facts)
    except (KeyError, TypeError, ValueError) as problem:
        raise damaged(path) from problem


def read_labels(folder: RunFolder) -> tuple[Labels, np.ndarray]:
    """The classes and the share of each in training (Y,)."""
    content = folder.read_json("labels.json")
    try:
        labels, prior = Labels(tuple(content["classes"])), np.array(content["prior"], np.float64)
    except (KeyError, TypeError, ValueError) as problem:
        raise damaged(folder / "labels.json") from problem
    are_labels = {type(label) for label in labels.classes} <= {str, int, bool}
    are_different = are_labels and len(set(map(str, labels.classes))) == len(labels.classes) > 1
    is_share = prior.shape == (len(labels.classes),) and bool((prior >= 0).all())
    if not (are_different and is_share and np.isclose(prior.sum(), 1.0)):
        raise damaged(folder / "labels.json")
    return labels, prior
