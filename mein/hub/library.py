"""The transformers library: imported where it is used, and quiet."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from safetensors import SafetensorError

from mein.errors import MissingExtra

# What transformers raises where a file is missing, damaged, or of an unknown type.
LOADING_PROBLEMS = (OSError, ValueError, LookupError, TypeError, RuntimeError, ImportError, SafetensorError)
LOCAL = {"local_files_only": True, "trust_remote_code": False}  # for all that it loads


@contextmanager
def transformers_quietly() -> Iterator[Any]:
    """The library, without its progress bars, its tables of missing weights and its warnings."""
    try:
        import transformers
    except ImportError as problem:
        raise missing(problem) from problem
    logging = transformers.utils.logging
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield transformers
        finally:
            logging.set_verbosity(verbosity)
            if has_bars:
                logging.enable_progress_bar()


def missing(problem: ImportError) -> MissingExtra:
    """One sentence for a package that is not installed."""
    return MissingExtra(
        f"Hugging Face experts need the package transformers ({problem}): pip install '.[transformers]'"
    )


def reason(problem: Exception) -> str:
    """The first sentence of a library's error message, to be quoted in one of ours."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0].split(". ")[0].rstrip(" .:")
