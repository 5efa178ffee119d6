"""A run that starts where another stands: what they share is linked, not computed again."""

import os
import shutil
from pathlib import Path
from typing import Literal

from mein.config import Config
from mein.data.corpus import Corpus
from mein.run import identity_of
from mein.training.checkpoint import load_tensors, save_tensors
from mein.training.folder import RunFolder
from mein.training.scores import EXPERT_COLUMN

TEXT = ("words.txt", "pieces.model", "vocabularies.json", "labels.json", "prepared.json")

Shared = Literal["text", "expert", "imitators"]


def branch(source: RunFolder, target: RunFolder, config: Config, corpus: Corpus, shared: Shared) -> None:
    """Make `target` a run of its own settings that has what `source` has up to and with `shared`.

    text: vocabularies and encoded documents; expert: also the expert and its word on unlabelled text;
    imitators: also these, less their offset where the new settings do not centre evidence.
    """
    with target.held():
        share(source, target, config, corpus, shared)


def share(source: RunFolder, target: RunFolder, config: Config, corpus: Corpus, shared: Shared) -> None:
    """The same in a folder that the caller holds."""
    target.claim(identity_of(config, corpus), resume=(target / "config.json").exists())
    for path in sorted((source / "encoded").rglob("*.*")):
        is_word = path.name.endswith(f".{EXPERT_COLUMN}.arrow")
        if shared != "text" or not is_word:
            _link(path, target / str(path.relative_to(source.path)))
    for name in [*TEXT, *(["expert.safetensors"] if shared != "text" else [])]:
        _link(source / name, target / name)
    if shared == "imitators" and not (target / "imitators.safetensors").exists():
        tensors, facts = load_tensors(source / "imitators.safetensors")
        if not config.mixture.centers_evidence:
            tensors["offset"].zero_()
        save_tensors(target / "imitators.safetensors", tensors, facts)


def _link(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where the disk knows no links; whole or not there."""
    if target.exists() or source.name.startswith("."):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        shutil.copyfile(source, temporary)
        temporary.replace(target)
