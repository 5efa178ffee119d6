"""The expert of the paper: an LSTM whose last state goes through an MLP (equations 1 and 2)."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from mein.settings import Settings


class ExpertConfig(Settings):
    """The expert's sizes; the defaults are the paper's."""

    kind: Literal["lstm"] = "lstm"
    """Which network: lstm."""
    embedding_dim: int = Field(default=256, ge=1)
    """D, the size of a word's embedding."""
    hidden_dim: int = Field(default=1024, ge=1)
    """H, the size of the LSTM's state."""
    mlp_dim: int = Field(default=30, ge=1)
    """M, the size of the last hidden layer."""
    dropout: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Share of embedding elements set to zero in training."""


class LSTMExpert(nn.Module):
    """z = W s + b,  s = ReLU(W_h h_T + b_h),  h_t = LSTM(E x_t, h_{t-1})        (equation 1)

    D: embedding size, H: state size, M: MLP size, Y: classes.
    """

    def __init__(self, config: ExpertConfig, vocabulary_size: int, classes: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_dim, padding_idx=0)
        self.lstm = nn.LSTM(config.embedding_dim, config.hidden_dim, batch_first=True)
        self.hidden = nn.Linear(config.hidden_dim, config.mlp_dim)
        self.output = nn.Linear(config.mlp_dim, classes)
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        """Embeddings N(0, 1), orthogonal recurrent and Xavier input weights, open forget gates.

        PyTorch's own defaults, or smaller embeddings, leave the LSTM at chance for many epochs. The
        hidden layer starts with a bias of 1: Adam's first steps all point one way, and from a bias
        of 0 they drive its few ReLUs below zero for good (IMDB: 4 seeds of 6 at chance after an epoch).
        """
        nn.init.normal_(self.embedding.weight)
        self.embedding.weight[0].zero_()
        W_ih, W_hh, b_ih, b_hh = self.lstm.parameters()
        for kernel in W_hh.chunk(4):
            nn.init.orthogonal_(kernel)
        for kernel in W_ih.chunk(4):
            nn.init.xavier_uniform_(kernel)
        for bias in (b_ih, b_hh):
            bias.zero_()
            bias.chunk(4)[1].fill_(1.0)  # the order of the gates is i, f, g, o
        for linear, start in ((self.hidden, 1.0), (self.output, 0.0)):
            nn.init.normal_(linear.weight, std=1.0 / math.sqrt(linear.in_features))
            nn.init.constant_(linear.bias, start)

    def embed(self, words: Tensor, dropout: Generator | None) -> Tensor:
        """Embeddings (B, T, D) of words (B, T); with a generator, dropped out."""
        embedded: Tensor = self.embedding(words)
        if dropout is None or self.dropout == 0.0:
            return embedded
        keep = 1.0 - self.dropout
        mask = torch.empty_like(embedded).bernoulli_(keep, generator=dropout)
        return embedded * mask / keep

    def classify(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Logits z (B, Y) from embeddings (B, T, D) and true lengths (B,), each at least 1."""
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        h_T = h[-1]  # (B, H), the state at each true last token
        s = functional.relu(self.hidden(h_T))  # (B, M)
        z: Tensor = self.output(s)  # Eq. 1
        return z

    def forward(self, words: Tensor, lengths: Tensor, dropout: Generator | None = None) -> Tensor:
        """Logits z (B, Y) of words (B, T). B: documents, T: longest, Y: classes."""
        return self.classify(self.embed(words, dropout), lengths)
