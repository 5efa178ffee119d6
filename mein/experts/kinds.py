"""The kinds of expert: what each reads, where it starts, and what can be done with it.

A new kind is a module with its network and an entry in `KINDS`; no other module knows kinds by name.
"""

from dataclasses import dataclass
from typing import Literal

TRAININGS = ("plain", "adv", "vat", "ivat")


@dataclass(frozen=True)
class Kind:
    """One kind of expert, declared without importing its network."""

    name: str
    meaning: str
    """In a few words, for the setting `expert.kind`."""
    network: str
    """What builds the network from a `Blueprint`, as `module:name`, imported when it is needed."""
    reads: Literal["words", "tokens", "features", "probabilities"] = "words"
    """What a document is to it: our word numbers; the tokens of a Hugging Face model; the features that a
    frozen one computes; class probabilities from a table or a function."""
    starts_from: Literal["vectors", "language model"] | None = None
    """What it learns from text before it learns from labels, by a method of the expert of that name."""
    trainings: tuple[str, ...] = TRAININGS
    """Which values of `expert.training` it takes."""
    is_exported: bool = False
    """Whether the trained network can be written as a Hugging Face model."""
    title: str = "This expert"
    """The subject of an error about it."""

    @property
    def reads_words(self) -> bool:
        """Whether it reads word numbers, so that documents need no reader of its own."""
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
            "frozen",
            "a linear layer over a frozen Hugging Face encoder",
            "mein.experts.transformer:LinearExpert.build",
            reads="features",
            trainings=("plain",),
            title="A frozen encoder",
        ),
        Kind(
            "given",
            "probabilities from a table or a function",
            "mein.experts.transformer:GivenExpert.build",
            reads="probabilities",
            trainings=("plain",),
            title="A teacher",
        ),
    )
}
"""By name, in the order in which they are listed to users."""
