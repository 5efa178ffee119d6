"""The kind `user`: the log-probabilities of a classifier from Python, of one of its clones.

A module of its own, as every kind of expert is. The clones are fitted by `mein.run.user_fits`.
"""

import torch
from torch import Generator, Tensor, nn

from mein.experts.base import Blueprint, Expert


class UserExpert(Expert):
    """z = a log p + b, where p are the probabilities of one clone for a document.

    A row holds log p of the clone that learned from all labels, and behind it, in the store of a run, those
    of the clones of all folds: Y numbers of each.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.clone: Tensor
        self.scale: Tensor
        self.register_buffer("clone", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(classes))

    @classmethod
    def build(cls, blueprint: Blueprint) -> "UserExpert":
        """One of the kind user."""
        return cls(blueprint.classes)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """The log-probabilities of clones, which take the place of words, unchanged."""
        return words

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y)."""
        first = int(self.clone) * self.classes
        return self.scale * embedded[:, first : first + self.classes] + self.bias
