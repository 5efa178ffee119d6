"""The networks of a run, made from its configuration: plain functions, one `match`."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.config import Config, make_config
from mein.data.labels import Label
from mein.data.soft_labels import SoftLabels, SoftLabelTable, checked
from mein.errors import ConfigError, RunError
from mein.experts.average import AverageExpert
from mein.experts.base import Expert
from mein.experts.language_model import ElmoFeatures, LanguageModel
from mein.experts.lstm import LSTMExpert
from mein.experts.transformer import LEAST_PROBABILITY, GivenExpert, LinearExpert
from mein.hub import FrozenFeatures, HubTokenizer, fetch, load_transformer
from mein.imitators.reference import Imitators
from mein.model.artefacts import HUB
from mein.runtime.processes import cores
from mein.runtime.run_folder import RunFolder
from mein.text.indexer import Indexer, Reader
from mein.text.ragged import Ragged
from mein.text.words import Words

LANGUAGE_MODEL = "language_model.safetensors"
ADAPTED = "pretraining"  # the run folder inside the folder of a transformer that has read raw text


def build_expert(config: Config, folder: RunFolder, indexer: Indexer, classes: int) -> Expert:
    """The expert of a run, before it has learned anything from labels."""
    settings = config.expert
    match settings.kind:
        case "transformer":
            return load_transformer(folder / HUB, classes, config.seed, settings.frozen_layers)
        case "frozen":
            assert isinstance(indexer.reader, FrozenFeatures)
            return LinearExpert(indexer.reader.size, classes)
        case "given":
            return GivenExpert(classes)
    frequencies = word_frequencies(config, indexer.words)
    if settings.kind == "average":
        return AverageExpert(settings, indexer.words.size, classes, frequencies)
    features = None
    if settings.kind == "elmo-lstm":
        features = ElmoFeatures(build_language_model(config, indexer.words))
    return LSTMExpert(settings, indexer.words.size, classes, frequencies, features)


def build_language_model(config: Config, words: Words) -> LanguageModel:
    """The language model whose weights the expert of a run takes over."""
    settings = config.expert
    return LanguageModel(
        settings.embedding_dim,
        settings.hidden_dim,
        words.size,
        word_frequencies(config, words),
        is_bidirectional=settings.kind == "elmo-lstm",
    )


def word_frequencies(config: Config, words: Words) -> torch.Tensor | None:
    """How often each word occurs (V,), where embeddings are normalized by it."""
    return torch.from_numpy(words.counts.astype(np.float32)) if config.expert.is_normalized else None


def build_imitators(config: Config, pieces: int, classes: int, is_taught: bool) -> Imitators:
    """The imitators of a run; none where there was no unlabeled text to teach them."""
    settings = config.imitators if is_taught else config.imitators.model_copy(update={"windows": ()})
    return Imitators(settings, pieces, classes)


class SoftLabelReader:
    """What the teacher says of each text, as log-probabilities; it is looked for when first asked."""

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
        """Whether it is a function, which may do anything, and no table."""
        return self.config.expert.model is None and not isinstance(self.soft_labels, SoftLabelTable)

    def digest(self) -> str | None:
        """A checksum of the table that it looks texts up in; a function has none."""
        self.soft_labels = open_soft_labels(self.config, self.classes, self.soft_labels)
        return self.soft_labels.digest if isinstance(self.soft_labels, SoftLabelTable) else None

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """log p (Y numbers) of each text."""
        self.soft_labels = open_soft_labels(self.config, self.classes, self.soft_labels)
        said = np.zeros((0, len(self.classes)))
        if len(texts):  # many a function fails on none
            said = checked(self.soft_labels(texts), len(texts), len(self.classes), "The teacher")
        log_p = np.log(np.maximum(said, LEAST_PROBABILITY)).astype(np.float32)
        return Ragged(log_p.ravel(), np.arange(len(texts) + 1, dtype=np.int64) * len(self.classes))


def open_soft_labels(config: Config, classes: Sequence[Label], soft_labels: SoftLabels | None) -> SoftLabels:
    """The function that was given, or else the table in the files that the settings name."""
    if soft_labels is not None:
        return soft_labels
    if config.expert.model is None:
        raise ConfigError(
            "expert.kind is 'teacher', but there is none: give --soft-labels FILE, or teacher= in Python."
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
    if settings.kind == "given":
        return SoftLabelReader(config, classes, soft_labels)
    if soft_labels is not None:
        raise ConfigError(f"A teacher was given, but expert.kind is {settings.kind!r}: set it to teacher.")
    if settings.reads_words:
        return None
    if not (folder / HUB).exists():
        assert settings.model is not None
        fetch(settings.model, folder / HUB, len(classes), settings.layers, settings.frozen_layers)
    threads = config.runtime.workers or cores()
    if settings.kind == "frozen":
        return FrozenFeatures(folder / HUB, config.words.max_length, device, threads)
    return HubTokenizer(folder / HUB, config.words.max_length, threads)


def words_of_language_model(config: Config) -> Words | None:
    """The vocabulary that a pre-trained language model brings along."""
    if config.expert.language_model is None:
        return None
    folder = RunFolder(Path(config.expert.language_model))
    theirs = settings_of_language_model(folder.path)
    ours = _shared_settings(config)
    differences = [name for name in ours if theirs[name] != ours[name]]
    if differences:
        told = ", ".join(f"{name}={_as_set(theirs[name])}" for name in differences)
        raise ConfigError(
            f"The language model in {folder.path} was trained with other settings: set {told}, "
            f"instead of {', '.join(_as_set(ours[name]) for name in differences)}."
        )
    return Words.load(folder / "words.txt")


def settings_of_language_model(path: Path) -> dict[str, Any]:
    """The settings, by dotted name, that an expert must share with the language model in a folder."""
    folder = RunFolder(path)
    if not (folder / LANGUAGE_MODEL).exists():
        raise RunError(_why_none(folder))
    return _shared_settings(make_config(folder.read_json("config.json").get("config", {})))


def _why_none(folder: RunFolder) -> str:
    """A sentence for a folder without a language model."""
    if (folder / ADAPTED).exists():
        return f"{folder.path} holds a transformer that read raw text: give it by --set expert.model."
    content = folder.read_json("config.json") if (folder / "config.json").exists() else {}
    elsewhere = content.get("config", {}).get("expert", {}).get("language_model")
    if elsewhere is not None:
        return f"{folder.path} started from the language model in {elsewhere}: give that."
    return f"{folder.path} holds no language model: make one with `mein pretrain` in a folder of its own."


def digest_of_language_model(config: Config) -> str:
    """A checksum of its weights."""
    assert config.expert.language_model is not None
    with (Path(config.expert.language_model) / LANGUAGE_MODEL).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shared_settings(config: Config) -> dict[str, Any]:
    """What a state means; how much of a document is read is the expert's own affair."""
    words, expert = config.words, config.expert
    return {
        "words.tokenizer": words.tokenizer,
        "words.lowercase": words.lowercase,
        "words.min_documents": words.min_documents,
        "words.max_words": words.max_words,
        "expert.kind": expert.kind,
        "expert.embedding_dim": expert.embedding_dim,
        "expert.hidden_dim": expert.hidden_dim,
        "expert.normalizes_embeddings": expert.is_normalized,
    }


def _as_set(value: Any) -> str:
    """A value as --set takes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
