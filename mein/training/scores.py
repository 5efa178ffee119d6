"""What is measured after an epoch: on dev labels, or on held-out text beside the expert's word."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.mixture.inference import Evidence, device_of, imitator_alpha
from mein.store.manifest import EXPERT_COLUMN as EXPERT_COLUMN
from mein.store.store import Store


def supervised_scores(logits: Tensor, labels: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Error (in %) decides between epochs, log-loss breaks ties; a document counts as it weighs.

    Subtle: sums are exact, so that ties are ties, whichever documents are wrong.
    """
    y, w = torch.from_numpy(labels), torch.from_numpy(weights).double()
    total, is_wrong = math.fsum(w.tolist()), logits.argmax(dim=1) != y
    losses = functional.cross_entropy(logits.double(), y, reduction="none")
    error = 100.0 * (math.fsum(w[is_wrong].tolist()) / total)
    return {"dev_error": error, "dev_log_loss": (w @ losses).item() / total}


@torch.no_grad()
def center_evidence(imitators: Imitators, held_out: Store) -> None:
    """Set the imitators' offset to their mean alpha over documents that they did not learn from."""
    classes = imitators.offset.shape[1]
    shards = range(held_out.shard_count)
    alpha = [imitator_alpha(imitators, held_out.pieces(shard), classes) for shard in shards]
    mean = np.concatenate(alpha, axis=1).mean(axis=1, dtype=np.float64)
    imitators.offset += torch.from_numpy(mean).to(imitators.offset)


@torch.no_grad()
def imitation_scores(imitators: Imitators, held_out: Store) -> dict[str, float]:
    """How well the imitators follow the expert on text that they did not learn from.

    kl: the mean over positions and imitators, which is what stage 2 minimizes.
    document_loss: the cross-entropy of softmax(s sum_i alpha_i), centered, against the expert, at the
    best scale s: whether alpha ranks documents as the expert does. It is least while the imitators know
    only what the expert knows best, and rises as they learn what he cannot say.
    """
    device = device_of(imitators)
    said = Evidence(imitators, imitators.offset.shape[1])
    evidence, targets, kl, positions = [], [], 0.0, 0
    for shard in range(held_out.shard_count):
        pieces, probs = held_out.pieces(shard), held_out.column(EXPERT_COLUMN, shard)
        for rows, batch, log_probs in said.window_log_probs(pieces):
            p = torch.from_numpy(probs[rows]).to(device)
            entropy = -(torch.xlogy(p, p).sum(1) * batch.lengths).sum() * len(imitators.windows)
            kl += (imitation_loss(p, log_probs, batch.document) * len(p) - entropy).item()
            positions += int(batch.lengths.sum()) * len(imitators.windows)
            evidence.append(average_windows(log_probs, batch.document, batch.lengths).sum(0).cpu())
            targets.append(p.cpu())
    together = torch.cat(evidence).double()
    loss = _best_scaled_loss(together - together.mean(0), torch.cat(targets).double())
    return {"kl": kl / max(1, positions), "document_loss": loss}


def _best_scaled_loss(evidence: Tensor, targets: Tensor) -> float:
    scales = 2.0 ** np.arange(-2.0, 7.5, 0.5)
    losses = [-(targets * torch.log_softmax(s * evidence, 1)).sum(1).mean().item() for s in scales]
    return min(losses)
