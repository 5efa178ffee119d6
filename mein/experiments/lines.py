"""Results as JSON lines: one for each cell, and all that tables and figures are made from."""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mein.errors import InputError
from mein.experiments.cells import Cell

Line = dict[str, Any]


def cell_of(line: Line) -> Cell:
    """The cell that a line is the result of."""
    return Cell(
        line["dataset"],
        line["expert"],
        line["variant"],
        line["seed"],
        tuple(line["windows"]),
        line["unlabeled"],
    )


def line_of(cell: Cell, figures: dict[str, Any], correct: np.ndarray) -> Line:
    """A cell's result; `wrong` keeps which test documents it got wrong, a bit each."""
    return {
        "dataset": cell.dataset,
        "expert": cell.expert,
        "variant": cell.variant,
        "windows": list(cell.windows),
        "unlabeled": cell.unlabeled,
        "seed": cell.seed,
        **figures,
        "documents": len(correct),
        "wrong": base64.b64encode(np.packbits(~correct).tobytes()).decode("ascii"),
    }


def correct_of(line: Line) -> np.ndarray:
    """Which test documents a cell got right (n,)."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(line["wrong"]), np.uint8), count=line["documents"])
    correct: np.ndarray = bits == 0
    return correct


def read_lines(folder: Path) -> list[Line]:
    """Every result under a folder; of a cell that was run again, the last."""
    found: dict[tuple[Any, ...], Line] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                line = json.loads(text)
                found[cell_of(line).key] = line
            except (ValueError, KeyError, TypeError) as problem:
                raise InputError(
                    f"{path} line {number} is no result ({problem!r}): mend or remove it."
                ) from problem
    return list(found.values())


def append_lines(path: Path, lines: Sequence[Line]) -> None:
    """Add results to a file, in one write, so that lines of several processes do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def missing(cells: Iterator[Cell], lines: Sequence[Line]) -> list[Cell]:
    """The cells without a result."""
    done = {cell_of(line).key for line in lines}
    return [cell for cell in dict.fromkeys(cells) if cell.key not in done]
