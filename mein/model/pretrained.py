"""The folder of a language model that an expert starts from: its settings, vocabulary, and digest."""

import hashlib
from pathlib import Path
from typing import Any

from mein.config import Config, make_config
from mein.errors import ConfigError, RunError
from mein.runtime.run_folder import RunFolder
from mein.text.words import Words

LANGUAGE_MODEL = "language_model.safetensors"
ADAPTED = "pretraining"  # the run folder inside the folder of a transformer pre-trained on raw text


def words_of_language_model(config: Config) -> Words | None:
    """The vocabulary that a pre-trained language model brings along."""
    if config.expert.language_model is None:
        return None
    folder = RunFolder(Path(config.expert.language_model))
    theirs = settings_of_language_model(folder.path)
    ours = _shared_settings(config)
    differences = [name for name in ours if theirs[name] != ours[name]]
    if differences:
        wanted = ", ".join(f"{name}={_as_set(theirs[name])}" for name in differences)
        raise ConfigError(
            f"The language model in {folder.path} was trained with other settings: set {wanted}, "
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
        return f"{folder.path} holds a transformer pre-trained on raw text: give it by --set expert.model."
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
    """The settings by which two networks give the same word the same meaning; lengths may differ."""
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
