"""What every group of settings is: frozen, checked when it is made, strict about unknown keys."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from mein.errors import InputError
from mein.runtime.files import expanded

# Every number has an upper bound, far above what is useful: beyond it there is an error of memory, or worse.
Size = Annotated[int, Field(ge=1, le=65_536)]
"""Of a network, or of a batch that is held at once."""
Count = Annotated[int, Field(ge=1, le=10**9)]
"""Of documents, words, or steps."""
Rate = Annotated[float, Field(gt=0.0, le=1e3, allow_inf_nan=False)]
"""A learning rate, or the norm of a perturbation."""


def _expanded(path: object) -> object:
    try:
        return expanded(path) if isinstance(path, str) else path
    except InputError as problem:
        raise PydanticCustomError("path", "should be UTF-8") from problem


GivenPath = Annotated[str, BeforeValidator(_expanded)]
"""A path, in which `~` is the home folder; or a name elsewhere."""


class Settings(BaseModel):
    """Base of the configuration classes; each lives beside the code that it configures."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
