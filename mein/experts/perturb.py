"""Worst-case perturbations of embeddings: ADV, VAT, and iVAT. All norms are over complete sequences."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

LogitsOf = Callable[[Tensor], Tensor]  # logits (B, Y) of embeddings (B, T, D)
FIFTIETH = 50.0  # 240 normalized words of 256 numbers have a norm of 248, and Miyato's perturbation 5
WARM_UP_EPOCHS = 2  # of stage 1, in which the norm of adv grows from 0: with all of it nothing is learned
XI = 0.1  # norm of vat's random first step, as in Miyato's code
NEIGHBORS = 10  # nearest words towards which ivat may move a word
NEIGHBOR_ROWS = 1_024  # words whose neighbors are computed at once


def scaled(direction: Tensor, norm: float) -> Tensor:
    """Each example's direction (B, T, D) with this L2 norm over T and D; zero where it is zero.

    Divided by the largest element first: squares of a confident example's gradient would vanish.
    """
    direction = direction.float() if direction.dtype == torch.bfloat16 else direction
    tiny = torch.finfo(direction.dtype).tiny
    relative = direction / direction.abs().amax(dim=(1, 2), keepdim=True).clamp_min(tiny)
    length = relative.square().sum(dim=(1, 2), keepdim=True).sqrt()
    return norm * relative / length.clamp_min(tiny)


def virtual_perturbation(
    logits_of: LogitsOf, embedded: Tensor, logits: Tensor, noise: Tensor, xi: float, epsilon: float
) -> Tensor:
    """VAT's r (B, T, D): one power iteration from noise towards where the divergence grows fastest.

    logits (B, Y) are those of `embedded`; noise (B, T, D) is zero on padding and on the last word. Where
    the divergence is too small for the precision, the result is the noise.
    """
    d = scaled(noise, xi).requires_grad_()
    change = divergence(logits.detach(), logits_of(embedded.detach() + d))
    (g,) = torch.autograd.grad(change.sum(), d)
    return scaled(_unless_zero(g, d.detach()), epsilon)


def word_perturbation(
    logits_of: LogitsOf, embedded: Tensor, logits: Tensor, directions: Tensor, epsilon: float
) -> Tensor:
    """iVAT's r (B, T, D): sum_k (g . d_k) d_k for each word's directions d_k (B, T, K, D) to its neighbors.

    g is the gradient of the divergence after a step of norm 1 along all of a word's directions alike, so
    g . d_k is that of d_k's coefficient. Where it is too small for the precision, the result is the step.
    """
    step = _unit(directions.sum(2)).requires_grad_()
    change = divergence(logits.detach(), logits_of(embedded.detach() + step))
    (g,) = torch.autograd.grad(change.sum(), step)
    slopes = (directions * g[:, :, None]).sum(-1)  # (B, T, K)
    towards = (slopes[..., None] * directions).sum(2)
    return scaled(_unless_zero(towards, step.detach()), epsilon)


def _unless_zero(perturbation: Tensor, other: Tensor) -> Tensor:
    """Each example's perturbation (B, T, D), or the other one where it is zero throughout."""
    return torch.where((perturbation == 0).flatten(1).all(1)[:, None, None], other, perturbation)


def usual_norm(embedded: Tensor) -> float:
    """The norm of a perturbation that suits documents with these embeddings (B, T, D)."""
    norms = embedded.detach().double().square().sum(dim=(1, 2)).sqrt()
    return float(norms.mean()) / FIFTIETH


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p || q) (B,) of the distributions with these logits (B, Y)."""
    log_p, log_q = functional.log_softmax(logits, -1), functional.log_softmax(others, -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def word_directions(table: Tensor, words: Tensor, neighbors: Tensor) -> Tensor:
    """Unit vectors (B, T, K, D) from each word (B, T) to its neighbors (V, K) in the table (V, D)."""
    towards = table[neighbors[words]] - table[words][:, :, None]
    return _unit(towards) * (words != 0)[..., None, None]


@torch.no_grad()
def nearest_words(table: Tensor, candidates: Tensor, count: int) -> Tensor:
    """The nearest candidates (V, K) to every word of the table (V, D) by cosine, itself left out.

    K is `count`, or the number of other candidates. Padding, word 0, is never a neighbor.
    """
    unit = _unit(table)
    candidates = candidates[candidates != 0]
    K = min(count, len(candidates) - 1)
    found = []
    for start in range(0, len(unit), NEIGHBOR_ROWS):
        rows = torch.arange(start, min(start + NEIGHBOR_ROWS, len(unit)), device=table.device)
        likeness = unit[rows] @ unit[candidates].T
        likeness[rows[:, None] == candidates[None]] = -torch.inf
        found.append(candidates[likeness.topk(K, dim=1).indices])
    return torch.cat(found)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors of norm 1 along the last axis; zero where they are zero."""
    tiny = torch.finfo(vectors.dtype).tiny
    largest = vectors.abs().amax(-1, keepdim=True)
    relative = vectors / torch.where(largest < tiny, 1.0, largest)
    return relative / relative.square().sum(-1, keepdim=True).clamp_min(tiny).sqrt()
