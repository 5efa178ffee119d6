"""A trained classifier: text in, probabilities out. What a finished run folder holds."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.config import Config
from mein.data.labels import Labels
from mein.errors import RunError
from mein.evaluation.metrics import apply_temperature
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.inference import Evidence, device_of, expert_logits
from mein.mixture.lexicon import LEXICON, Lexicon
from mein.model.artefacts import save_indexer, seal
from mein.model.build import HUB, open_reader
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import save_tensors
from mein.text.indexer import Indexer
from mein.text.ragged import Ragged


@dataclass(frozen=True)
class Encoded:
    """Documents as numbers: what the expert reads and what the imitators read."""

    words: Ragged
    pieces: Ragged
    reads_words: bool = True
    """Whether the expert reads our words, rather than numbers of its own, which tell nothing of them."""

    @property
    def is_empty(self) -> np.ndarray:
        """Which documents say nothing (n,): no piece, and no word but the end of sequence."""
        empty: np.ndarray = self.pieces.lengths == 0
        return empty & (self.words.lengths <= 1) if self.reads_words else empty


@dataclass
class Model:
    """p(y | X) = softmax((z + sum_i g_i alpha_i) / temperature), and in the sum a lexicon's word, if any."""

    config: Config
    labels: Labels
    prior: np.ndarray
    indexer: Indexer
    expert: Expert
    imitators: Imitators
    gates: np.ndarray
    temperature: float
    imitator_temperature: float
    hub: Path | None = None
    """Where a transformer's or encoder's own files lie, in a folder of that name."""
    lexicon: Lexicon | None = None

    @cached_property
    def evidence(self) -> Evidence:
        """What the imitators say; what they look pieces up in is made once."""
        return Evidence(self.imitators, len(self.labels.classes))

    def encode(self, texts: Sequence[str], *, imitators_only: bool = False) -> Encoded:
        """The texts as numbers; where the expert is not asked, the imitators' alone."""
        if not imitators_only:
            return Encoded(*self.indexer.encode_ragged(texts), self.indexer.reader is None)
        pieces = self.indexer.pieces_of(texts)
        return Encoded(pieces, pieces, reads_words=False)

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y), float64. A text that says nothing gets the classes' training shares."""
        documents = self.encode(texts)
        return self.mixture_log_probs(documents, self.alpha(documents))

    def imitator_log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y) of the imitators alone: faster, a little weaker."""
        documents = self.encode(texts, imitators_only=True)
        return self.imitator_only_log_probs(documents, self.alpha(documents))

    def mixture_log_probs(
        self, documents: Encoded, alpha: np.ndarray, z: np.ndarray | None = None
    ) -> np.ndarray:
        """log p(y | X) (n, Y) with alpha (I, n, Y), and z (n, Y) where the expert was asked before."""
        mixed = mixed_logits(self.expert_logits(documents) if z is None else z, alpha, self.gates)
        if self.lexicon is not None:
            mixed = mixed + self.lexicon.logits(documents.pieces)
        return self.calibrated(documents, mixed, self.temperature)

    def imitator_only_log_probs(self, documents: Encoded, alpha: np.ndarray) -> np.ndarray:
        """log p(y | X) (n, Y) of the imitators alone, with their alpha (I, n, Y)."""
        return self.calibrated(documents, alpha.astype(np.float64).sum(0), self.imitator_temperature)

    def expert_logits(self, documents: Encoded) -> np.ndarray:
        """z (n, Y)."""
        return expert_logits(self.expert, documents.words)

    def alpha(self, documents: Encoded) -> np.ndarray:
        """alpha (I, n, Y)."""
        return self.evidence.alpha(documents.pieces)

    def calibrated(self, documents: Encoded, logits: np.ndarray, temperature: float) -> np.ndarray:
        """log p(y | X) (n, Y) from logits (n, Y); the prior where a document says nothing."""
        log_probs = apply_temperature(logits, temperature)
        log_probs[documents.is_empty] = np.log(self.prior)
        return log_probs

    def to(self, device: torch.device) -> None:
        """Move the networks, also the one that a frozen encoder reads with, to a device."""
        self.expert.to(device)
        self.imitators.to(device)
        vars(self).pop("evidence", None)  # its tables lie where the imitators lay
        if self.hub is not None:
            classes = self.labels.classes
            self.indexer.reader = open_reader(self.config, RunFolder(self.hub.parent), classes, device)

    def keep_hub(self, fill: Callable[[Path], Any]) -> None:
        """Read from a copy of the hub's files that `fill` makes, which lives as long as this does."""
        home = Path(tempfile.mkdtemp(prefix="mein-hub-"))
        weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        self.hub = home / HUB
        fill(self.hub)
        self.to(device_of(self.expert))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the networks as they are on a CPU, so that a machine without a GPU can open them.

        The hub's files go along, and what reads with them is opened anew: their folder may be gone.
        """
        networks = {"expert": deepcopy(self.expert).cpu(), "imitators": deepcopy(self.imitators).cpu()}
        state = {**vars(self), **networks}
        state.pop("evidence", None)
        if self.hub is not None:
            indexer = self.indexer
            state["indexer"] = Indexer(indexer.words_config, indexer.words, indexer.pieces)
            state["hub"] = {
                str(file.relative_to(self.hub)): file.read_bytes()
                for file in self.hub.rglob("*")
                if file.is_file()
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        files = state["hub"]
        if files is not None:
            self.keep_hub(lambda folder: _unpack(files, folder))

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
            save_indexer(folder, self.indexer, {})
            save_tensors(
                folder / "imitators.safetensors",
                self.imitators.state_dict(),
                {"temperature": self.imitator_temperature},
            )
            gates = self.gates.tolist()
            if self.lexicon is not None:
                save_tensors(folder / LEXICON, self.lexicon.tensors(), {})
                gates.append(self.lexicon.gate)
            facts = {"gates": gates, "temperature": self.temperature}
            save_tensors(folder / "mixture.safetensors", self.expert.state_dict(), facts)
            if self.hub is not None:
                shutil.copytree(self.hub, folder / HUB)
            seal(folder)


def _unpack(files: dict[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def mixed_logits(z: np.ndarray, alpha: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """z' (n, Y), float64, from z (n, Y), alpha (I, n, Y), gates (I,), or () for closed ones."""
    if len(gates) == 0:
        return z.astype(np.float64)
    mixed: np.ndarray = z + np.einsum("i,iny->ny", gates, alpha.astype(np.float64))  # Eq. 6
    return mixed
