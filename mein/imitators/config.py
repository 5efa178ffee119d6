"""The settings of the imitators, apart from their networks: to read settings takes no torch."""

from typing import Annotated

from pydantic import Field

from mein.runtime.settings import Settings, Size


class ImitatorsConfig(Settings):
    """The imitators' windows and sizes; the defaults are the paper's."""

    windows: tuple[Annotated[int, Field(ge=0, le=100)], ...] = Field(
        default=(1, 2, 3, 4), min_length=1, max_length=100
    )
    """c of each imitator, whose windows are 2 c + 1 pieces wide."""
    embedding_dim: Size = 512
    """Size of a piece's embedding."""
    channels: Size = 512
    """N, the number of convolution channels of each imitator."""
