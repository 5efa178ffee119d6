"""What a server allows: sizes, counts and times, each with a default that suits one machine."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from mein.errors import ConfigError
from mein.settings import Settings


class ServeSettings(Settings):
    """The limits of a server; whoever goes beyond one is told so in one sentence."""

    texts: int = Field(default=1_000, ge=1)
    """Texts in a request."""
    text_characters: int = Field(default=100_000, ge=1)
    """Characters in a text, also in a file's."""
    body_bytes: int = Field(default=2_000_000, ge=1_000)
    """Bytes in a request's body."""
    body_seconds: float = Field(default=10.0, gt=0.0, allow_inf_nan=False)
    """Seconds until a request's body must be here."""
    answer_seconds: float = Field(default=30.0, gt=0.0, allow_inf_nan=False)
    """Seconds until its answer must be ready."""
    file_bytes: int = Field(default=64_000_000, ge=1_000)
    """Bytes in a file to label."""
    file_seconds: float = Field(default=600.0, gt=0.0, allow_inf_nan=False)
    """Seconds for a file to arrive, and again to be labelled."""
    files: int = Field(default=2, ge=1)
    """Files that are taken in or labelled at once."""
    requests: int = Field(default=128, ge=1)
    """Requests that are answered at once."""
    batch_texts: int = Field(default=64, ge=1)
    """Texts, of one request or several, that the model reads at once."""
    gather_seconds: float = Field(default=0.001, ge=0.0, le=1.0)
    """How long the first of them waits for others."""


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
            f"The setting {name} is {first['input']!r}, but {first['msg'].lower()}."
        ) from problem
