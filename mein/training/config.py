"""The settings of every stage of training, apart from the stages: to read settings takes no torch."""

from typing import Annotated, Literal

from pydantic import Field

from mein.runtime.settings import Settings


class OptimizationConfig(Settings):
    """How a stage is optimized, by Adam."""

    epochs: int = Field(default=30, ge=0)
    """Largest number of passes over the data."""
    patience: Annotated[int, Field(ge=1)] | None = 5
    """Stop after this many epochs without a better one; none: never stop early."""
    learning_rate: float = Field(default=1e-3, gt=0.0, allow_inf_nan=False)
    """Learning rate of the first step."""
    decay: float = Field(default=0.9998, gt=0.0, le=1.0)
    """The learning rate is multiplied by this after every step."""
    warm_up_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from zero. Adam's first steps move every weight by the same
    amount, which can destroy what a pre-trained network has learned."""
    falls_to_zero: bool = False
    """Whether the learning rate also falls linearly to zero at the last epoch's end."""
    clip: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = 5.0
    """Largest norm of the gradient; a step without a finite gradient is skipped; none: neither."""
    averaging: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Evaluate and keep a running mean of the weights with this decay per step: 0.999 averages over about a
    thousand steps; 0 uses the weights themselves."""


class SupervisedConfig(OptimizationConfig):
    """How the expert, or the mixture, learns from labels."""

    batch_documents: int = Field(default=32, ge=1)
    """Documents in a batch."""
    min_gain: Annotated[float, Field(ge=0.0)] | None = 0.0
    """Points of dev error by which an epoch must beat epoch 0; none: its standard error, since with few dev
    documents the best of many epochs is better by chance."""


class ImitationConfig(OptimizationConfig):
    """How the imitators learn from the expert."""

    epochs: int = Field(default=8, ge=0)
    """Largest number of passes over the text."""
    patience: Annotated[int, Field(ge=1)] | None = 4
    """Stop after this many epochs without a lower held-out KL; none: never. Without effect if the learning
    rate falls to zero: then the last epoch is kept."""
    decay: float = Field(default=1.0, gt=0.0, le=1.0)
    """The learning rate is multiplied by this after every step."""
    falls_to_zero: bool = True
    """Whether the learning rate also falls linearly to zero at the last epoch's end."""
    clip: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Largest norm of the gradient; a step without a finite gradient is skipped; none: neither."""
    batch_tokens: Annotated[int, Field(ge=1)] | None = None
    """Pieces in a batch; none: chosen so that an epoch has 500 steps (up to 8,192 pieces) or 200 (up to
    65,536). Above 8,192 the learning rate grows with the square root."""
    batch_documents: Annotated[int, Field(ge=1)] | None = None
    """Documents in a batch, instead of pieces."""
    documents: Annotated[int, Field(ge=1)] | None = None
    """Largest number of unlabeled documents, drawn at random; none: all."""
    reads_labeled: bool = False
    """Whether imitators also learn the teacher's predictions on the labeled text."""
    learns_lexicon: bool = False
    """Whether the teacher is the expert with the lexicon, if the mixture has a lexicon."""


class PretrainingConfig(OptimizationConfig):
    """How a language model for lm-lstm and elmo-lstm is trained."""

    reads: Literal["stream", "documents"] = "stream"
    """stream: all documents end to end, the state carried over (Sato); documents: each from a zero state,
    batched by length (Miyato)."""
    lanes: int = Field(default=64, ge=1)
    """Streams or documents in a batch."""
    segment: int = Field(default=400, ge=1)
    """Words after which the gradient is cut; the state is carried over. Longer dependencies are lost."""
    dropout: float = Field(default=0.4, ge=0.0, lt=1.0)
    """Share of elements of embeddings and of the LSTM's output set to zero."""
    epochs: int = Field(default=30, ge=0)
    """Largest number of passes over the text."""
    patience: Annotated[int, Field(ge=1)] | None = 3
    """Stop after this many epochs without a better one; none: never stop early."""
    learning_rate: float = Field(default=2e-3, gt=0.0, allow_inf_nan=False)
    """Learning rate of the first step."""
    decay: float = Field(default=1.0, gt=0.0, le=1.0)
    """The learning rate is multiplied by this after every step."""
    falls_to_zero: bool = True
    """Whether the learning rate also falls linearly to zero at the last epoch's end."""
    clip: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = 1.0
    """Largest norm of the gradient; a step without a finite gradient is skipped; none: neither."""
