"""What a run is made of, by its configuration: networks, readers, a pre-trained language model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch

from mein.config import Config, make_config
from mein.data.labels import Label
from mein.data.soft_labels import (
    LEAST_PROBABILITY,
    SoftLabels,
    SoftLabelSource,
    SoftLabelTable,
    as_probabilities,
)
from mein.errors import ConfigError, RunError
from mein.experts.base import Blueprint, Expert
from mein.experts.language_model import LanguageModel
from mein.experts.lstm import language_model_of
from mein.hub import FrozenFeatures, HubTokenizer, StaticFeatures, fetch, is_static
from mein.imitators.reference import Imitators
from mein.model.artefacts import HUB, read_done, verify, verify_words
from mein.model.user import user_reader
from mein.runtime.files import sha256_of
from mein.runtime.processes import cores
from mein.runtime.run_folder import RunFolder
from mein.text.indexer import Indexer, Reader
from mein.text.ragged import Ragged
from mein.text.words import Words

LANGUAGE_MODEL = "language_model.safetensors"


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


def build_imitators(config: Config, pieces: int, classes: int, has_imitators: bool) -> Imitators:
    """The imitators of a run; none where there was no unlabeled text to learn from."""
    settings = config.imitators if has_imitators else config.imitators.model_copy(update={"windows": ()})
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

    is_beside_words = False

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
            probabilities = as_probabilities(self.soft_labels(texts), len(texts), self.classes, "The teacher")
        log_p = np.log(np.maximum(probabilities, LEAST_PROBABILITY)).astype(np.float32)
        return Ragged(log_p.ravel(), np.arange(len(texts) + 1, dtype=np.int64) * self.size)


def open_soft_labels(config: Config, classes: Sequence[Label], soft_labels: SoftLabels | None) -> SoftLabels:
    """The function that was given, or else the table in the files that the settings name."""
    if soft_labels is not None:
        return soft_labels
    if config.expert.model is None:
        raise ConfigError(
            "expert.kind is 'given' but no soft labels are: "
            "use --soft-labels FILE, or soft_labels= in Python."
        )
    return SoftLabelTable(config.expert.model, config.columns, classes)


def open_reader(
    config: Config,
    folder: RunFolder,
    classes: Sequence[Label],
    device: torch.device,
    soft_labels: SoftLabelSource | None = None,
) -> Reader | None:
    """What the expert reads texts with, where it does not read our words."""
    settings = config.expert
    if isinstance(soft_labels, str | Path):
        soft_labels = SoftLabelTable(str(soft_labels), config.columns, classes)
    if settings.traits.reads == "probabilities":
        return SoftLabelReader(config, classes, soft_labels)
    if settings.traits.reads == "clones":
        return user_reader(folder, classes, soft_labels)
    if soft_labels is not None:
        raise ConfigError(f"Soft labels were given, but expert.kind is {settings.kind!r}: set it to given.")
    if settings.traits.reads == "words":
        return None
    if not (folder / HUB).exists():
        assert settings.model is not None
        fetch(settings.model, folder / HUB, len(classes), settings.layers, settings.frozen_layers)
    threads = config.runtime.workers or cores()
    if is_static(folder / HUB):
        if settings.traits.tunes_encoder:
            raise ConfigError(
                f"{settings.model!r} holds static embeddings, which are not fine-tuned: use --preset frozen."
            )
        return StaticFeatures(folder / HUB, config.words.max_length, threads)
    if settings.traits.reads == "features":
        return FrozenFeatures(folder / HUB, config.words.max_length, device, threads)
    return HubTokenizer(folder / HUB, config.words.max_length, threads)


def words_of_language_model(config: Config) -> Words | None:
    """The vocabulary that a pre-trained language model brings along."""
    if config.expert.language_model is None:
        return None
    folder = RunFolder(Path(config.expert.language_model))
    its = settings_of_language_model(folder.path)
    wanted = _shared_settings(config)
    differences = [name for name in wanted if its[name] != wanted[name]]
    if differences:
        remedy = ", ".join(f"{name}={_as_set(its[name])}" for name in differences)
        raise ConfigError(
            f"The language model in {folder.path} was trained with other settings: set {remedy}, "
            f"instead of {', '.join(_as_set(wanted[name]) for name in differences)}."
        )
    verify_words(folder)
    return Words.load(folder / "words.txt")


def settings_of_language_model(path: Path) -> dict[str, Any]:
    """The settings, by dotted name, that an expert must share with the language model in a folder."""
    folder = RunFolder(path)
    if not (folder / LANGUAGE_MODEL).exists():
        raise RunError(_why_none(folder))
    if folder.is_done:
        verify(folder, read_done(folder).required, ["config.json", "words.txt", LANGUAGE_MODEL])
    return _shared_settings(make_config(folder.read_json("config.json").get("config", {})))


def _why_none(folder: RunFolder) -> str:
    """A sentence for a folder without a language model."""
    content = folder.read_json("config.json") if (folder / "config.json").exists() else {}
    elsewhere = content.get("config", {}).get("expert", {}).get("language_model")
    if elsewhere is not None:
        return f"{folder.path} started from the language model in {elsewhere}: give that."
    return f"{folder.path} holds no language model: make one with `mein pretrain` in a folder of its own."


def digest_of_language_model(config: Config) -> str:
    """A checksum of its weights."""
    assert config.expert.language_model is not None
    return sha256_of(Path(config.expert.language_model) / LANGUAGE_MODEL)


def _shared_settings(config: Config) -> dict[str, Any]:
    """The settings by which two networks give the same word the same meaning; lengths may differ."""
    words, expert = config.words, config.expert
    return {
        "words.tokenizer": words.tokenizer,
        "words.lowercase": words.lowercase,
        "words.max_words": words.max_words,
        "expert.kind": expert.kind,
        "expert.embedding_dim": expert.embedding_dim,
        "expert.hidden_dim": expert.hidden_dim,
    }


def _as_set(value: Any) -> str:
    """A value as --set takes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
