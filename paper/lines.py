"""Results as JSON lines: one per cell, from which all tables and figures are made; times of runs.

Times come from the records of a run, which survive a kill.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mein.errors import InputError
from mein.runtime.files import held_folder, writing_failed
from mein.runtime.run_folder import RunFolder
from paper.cells import EXPERTS, OURS, Cell

Line = dict[str, Any]
Percent = Annotated[float, Field(ge=0, le=100)]


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


def experts_of(lines: Sequence[Line]) -> list[str]:
    """The paper's rows, and mein's own that have results."""
    found = {line["expert"] for line in lines}
    return [*EXPERTS, *(expert for expert in OURS if expert in found)]


def correct_of(line: Line) -> np.ndarray:
    """Which test documents a cell got right (n,)."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(line["wrong"]), np.uint8), count=line["documents"])
    correct: np.ndarray = bits == 0
    return correct


def read_lines(folder: Path) -> list[Line]:
    """Every result under a folder; of a cell that was run again, the last."""
    found: dict[Cell, Line] = {}
    documents: dict[str, int] = {}
    for path in sorted(folder.glob("*.jsonl")):
        found |= _parsed(path, _complete(path.read_bytes()), documents)
    return list(found.values())


def append_lines(path: Path, lines: Sequence[Line]) -> None:
    """Add the results of cells that a file does not have yet; when this returns they are on disk.

    Processes take turns, and a last line that a kill cut short is taken away.
    """
    try:
        with held_folder(path.parent, waits=True), path.open("a+b") as file:
            file.seek(0)
            content = file.read()
            complete = _complete(content)
            documents: dict[str, int] = {}
            known = _parsed(path, complete, documents)
            added = [line for line in lines if cell_of(line) not in known]
            _refuse_other_test_sets(path, added, documents)
            new = [json.dumps(line, ensure_ascii=False) + "\n" for line in added]
            file.truncate(min(len(complete), len(content)))
            file.write(complete[len(content) :] + "".join(new).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise writing_failed(path, problem) from problem


def _refuse_other_test_sets(path: Path, lines: Sequence[Line], documents: dict[str, int]) -> None:
    """Refuse results that could not be read again beside those that a file has."""
    for line in lines:
        most = documents.setdefault(line["dataset"], line["documents"])
        if line["documents"] != most:
            raise InputError(
                f"{line['dataset']} has {line['documents']} test documents now and the results in {path} are "
                f"of {most}, which cannot be compared: give another --results, or put the test set back."
            )


def missing(cells: Iterator[Cell], lines: Sequence[Line]) -> list[Cell]:
    """The cells without a result."""
    done = {cell_of(line) for line in lines}
    return [cell for cell in dict.fromkeys(cells) if cell not in done]


def of_the_same_seeds(lines: Sequence[Line]) -> list[Line]:
    """Of each expert the mixtures of those seeds that have all its sets of windows, if there are some."""
    kept = []
    for expert in dict.fromkeys(line["expert"] for line in lines):
        own = [line for line in lines if line["expert"] == expert and line["variant"] == "imn"]
        own = [line for line in own if line["unlabeled"] is None]
        sets: dict[int, set[tuple[int, ...]]] = {}
        for line in own:
            sets.setdefault(line["seed"], set()).add(tuple(line["windows"]))
        most = set().union(*sets.values())
        complete = [line for line in own if sets[line["seed"]] == most]
        kept += complete or own
    return kept


def _complete(content: bytes) -> bytes:
    """A file's content without a truncated last line; a missing last newline is added."""
    last = content.rpartition(b"\n")[2]
    if not last:
        return content
    try:
        json.loads(last)
    except ValueError:
        return content[: -len(last)]
    return content + b"\n"


def _parsed(path: Path, content: bytes, documents: dict[str, int]) -> dict[Cell, Line]:
    """The results in a file, by cell; refuse other lines, or another test set.

    documents: the size of each data set's test set, where it is known, and kept here once it is.
    """
    found: dict[Cell, Line] = {}
    for number, text in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(text.decode("utf-8"))
            _Result.model_validate(line)
        except (ValueError, RecursionError) as problem:
            raise InputError(
                f"{path} line {number} is no result ({_reason(problem)}): fix or remove it."
            ) from problem
        most = documents.setdefault(line["dataset"], line["documents"])
        if line["documents"] != most:
            raise InputError(
                f"{path} line {number} was evaluated on {line['documents']} test documents and those before "
                f"it on {most}, which are not comparable: remove it."
            )
        found[cell_of(line)] = line
    return found


class _Result(BaseModel):
    """What a line must hold."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    dataset: str
    expert: str
    variant: str
    windows: list[int]
    unlabeled: int | None
    seed: int
    dev_error: Percent
    test_error: Percent
    seconds: float
    shared_seconds: float | None
    settings: str
    command: str
    commit: str
    hardware: str
    documents: Annotated[int, Field(ge=1)]
    wrong: str

    @model_validator(mode="after")
    def _has_a_bit_for_each_document(self) -> Self:
        if len(base64.b64decode(self.wrong, validate=True)) != -(-self.documents // 8):
            raise ValueError(f"wrong is not of {self.documents} documents")
        return self


def _reason(problem: Exception) -> str:
    if not isinstance(problem, ValidationError):
        return str(problem)
    first = problem.errors()[0]
    return ": ".join([*map(str, first["loc"][:1]), first["msg"].removeprefix("Value error, ")])


def seconds_of(folder: RunFolder) -> float:
    """The time of a run's steps; of a step that was resumed, that of its epochs where it is more."""
    steps = {line["step"]: float(line["seconds"]) for line in folder.metrics("steps")}
    epochs: Counter[str] = Counter()
    for line in folder.metrics():
        if "epoch" in line:
            epochs[line["stage"]] += line["seconds"]
    return sum(max(steps.get(name, 0.0), epochs[name]) for name in {*steps, *epochs})
