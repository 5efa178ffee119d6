"""What goes over the wire: the shapes of answers, and one sentence for a request that has another."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Base of what is documented in the schema."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Prediction(Shape):
    """What the model says of a text."""

    label: str | int | bool
    """The likeliest label, as it was in training."""
    probability: float = Field(ge=0.0, le=1.000001)
    """Of that label."""
    probabilities: dict[str, float]
    """Of every label, by its name."""


class Predictions(Shape):
    """One prediction for each text, in their order."""

    predictions: list[Prediction]


class MarkedFragment(Shape):
    """What one imitator saw at one position, and how much it moved the log-odds."""

    text: str
    window: int
    """It saw 2 * window + 1 pieces."""
    start: int
    """The first of its pieces, counted from the text's first."""
    stop: int
    contribution: float
    """Negative ones spoke for the alternative."""


class Explained(Prediction):
    """log p(label) - log p(alternative) = expert + lexicon + sum(imitators)."""

    alternative: str | int | bool
    """The next likeliest label."""
    log_odds: float
    expert: float
    """The expert's part, which cannot be split."""
    lexicon: float
    """The part of the lexicon; 0 where there is none."""
    imitators: dict[str, float]
    """The part of each window's imitator."""
    is_silent: bool
    """Whether the text says nothing; its log-odds are then those of the classes in training."""
    fragments: list[MarkedFragment]
    """The strongest first."""
    segments: list[str]
    """The text as gap, word, gap, ..., word, gap; joined they are the text."""
    shares: dict[str, list[float]]
    """How much each word spoke, by window; they add up to that imitator's part."""


class Health(Shape):
    """The server answers."""

    status: str
    version: str


class Refusal(Shape):
    """Why a request was not answered as it wished."""

    error: str
    """One sentence."""


REFUSALS = {
    401: "The token is missing or wrong",
    408: "The body came too slowly",
    413: "The body is too large",
    415: "The body is of another type",
    422: "The body or a parameter is not as the schema says",
    500: "The server made a mistake",
    503: "The server is busy, or the answer took too long",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The part of the schema that tells which refusals there may be."""
    return {status: {"model": Refusal, "description": REFUSALS[status]} for status in statuses}


def sentence_of(errors: Sequence[Any]) -> str:
    """One sentence about the first thing that is wrong; it never quotes what was sent."""
    # A value may be a text or a list of texts: speak of the kind that was sent.
    telling = [error for error in errors if error["type"] not in ("string_type", "list_type")]
    chosen = telling[0] if telling else max(errors, key=lambda error: len(error["loc"]))
    names = [str(part) for part in chosen["loc"] if str(part).isidentifier() or isinstance(part, int)]
    where = ".".join(name for name in names if name not in ("body", "query", "str"))
    return f"{where or 'The body'}: {chosen['msg']}."
