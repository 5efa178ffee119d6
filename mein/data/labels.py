"""The classes of a data set: found in the training labels, turned into ids and back."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from mein.errors import InputError
from mein.runtime.files import is_utf8

Label = str | int | bool
LARGEST_EXACT = 10**15  # beyond 2**53 a float is no longer one integer
SINGULAR = {
    "are": "is",
    "documents": "document",
    "get": "gets",
    "have": "has",
    "hold": "holds",
    "texts": "text",
    "they": "it",
}


@dataclass(frozen=True)
class Labels:
    """The classes in order; the id of a class is its position.

    Labels meet by their text, so "1" in a csv is the class 1 of a parquet file.

    >>> labels = Labels.from_values(["pos", "neg", "pos", "neg"], "train.csv")
    >>> labels.encode(["neg", "pos"], "test.csv").tolist()
    [0, 1]
    """

    classes: tuple[Label, ...]

    @classmethod
    def from_values(cls, values: Iterable[object], source: str, once_is_enough: bool = False) -> "Labels":
        """The classes of the training labels, at least two; each seen twice where dev must have one."""
        counts: Counter[str] = Counter()
        first: dict[str, Label] = {}
        for value in values:
            label = plain_label(value, source)
            counts[str(label)] += 1
            first.setdefault(str(label), label)
        return cls.from_counts(counts, first.values(), source, once_is_enough)

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], classes: Iterable[Label], source: str, once_is_enough: bool = False
    ) -> "Labels":
        """These classes, given the number of documents of each by its name."""
        if not counts:
            raise InputError(f"{source} holds no labels; give it labeled documents.")
        if len(counts) == 1:
            name, count = next(iter(counts.items()))
            raise InputError(
                f"{source} holds the single class {name!r} ({in_number('{n} {documents}', count)}); "
                "add documents of at least one other class."
            )
        lonely = [name for name, count in counts.items() if count == 1]
        if lonely and not once_is_enough:
            raise InputError(
                f"{source} holds one example of {listed(sorted(lonely))}; add examples or drop the class."
            )
        return cls(_in_order(classes))

    def encode(self, values: Iterable[object], source: str) -> npt.NDArray[np.int64]:
        """The ids of labels; (number of labels,)."""
        ids = {str(label): position for position, label in enumerate(self.classes)}
        names = [str(plain_label(value, source)) for value in values]
        self.refuse_unseen(Counter(names), source)
        return np.array([ids[name] for name in names], dtype=np.int64)

    def refuse_unseen(self, counts: Mapping[str, int], source: str) -> None:
        """Raise where a source holds classes that training lacks; counts are by class name."""
        known = [str(label) for label in self.classes]
        unseen = sorted(set(counts) - set(known))
        if unseen:
            numbers = {name: in_number("{n} {documents}", counts[name]) for name in unseen[:10]}
            shown = ", ".join(f"{name!r} ({number})" for name, number in numbers.items())
            raise InputError(
                f"{source} holds {shown}, which training lacks (it knows {listed(known)}); "
                "add such documents to the training labels or drop them here."
            )

    def decode(self, ids: Iterable[int]) -> list[Label]:
        """The labels of ids, with the type that they had in training."""
        return [self.classes[int(position)] for position in ids]


def plain_label(value: object, source: str) -> Label:
    """A label as str, int or bool; anything else is refused."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_missing(value):
        raise InputError(f"{source} has no label; fill it in, or move the document to the unlabeled text.")
    if isinstance(value, str) and not is_utf8(value):
        raise InputError(f"{source} has the label {value!r}, which is not UTF-8; write it as text.")
    if isinstance(value, str | int):
        return value
    if is_exact(value):  # what pandas makes of integers beside a NaN
        return int(value)
    if isinstance(value, float) and value.is_integer():
        raise InputError(
            f"{source} has the label {value!r}, a floating-point number of more than 15 digits, which can "
            "stand for several integers; write labels as integers or strings."
        )
    if isinstance(value, float):
        raise InputError(
            f"{source} has the label {value!r}, a fractional number; write labels as integers or strings."
        )
    raise InputError(
        f"{source} has the label {value!r} of type {type(value).__name__}; "
        "write labels as integers or strings."
    )


def is_exact(value: object) -> TypeGuard[float]:
    """Whether a value is a floating-point number that stands for one integer only."""
    return isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_EXACT


def is_missing(value: object) -> bool:
    """Whether a value stands for no label: None, the empty string, NaN or pandas' NA."""
    if isinstance(value, str):
        return not value
    return value is None or (value != value) is not False  # NA is neither equal to itself nor not


def refuse_textless(documents: int, empty: int, source: str) -> None:
    """Refuse labeled documents if all of them are empty."""
    if empty == documents:
        raise InputError(
            f"No document of {source} holds any text: name the column that does (--text-column), or add some."
        )


def none_to_evaluate_on(source: str) -> InputError:
    """What is raised where each class has one text, and neither dev nor test documents are given."""
    return InputError(
        f"{source} holds one text of each class, which leaves none to evaluate on: "
        "add other texts, or give test documents."
    )


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names for a message, quoted; a long list is cut."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def in_number(sentence: str, n: int) -> str:
    """A sentence about n things: its words in braces are plural, unless n is 1.

    >>> in_number("{n} {documents} {are} empty", 1)
    '1 document is empty'
    """
    words = {word: SINGULAR[word] if n == 1 else word for word in SINGULAR}
    return sentence.format(n=f"{n:,}", **words)


def _in_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Numbers by size and before texts, texts by alphabet."""

    def key(label: Label) -> tuple[bool, int, str]:
        is_text = isinstance(label, str)
        return (is_text, 0 if isinstance(label, str) else int(label), str(label))

    return tuple(sorted(labels, key=key))
