"""Soft labels from outside mein: a teacher's probabilities for each document, as a table or a function."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mein.data.columns import ColumnsConfig, find_text_column
from mein.data.labels import Label
from mein.data.readers import plain_text, read_tables
from mein.errors import InputError

COLUMN = "probabilities"
LEAST_PROBABILITY = 1e-6  # log 0 would outweigh all other components
LABEL = "label"
HARD = 0.9  # the probability of a label that is given without one; the other classes share the rest
TOLERANCE = 1e-2  # by how much probabilities may miss a sum of 1: some are written with two digits

SoftLabels = Callable[[Sequence[str]], Any]  # texts -> probabilities (n, Y), columns in the classes' order
SoftLabelSource = SoftLabels | str | Path  # or the files of a table


class SoftLabelTable:
    """The probabilities (n, Y) of texts, as read from files with a column `probabilities` or `label`.

    A row's entry is a list in the order of the classes, or names the class of each probability:
    {"neg": 0.2, "pos": 0.8}. Texts are known by a 64-bit hash, so that millions of them fit.
    """

    def __init__(self, source: str, columns: ColumnsConfig, classes: Sequence[Label]) -> None:
        self.source = source
        keys, rows = [np.zeros(0, np.uint64)], [np.zeros((0, len(classes)), np.float32)]
        for texts, probabilities in _read(source, columns, classes):
            keys.append(text_keys(texts))
            rows.append(probabilities)
        found, given = np.concatenate(keys), np.concatenate(rows)
        self.keys, first, which = np.unique(found, return_index=True, return_inverse=True)
        self.rows = given[first]
        if (np.abs(given - self.rows[which]) > TOLERANCE).any():
            row = int(np.flatnonzero((np.abs(given - self.rows[which]) > TOLERANCE).any(axis=1))[0]) + 1
            raise InputError(
                f"{source} contradicts itself in row {row}, whose text an earlier row has: keep one."
            )

    @property
    def digest(self) -> str:
        """Equal for tables with the same probabilities for the same texts."""
        content = self.keys.tobytes() + self.rows.tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """The probabilities (n, Y) of texts that are all in the table."""
        wanted = text_keys(texts)
        place = np.minimum(np.searchsorted(self.keys, wanted), max(0, len(self.keys) - 1))
        missing = np.flatnonzero(self.keys[place] != wanted) if len(self.keys) else np.arange(len(texts))
        if len(missing):
            raise InputError(
                f"The soft labels in {self.source} have no row for the text {texts[missing[0]][:60]!r}: "
                "add one, or give a file that has it with --soft-labels."
            )
        found: np.ndarray = self.rows[place]
        return found

    def refuse_unknown(self, keys: np.ndarray, source: str) -> None:
        """Refuse documents of a source, by the keys of their texts, that are not all in the table."""
        missing = np.flatnonzero(~np.isin(keys, self.keys))
        if len(missing):
            raise InputError(
                f"The soft labels in {self.source} have no row for document {missing[0] + 1} of {source}: "
                "add one, or give a file that has it with --soft-labels."
            )


def checked(probabilities: Any, texts: int, classes: int, source: str, first: int = 0) -> np.ndarray:
    """Probabilities (n, Y), float32, each row summing to 1; refuse any other value."""
    try:
        found = np.asarray(probabilities, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{source} gives something that is not a table of numbers: {problem}.") from problem
    if found.shape != (texts, classes):
        raise InputError(
            f"{source} gives probabilities of shape {found.shape} for {texts} texts and {classes} classes: "
            "give one row for each text and one number for each class."
        )
    sums = found.sum(axis=1)
    wrong = ~(np.isfinite(found).all(axis=1) & (found >= 0).all(axis=1) & (np.abs(sums - 1) <= TOLERANCE))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{source} row {first + row + 1} gives {found[row].tolist()}: "
            "give probabilities of 0 or more that sum to 1."
        )
    return np.asarray(found / sums[:, None], np.float32)


def as_probabilities(given: Any, texts: int, classes: Sequence[Label], source: str) -> np.ndarray:
    """Probabilities (n, Y) as they were given, or for labels (n,) that were given without any."""
    try:
        values = np.asarray(given, dtype=object)
    except ValueError:
        values = np.zeros(0, object)  # ragged rows
    if values.shape == (texts,) and all(isinstance(value, str | int | np.integer) for value in values):
        return hard(_ids(values.tolist(), classes, source), len(classes))
    return checked(given, texts, len(classes), source)


def _ids(labels: Sequence[Any], classes: Sequence[Label], source: str, first: int = 0) -> np.ndarray:
    """The ids of labels (n,); refuse one that the classes lack."""
    place = {str(label): y for y, label in enumerate(classes)}
    for row, label in enumerate(labels, start=first + 1):
        if str(label) not in place:
            raise InputError(
                f"{source} row {row} gives the label {label!r:.60}, which the labels lack: "
                f"give one of {', '.join(map(str, classes))}."
            )
    return np.array([place[str(label)] for label in labels], np.int64)


def hard(ids: np.ndarray, classes: int) -> np.ndarray:
    """Probabilities (n, Y), float32, of labels that were given without any."""
    found = np.full((len(ids), classes), (1 - HARD) / max(1, classes - 1), np.float32)
    found[np.arange(len(ids)), ids] = HARD
    return found


def _read(
    source: str, columns: ColumnsConfig, classes: Sequence[Label]
) -> Iterator[tuple[list[str], np.ndarray]]:
    done = 0
    for batch in read_tables(source):
        names = batch.schema.names
        text = find_text_column([name for name in names if name not in (COLUMN, LABEL)], columns.text, source)
        if COLUMN not in names and LABEL not in names:
            raise InputError(
                f"{source} has no column {COLUMN!r} or {LABEL!r} among {', '.join(names)}: add one."
            )
        texts = [
            plain_text(value, f"{source} row {row}")
            for row, value in enumerate(batch.column(text).to_pylist(), start=done + 1)
        ]
        if COLUMN not in names:
            labels = batch.column(LABEL).to_pylist()
            yield texts, hard(_ids(labels, classes, source, done), len(classes))
            done += len(texts)
            continue
        values = batch.column(COLUMN).to_pylist()
        rows = [
            _row(value, classes, f"{source} row {row}") for row, value in enumerate(values, start=done + 1)
        ]
        yield texts, checked(rows, len(texts), len(classes), source, done)
        done += len(texts)


def _row(value: Any, classes: Sequence[Label], where: str) -> list[float]:
    """One entry as a list in the order of the classes; a csv holds it as JSON."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError as problem:
        raise InputError(f"{where} gives {value!r:.60}: write a JSON list or object of numbers.") from problem
    if isinstance(value, dict):
        named = {
            name for name, number in value.items() if number is not None
        }  # Arrow puts all names into each row
        unknown = named - {str(label) for label in classes}
        if unknown:
            raise InputError(
                f"{where} names the class {sorted(unknown)[0]!r}, which the labels lack: "
                f"name them {', '.join(map(str, classes))}."
            )
        value = [0.0 if value.get(str(label)) is None else value[str(label)] for label in classes]
    if not isinstance(value, list) or len(value) != len(classes):
        raise InputError(
            f"{where} gives {value!r:.60}: give one probability for each of {', '.join(map(str, classes))}."
        )
    return [float("nan") if number is None else number for number in value]


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """A 64-bit hash of each text (n,)."""
    digests = (
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.array([int.from_bytes(digest, "little") for digest in digests], np.uint64)
