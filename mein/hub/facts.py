"""What is known of a fetched model: the file that marks its folder as whole."""

import json
from dataclasses import dataclass
from pathlib import Path

from mein.errors import RunError
from mein.hub.library import LOADING_PROBLEMS, reason

FACTS = "mein.json"


@dataclass(frozen=True)
class Facts:
    """What is known of a fetched model."""

    model: str
    """The folder or the name on the hub that it came from."""
    classes: int
    """Y."""
    longest: int | None
    """The most tokens that it can read, where there is a limit."""
    blank: int
    """The token that stands for a document without any."""
    pooling: str
    """How its encoder's states become features: `mean`, `cls`, `lasttoken`, or a way that we do not know."""
    weights: str
    """Hash of its weights."""


def read_facts(folder: Path) -> Facts:
    """The facts about a model that `fetch` left in a folder."""
    try:
        return Facts(**json.loads((folder / FACTS).read_text(encoding="utf-8")))
    except FileNotFoundError as problem:
        raise RunError(f"{folder} holds no fetched model, {FACTS} is missing: fetch it again.") from problem
    except LOADING_PROBLEMS as problem:
        raise damaged(folder, problem) from problem


def damaged(folder: Path, problem: Exception) -> RunError:
    """One sentence for a folder that `fetch` wrote and that can no longer be read."""
    return RunError(f"{folder} is damaged ({reason(problem)}): remove it and fetch the model again.")
