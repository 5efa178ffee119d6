"""ELMo: the layers of a frozen bidirectional language model, mixed by learned scalars, as features."""

import torch
from torch import Tensor, nn

from mein.experts.language_model import LanguageModel


class ElmoFeatures(nn.Module):
    """gamma sum_l softmax(s)_l [forward_l; backward_l] at each word; layer 0 is [e; e], the embedding.

    Only gamma and s learn; the language model stays as it was pre-trained.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.embedding = model.embedding
        self.forward_reader, self.backward_reader = model.reader(0), model.reader(1)
        self.requires_grad_(False)
        self.scalars = nn.Parameter(torch.zeros(1 + self.forward_reader.layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.size = 2 * model.embedding.weight.shape[1]

    def take_over(self, model: LanguageModel) -> None:
        """Copy a language model's embeddings and readers."""
        self.embedding.load_state_dict(model.embedding.state_dict())
        self.forward_reader.load_state_dict(model.reader(0).state_dict())
        self.backward_reader.load_state_dict(model.reader(1).state_dict())

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Features (B, T, 2 D) of words (B, T) with true lengths (B,); zero on padding."""
        with torch.no_grad():
            layers = self._layers(words, lengths)
        mixed = torch.einsum("l,lbtd->btd", torch.softmax(self.scalars, 0), layers)
        return self.gamma * mixed * (words != 0)[..., None]

    def _layers(self, words: Tensor, lengths: Tensor) -> Tensor:
        embedded = self.embedding(words)
        back = reversal(lengths, words.shape[1])[..., None]  # (B, T, 1)
        mirrored = embedded.gather(1, back.expand_as(embedded))
        start = self.forward_reader.start(len(words))
        ahead, _ = self.forward_reader(embedded, start)
        behind, _ = self.backward_reader(mirrored, start)
        behind = [layer.gather(1, back.expand_as(layer)) for layer in behind]
        pairs = zip([embedded, *ahead], [embedded, *behind], strict=True)
        return torch.stack([torch.cat(pair, dim=-1).to(embedded.dtype) for pair in pairs])


def reversal(lengths: Tensor, longest: int) -> Tensor:
    """Where each position (B, T) lies when a document is read from its end; padding stays where it is.

    >>> reversal(torch.tensor([3, 1]), 3).tolist()
    [[2, 1, 0], [0, 1, 2]]
    """
    position = torch.arange(longest, device=lengths.device)[None]
    mirrored = lengths[:, None] - 1 - position
    return torch.where(mirrored >= 0, mirrored, position)
