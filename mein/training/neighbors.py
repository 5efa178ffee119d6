"""The words that ivat may push a word to: the nearest of the labelled text, found anew before each epoch."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mein.experts.base import Expert
from mein.experts.embedding import WordEmbedding
from mein.experts.perturb import PerturbationConfig, nearest_words
from mein.inference import device_of
from mein.text.ragged import Ragged


def room_for_neighbors(expert: Expert, words: Ragged, config: PerturbationConfig) -> Tensor:
    """A tensor (V, K) for the neighbours of every word among those of the labelled text."""
    V, candidates = len(word_table(expert)), len(_candidates(words))
    K = min(config.neighbors, candidates - 1)
    return torch.zeros(V, K, dtype=torch.int64, device=device_of(expert))


def neighbors_of_epochs(
    expert: Expert, words: Ragged, neighbors: Tensor | None
) -> tuple[Callable[[int], None] | None, dict[str, Tensor]]:
    """What finds the neighbours anew before each epoch, and the tensor that holds them."""
    if neighbors is None:
        return None, {}
    candidates = torch.from_numpy(_candidates(words)).to(neighbors.device)

    def find(epoch: int) -> None:
        neighbors.copy_(nearest_words(word_table(expert), candidates, neighbors.shape[1]))

    return find, {"neighbors": neighbors}


def word_table(expert: Expert) -> Tensor:
    """The embedding of every word (V, D), a constant."""
    embedding = expert.get_submodule("embedding")
    assert isinstance(embedding, WordEmbedding)
    return embedding.table().detach()


def _candidates(words: Ragged) -> np.ndarray:
    return np.unique(words.values).astype(np.int64)
