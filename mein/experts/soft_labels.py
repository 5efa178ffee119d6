"""A teacher of other make as an expert: it has spoken already, and only its temperature can learn."""

import torch
from torch import Generator, Tensor, nn

from mein.experts.base import Expert

LEAST_PROBABILITY = 1e-6  # a teacher that says 0 or 1 would silence everybody else for good


class TeacherExpert(Expert):
    """z = log p / tau, where p is what the teacher says of a document; tau starts at 1."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.log_tau = nn.Parameter(torch.zeros(()))

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """The teacher's log-probabilities (B, Y), which take the place of words, as they are."""
        return words

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y)."""
        return embedded * (-self.log_tau).exp()
