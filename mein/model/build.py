"""The networks of a run, made from its configuration, and what its expert reads texts with."""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name

import numpy as np
import torch

from mein.config import Config
from mein.data.labels import Label
from mein.data.soft_labels import SoftLabels, SoftLabelTable, checked
from mein.errors import ConfigError
from mein.experts.base import Blueprint, Expert
from mein.experts.language_model import LanguageModel
from mein.experts.lstm import language_model_of
from mein.experts.transformer import LEAST_PROBABILITY
from mein.hub import FrozenFeatures, HubTokenizer, fetch
from mein.imitators.reference import Imitators
from mein.model.artefacts import HUB
from mein.runtime.processes import cores
from mein.runtime.run_folder import RunFolder
from mein.text.indexer import Indexer, Reader
from mein.text.ragged import Ragged
from mein.text.words import Words


def build_expert(config: Config, folder: RunFolder, indexer: Indexer, classes: int) -> Expert:
    """The expert of a run, before it has learned anything from labels."""
    blueprint = Blueprint(
        settings=config.expert,
        classes=classes,
        seed=config.seed,
        vocabulary_size=indexer.words.size,
        frequencies=word_frequencies(config, indexer.words),
        row_size=None if indexer.reader is None else indexer.reader.size,
        hub=folder / HUB,
    )
    build: Callable[[Blueprint], Expert] = resolve_name(config.expert.traits.network)
    return build(blueprint)


def build_language_model(config: Config, words: Words) -> LanguageModel:
    """The language model that the expert of a run starts from."""
    return language_model_of(config.expert, words.size, word_frequencies(config, words))


def word_frequencies(config: Config, words: Words) -> torch.Tensor | None:
    """How often each word occurs (V,), where embeddings are normalized by it."""
    return torch.from_numpy(words.counts.astype(np.float32)) if config.expert.is_normalized else None


def build_imitators(config: Config, pieces: int, classes: int, is_taught: bool) -> Imitators:
    """The imitators of a run; none where there was no unlabeled text to teach them."""
    settings = config.imitators if is_taught else config.imitators.model_copy(update={"windows": ()})
    return Imitators(settings, pieces, classes)


class SoftLabelReader:
    """The teacher's log-probabilities for each text; a table is opened when first used."""

    def __init__(self, config: Config, classes: Sequence[Label], soft_labels: SoftLabels | None) -> None:
        self.config = config
        self.classes = tuple(classes)
        self.soft_labels = soft_labels

    @property
    def fingerprint(self) -> str:
        """The name of its files; a function has none."""
        return "given" if self.config.expert.model is None else f"given {self.config.expert.model}"

    @property
    def is_slow(self) -> bool:
        """Whether it is a function, which may be slow, and not a table."""
        return self.config.expert.model is None and not isinstance(self.soft_labels, SoftLabelTable)

    @property
    def size(self) -> int:
        """Y."""
        return len(self.classes)

    def digest(self) -> str | None:
        """A checksum of the table that it looks texts up in; a function has none."""
        self.soft_labels = open_soft_labels(self.config, self.classes, self.soft_labels)
        return self.soft_labels.digest if isinstance(self.soft_labels, SoftLabelTable) else None

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """log p (Y numbers) of each text."""
        self.soft_labels = open_soft_labels(self.config, self.classes, self.soft_labels)
        probabilities = np.zeros((0, self.size))
        if len(texts):  # many functions fail on an empty list
            probabilities = checked(self.soft_labels(texts), len(texts), self.size, "The teacher")
        log_p = np.log(np.maximum(probabilities, LEAST_PROBABILITY)).astype(np.float32)
        return Ragged(log_p.ravel(), np.arange(len(texts) + 1, dtype=np.int64) * self.size)


def open_soft_labels(config: Config, classes: Sequence[Label], soft_labels: SoftLabels | None) -> SoftLabels:
    """The function that was given, or else the table in the files that the settings name."""
    if soft_labels is not None:
        return soft_labels
    if config.expert.model is None:
        raise ConfigError(
            "expert.kind is 'given' but no teacher is: use --soft-labels FILE, or soft_labels= in Python."
        )
    return SoftLabelTable(config.expert.model, config.columns, classes)


def open_reader(
    config: Config,
    folder: RunFolder,
    classes: Sequence[Label],
    device: torch.device,
    soft_labels: SoftLabels | None = None,
) -> Reader | None:
    """What the expert reads texts with, where it does not read our words."""
    settings = config.expert
    if settings.traits.reads == "probabilities":
        return SoftLabelReader(config, classes, soft_labels)
    if soft_labels is not None:
        raise ConfigError(f"A teacher was given, but expert.kind is {settings.kind!r}: set it to given.")
    if settings.traits.reads == "words":
        return None
    if not (folder / HUB).exists():
        assert settings.model is not None
        fetch(settings.model, folder / HUB, len(classes), settings.layers, settings.frozen_layers)
    threads = config.runtime.workers or cores()
    if settings.traits.reads == "features":
        return FrozenFeatures(folder / HUB, config.words.max_length, device, threads)
    return HubTokenizer(folder / HUB, config.words.max_length, threads)
