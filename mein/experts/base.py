"""The interface of experts: logits for a batch of documents, through embeddings that can be perturbed."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Generator, Tensor, nn

from mein.experts.config import ExpertConfig
from mein.experts.gpu_lstm import LstmShape


@dataclass(frozen=True)
class Blueprint:
    """All that an expert can be built from; each kind uses what it needs."""

    settings: ExpertConfig
    classes: int
    """Y."""
    seed: int
    vocabulary_size: int
    """V, the number of words."""
    frequencies: Tensor | None
    """How often each word occurs (V,), if embeddings are normalized."""
    row_size: int | None
    """F, if its reader computes F features of every document."""
    hub: Path
    """The folder of the Hugging Face model that it is built on."""


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """The weights of an expert that is linear in words: z = W' x + (sum_t U' e_{w_t}) / sqrt(T) + M' f + b.

    `NgramExpert` says what x and f are.
    """

    vocabulary_size: int
    codes: np.ndarray
    """(F,), ascending."""
    idf: np.ndarray
    """(F,)."""
    ngrams: np.ndarray
    """W (F, Y)."""
    words: np.ndarray
    """The table (V, Y)."""
    features: np.ndarray
    """M, a row for each feature of an encoder."""


class Expert(nn.Module):
    """z = classify(embed(words)): adversarial training perturbs what is between the two.

    `words` is the input of its kind for each document: ids of words or tokens (B, T), padded with zeros at
    the end, or a row of features or probabilities (B, F).
    `lengths` (B,) are the true lengths. With a generator, embeddings and layers are dropped out, and
    two calls with generators of one seed drop out the same elements.
    """

    classes: int
    """Y."""
    drops_out_inside: bool = False
    """Whether `classify` drops out too: what it drops of a document depends on the rest of the batch."""
    is_captured: bool = False
    """Whether `capturing` makes it faster on a GPU."""

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Embeddings (B, T, D), float32, of words (B, T)."""
        raise NotImplementedError

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y) from embeddings (B, T, D)."""
        raise NotImplementedError

    def start_from(self, pretrained: Any) -> None:
        """Copy what its kind starts from: word vectors (V, D), or a `LanguageModel`."""
        raise NotImplementedError

    def capturing(self, shapes: Iterable[LstmShape]) -> AbstractContextManager[None]:
        """On a GPU, capture runs over batches of these shapes."""
        return nullcontext()

    def linear_weights(self) -> LinearWeights | None:
        """Its weights where it is linear in words, so that z can be split; none of other experts."""
        return None

    def forward(self, words: Tensor, lengths: Tensor, dropout: Generator | None = None) -> Tensor:
        """Logits z (B, Y) of words (B, T). B: documents, T: longest, Y: classes."""
        return self.classify(self.embed(words, lengths, dropout), lengths, dropout)
