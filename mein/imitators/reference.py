"""The reference implementation of the imitators' equations, against which faster paths are tested."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.imitators.config import ImitatorsConfig

EMBEDDING_SPREAD = 0.1  # standard deviation of embeddings at the start
LEAKY_SLOPE = 0.2  # of the leaky ReLU below zero: Chainer's default, which the authors used


class Imitators(nn.Module):
    """p_ij = softmax(W'_i o_ij + b'_i),  o_ij = LeakyReLU(conv_i(x_{j-c} .. x_{j+c}))     (equation 8)

    I: imitators, D: embedding size, N: channels, S: positions of a packed stream, Y: classes. All share one
    table of embeddings, which fits the paper's numbers of parameters.
    """

    leaky_slope = LEAKY_SLOPE

    def __init__(self, config: ImitatorsConfig, vocabulary_size: int, classes: int) -> None:
        super().__init__()
        D, N = config.embedding_dim, config.channels
        self.windows = config.windows
        self.embedding = nn.Embedding(vocabulary_size, D, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(D, N, 2 * c + 1, padding=c) for c in self.windows)
        self.outputs = nn.ModuleList(nn.Linear(N, classes) for _ in self.windows)
        self.offset: Tensor
        self.register_buffer("offset", torch.zeros(len(self.windows), classes))
        """The mean alpha over unlabeled text, which is subtracted where the mixture centers evidence."""
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Embeddings N(0, 0.1): Adam's small steps hardly change PyTorch's N(0, 1) (log/)."""
        self.embedding.weight.mul_(EMBEDDING_SPREAD)

    @property
    def gap(self) -> int:
        """The number of zeros between documents of a stream, so that no window sees two."""
        return max(self.windows, default=0)

    def only(self, places: Sequence[int]) -> "Imitators":
        """A network of some of the imitators, which shares their parameters."""
        some = Imitators.__new__(Imitators)
        nn.Module.__init__(some)
        some.windows, some.leaky_slope = tuple(self.windows[i] for i in places), self.leaky_slope
        some.embedding = self.embedding
        some.convolutions = nn.ModuleList(self.convolutions[i] for i in places)
        some.outputs = nn.ModuleList(self.outputs[i] for i in places)
        some.register_buffer("offset", self.offset[list(places)])
        return some

    def forward(self, pieces: Tensor) -> Tensor:
        """log p_ij (I, S, Y) at every position of a packed stream of pieces (S,)."""
        return torch.stack([self._one(i, pieces) for i in range(len(self.windows))])

    def _one(self, i: int, pieces: Tensor) -> Tensor:
        embedded = self.embedding(pieces)  # (S, D)
        convolved = self.convolutions[i](embedded.T[None])[0].T  # (S, N)
        o = functional.leaky_relu(convolved, self.leaky_slope)
        return functional.log_softmax(self.outputs[i](o), dim=-1)  # Eq. 8


def average_windows(window_log_probs: Tensor, document: Tensor, lengths: Tensor) -> Tensor:
    """alpha_i = log(1/J sum_j p_ij) (I, B, Y), in log space.                     (equation 7)

    window_log_probs (I, S, Y); document (S,): rows in 0..B-1, B in a gap; lengths (B,): J.
    A document without pieces has no evidence: its alpha is uniform, log 1/Y.
    """
    I, _, Y = window_log_probs.shape
    B = len(lengths)
    rows = document[None, :, None].expand_as(window_log_probs)
    top = window_log_probs.new_full((I, B + 1, Y), -torch.inf)
    top = top.scatter_reduce(1, rows, window_log_probs.detach(), "amax")
    shifted = torch.exp(window_log_probs - top.gather(1, rows))
    total = _sum_by_document(shifted, document, B)
    J = lengths.to(window_log_probs.dtype)[None, :, None]
    alpha = torch.log(total[:, :B]) + top[:, :B] - torch.log(J)  # Eq. 7
    uniform = torch.full_like(alpha, -torch.log(torch.tensor(float(Y))).item())
    return torch.where(lengths[None, :, None] > 0, alpha, uniform)


def _sum_by_document(values: Tensor, document: Tensor, B: int) -> Tensor:
    """The sums (I, B + 1, Y) of values (I, S, Y) over each document's positions; deterministic."""
    I, _, Y = values.shape
    if not values.is_cuda:
        return values.new_zeros(I, B + 1, Y).index_add(1, document, values)
    # subtle: on a GPU index_add adds in any order; index_put sorts first
    zeros = values.new_zeros(B + 1, I, Y)
    return zeros.index_put((document,), values.transpose(0, 1), accumulate=True).transpose(0, 1)


def imitation_loss(expert_probs: Tensor, window_log_probs: Tensor, document: Tensor) -> Tensor:
    """sum_i sum_j KL(p || p_ij), averaged over documents, up to the expert's entropy.

    Equations 11 and 12. expert_probs (B, Y); window_log_probs (I, S, Y); document (S,).
    """
    B = len(expert_probs)
    targets = torch.cat([expert_probs, torch.zeros_like(expert_probs[:1])])  # a gap has no target
    p = targets[document]  # (S, Y)
    return -(p * window_log_probs).sum() / B  # Eqs. 11, 12
