"""A trained classifier: text in, probabilities out. What a finished run folder holds."""

import hashlib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.config import Config, make_config
from mein.data.labels import Labels
from mein.errors import ConfigError, RunError
from mein.evaluation.calibration import apply_temperature
from mein.experts.lstm import LSTMExpert
from mein.imitators.reference import Imitators
from mein.inference import choose_device, expert_logits, imitator_alpha
from mein.text.encoder import Encoder
from mein.text.pieces import Pieces
from mein.text.ragged import Ragged
from mein.text.words import Words
from mein.training.checkpoint import load_tensors, save_tensors
from mein.training.folder import RunFolder

VOCABULARIES = ("words.txt", "pieces.model")  # their checksums are in vocabularies.json
SEALED = ("config.json", "labels.json", "vocabularies.json")  # theirs in `done`


@dataclass(frozen=True)
class Encoded:
    """Documents as numbers: what the expert reads and what the imitators read."""

    words: Ragged
    pieces: Ragged

    @property
    def is_empty(self) -> np.ndarray:
        """Which documents say nothing (n,): no piece, and no word but the end of sequence."""
        empty: np.ndarray = (self.pieces.lengths == 0) & (self.words.lengths <= 1)
        return empty


@dataclass
class Model:
    """p(y | X) = softmax((z + sum_i g_i alpha_i) / temperature)."""

    config: Config
    labels: Labels
    prior: np.ndarray
    encoder: Encoder
    expert: LSTMExpert
    imitators: Imitators
    gates: np.ndarray
    temperature: float
    imitator_temperature: float

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The texts as numbers."""
        return Encoded(*self.encoder.encode_ragged(texts))

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y), float64. A text that says nothing gets the classes' training shares."""
        documents = self.encode(texts)
        logits = mixed_logits(self.expert_logits(documents), self.alpha(documents), self.gates)
        return self.calibrated(documents, logits, self.temperature)

    def imitator_log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y) of the imitators alone: faster, a little weaker."""
        documents = self.encode(texts)
        return self.calibrated(documents, self.alpha(documents).sum(0), self.imitator_temperature)

    def expert_logits(self, documents: Encoded) -> np.ndarray:
        """z (n, Y)."""
        return expert_logits(self.expert, documents.words)

    def alpha(self, documents: Encoded) -> np.ndarray:
        """alpha (I, n, Y)."""
        return imitator_alpha(self.imitators, documents.pieces, len(self.labels.classes))

    def calibrated(self, documents: Encoded, logits: np.ndarray, temperature: float) -> np.ndarray:
        """log p(y | X) (n, Y) from logits (n, Y); the prior where a document says nothing."""
        log_probs = apply_temperature(logits, temperature)
        log_probs[documents.is_empty] = np.log(self.prior)
        return log_probs

    def to(self, device: torch.device) -> None:
        """Move the networks to a device."""
        self.expert.to(device)
        self.imitators.to(device)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the networks as they are on a CPU, so that a machine without a GPU can open them."""
        networks = {"expert": deepcopy(self.expert).cpu(), "imitators": deepcopy(self.imitators).cpu()}
        return {**vars(self), **networks}

    def save(self, path: Path) -> None:
        """Write a run folder that `load_model` reads; refuse one that holds something else."""
        folder = RunFolder(path)
        if (folder / "config.json").exists():
            raise RunError(f"{path} already holds a run: save to another folder.")
        with folder.held():
            folder.claim({"config": self.config.model_dump(mode="json")}, resume=False)
            folder.write_json(
                "labels.json", {"classes": list(self.labels.classes), "prior": self.prior.tolist()}
            )
            save_encoder(folder, self.encoder, {})
            save_tensors(
                folder / "imitators.safetensors",
                self.imitators.state_dict(),
                {"temperature": self.imitator_temperature},
            )
            save_tensors(
                folder / "mixture.safetensors",
                self.expert.state_dict(),
                {"gates": self.gates.tolist(), "temperature": self.temperature},
            )
            seal(folder)


def seal(folder: RunFolder) -> None:
    """Mark a run as finished, with checksums of the files that carry none of their own."""
    folder.write_json("done", {"sha256": _digests(folder, SEALED)})


