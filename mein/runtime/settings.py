"""What every group of settings is: frozen, checked when it is made, strict about unknown keys."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of the configuration classes; each lives beside the code that it configures."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
