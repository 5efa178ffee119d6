"""The files of a run folder that are read back: proved to be those that were written."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mein.config import Config
from mein.errors import RunError
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.text.indexer import Indexer, Reader
from mein.text.pieces import Pieces
from mein.text.words import Words

VOCABULARIES = ("words.txt", "pieces.model")  # their checksums are in vocabularies.json
SEALED = ("config.json", "labels.json", "vocabularies.json")  # theirs in `done`


def seal(folder: RunFolder) -> None:
    """Mark a run as finished, with checksums of the files that carry none of their own."""
    folder.write_json("done", {"sha256": _digests(folder, SEALED)})


def restore(folder: RunFolder, name: str, network: torch.nn.Module) -> dict[str, Any]:
    """Give a network the weights of its artefact, and return the facts beside them."""
    path = folder / f"{name}.safetensors"
    weights, facts = load_tensors(path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as problem:
        raise RunError(
            f"{path} does not fit config.json and the vocabularies beside it: "
            "the folder mixes files of different runs; restore it from a copy."
        ) from problem
    return facts


def load_indexer(config: Config, folder: RunFolder, reader: Reader | None = None) -> Indexer:
    """The vocabularies of a run, once they have proved to be those that it was trained with."""
    words, pieces = Words.load(folder / "words.txt"), Pieces.load(folder / "pieces.model")
    indexer = Indexer(config.words, words, pieces, reader)
    verify(folder, "vocabularies.json", VOCABULARIES)
    return indexer


def save_indexer(folder: RunFolder, indexer: Indexer, facts: dict[str, int]) -> None:
    """Leave words.txt and pieces.model in the folder, and then what is known of them."""
    indexer.words.save(folder / "words.txt")
    indexer.pieces.save(folder / "pieces.model")
    sizes = {"words": indexer.words.size, "pieces": indexer.pieces.size}
    folder.write_json("vocabularies.json", {**sizes, **facts, "sha256": _digests(folder, VOCABULARIES)})


def verify(folder: RunFolder, written_in: str, names: Sequence[str]) -> None:
    """Refuse files that are not those whose checksums were written."""
    written = folder.read_json(written_in).get("sha256")
    for name, digest in _digests(folder, names).items():
        if not isinstance(written, dict) or written.get(name) != digest:
            raise damaged(folder / name)


def _digests(folder: RunFolder, names: Sequence[str]) -> dict[str, str]:
    try:
        return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    except OSError as problem:
        raise damaged(Path(problem.filename)) from problem


def damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged or was changed by another program: restore it from a copy.")
