"""A trained classifier: text in, probabilities out. What a finished run folder holds."""

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mein.config import Config
from mein.data.labels import Labels
from mein.errors import RunError
from mein.evaluation.metrics import apply_temperature
from mein.experts.base import LinearWeights
from mein.mixture.gates import Weights
from mein.mixture.lexicon import LEXICON, Lexicon
from mein.model.artefacts import HUB, save_indexer, seal
from mein.model.build import open_reader
from mein.model.user import UserReader
from mein.runtime.progress import QUIET, Task
from mein.runtime.run_folder import RunFolder
from mein.text.indexer import Indexer
from mein.text.ragged import Ragged


@dataclass(frozen=True)
class Encoded:
    """Documents as numbers: what the expert reads and what the imitators read."""

    words: Ragged
    pieces: Ragged
    reads_words: bool = True
    """Whether the expert reads words of the vocabulary, rather than numbers of its own reader."""

    @property
    def is_empty(self) -> np.ndarray:
        """Which documents are empty (n,): no piece, and no word but the end of sequence."""
        empty: np.ndarray = self.pieces.lengths == 0
        return empty & (self.words.lengths <= 1) if self.reads_words else empty


class Networks(Protocol):
    """What a classifier needs of its networks, over numpy arrays: they may be of torch, or not."""

    @property
    def windows(self) -> tuple[int, ...]:
        """c_i of each imitator."""

    @property
    def device(self) -> Any:
        """Where the networks lie."""

    def logits(self, words: Ragged, task: Task = QUIET) -> np.ndarray:
        """z (n, Y), float32; a task is advanced after every batch."""

    def alpha(self, pieces: Ragged) -> np.ndarray:
        """alpha (I, n, Y), float32."""

    def window_probs(self, pieces: Ragged) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Batches: rows (n,), a stream (S,), the row of each position (S,), -1 in gaps; p_ij (I, S, Y)."""

    def blanked(self, pieces: np.ndarray, labels: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """sum_j p_ij of two labels (I, 2) over pieces (J,), and its change by blanking each (I, J, 2)."""

    def linear_weights(self) -> LinearWeights | None:
        """Those of an expert that is linear in words; none of other experts."""

    def has_expert_of(self, other: Any) -> bool:
        """Whether the experts of both have the same weights."""

    def to(self, device: Any) -> None:
        """Move the networks to a device."""

    def save(self, folder: Path, of_mixture: dict[str, Any], of_imitators: dict[str, Any]) -> None:
        """Write the artefacts `mixture` and `imitators` with the facts that belong to them."""

    def digest(self) -> str:
        """Equal for equal weights."""


@dataclass
class Model:
    """p(y | X) = softmax((z + sum_i g_i alpha_i) / temperature), in the sum a lexicon, if there is one."""

    config: Config
    labels: Labels
    prior: np.ndarray
    indexer: Indexer
    networks: Networks
    gates: np.ndarray
    temperature: float
    imitator_temperature: float
    hub: Path | None = None
    """Where the files of a transformer or an encoder lie, in a folder of that name."""
    lexicon: Lexicon | None = None

    @property
    def windows(self) -> tuple[int, ...]:
        """c_i of each imitator."""
        return self.networks.windows

    @property
    def weights(self) -> np.ndarray:
        """Gate over temperature of each imitator (I,)."""
        return self.gates / self.temperature

    def encode(self, texts: Sequence[str], *, imitators_only: bool = False) -> Encoded:
        """The texts as numbers; those of the imitators only, where the expert is not needed."""
        if not imitators_only:
            return Encoded(*self.indexer.encode_ragged(texts), self.indexer.reader is None)
        pieces = self.indexer.pieces_of(texts)
        return Encoded(pieces, pieces, reads_words=False)

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y), float64. A text without any known piece gets the classes' training shares."""
        documents = self.encode(texts)
        return self.mixture_log_probs(documents, self.alpha(documents))

    def imitator_log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """log p(y | X) (n, Y) of the imitators only: faster, a little weaker."""
        documents = self.encode(texts, imitators_only=True)
        return self.imitator_only_log_probs(documents, self.alpha(documents))

    def mixture_log_probs(
        self, documents: Encoded, alpha: np.ndarray, z: np.ndarray | None = None
    ) -> np.ndarray:
        """log p(y | X) (n, Y) with alpha (I, n, Y), and z (n, Y) where it is known already."""
        mixed = mixed_logits(self.expert_logits(documents) if z is None else z, alpha, self.gates)
        if self.lexicon is not None:
            mixed = mixed + self.lexicon.logits(documents.pieces)
        return self.calibrated(documents, mixed, self.temperature)

    def imitator_only_log_probs(self, documents: Encoded, alpha: np.ndarray) -> np.ndarray:
        """log p(y | X) (n, Y) of the imitators only, with their alpha (I, n, Y)."""
        return self.calibrated(documents, alpha.astype(np.float64).sum(0), self.imitator_temperature)

    def expert_logits(self, documents: Encoded) -> np.ndarray:
        """z (n, Y)."""
        return self.networks.logits(documents.words)

    def alpha(self, documents: Encoded) -> np.ndarray:
        """alpha (I, n, Y)."""
        return self.networks.alpha(documents.pieces)

    def calibrated(self, documents: Encoded, logits: np.ndarray, temperature: float) -> np.ndarray:
        """log p(y | X) (n, Y) from logits (n, Y); the prior where a document is empty."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            log_probs, prior = apply_temperature(logits, temperature), np.log(self.prior)
        if np.isnan(log_probs).any():
            raise RunError(
                "The classifier gives NaN, not probabilities, since its weights are too large: restore the "
                "run from a copy, or train it again with a lower learning rate."
            )
        log_probs[documents.is_empty] = prior
        return log_probs

    @property
    def fingerprint(self) -> str:
        """Equal for two models only if they predict the same for every text."""
        lexicon = None if self.lexicon is None else self.lexicon.digest()
        facts = [list(self.labels.classes), self.prior.tolist(), self.gates.tolist()]
        parts = [self.indexer.fingerprint, self.networks.digest(), lexicon, *facts]
        parts += [self.temperature, self.imitator_temperature]
        return hashlib.blake2b(json.dumps(parts).encode("utf-8"), digest_size=16).hexdigest()

    def to(self, device: Any) -> None:
        """Move the networks, also the one that a frozen encoder reads with, to a device."""
        self.networks.to(device)
        if self.hub is not None:
            classes = self.labels.classes
            self.indexer.reader = open_reader(self.config, RunFolder(self.hub.parent), classes, device)

    def keep_hub(self, fill: Callable[[Path], Any]) -> None:
        """Read from a copy of the hub's files that `fill` makes, which lives as long as this does."""
        home = Path(tempfile.mkdtemp(prefix="mein-hub-"))
        weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        self.hub = home / HUB
        fill(self.hub)
        self.to(self.networks.device)

    def __getstate__(self) -> dict[str, Any]:
        """The hub's files are pickled too, for their folder may be gone; their reader is opened anew."""
        state = dict(vars(self))
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
            if self.lexicon is not None:
                self.lexicon.save(folder / LEXICON)
            gate = None if self.lexicon is None else self.lexicon.gate
            of_mixture = Weights(self.gates, gate, self.temperature)
            of_imitators = Weights(np.zeros(0), temperature=self.imitator_temperature)
            self.networks.save(folder.path, of_mixture.to_facts(), of_imitators.to_facts())
            if isinstance(self.indexer.reader, UserReader):
                self.indexer.reader.save(folder.path)
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
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
        mixed: np.ndarray = z + np.einsum("i,iny->ny", gates, alpha.astype(np.float64))  # Eq. 6
    return mixed
