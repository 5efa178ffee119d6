"""The expert of the paper: an LSTM whose last state goes through an MLP (equations 1 and 2)."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from mein.experts.base import Blueprint, Expert
from mein.experts.config import DROPOUT, ExpertConfig
from mein.experts.embedding import WordEmbedding, drop_out, next_generator
from mein.experts.gpu_lstm import Captures, LstmShape, can_capture, free_captures, read_in_range
from mein.experts.language_model import ElmoFeatures, LanguageModel, initialize_lstm


class LSTMExpert(Expert):
    """z = W s + b,  s = ReLU(W_h h_T + b_h),  h_t = LSTM(E x_t, h_{t-1})        (equation 1)

    With the features of a language model, the LSTM reads [E x_t; features_t] instead.
    D: embedding size, H: state size, M: MLP size, Y: classes.
    """

    is_captured = True

    def __init__(
        self,
        config: ExpertConfig,
        vocabulary_size: int,
        classes: int,
        frequencies: Tensor | None = None,
        features: ElmoFeatures | None = None,
    ) -> None:
        super().__init__()
        self.classes = classes
        self.dropout, self.mlp_dropout = DROPOUT, config.mlp_dropout
        self.drops_out_inside = config.mlp_dropout > 0.0
        self.reads_end = config.kind != "lm-lstm"
        self.embedding = WordEmbedding(vocabulary_size, config.embedding_dim, frequencies)
        self.features = features
        D = config.embedding_dim + (0 if features is None else features.size)
        self.lstm = nn.LSTM(D, config.hidden_dim, batch_first=True)
        self.hidden = nn.Linear(config.hidden_dim, config.mlp_dim)
        self.output = nn.Linear(config.mlp_dim, classes)
        self.captures: Captures | None = None
        self._initialize()

    @classmethod
    def build(cls, blueprint: Blueprint) -> "LSTMExpert":
        """One of the kinds lstm, lm-lstm, and elmo-lstm."""
        settings, V, frequencies = blueprint.settings, blueprint.vocabulary_size, blueprint.frequencies
        features = None
        if is_bidirectional(settings):
            features = ElmoFeatures(language_model_of(settings, V, frequencies))
        return cls(settings, V, blueprint.classes, frequencies, features)

    @torch.no_grad()
    def _initialize(self) -> None:
        """Embeddings N(0, 1); the hidden layer starts with a bias of 1.

        Adam's first steps all have the same direction, and from a bias of 0 they drive the few ReLUs below
        zero for good (IMDB: 4 seeds of 6 at chance after an epoch).
        """
        initialize_lstm(self.lstm)
        for linear, start in ((self.hidden, 1.0), (self.output, 0.0)):
            nn.init.normal_(linear.weight, std=1.0 / math.sqrt(linear.in_features))
            nn.init.constant_(linear.bias, start)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Embeddings (B, T, D) of words (B, T), beside them the features; with a generator, dropped out."""
        embedded: Tensor = self.embedding(words)
        if self.features is not None:
            embedded = torch.cat([embedded, self.features(words, lengths)], dim=-1)
        return drop_out(embedded, self.dropout, dropout)

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y) from embeddings (B, T, D) and true lengths (B,), each at least 1.

        An LSTM reads forward, so padding does not change the state at a document's last word. The state
        after the end of sequence is useless if a language model has learned to restart there.
        """
        at = lengths - 1 if self.reads_end else (lengths - 2).clamp_min(0)
        last = at[:, None, None].expand(-1, 1, self.lstm.hidden_size)
        fit = None if self.captures is None else self.captures.fit
        h_T, _ = read_in_range(self.lstm, embedded, pick=lambda h: h.gather(1, last)[:, 0], fit=fit)  # (B, H)
        # subtle: in bfloat16 nearly equal documents often have identical logits, which gives VAT no gradient
        with torch.autocast(h_T.device.type, enabled=False):
            s = functional.relu(self.hidden(h_T.to(self.hidden.weight.dtype)))  # (B, M)
            if dropout is not None and self.mlp_dropout > 0.0:  # subtle: alike in the two passes of a step
                s = drop_out(s, self.mlp_dropout, next_generator(dropout))
            z: Tensor = self.output(s)  # Eq. 1
        return z

    @contextmanager
    def capturing(self, shapes: Iterable[LstmShape]) -> Iterator[None]:
        """On a GPU, read batches of these shapes with few launches."""
        if can_capture(self.output.weight.device):
            self.captures = Captures(self.lstm, shapes, has_state=False)
        try:
            yield
        finally:
            self.captures = None
            free_captures()

    @torch.no_grad()
    def start_from(self, pretrained: LanguageModel) -> None:
        """Copy a language model's embeddings and its LSTM; or all of it, as features."""
        self.embedding.weight.copy_(pretrained.embedding.weight)
        if self.features is None:
            self.lstm.load_state_dict(pretrained.reader(0).lstms[0].state_dict())
        else:
            self.features.start_from(pretrained)


def is_bidirectional(settings: ExpertConfig) -> bool:
    """Whether an expert's language model also reads backward."""
    return settings.kind == "elmo-lstm"


def language_model_of(
    settings: ExpertConfig, vocabulary_size: int, frequencies: Tensor | None
) -> LanguageModel:
    """The language model, still untrained, that an expert with these settings starts from."""
    D, H = settings.embedding_dim, settings.hidden_dim
    return LanguageModel(D, H, vocabulary_size, frequencies, is_bidirectional(settings))
