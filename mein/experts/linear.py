"""The kind `linear`, for few labels: a linear model over n-grams and word vectors, fitted in closed loops.

A module of its own, as every kind of expert is. It is fitted by `mein.training.linear`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from mein.experts.base import Blueprint, Expert, LinearWeights

FIRST_WORD = 2  # lower numbers are padding and the end of sequence


class NgramExpert(Expert):
    """z = W' x + (sum_t U' e_{w_t}) / sqrt(T) + M' f + b.

    x (F,): words and pairs of words, weighted by (1 + log count) idf, of norm 1. W (F, Y) holds what was
    learned of n-grams and of their latent dimensions together, the table (V, Y) what was learned of word
    vectors: both are linear, so each word's and each pair's share in z is known exactly.
    f: features of a frozen encoder, if there is one; in a row they come before the words, two float16 in a
    number.
    F is known once it is fitted. V: words, Y: classes.
    """

    def __init__(self, vocabulary_size: int, classes: int, features: int = 0) -> None:
        super().__init__()
        self.classes, self.vocabulary_size, self.features = classes, vocabulary_size, features
        self.codes: Tensor
        self.idf: Tensor
        self.weights: Tensor
        self.table: Tensor
        self.dense: Tensor
        self.register_buffer("codes", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("idf", torch.zeros(0))
        self.register_buffer("weights", torch.zeros(0, classes))
        self.register_buffer("table", torch.zeros(vocabulary_size, classes))
        self.register_buffer("dense", torch.zeros(features, classes))
        self.bias = nn.Parameter(torch.zeros(classes))

    @classmethod
    def build(cls, blueprint: Blueprint) -> "NgramExpert":
        """One of the kind linear, or frozen, which has an encoder."""
        return cls(blueprint.vocabulary_size, blueprint.classes, blueprint.row_size or 0)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take the number of n-grams from what is loaded; a file of other classes or words is refused."""
        F = len(state_dict["codes"]) if "codes" in state_dict else 0
        self.codes = self.codes.new_zeros(F)
        self.idf, self.weights = self.idf.new_zeros(F), self.weights.new_zeros(F, self.classes)
        return super().load_state_dict(state_dict, strict, assign)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """The rows (B, T) of features and word numbers, unchanged: nothing is perturbed or dropped out."""
        return words

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y) from rows (B, T) of features and word numbers, and true lengths (B,)."""
        size = (self.features + 1) // 2  # numbers, as mein.text.ragged.beside packs them
        packed, words = embedded[:, :size].int().flatten(), embedded[:, size:].long()
        dense = packed.view(torch.float16).view(len(words), 2 * size)[:, : self.features].float()
        lengths = lengths - size
        B, T = words.shape
        is_word = (torch.arange(T, device=words.device) < lengths.to(words.device)[:, None]) & (
            words >= FIRST_WORD
        )
        of_words = torch.where(is_word[..., None], self.table[words], self.table.new_zeros(()))
        z = of_words.sum(1) / is_word.sum(1).clamp_min(1).sqrt()[:, None] + dense @ self.dense + self.bias
        row = torch.arange(B, device=words.device)[:, None].expand(B, T)
        pairs = (words[:, :-1] + 1) * self.vocabulary_size + words[:, 1:]
        are_words = is_word[:, :-1] & is_word[:, 1:]
        rows = torch.cat([row[is_word], row[:, 1:][are_words]])
        return z + self._of_ngrams(rows, torch.cat([words[is_word], pairs[are_words]]), B)

    def _of_ngrams(self, rows: Tensor, codes: Tensor, B: int) -> Tensor:
        """W' x (B, Y) from the rows and the codes of all n-grams."""
        F = len(self.codes)
        if F == 0 or len(codes) == 0:
            return self.weights.new_zeros(B, self.classes)
        at = torch.searchsorted(self.codes, codes).clamp_max(F - 1)
        is_known = self.codes[at] == codes
        keys, counts = torch.unique(rows[is_known] * F + at[is_known], return_counts=True)
        rows, at = keys // F, keys % F
        values = (1 + counts.to(self.idf.dtype).log()) * self.idf[at]
        norms = self.idf.new_zeros(B).index_add_(0, rows, values**2).sqrt()
        parts = (values / norms.clamp_min(1e-12)[rows])[:, None] * self.weights[at]
        return self.weights.new_zeros(B, self.classes).index_add_(0, rows, parts)

    def linear_weights(self) -> LinearWeights:
        """Its weights, so that z can be split into the shares of words and pairs."""
        parts = (self.codes, self.idf, self.weights, self.table, self.dense)
        return LinearWeights(self.vocabulary_size, *(part.detach().cpu().numpy() for part in parts))
