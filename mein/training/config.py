"""The settings of the stages, and how each stage is optimized by them; to read settings takes no torch.

What the paper fixes, or a kind of expert, is no setting but a constant here.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from mein.experts.config import Kind
from mein.runtime.settings import Count, Rate, Settings, Size

DECAY, CLIP = 0.9998, 5.0  # the paper's, for networks that learn from labels
PRETRAINED_CLIP = 1.0  # the usual one for transformers; Miyato's for language models
IMITATORS_PATIENCE = 2  # at a constant learning rate, in epochs without a lower KL
SELF_TRAINING_EPOCHS = 5  # at most: with unlabeled documents, an epoch is long

Epochs = Annotated[int, Field(ge=0, le=10**6)]
Patience = Count | None


@dataclass(frozen=True)
class Optimization:
    """How a stage is optimized, by Adam."""

    epochs: int = 30
    patience: int | None = 5
    """Stop after this many epochs without a better one; None: never stop early."""
    learning_rate: float = 1e-3
    decay: float = DECAY
    """The learning rate is multiplied by this after every step."""
    falls_to_zero: bool = False
    """Whether the learning rate also falls linearly to zero at the last epoch's end."""
    clip: float | None = CLIP
    """Largest norm of the gradient; a step without a finite gradient is skipped; None: neither."""
    averaging: float = 0.0
    """Decay of the running mean of the weights that is evaluated and kept; 0: the weights themselves."""


@dataclass(frozen=True)
class Supervision(Optimization):
    """How the expert, or the mixture, learns from labels."""

    batch_documents: int = 32
    min_gain: float | None = 0.0
    """Points of dev error by which an epoch must beat epoch 0; None: its standard error, since with few dev
    documents the best of many epochs is better by chance."""

    def of_epochs(self, epochs: int) -> "Supervision":
        """The same for a number of epochs that is known, with nothing to choose by."""
        return replace(self, epochs=epochs, patience=None, min_gain=0.0)


@dataclass(frozen=True)
class Imitation(Optimization):
    """How the imitators learn from the expert."""

    epochs: int = 8
    patience: int | None = None
    decay: float = 1.0
    falls_to_zero: bool = True
    clip: float | None = None
    batch_tokens: int | None = None
    """Pieces in a batch; None: chosen so that an epoch has 500 steps (up to 8,192 pieces) or 200 (up to
    65,536). Above 8,192 the learning rate grows with the square root."""
    batch_documents: int | None = None
    """Documents in a batch, instead of pieces."""
    documents: int | None = None
    """Largest number of unlabeled documents, drawn at random; None: all."""


@dataclass(frozen=True)
class Pretraining(Optimization):
    """How a language model learns from text."""

    patience: int | None = 3
    learning_rate: float = 2e-3
    decay: float = 1.0
    falls_to_zero: bool = True
    clip: float | None = PRETRAINED_CLIP
    lanes: int = 64
    segment: int = 400
    dropout: float = 0.4


class OptimizerConfig(Settings):
    """What the stages share: Adam, and the learning rate on unlabeled text."""

    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate of pre-training and of the imitators. linear: falls to zero at the last epoch's end.
    constant: as in the paper; imitators stop after 2 epochs without a lower held-out KL, and the gradient of
    a language model is clipped at 5 instead of 1."""

    @property
    def is_linear(self) -> bool:
        """Whether it falls to zero."""
        return self.schedule == "linear"


class PretrainingConfig(Settings):
    """How a language model for lm-lstm and elmo-lstm is trained."""

    epochs: Epochs = 30
    """Largest number of passes over the text."""
    patience: Patience = 3
    """Stop after this many epochs without a better one; none: never stop early."""
    learning_rate: Rate = 2e-3
    """Learning rate of the first step."""
    lanes: Size = 64
    """Streams in a batch."""
    segment: Count = 400
    """Words after which the gradient is cut; the state is carried over. Longer dependencies are lost."""
    dropout: float = Field(default=0.4, ge=0.0, lt=1.0)
    """Share of elements of embeddings and of the LSTM's output set to zero."""

    def resolved(self, optimizer: OptimizerConfig) -> Pretraining:
        """With what the optimizer's schedule decides."""
        clip = PRETRAINED_CLIP if optimizer.is_linear else CLIP
        return Pretraining(**self.model_dump(), falls_to_zero=optimizer.is_linear, clip=clip)


class ExpertTrainingConfig(Settings):
    """How the expert learns from the labels."""

    epochs: Epochs = 30
    """Largest number of passes over the labels; in self-training at most 5."""
    patience: Patience = 5
    """Stop after this many epochs without a better one; none: never stop early."""
    learning_rate: Rate = 1e-3
    """Learning rate of the first step."""
    batch_documents: Count = 32
    """Documents in a batch."""
    averaging: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Evaluate and keep a running mean of the weights with this decay per step: 0.999 averages over about a
    thousand steps; 0 uses the weights themselves."""

    def resolved(self, kind: Kind, *, is_self_training: bool = False) -> Supervision:
        """With what the kind decides: a linear layer over features needs no decay and no clipping."""
        given = self.model_dump()
        if is_self_training:
            given["epochs"] = min(self.epochs, SELF_TRAINING_EPOCHS)
        if kind.reads == "features":
            return Supervision(**given, decay=1.0, clip=None)
        return Supervision(**given, **_of_labels(kind))


class ImitatorTrainingConfig(Settings):
    """How the imitators learn from the expert."""

    epochs: Epochs = 8
    """Largest number of passes over the text."""
    learning_rate: Rate = 1e-3
    """Learning rate of the first step."""
    batch_documents: Count | None = None
    """Documents in a batch; none: as many pieces as suit the corpus, 512 to 65,536."""
    documents: Count | None = None
    """Largest number of unlabeled documents, drawn at random; none: all."""
    reads_labeled: bool = False
    """For few labels: whether imitators also learn the teacher's predictions on the labeled text. If so, and
    if the mixture has a lexicon and the expert no Hugging Face encoder, the lexicon is part of the
    teacher."""

    def resolved(self, optimizer: OptimizerConfig) -> Imitation:
        """With what the optimizer's schedule decides."""
        return Imitation(
            **self.model_dump(exclude={"reads_labeled"}),
            falls_to_zero=optimizer.is_linear,
            patience=None if optimizer.is_linear else IMITATORS_PATIENCE,
        )


class FineTuningConfig(Settings):
    """How the mixture is fine-tuned on the labels."""

    epochs: Epochs = 30
    """Largest number of passes over the labels."""
    patience: Patience = 5
    """Stop after this many epochs without a better one, and keep the start unless an epoch lowers the dev
    error by more than its standard error; none: keep the best of all epochs, as in the paper."""
    learning_rate: Rate = 1e-4
    """Learning rate of the first step."""
    batch_documents: Count = 32
    """Documents in a batch."""

    def resolved(self, kind: Kind) -> Supervision:
        """With what the kind of expert, and the patience, decide."""
        min_gain = 0.0 if self.patience is None else None
        return Supervision(**self.model_dump(), min_gain=min_gain, **_of_labels(kind))


def _of_labels(kind: Kind) -> dict[str, Any]:
    """The paper's decay and clipping, or those of transformers: the learning rate falls to zero."""
    if kind.tunes_encoder:
        return {"decay": 1.0, "falls_to_zero": True, "clip": PRETRAINED_CLIP}
    return {"decay": DECAY, "clip": CLIP}
