"""Language models that an expert starts from, and ELMo: their layers as features, mixed by scalars."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from mein.experts.embedding import WordEmbedding, drop_out
from mein.experts.gpu_lstm import Captures, Fit, can_capture, free_captures, read_in_range

CUTOFFS = (2_000, 10_000)  # words by frequency: the head, the middle, and the tail of the adaptive softmax
FULL_SOFTMAX = 10_000  # with fewer words an adaptive softmax gains nothing
EMBEDDING_DEVIATION = 0.02  # initially: from 1, Adam hardly moves a rare word, which stays noise


class DirectedLstms(nn.Module):
    """Stacked LSTMs that read in one direction. L: layers, H: state size.

    Where `is_projected`, each layer's states are projected to the embeddings' size D, so that the
    layers can be added up.
    """

    def __init__(self, embedding_dim: int, hidden_dim: int, layers: int, is_projected: bool) -> None:
        super().__init__()
        D, H = embedding_dim, hidden_dim
        self.hidden_dim = H
        self.lstms = nn.ModuleList(nn.LSTM(D, H, batch_first=True) for _ in range(layers))
        self.projections = nn.ModuleList(nn.Linear(H, D) for _ in range(layers if is_projected else 0))
        for lstm in self.lstms:
            initialize_lstm(lstm)
        self.captures: list[Captures] = []
        """Of each LSTM, while it learns on a GPU."""

    @contextmanager
    def capturing(self, documents: int, words: int) -> Iterator[None]:
        """On a GPU, capture runs over batches of this shape."""
        if can_capture(next(self.parameters()).device):
            shape = (documents, words, True)
            self.captures = [Captures(cast(nn.LSTM, lstm), [shape], has_state=True) for lstm in self.lstms]
        try:
            yield
        finally:
            self.captures = []
            free_captures()

    @property
    def layers(self) -> int:
        """L."""
        return len(self.lstms)

    def start(self, documents: int) -> Tensor:
        """The state (L, 2, B, H) before the first word: zero."""
        weight = next(self.parameters())
        return weight.new_zeros(len(self.lstms), 2, documents, self.hidden_dim)

    def forward(self, embedded: Tensor, state: Tensor) -> tuple[list[Tensor], Tensor]:
        """The outputs of each layer (B, T, H or D) over embeddings (B, T, D), and the state after them."""
        outputs, states = [], []
        read = embedded
        fits: list[Fit | None] = [None] * self.layers
        if self.captures:
            fits = [captures.fit for captures in self.captures]
        for layer, lstm in enumerate(self.lstms):
            h, c = state[layer, 0][None], state[layer, 1][None]
            read, (h, c) = read_in_range(cast(nn.LSTM, lstm), read, (h, c), fit=fits[layer])
            if len(self.projections):
                read = self.projections[layer](read)
            outputs.append(read)
            states.append(torch.cat([h, c]))
        after = torch.stack(states)
        return outputs, after.float() if embedded.dtype != torch.float64 else after


class LanguageModel(nn.Module):
    """p(x_{t+1} | x_1 .. x_t), and with two readers also p(x_{t-1} | x_T .. x_t). V: words.

    One reader of one layer becomes the LSTM expert's own; two readers of two layers, which share
    embeddings and softmax, are ELMo's.
    """

    def __init__(
        self,
        embedding_dim: int,
        hidden_dim: int,
        vocabulary_size: int,
        frequencies: Tensor | None,
        is_bidirectional: bool,
    ) -> None:
        super().__init__()
        D, H = embedding_dim, hidden_dim
        self.embedding = WordEmbedding(vocabulary_size, D, frequencies)
        if frequencies is not None:  # normalized: the scale does not change what the LSTM reads
            with torch.no_grad():
                self.embedding.weight.mul_(EMBEDDING_DEVIATION)
        shape = (2, 2, True) if is_bidirectional else (1, 1, False)
        directions, layers, is_projected = shape
        self.readers = nn.ModuleList(DirectedLstms(D, H, layers, is_projected) for _ in range(directions))
        self.softmax = softmax_over(D if is_projected else H, vocabulary_size)

    def reader(self, direction: int) -> DirectedLstms:
        """The one that reads forward (0) or backward (1)."""
        found = self.readers[direction]
        assert isinstance(found, DirectedLstms)
        return found

    def read(
        self, direction: int, words: Tensor, state: Tensor, rate: float, dropout: Generator | None
    ) -> tuple[Tensor, Tensor]:
        """The last layer's outputs (B, T, H or D), dropped out as the embeddings are, and the new state."""
        embedded = drop_out(self.embedding(words), rate, dropout)
        outputs, state = self.reader(direction)(embedded, state)
        return drop_out(outputs[-1], rate, dropout), state


def softmax_over(size: int, vocabulary_size: int) -> nn.Module:
    """The output layer: adaptive where the vocabulary is large, for ids sorted by falling frequency."""
    if vocabulary_size <= FULL_SOFTMAX:
        linear = nn.Linear(size, vocabulary_size)
        nn.init.zeros_(linear.bias)
        return linear
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff < vocabulary_size - 1]
    return nn.AdaptiveLogSoftmaxWithLoss(size, vocabulary_size, cutoffs, div_value=4.0)


def word_losses(softmax: nn.Module, outputs: Tensor, words: Tensor) -> Tensor:
    """-log p(word) (n,) of words (n,) after outputs (n, H)."""
    if isinstance(softmax, nn.AdaptiveLogSoftmaxWithLoss):
        log_p: Tensor = softmax(outputs, words).output
        return -log_p
    return functional.cross_entropy(softmax(outputs), words, reduction="none")


@torch.no_grad()
def initialize_lstm(lstm: nn.Module) -> None:
    """Orthogonal recurrent and Xavier input weights, open forget gates.

    PyTorch's own defaults, or smaller embeddings, leave the LSTM at chance for many epochs.
    """
    W_ih, W_hh, b_ih, b_hh = lstm.parameters()
    for kernel in W_hh.chunk(4):
        nn.init.orthogonal_(kernel)
    for kernel in W_ih.chunk(4):
        nn.init.xavier_uniform_(kernel)
    for bias in (b_ih, b_hh):
        bias.zero_()
        bias.chunk(4)[1].fill_(1.0)  # the order of the gates is i, f, g, o


class ElmoFeatures(nn.Module):
    """gamma sum_l softmax(s)_l [forward_l; backward_l] at each word; layer 0 is [e; e], the embedding.

    Only gamma and s are trained; the language model is frozen.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.embedding = model.embedding
        self.forward_reader, self.backward_reader = model.reader(0), model.reader(1)
        self.requires_grad_(False)
        self.scalars = nn.Parameter(torch.zeros(1 + self.forward_reader.layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.size = 2 * model.embedding.weight.shape[1]

    def start_from(self, model: LanguageModel) -> None:
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
    """The place of each position (B, T) when a document is read from its end; padding stays in place.

    >>> reversal(torch.tensor([3, 1]), 3).tolist()
    [[2, 1, 0], [0, 1, 2]]
    """
    position = torch.arange(longest, device=lengths.device)[None]
    mirrored = lengths[:, None] - 1 - position
    return torch.where(mirrored >= 0, mirrored, position)
