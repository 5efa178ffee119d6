"""The mixture z' = z + sum_i g_i alpha_i (equations 5 and 6), its loss, and random alpha for a control."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mein.runtime.seeds import numpy_generator


def mix(logits: Tensor, alpha: Tensor, gates: Tensor) -> Tensor:
    """z' (B, Y) from z (B, Y), alpha (I, B, Y) and gates (I,). With gates of zero, z' is z, bit for bit."""
    return logits + torch.einsum("i,iby->by", gates, alpha)  # Eq. 6


def supervised_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """The mean of -log p(y | X) times the documents' weights: equation 4 from z, equation 13 from z'.

    The weights have the mean 1 over all of train, not over each batch. labels: ids (B,), or soft labels
    q(y | X) (B, Y): then it is the mean of -log p under q.
    """
    return (weights * functional.cross_entropy(logits, labels, reduction="none")).mean()


def random_alpha(imitators: int, documents: int, classes: int, seed: int, part: str) -> np.ndarray:
    """The paper's control "IMN (Random)": log-softmax of N(0, 1) vectors, drawn once a document."""
    noise = numpy_generator(seed, "random vectors", part).standard_normal((imitators, documents, classes))
    return torch.log_softmax(torch.from_numpy(noise), dim=-1).to(torch.float32).numpy()
