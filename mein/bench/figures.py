"""What a bench left as JSON, read again."""

import json
from pathlib import Path
from typing import Any

from mein.errors import InputError


def read_figures(path: Path) -> dict[str, Any] | None:
    """The figures in a file; none where there is no such file."""
    if not path.exists():
        return None
    try:
        return {**json.loads(path.read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError) as problem:
        raise InputError(f"{path} is no result of a bench: measure again, or remove it.") from problem
