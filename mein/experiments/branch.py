"""A run that starts where another stands: what they share is linked, not computed again."""

from typing import Literal

from mein.building import HUB
from mein.config import Config
from mein.data.corpus import Corpus
from mein.files import link_or_copy
from mein.run import identity_of
from mein.text.store import EXPERT_COLUMN, LABELS
from mein.training.checkpoint import load_tensors, save_tensors
from mein.training.folder import RunFolder

TEXT = ("words.txt", "pieces.model", "vocabularies.json", "labels.json", "prepared.json")

Shared = Literal["text", "expert", "imitators"]


def branch(source: RunFolder, target: RunFolder, config: Config, corpus: Corpus, shared: Shared) -> None:
    """Make `target` a run of its own settings that has what `source` has up to and with `shared`.

    text: vocabularies, encoded documents, and what a transformer started from; expert: also the expert and
    its word on unlabelled text; imitators: also these, less their offset where the new settings do not
    centre evidence.
    """
    with target.held():
        share(source, target, config, corpus, shared)


def share(source: RunFolder, target: RunFolder, config: Config, corpus: Corpus, shared: Shared) -> None:
    """The same in a folder that the caller holds."""
    target.claim(identity_of(config, corpus), resume=(target / "config.json").exists())
    for path in sorted((source / "encoded").rglob("*.*")):
        is_word = f".{EXPERT_COLUMN}." in path.name or path.name == LABELS
        if shared != "text" or not is_word:
            link_or_copy(path, target / str(path.relative_to(source.path)))
    for path in sorted(path for path in (source / HUB).rglob("*") if path.is_file()):
        link_or_copy(path, target / str(path.relative_to(source.path)))
    for name in [*TEXT, *(["expert.safetensors"] if shared != "text" else [])]:
        link_or_copy(source / name, target / name)
    if shared == "imitators" and not (target / "imitators.safetensors").exists():
        tensors, facts = load_tensors(source / "imitators.safetensors")
        if not config.mixture.centers_evidence:
            tensors["offset"].zero_()
        save_tensors(target / "imitators.safetensors", tensors, facts)
