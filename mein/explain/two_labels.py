"""Which two labels an explanation weighs against each other."""

import numpy as np

from mein.data.labels import Label, Labels, listed
from mein.errors import InputError


def two_labels(
    labels: Labels, log_probs: np.ndarray, label: Label | None, against: Label | None
) -> tuple[int, int]:
    """The ids of a label and of the one against it; of log_probs (Y,) the likeliest, where none is named."""
    ranked = np.argsort(-log_probs, kind="stable").tolist()
    second = None if against is None else _id_of(labels, against)
    first = next(i for i in ranked if i != second) if label is None else _id_of(labels, label)
    if second is None:
        second = next(i for i in ranked if i != first)
    if first == second:
        raise InputError(f"The label {label!r} cannot be weighed against itself; name another one.")
    return first, second


def _id_of(labels: Labels, label: Label) -> int:
    known = [str(name) for name in labels.classes]
    if str(label) not in known:
        raise InputError(f"The run knows no label {label!r}; choose among {listed(known)}.")
    return known.index(str(label))
