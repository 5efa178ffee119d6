"""Language models: what the text alone teaches the embeddings and the LSTM before any label."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from mein.experts.captured import Captures, can_capture, let_go
from mein.experts.embedding import WordEmbedding, drop_out
from mein.experts.in_range import Fit, read_in_range

CUTOFFS = (2_000, 10_000)  # words by frequency: the head, the middle, and the tail of the adaptive softmax
FULL_SOFTMAX = 10_000  # with no more words than that nothing is gained by parting them
EMBEDDING_DEVIATION = 0.02  # at the start: from 1 Adam hardly moves a rare word, which stays noise


class Reader(nn.Module):
    """LSTMs over one another, reading in one direction. L: layers, H: state size.

    Where `is_projected`, each layer's states are brought back to the embeddings' size D, so that the
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
        """On a GPU, read batches of this shape without a launch for each word."""
        if can_capture(next(self.parameters()).device):
            shape = (documents, words, True)
            self.captures = [Captures(cast(nn.LSTM, lstm), [shape], has_state=True) for lstm in self.lstms]
        try:
            yield
        finally:
            self.captures = []
            let_go()

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
        return outputs, torch.stack(states).float() if embedded.dtype != torch.float64 else torch.stack(
            states
        )


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
        if frequencies is not None:  # normalised: the LSTM sees the same, whatever the scale
            with torch.no_grad():
                self.embedding.weight.mul_(EMBEDDING_DEVIATION)
        shape = (2, 2, True) if is_bidirectional else (1, 1, False)
        directions, layers, is_projected = shape
        self.readers = nn.ModuleList(Reader(D, H, layers, is_projected) for _ in range(directions))
        self.softmax = softmax_over(D if is_projected else H, vocabulary_size)

    def reader(self, direction: int) -> Reader:
        """The one that reads forward (0) or backward (1)."""
        found = self.readers[direction]
        assert isinstance(found, Reader)
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
