"""The kind `average`, for few labels: a linear layer over the scaled sum of a document's word vectors.

A module of its own, as every kind of expert is.
"""

import math

import torch
from torch import Generator, Tensor, nn

from mein.experts.base import Blueprint, Expert
from mein.experts.config import DROPOUT, ExpertConfig
from mein.experts.embedding import WordEmbedding, drop_out


class AverageExpert(Expert):
    """z = W m + b,  m = sum_t E x_t / sqrt(T).

    It ignores the order of words, but E starts from word vectors of raw text, in which similar words are
    already close. Division by the root of T gives long and short documents the same scale.
    D: embedding size, Y: classes.
    """

    def __init__(
        self, config: ExpertConfig, vocabulary_size: int, classes: int, frequencies: Tensor | None = None
    ) -> None:
        super().__init__()
        self.classes = classes
        self.dropout = DROPOUT
        self.embedding = WordEmbedding(vocabulary_size, config.embedding_dim, frequencies)
        self.output = nn.Linear(config.embedding_dim, classes)
        with torch.no_grad():
            nn.init.normal_(self.output.weight, std=1.0 / math.sqrt(config.embedding_dim))
            nn.init.zeros_(self.output.bias)

    @classmethod
    def build(cls, blueprint: Blueprint) -> "AverageExpert":
        """One of the kind average."""
        return cls(blueprint.settings, blueprint.vocabulary_size, blueprint.classes, blueprint.frequencies)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Embeddings (B, T, D) of words (B, T); with a generator, dropped out."""
        return drop_out(self.embedding(words), self.dropout, dropout)

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y) from embeddings (B, T, D) and true lengths (B,), each at least 1."""
        is_word = torch.arange(embedded.shape[1], device=embedded.device) < lengths[:, None]  # (B, T)
        m = torch.einsum("btd,bt->bd", embedded, is_word.to(embedded.dtype)) / lengths[:, None].sqrt()
        z: Tensor = self.output(m)
        return z

    @torch.no_grad()
    def start_from(self, pretrained: Tensor) -> None:
        """Copy word vectors (V, D)."""
        self.embedding.weight.copy_(pretrained)