def load_model(path: Path, device: str = "auto") -> Model:
    """The classifier that a finished run left in its folder."""
    folder = RunFolder(path)
    config = read_config(folder)
    if not folder.is_done:
        raise RunError(f"The run in {path} is not finished: continue it with `mein train --resume`.")
    _verify(folder, "done", SEALED)
    return load_variant(folder, config, "mixture", choose_device(device))


def read_config(folder: RunFolder) -> Config:
    """The configuration of a run."""
    if not folder.path.is_dir():
        raise RunError(f"There is no run folder {folder.path}: give the one that `mein train --out` wrote.")
    content = folder.read_json("config.json")
    try:
        return make_config(content["config"])
    except (KeyError, TypeError, ValueError, ConfigError) as problem:
        raise RunError(
            f"{folder / 'config.json'} is damaged or of another version of mein ({problem}): "
            "restore it from a copy, or use that version."
        ) from problem


def load_variant(folder: RunFolder, config: Config, name: str, device: torch.device) -> Model:
    """The mixture, or what it is compared with: the plain expert, closed gates, random vectors."""
    labels, prior = _read_labels(folder)
    encoder = load_encoder(config, folder)
    is_taught = any(key.startswith("outputs.") for key in load_tensors(folder / "imitators.safetensors")[0])
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and then replaced
        expert = LSTMExpert(config.expert, encoder.words.size, len(labels.classes))
        imitators = build_imitators(config, encoder.pieces.size, len(labels.classes), is_taught)
    facts = restore(folder, name, expert)
    imitator_facts = restore(folder, "imitators", imitators)
    return Model(
        config=config,
        labels=labels,
        prior=prior,
        encoder=encoder,
        expert=expert.to(device),
        imitators=imitators.to(device),
        gates=np.array(facts["gates"]),
        temperature=facts["temperature"],
        imitator_temperature=imitator_facts["temperature"],
    )


def _read_labels(folder: RunFolder) -> tuple[Labels, np.ndarray]:
    """The classes and the share of each in training (Y,)."""
    content = folder.read_json("labels.json")
    try:
        labels, prior = Labels(tuple(content["classes"])), np.array(content["prior"], np.float64)
    except (KeyError, TypeError, ValueError) as problem:
        raise _damaged(folder / "labels.json") from problem
    if prior.shape != (len(labels.classes),):
        raise _damaged(folder / "labels.json")
    return labels, prior


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


def mixed_logits(z: np.ndarray, alpha: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """z' (n, Y), float64, from z (n, Y), alpha (I, n, Y), gates (I,), or () for closed ones."""
    if len(gates) == 0:
        return z.astype(np.float64)
    mixed: np.ndarray = z + np.einsum("i,iny->ny", gates, alpha.astype(np.float64))  # Eq. 6
    return mixed


def load_encoder(config: Config, folder: RunFolder) -> Encoder:
    """The vocabularies of a run, once they have proved to be those that it was trained with."""
    encoder = Encoder(config.words, Words.load(folder / "words.txt"), Pieces.load(folder / "pieces.model"))
    _verify(folder, "vocabularies.json", VOCABULARIES)
    return encoder


def save_encoder(folder: RunFolder, encoder: Encoder, facts: dict[str, int]) -> None:
    """Leave words.txt and pieces.model in the folder, and then what is known of them."""
    encoder.words.save(folder / "words.txt")
    encoder.pieces.save(folder / "pieces.model")
    sizes = {"words": encoder.words.size, "pieces": encoder.pieces.size}
    folder.write_json("vocabularies.json", {**sizes, **facts, "sha256": _digests(folder, VOCABULARIES)})


def _verify(folder: RunFolder, written_in: str, names: Sequence[str]) -> None:
    """Refuse files that are not those whose checksums were written."""
    written = folder.read_json(written_in).get("sha256")
    for name, digest in _digests(folder, names).items():
        if not isinstance(written, dict) or written.get(name) != digest:
            raise _damaged(folder / name)


def _digests(folder: RunFolder, names: Sequence[str]) -> dict[str, str]:
    try:
        return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    except OSError as problem:
        raise _damaged(Path(problem.filename)) from problem


def _damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged or was changed by another program: restore it from a copy.")


def build_imitators(config: Config, pieces: int, classes: int, is_taught: bool) -> Imitators:
    """The imitators of a run; none where there was no unlabelled text to teach them."""
    settings = config.imitators if is_taught else config.imitators.model_copy(update={"windows": ()})
    return Imitators(settings, pieces, classes)
