"""A labelled batch, or a process's share of one, and the random streams of a step."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mein.experts.embedding import PartGenerator
from mein.mixture import supervised_loss
from mein.seeds import derive_seed
from mein.text.batches import WordBatch, to_device
from mein.training.shares import Share, own_share


@dataclass(frozen=True)
class Randomness:
    """The random streams of one step, by name: equal for the same step, whatever came before."""

    seed: int
    stage: str
    step: int

    def generator(self, name: str, device: torch.device, share: Share | None = None) -> Generator:
        """A generator at the start of the stream, for a whole batch or a share of it."""
        seed = derive_seed(self.seed, name, self.stage, self.step)
        if share is None:
            return Generator(device).manual_seed(seed)
        return PartGenerator(device, share.rows.tolist(), share.of).manual_seed(seed)


@dataclass(frozen=True)
class Labelled:
    """A labelled batch: what the expert reads, alpha (I, B, Y), a constant, labels, weights (B,).

    Labels are ids (B,), or probabilities (B, Y). Or a share of one, which is `part` of the whole batch.
    """

    batch: WordBatch
    alpha: Tensor
    labels: Tensor
    weights: Tensor
    share: Share | None = None
    part: float = 1.0

    def shared(self) -> "Labelled":
        """This process's share; itself where there is no other."""
        share = own_share(self.batch.lengths.cpu().numpy())
        if share is None:
            return self
        rows = to_device(share.rows, self.labels.device)
        batch = taken(self.batch, rows)
        return Labelled(batch, self.alpha[:, rows], self.labels[rows], self.weights[rows], share, share.part)

    def loss(self, logits: Tensor) -> Tensor:
        """L_s of logits (B, Y); of a share, its part of the whole batch's."""
        return supervised_loss(logits, self.labels, self.weights) * self.part


def taken(batch: WordBatch, rows: Tensor) -> WordBatch:
    """Some documents, padded as they were: what is drawn for them hangs on the longest of all."""
    return WordBatch(batch.words[rows], batch.lengths[rows])
