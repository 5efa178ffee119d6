"""The kinds of expert, and the settings of one: its kind, how it is trained, and its sizes.

A kind declares what it reads, where it starts, and what can be done with it. A new kind is a module with its
network and an entry in `KINDS`; no other module knows kinds by name.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticKnownError

from mein.runtime.settings import GivenPath, Rate, Settings, Size

LARGEST_TRANSFORMER_RATE = 1e-3
SELF_TRAINING_DOCUMENTS = 100_000  # at most, drawn at random
DROPOUT = 0.5  # the paper's share of embedding elements that are set to zero in training
TRAININGS = ("plain", "adv", "vat", "ivat")


@dataclass(frozen=True)
class Kind:
    """One kind of expert, declared without importing its network."""

    name: str
    meaning: str
    """A short description, for the setting `expert.kind`."""
    network: str
    """The function that builds the network from a `Blueprint`, as `module:name`, imported on demand."""
    reads: Literal["words", "tokens", "features", "probabilities", "clones"] = "words"
    """Its input: word numbers; tokens of a Hugging Face model; features that a frozen one computes; class
    probabilities from a table or a function, or from clones of a classifier, one for each fold."""
    starts_from: Literal["vectors", "language model"] | None = None
    """What it learns from text before it learns from labels."""
    trainings: tuple[str, ...] = TRAININGS
    """The values of `expert.training` that it supports."""
    is_fitted: bool = False
    """Whether it is fitted without gradients, in folds, so that all labels teach."""
    is_exported: bool = False
    """Whether the trained network can be written as a Hugging Face model."""
    title: str = "This expert"
    """The subject of an error about it."""

    @property
    def reads_words(self) -> bool:
        """Whether it reads word numbers, so that it needs no reader."""
        return self.reads == "words"

    @property
    def has_encoder(self) -> bool:
        """Whether it is built on the pre-trained Hugging Face model that `expert.model` names."""
        return self.reads in ("tokens", "features")

    @property
    def tunes_encoder(self) -> bool:
        """Whether it also trains that model's own layers."""
        return self.reads == "tokens"

    @property
    def has_language_model(self) -> bool:
        """Whether it starts from a language model."""
        return self.starts_from == "language model"

    @property
    def is_pretrained(self) -> bool:
        """Whether it contains a network that was trained on other text, or may have been."""
        return self.has_language_model or not self.reads_words

    @property
    def learns(self) -> bool:
        """Whether stage 1 trains it, so that it also predicts new text; given probabilities do neither."""
        return self.reads != "probabilities"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("lstm", "from scratch", "mein.experts.lstm:LSTMExpert.build"),
        Kind(
            "lm-lstm",
            "pre-trained as a language model",
            "mein.experts.lstm:LSTMExpert.build",
            starts_from="language model",
        ),
        Kind(
            "elmo-lstm",
            "reads a bidirectional language model's layers",
            "mein.experts.lstm:LSTMExpert.build",
            starts_from="language model",
            trainings=("plain", "adv", "vat"),
        ),
        Kind(
            "average",
            "a linear layer over the sum of word vectors, which start from raw text",
            "mein.experts.average:AverageExpert.build",
            starts_from="vectors",
        ),
        Kind(
            "transformer",
            "a Hugging Face model, fine-tuned",
            "mein.hub.networks:build_transformer",
            reads="tokens",
            trainings=("plain", "adv", "vat"),
            is_exported=True,
        ),
        Kind(
            "linear",
            "a linear model over n-grams, their latent dimensions, and word vectors of raw text",
            "mein.experts.linear:NgramExpert.build",
            starts_from="vectors",
            trainings=("plain",),
            is_fitted=True,
            title="A linear expert",
        ),
        Kind(
            "frozen",
            "the same, with features of a frozen Hugging Face encoder",
            "mein.experts.linear:NgramExpert.build",
            reads="features",
            starts_from="vectors",
            trainings=("plain",),
            is_fitted=True,
            title="A frozen encoder",
        ),
        Kind(
            "given",
            "probabilities from a table or a function",
            "mein.experts.transformer:GivenExpert.build",
            reads="probabilities",
            trainings=("plain",),
            title="Given probabilities",
        ),
        Kind(
            "user",
            "a classifier from Python, `MeinClassifier(expert=...)`",
            "mein.experts.user:UserExpert.build",
            reads="clones",
            trainings=("plain",),
            is_fitted=True,
            title="A classifier from Python",
        ),
    )
}
"""By name, in the order in which they are listed to users."""


def _known(kind: object) -> object:
    """A kind of expert; an unknown one gives the error of a `Literal`."""
    if not isinstance(kind, str) or kind not in KINDS:
        *others, last = map(repr, KINDS)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
    return kind


AUTO = "auto"
AUTO_MODEL = "sentence-transformers/all-MiniLM-L6-v2@c9745ed1d9f207416be6d2e6f8de32d1f16199bf"


