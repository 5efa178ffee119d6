"""Text classifiers from a few labels and a lot of raw text.

>>> from mein import MeinClassifier
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mein.api import MeinClassifier as MeinClassifier
    from mein.errors import MeinError as MeinError

__version__ = "0.1.0"
__all__ = ["MeinClassifier", "MeinError", "__version__"]


def __getattr__(name: str) -> Any:
    """Load the public names when they are asked for: `import mein` by itself costs nothing."""
    if name == "MeinClassifier":
        from mein.api import MeinClassifier

        return MeinClassifier
    if name == "MeinError":
        from mein.errors import MeinError

        return MeinError
    raise AttributeError(f"module 'mein' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
