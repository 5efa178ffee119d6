"""The settings of words and pieces, apart from their vocabularies: to read settings takes no numpy."""

from typing import Annotated, Literal

from pydantic import Field

from mein.runtime.settings import Count, Settings


class WordsConfig(Settings):
    """How texts are cut into words, and which words the expert knows."""

    tokenizer: Literal["words", "paper"] = "words"
    """`words`: words, single signs, letters where a script sets no spaces; `paper`: split at `\\W+` only."""
    lowercase: bool = True
    """Fold the text to lower case."""
    max_words: int = Field(default=100_000, ge=1, le=10**8)
    """Largest number of words; of those in two documents or more, the most frequent ones are kept."""
    max_length: Annotated[int, Field(ge=2, le=10**9)] | None = 1_000
    """The expert reads at most this many words of a document, the last ones; none: all."""


class PiecesConfig(Settings):
    """How words are cut into pieces for the imitators."""

    vocabulary_size: int = Field(default=20_000, ge=4, le=10**7)
    """Largest number of pieces (subwords); every covered character has its own in any case."""
    min_count: Count = 5
    """Learn no more pieces than there are words seen this often."""
