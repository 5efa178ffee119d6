"""Which expert, how it is trained, and its sizes: the words by which a config chooses."""

from typing import Literal

from pydantic import Field

from mein.runtime.settings import Settings

LARGEST_TRANSFORMER_RATE = 1e-3
ENCODERS = ("transformer", "frozen")  # kinds that somebody else has pre-trained


class ExpertConfig(Settings):
    """The expert; the sizes by default are the paper's."""

    kind: Literal["lstm", "lm-lstm", "elmo-lstm", "average", "transformer", "frozen", "given"] = "lstm"
    """lstm: from scratch; lm-lstm: pre-trained as a language model; elmo-lstm: reads a bidirectional
    language model's layers; average: a linear layer over the sum of word vectors, which start from raw text;
    transformer: fine-tuned, of Hugging Face; frozen: a linear layer over an
    encoder of Hugging Face; given: probabilities from a table or a function."""
    training: Literal["plain", "adv", "vat", "ivat"] = "plain"
    """plain; adv: adversarial; vat: virtual adversarial, uses unlabeled text; ivat: the same towards
    nearby words."""
    model: str | None = None
    """The transformer or encoder: a folder or a name on the hub. The teacher: files with its words on
    every document, in a column `probabilities` beside the text."""
    layers: int | None = Field(default=None, ge=1)
    """Of the transformer or encoder: its first so many layers alone; none: all. Decoders often know more
    of a text half-way up than at the top, where the next token is chosen."""
    frozen_layers: int | None = Field(default=None, ge=1)
    """Of a transformer that is fine-tuned: its embeddings and first so many layers stay as they are."""
    language_model: str | None = None
    """Folder of a language model made by `mein pretrain` or by another run; none trains one first."""
    from_run: str | None = None
    """Folder of a finished run with the same labels: in stage 1 the expert also learns what that run says of
    unlabeled text."""
    self_training_documents: int = Field(default=100_000, ge=1)
    """Of so many unlabeled documents at most, drawn at random."""
    self_training_epochs: int = Field(default=5, ge=0)
    """Passes over the labels and these documents, instead of expert_training.epochs."""
    embedding_dim: int = Field(default=256, ge=1)
    """D, the size of a word's embedding."""
    hidden_dim: int = Field(default=1024, ge=1)
    """H, the size of the LSTM's state."""
    mlp_dim: int = Field(default=30, ge=1)
    """M, the size of the last hidden layer."""
    dropout: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Share of embedding elements set to zero in training."""
    drops_out_by_document: bool = False
    """Whether all words of a document lose the same elements, as in Miyato's code; else each its own."""
    mlp_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the last hidden layer set to zero in training; the paper names none, Sato took 0.5."""
    normalizes_embeddings: bool | None = None
    """Whether embeddings are brought to mean 0 and variance 1 over running text; none: where they are
    perturbed or come from a language model."""

    @property
    def is_self_training(self) -> bool:
        """Whether it also learns from a finished run."""
        return self.from_run is not None

    @property
    def reads_raw_text(self) -> bool:
        """Whether it learns from raw text by itself, without imitators."""
        return reads_raw_text(self.kind, self.training)

    @property
    def has_language_model(self) -> bool:
        """Whether it starts from a language model."""
        return self.kind in ("lm-lstm", "elmo-lstm")

    @property
    def reads_words(self) -> bool:
        """Whether it reads our words, rather than what somebody else's network makes of the text."""
        return self.kind in ("lstm", "lm-lstm", "elmo-lstm", "average")

    @property
    def has_encoder(self) -> bool:
        """Whether it is, or reads, an encoder that somebody else pre-trained."""
        return self.kind in ENCODERS

    @property
    def is_normalized(self) -> bool:
        """Whether its embeddings are normalized."""
        if self.normalizes_embeddings is not None:
            return self.normalizes_embeddings
        return self.has_language_model or self.training != "plain"

    def contradiction(self) -> str | None:
        """What does not go together, in one sentence, if anything."""
        if self.has_encoder and self.model is None:
            return f"expert.kind is {self.kind!r} but expert.model is not set: give a folder or a hub name."
        if self.layers is not None and not self.has_encoder:
            return f"expert.layers is of no use to {self.kind!r}: leave it out, or take a transformer."
        if self.frozen_layers is not None and self.kind != "transformer":
            return f"expert.frozen_layers is of no use to {self.kind!r}: leave it out, or take a transformer."
        if self.layers is not None and self.frozen_layers is not None and self.frozen_layers >= self.layers:
            return (
                f"expert.frozen_layers (={self.frozen_layers}) leaves none of {self.layers} layers to "
                "fine-tune: set it lower, or expert.kind to frozen."
            )
        if self.kind == "frozen" and self.training != "plain":
            return f"A frozen encoder cannot be trained by {self.training!r}: set expert.training to plain."
        if self.kind == "given" and self.training != "plain":
            return f"A teacher cannot be trained by {self.training!r}: set expert.training to plain."
        if self.kind == "given" and self.from_run is not None:
            return "A teacher has learned already and is nobody's student: leave expert.from_run out."
        if self.training == "ivat" and self.kind not in ("lstm", "lm-lstm", "average"):
            return f"ivat needs embeddings of words, which {self.kind!r} lacks: take vat, or lm-lstm."
        if self.language_model is not None and not self.has_language_model:
            return f"A language model is of no use to {self.kind!r}: set expert.kind to lm-lstm."
        return None


def reads_raw_text(kind: str, training: str) -> bool:
    """Whether such an expert learns from raw text by itself, before or beside the labels."""
    return kind in ("average", "lm-lstm", "elmo-lstm") or training in ("vat", "ivat")
