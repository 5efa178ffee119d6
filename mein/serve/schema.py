"""Requests, answers, and limits: their shapes, one sentence for a request of another shape, and the defaults.

Also an explanation as segments of the original text, with the contribution of each word per window.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from mein.data.labels import Label
from mein.errors import ConfigError, shown
from mein.explain import explain
from mein.model.model import Model
from mein.runtime.settings import Count, Settings, Size


class Shape(BaseModel):
    """Base of what is documented in the schema."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Prediction(Shape):
    """The model's prediction for a text."""

    label: str | int | bool
    """The most probable label, as it was in training."""
    probability: float = Field(ge=0.0, le=1.000001)
    """Of that label."""
    probabilities: dict[str, float]
    """Of every label, by its name."""


class Predictions(Shape):
    """One prediction for each text, in their order."""

    predictions: list[Prediction]


class MarkedFragment(Shape):
    """A part of the text that one component reads, and its contribution to the log-odds."""

    text: str
    source: str
    """`expert` (words of a linear expert), `encoder` (words that were left out), `lexicon`, `imitator`."""
    window: int | None
    """c of an imitator, whose window has 2 * c + 1 pieces."""
    start: int
    """The first of its pieces, counted from the text's first."""
    stop: int
    contribution: float
    """Negative: evidence for the alternative."""
    times: int
    """How often it occurs, where the contribution is that of all occurrences."""


class Explained(Prediction):
    """log p(label) - log p(alternative) = expert + lexicon + sum(imitators)."""

    alternative: str | int | bool
    """The next most probable label."""
    log_odds: float
    expert: float
    """The expert's part."""
    encoder: float
    """Of the expert's part, what came through the features of its encoder; 0 where there is none."""
    lexicon: float
    """The part of the lexicon; 0 where there is none."""
    imitators: dict[str, float]
    """The part of each window's imitator."""
    rest: dict[str, float]
    """What no fragment accounts for, of `expert`, `encoder` and `lexicon`."""
    is_empty: bool
    """Whether the text is empty to the model; its log-odds are then those of the classes in training."""
    fragments: list[MarkedFragment]
    """The most influential first."""
    segments: list[str]
    """The text as gap, word, gap, ..., word, gap; joined they are the text."""
    shares: dict[str, list[float]]
    """Contribution of each word, by component: `expert`, `encoder`, `lexicon`, or the window of an imitator.
    They add up to its part without its rest."""


class Health(Shape):
    """The server answers."""

    status: str
    version: str


class Refusal(Shape):
    """Why a request was refused."""

    error: str
    """One sentence."""


REFUSALS = {
    401: "The token is missing or wrong",
    408: "The body came too slowly",
    413: "The body is too large",
    415: "The body is of another type",
    421: "The request names another host",
    422: "The body or a parameter does not match the schema",
    500: "The server made a mistake",
    503: "The server is busy, or the answer took too long",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The part of the schema that lists possible refusals."""
    return {status: {"model": Refusal, "description": REFUSALS[status]} for status in statuses}


def sentence_of(errors: Sequence[Any]) -> str:
    """One sentence about the first thing that is wrong; it never quotes what was sent."""
    if errors[0]["type"] == "json_invalid":
        return f"The body: Invalid JSON: {errors[0]['ctx']['error']}."
    # A value may be a text or a list of texts: report on the kind that was sent.
    specific = [error for error in errors if error["type"] not in ("string_type", "list_type")]
    chosen = specific[0] if specific else max(errors, key=lambda error: len(error["loc"]))
    names = [str(part) for part in chosen["loc"] if str(part).isidentifier() or isinstance(part, int)]
    where = ".".join(name for name in names if name not in ("body", "query", "str"))
    return f"{where or 'The body'}: {chosen['msg']}."


Bytes = Annotated[int, Field(ge=1_000, le=10**12)]
Seconds = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]


class ServeSettings(Settings):
    """The limits of a server; a request beyond one is refused in one sentence."""

    texts: Count = 1_000
    """Texts in a request."""
    text_characters: Count = 100_000
    """Characters in a text, also in a file's."""
    body_bytes: Bytes = 2_000_000
    """Bytes in a request's body."""
    body_seconds: Seconds = 10.0
    """Seconds until a request's body must have arrived."""
    answer_seconds: Seconds = 30.0
    """Seconds until its answer must be ready."""
    file_bytes: Bytes = 64_000_000
    """Bytes in a file to label."""
    file_seconds: Seconds = 600.0
    """Seconds for a file to arrive, and again to be labeled."""
    files: Size = 2
    """Files that are received or labeled at once."""
    explanations: Size = 8
    """Texts that are explained, or wait for it, at once."""
    requests: Size = 128
    """Requests that are answered at once."""
    batch_texts: Size = 64
    """Texts, of one request or several, in a batch of the model."""
    gather_seconds: float = Field(default=0.001, ge=0.0, le=1.0)
    """Seconds that the first of them waits for others."""


def make_settings(given: Mapping[str, Any]) -> ServeSettings:
    """Check settings and freeze them; refuse an unknown name and offer the nearest.

    >>> make_settings({"texts": 10}).texts
    10
    """
    names = list(ServeSettings.model_fields)
    for name in set(given) - set(names):
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
        raise ConfigError(f"Unknown setting {name!r}: did you mean {nearest!r}?")
    try:
        return ServeSettings.model_validate(dict(given))
    except ValidationError as problem:
        first = problem.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"The setting {name} is {shown(first['input'])}, but {first['msg'].lower()}."
        ) from problem


def no_flag(value: Any) -> Any:
    """Refuse true and false, which pydantic takes for the numbers 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def explained(model: Model, text: str, top: int, label: Label | None = None) -> dict[str, Any]:
    """The explanation with its `top` fragments, all probabilities, and the text in marked segments."""
    explanation = explain(model, text, label)
    shares = explanation.shares
    fragments = [
        {
            "text": fragment.text,
            "source": fragment.source,
            "window": fragment.window,
            "start": fragment.start,
            "stop": fragment.stop,
            "contribution": fragment.contribution,
            "times": fragment.times,
        }
        for fragment in explanation.fragments[:top]
    ]
    return {
        "label": explanation.label,
        "probability": explanation.probability,
        "alternative": explanation.alternative,
        "probabilities": dict(zip(map(str, model.labels.classes), explanation.probabilities, strict=True)),
        "log_odds": explanation.log_odds,
        "expert": explanation.expert,
        "encoder": explanation.encoder,
        "lexicon": explanation.lexicon,
        "imitators": {str(window): part for window, part in explanation.imitators.items()},
        "rest": explanation.rest,
        "is_empty": explanation.is_empty,
        "fragments": fragments,
        "segments": shares.layout.segments(text),
        "shares": {name: values.tolist() for name, values in shares.by_word().items()},
    }