def _pinned(model: str | None, settings: ValidationInfo) -> str | None:
    """The model that `auto` stands for, whatever a cache holds; another name unchanged."""
    kind = KINDS.get(settings.data.get("kind", ""))
    return AUTO_MODEL if model == AUTO and kind is not None and kind.has_encoder else model


class ExpertConfig(Settings):
    """The expert; the default sizes are the paper's."""

    kind: Annotated[str, BeforeValidator(_known)] = Field(
        default="lstm",
        description="; ".join(f"{kind.name}: {kind.meaning}" for kind in KINDS.values()) + ".",
        json_schema_extra={"enum": [*KINDS]},
    )
    training: Literal["plain", "adv", "vat", "ivat"] = "plain"
    """plain; adv: adversarial; vat: virtual adversarial, uses unlabeled text; ivat: the same towards
    nearby words."""
    model: Annotated[GivenPath | None, AfterValidator(_pinned)] = None
    """For transformer and frozen: a folder, a name on the hub, perhaps with `@` and a revision, or auto for
    all-MiniLM-L6-v2 at a fixed commit. For given: files with soft labels for every document, in a column
    `probabilities` or `label`."""
    layers: Size | None = None
    """Number of layers of the transformer or encoder to use, from the first; none: all. Decoders often encode
    more of a text half-way up than at the top, where the next token is predicted."""
    frozen_layers: Size | None = None
    """Number of layers of a transformer that fine-tuning leaves unchanged, from the first, embeddings
    included."""
    language_model: GivenPath | None = None
    """Folder of a language model made by `mein pretrain` or by another run; none trains one first."""
    from_run: GivenPath | None = None
    """Folder of a finished run with the same labels: in stage 1 the expert also learns that run's predictions
    for up to 100,000 unlabeled documents, in at most 5 epochs."""
    embedding_dim: Size = 256
    """D, size of a word's embedding."""
    hidden_dim: Size = 1024
    """H, size of the LSTM's state."""
    mlp_dim: Size = 30
    """M, size of the last hidden layer."""
    mlp_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the last hidden layer set to zero in training; the paper names none, Sato used 0.5."""

    @property
    def traits(self) -> Kind:
        """What its kind declares."""
        return KINDS[self.kind]

    @property
    def is_self_training(self) -> bool:
        """Whether it also learns from a finished run."""
        return self.from_run is not None

    @property
    def learns_from_unlabeled(self) -> bool:
        """Whether it learns from raw text directly, without imitators."""
        return learns_from_unlabeled(self.traits, self.training)

    @property
    def is_normalized(self) -> bool:
        """Whether embeddings are normalized to mean 0 and variance 1 over running text: if they are perturbed
        or come from a language model."""
        return self.traits.has_language_model or self.training != "plain"

    def contradiction(self) -> str | None:
        """One sentence about settings that contradict each other, if any."""
        traits = self.traits
        if traits.has_encoder and self.model is None:
            return f"expert.kind is {self.kind!r} but expert.model is not set: give a folder or a hub name."
        if self.layers is not None and not traits.has_encoder:
            return f"expert.layers applies to transformers only, not to {self.kind!r}: remove it."
        if self.frozen_layers is not None and not traits.tunes_encoder:
            return f"expert.frozen_layers applies to transformers only, not to {self.kind!r}: remove it."
        if self.layers is not None and self.frozen_layers is not None and self.frozen_layers >= self.layers:
            return (
                f"expert.frozen_layers (={self.frozen_layers}) leaves none of {self.layers} layers to "
                "fine-tune: set it lower, or expert.kind to frozen."
            )
        if self.training not in traits.trainings:
            if self.training == "ivat" and "vat" in traits.trainings:
                return f"ivat needs embeddings of words, which {self.kind!r} lacks: use vat, or lm-lstm."
            usual = traits.trainings[0]
            return f"{traits.title} cannot be trained by {self.training!r}: set expert.training to {usual}."
        if self.from_run is not None and (traits.is_fitted or not traits.learns):
            return (
                f"{traits.title} cannot learn from another run: set expert.kind to average, or drop from_run."
            )
        if self.language_model is not None and not traits.has_language_model:
            return f"expert.language_model does not apply to {self.kind!r}: set expert.kind to lm-lstm."
        return None


class PerturbationConfig(Settings):
    """How embeddings are perturbed in training."""

    epsilon: Rate | None = None
    """Norm of a perturbation, over all of a document; none: a fiftieth of the norm of an average document's
    embeddings (Miyato's 5 on film reviews), and for ivat three times that."""
    unlabeled_documents: Size = 64
    """Unlabeled documents in a step of vat and ivat."""


def learns_from_unlabeled(kind: Kind, training: str) -> bool:
    """Whether such an expert learns from raw text directly, before or beside the labels."""
    return kind.starts_from is not None or training in ("vat", "ivat")
