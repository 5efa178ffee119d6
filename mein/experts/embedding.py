"""Embeddings of words, normalized by how often each word occurs, and dropped out."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

VARIANCE_FLOOR = 1e-6  # Miyato's


class WordEmbedding(nn.Module):
    """E x, or (E x - m) / s, where m and s are E's mean and deviation over the words of the corpus.

    With `frequencies` (V,), how often each word occurs, every dimension has mean 0 and variance 1 over
    running text, so that a perturbation of a given norm means the same however E has grown. The gradient
    flows through m and s. Padding, word 0, stays zero.
    """

    def __init__(self, vocabulary_size: int, dim: int, frequencies: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary_size, dim))
        with torch.no_grad():
            self.weight[0].zero_()
        self.shares: Tensor | None
        shares = None if frequencies is None else frequencies / frequencies.sum()
        self.register_buffer("shares", shares, persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        """Embeddings (B, T, D) of words (B, T)."""
        if self.shares is None:
            return nn.functional.embedding(words, self.weight, padding_idx=0)
        shares = self.shares.to(self.weight.dtype)
        mean, variance = Moments.apply(self.weight, shares)  # type: ignore[no-untyped-call]
        deviation = (VARIANCE_FLOOR + variance).sqrt()
        embedded: Tensor = (nn.functional.embedding(words, self.weight) - mean) / deviation
        return embedded * (words != 0)[..., None]

    @torch.no_grad()
    def settle(self) -> None:
        """Replace the weights by the normalized embeddings, so that further steps have their scale."""
        self.weight.copy_(self.table())

    def table(self) -> Tensor:
        """The embedding of every word (V, D)."""
        every_word = torch.arange(len(self.weight), device=self.weight.device)
        return self.forward(every_word)


class Moments(torch.autograd.Function):
    """m_d = sum_v f_v E_vd and q_d = sum_v f_v (E_vd - m_d)^2 (D,) of a table E (V, D) and shares f (V,).

    Written by hand, because the table is large and autograd would pass over it a dozen times:
    dL/dE_vd = f_v (dL/dm_d + 2 (E_vd - m_d) dL/dq_d). The m inside q adds nothing: its factor is a sum of
    f_v (E_vd - m_d), which is 0.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(table.device.type, enabled=False):  # it would round products to bfloat16
            mean = shares @ table
            variance = shares @ (table - mean).square_()
        ctx.save_for_backward(table, shares, mean)
        return mean, variance

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        table, shares, mean = ctx.saved_tensors
        dm, dq = upstream
        return torch.addcmul(dm - 2.0 * mean * dq, table, 2.0 * dq).mul_(shares[:, None]), None


def drop_out(embedded: Tensor, rate: float, dropout: Generator | None) -> Tensor:
    """Set a share of the elements to zero and scale up the others; without a generator, change nothing."""
    if dropout is None or rate == 0.0:
        return embedded
    keep = 1.0 - rate
    mask = drawn_like(embedded, dropout, lambda empty: empty.bernoulli_(keep, generator=dropout))
    return embedded * mask / keep


class PartGenerator(Generator):
    """A generator for some rows of a batch: `drawn_like` gives them their numbers in the complete batch.

    So the number of processes that share a batch has no effect. Networks with their own draws use `own_seed`.
    """

    rows: Sequence[int]
    of: int

    def __new__(cls, device: torch.device, rows: Sequence[int], of: int) -> "PartGenerator":
        """One for these rows of a batch of this size."""
        generator = super().__new__(cls, device)  # type: ignore[call-arg]
        generator.rows, generator.of = rows, of
        return generator


def drawn_like(like: Tensor, generator: Generator, fill: Callable[[Tensor], Tensor]) -> Tensor:
    """Random numbers in the shape of a tensor whose rows are documents; `fill` draws from the generator."""
    if not isinstance(generator, PartGenerator):
        return fill(torch.empty_like(like, requires_grad=False))
    # subtle: numbers are drawn in memory order, so the complete batch must have the same order of axes
    strides = like.stride()
    order = sorted(range(like.dim()), key=lambda axis: (-strides[axis], -axis))
    shape = (generator.of, *like.shape[1:])
    complete = torch.empty_permuted(shape, order, dtype=like.dtype, device=like.device)
    return fill(complete)[list(generator.rows)]


def own_seed(generator: Generator) -> int:
    """A generator's seed; different for each part of one batch."""
    first = generator.rows[0] if isinstance(generator, PartGenerator) else 0
    return generator.initial_seed() + first


def next_generator(generator: Generator) -> Generator:
    """One at the start of the seed after a generator's, for the same rows."""
    device, seed = generator.device, generator.initial_seed() + 1
    if isinstance(generator, PartGenerator):
        return PartGenerator(device, generator.rows, generator.of).manual_seed(seed)
    return Generator(device).manual_seed(seed)
