"""A batch of stage 2, or a process's share of one: what imitators are asked, and how far they are from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mein import ranks
from mein.imitators.projected import projected_log_probs, projected_loss
from mein.imitators.reference import Imitators, sum_by_document
from mein.imitators.stream import Stream
from mein.text.batches import PieceBatch, to_device
from mein.training.shares import Share


@dataclass(frozen=True)
class Imitated:
    """Packed pieces, the expert's p (B, Y) on their documents, and which share of a whole batch they are."""

    batch: PieceBatch
    expert_probs: Tensor
    stream: Stream
    share: Share

    def loss(self, own: Imitators, windows: int, together: float) -> Tensor:
        """The share's part of `imitation_loss` of our windows plus `together` times `document_loss` of all.

        The gradient of the second with respect to log p_ij is q - p, the same for all windows of a document:
        it is that of the first with p - q in the place of p. So one more reading of the text, which
        tells q, is all that it costs.
        """
        p, part = self.expert_probs, self.share.part
        if together == 0.0:
            return self._asked(own, p * part)  # linear in p: a mean becomes a part of one
        with torch.no_grad():
            log_probs = projected_log_probs(own, self.batch.pieces, self.stream)
            said = sum_by_document(log_probs, self.batch.document, len(p))[:, :-1].sum(0)  # (B, Y)
            is_split = len(own.windows) < windows
            J = self.batch.lengths[:, None].to(said)
            log_q = torch.log_softmax((self._by_all(said) if is_split else said) / J.clamp_min(1.0), dim=1)
            of_document = together * len(own.windows) / windows * (J * p * log_q).sum()
            value = -((p * said).sum() + of_document) * (part / len(p))
        loss = self._asked(own, (p + together * (p - log_q.exp())) * part)
        return loss + (value - loss).detach()

    def _asked(self, own: Imitators, targets: Tensor) -> Tensor:
        return projected_loss(own, self.batch.pieces, self.batch.document, targets, stream=self.stream)

    def _by_all(self, said: Tensor) -> Tensor:
        """The sums (B, Y) over the windows of all processes, each of which knows those of its own."""
        rows = to_device(self.share.rows, said.device)
        whole = said.new_zeros(self.share.of, said.shape[1])
        if self.share.counts:
            whole[rows] = said
        ranks.add_up(whole)
        return whole[rows]
