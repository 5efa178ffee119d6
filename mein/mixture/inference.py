"""Inference with frozen networks: the expert's logits and the imitators' alpha, batch by batch."""

import hashlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mein.experts.base import Expert, LinearWeights
from mein.imitators.projected import Tabulated, blanked_probs, projected_log_probs
from mein.imitators.reference import Imitators, average_windows
from mein.runtime.device import batch_tokens, device_of, fast_precision
from mein.runtime.progress import QUIET, Reporter, Task
from mein.runtime.tensors import save_tensors
from mein.text.batches import PieceBatch, in_batches, pack_pieces, pad_words
from mein.text.ragged import Ragged


def expert_logits(expert: Expert, words: Ragged, task: Task = QUIET) -> np.ndarray:
    """z (n, Y), float32, in the documents' order; documents of similar length share a batch.

    The task advances with every batch.
    """
    logits = np.zeros((len(words), expert.classes), dtype=np.float32)
    for documents in logits_in_batches(expert, words, logits):
        task.advance(documents)
    return logits


@torch.no_grad()
def logits_in_batches(expert: Expert, words: Ragged, logits: np.ndarray) -> Iterator[int]:
    """Fill z (n, Y) at the end; yields the number of documents of each batch."""
    device = device_of(expert)
    tokens, order = batch_tokens(device), np.argsort(words.lengths, kind="stable")

    def read(rows: np.ndarray) -> Tensor:
        batch = pad_words(words.take(rows), device)
        with fast_precision(device):
            z: Tensor = expert(batch.words, batch.lengths)
        return z.float()

    found = [torch.zeros(0, expert.classes, device=device)]
    for z in in_batches(words.lengths, order, tokens, read):
        found.append(z)
        yield len(z)
    logits[order] = torch.cat(found).cpu().numpy()  # once, so that a GPU continues while batches are prepared


class CachedLogits:
    """An expert's logits z (n, Y) on some documents, cached until its weights change.

    Stages, controls, and the evaluation often need the logits of the same expert, which may be slow.
    Frozen parameters are assumed to be the same. Processes that compute together must agree on when.
    """

    def __init__(
        self,
        words: Ragged,
        part: str,
        reporter: Reporter,
        compute: Callable[[Expert, Ragged, Task], np.ndarray] = expert_logits,
        agreed: Callable[[bool], bool] = bool,
    ) -> None:
        self.words = words
        self._part = part
        self._reporter = reporter
        self._compute = compute
        self._agreed = agreed
        self._weights: dict[str, Tensor] | None = None
        self._z = np.zeros(0)

    def __call__(self, expert: Expert) -> np.ndarray:
        """z (n, Y), not to be written to."""
        weights = learned_weights(expert)
        if self._agreed(self._weights is None or not _are_equal(weights, self._weights)):
            self._weights = None  # gives its memory back first
            with self._reporter.task(f"expert on {self._part}", len(self.words)) as task:
                self._z = self._compute(expert, self.words, task)
            self._weights = {name: value.clone() for name, value in weights.items()}
        return self._z


def _are_equal(some: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    """Whether tensors of the same names are equal."""
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)


def imitator_alpha(imitators: Imitators, pieces: Ragged, classes: int) -> np.ndarray:
    """alpha less the imitators' offset (I, n, Y), float32, in the documents' order."""
    return Evidence(imitators, classes).alpha(pieces)


class Evidence:
    """The evidence of frozen imitators; tables of the full vocabulary are computed once and kept.

    Whether a call uses the tables depends only on its own documents, so that the same documents give the
    same bits whatever was computed before, unless a GPU is full.
    """

    def __init__(self, imitators: Imitators, classes: int) -> None:
        self.imitators = imitators
        self.classes = classes
        self._tables: Callable[[Tensor], Tensor] | None = None

    @torch.no_grad()
    def alpha(self, pieces: Ragged) -> np.ndarray:
        """alpha less the imitators' offset (I, n, Y), float32, in the documents' order."""
        if not self.imitators.windows or not len(pieces):
            return np.zeros((len(self.imitators.windows), len(pieces), self.classes), dtype=np.float32)
        found = []
        for _, batch, log_probs in self.window_log_probs(pieces):
            averaged = average_windows(log_probs, batch.document, batch.lengths)
            has_pieces = (batch.lengths > 0)[None, :, None]  # without pieces there is nothing to center
            found.append(averaged - self.imitators.offset[:, None] * has_pieces)
        alpha: np.ndarray = torch.cat(found, dim=1).float().cpu().numpy()
        return alpha

    @torch.no_grad()
    def window_log_probs(self, pieces: Ragged) -> Iterator[tuple[np.ndarray, PieceBatch, Tensor]]:
        """Rows, their packed batch and log p_ij (I, S, Y), batch after batch, in the documents' order."""
        device, log_probs = device_of(self.imitators), self._reader(int(pieces.lengths.sum()))

        def read(rows: np.ndarray) -> tuple[np.ndarray, PieceBatch, Tensor]:
            batch = pack_pieces(pieces.take(rows), self.imitators.gap, device)
            return rows, batch, log_probs(batch.pieces)

        yield from in_batches(pieces.lengths, np.arange(len(pieces)), batch_tokens(device), read)

    def _reader(self, pieces: int) -> Callable[[Tensor], Tensor]:
        """The function that gives log p_ij (I, S, Y) of streams, for a number of pieces in total."""
        vocabulary = self.imitators.embedding.num_embeddings
        if pieces <= vocabulary:  # too few to be worth the tables
            return partial(projected_log_probs, self.imitators)
        if self._tables is None:
            self._tables = Tabulated(self.imitators).log_probs
        return self._tables


class TorchNetworks:
    """The networks of a classifier over numpy arrays: all that prediction and explanation need of torch."""

    def __init__(self, expert: Expert, imitators: Imitators) -> None:
        self.expert, self.imitators = expert, imitators
        self._evidence: Evidence | None = None

    @property
    def windows(self) -> tuple[int, ...]:
        """c_i of each imitator."""
        return tuple(self.imitators.windows)

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return device_of(self.expert)

    @property
    def evidence(self) -> Evidence:
        """The imitators' predictions; their tables are computed once."""
        if self._evidence is None:
            self._evidence = Evidence(self.imitators, self.expert.classes)
        return self._evidence

    def logits(self, words: Ragged, task: Task = QUIET) -> np.ndarray:
        """z (n, Y), float32."""
        return expert_logits(self.expert, words, task)

    def alpha(self, pieces: Ragged) -> np.ndarray:
        """alpha (I, n, Y), float32, less the imitators' offset."""
        return self.evidence.alpha(pieces)

    def window_probs(self, pieces: Ragged) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Batches: rows (n,), a stream (S,), the row of each position (S,), -1 in gaps; p_ij (I, S, Y)."""
        for rows, batch, log_probs in self.evidence.window_log_probs(pieces):
            document = np.append(rows, -1)[batch.document.cpu().numpy()]
            yield rows, batch.pieces.cpu().numpy(), document, log_probs.double().exp().cpu().numpy()

    def blanked(self, pieces: np.ndarray, labels: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """sum_j p_ij of two labels (I, 2) over pieces (J,), and its change by blanking each (I, J, 2)."""
        stream = torch.from_numpy(pieces.astype(np.int64)).to(self.device)
        total, change = blanked_probs(self.imitators, stream, list(labels))
        return total.cpu().numpy(), change.cpu().numpy()

    def linear_weights(self) -> LinearWeights | None:
        """Those of an expert that is linear in words; none of other experts."""
        return self.expert.linear_weights()

    def has_expert_of(self, other: "TorchNetworks") -> bool:
        """Whether the trained weights of both experts are the same."""
        return _are_equal(learned_weights(self.expert), learned_weights(other.expert))

    def to(self, device: torch.device) -> None:
        """Move the networks to a device."""
        self.expert.to(device)
        self.imitators.to(device)
        self._evidence = None  # its tables are on the old device

    def __getstate__(self) -> dict[str, Any]:
        """Copies on the CPU, so that a machine without a GPU can open them."""
        return {"expert": deepcopy(self.expert).cpu(), "imitators": deepcopy(self.imitators).cpu()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _evidence=None)

    def save(self, folder: Path, of_mixture: dict[str, Any], of_imitators: dict[str, Any]) -> None:
        """Write the artefacts `mixture` and `imitators` with the facts that belong to them."""
        save_tensors(folder / "imitators.safetensors", self.imitators.state_dict(), of_imitators)
        save_tensors(folder / "mixture.safetensors", self.expert.state_dict(), of_mixture)

    def digest(self) -> str:
        """Equal for equal weights."""
        digest = hashlib.sha256()
        for network in (self.expert, self.imitators):
            for name, tensor in network.state_dict().items():
                digest.update(name.encode("utf-8"))
                digest.update(
                    tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                )
        return digest.hexdigest()


def learned_weights(expert: Expert) -> dict[str, Tensor]:
    """Trained parameters, and buffers; frozen ones are assumed to be the same in a run."""
    weights = {name: p.detach() for name, p in expert.named_parameters() if p.requires_grad}
    return weights | dict(expert.named_buffers())
