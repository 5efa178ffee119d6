"""Which shapes the batches of a supervised stage have, so that a GPU can be made ready for them."""

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from mein import ranks
from mein.experts.base import Expert
from mein.experts.captured import STEP, Shape, can_capture
from mein.experts.lstm import LSTMExpert
from mein.inference import device_of
from mein.training.objectives import Objective

OFTEN = 64  # steps with a shape that repay what it costs to capture it


def frequent_widths(
    batches: Iterable[np.ndarray], lengths: np.ndarray, documents: int, epochs: int
) -> list[int]:
    """Words to which batches of so many documents are often padded, in so many epochs of such batches.

    >>> frequent_widths([np.array([0, 1]), np.array([2])], np.array([3, 40, 5]), documents=2, epochs=64)
    [64]
    """
    longest = [int(lengths[rows].max()) for rows in batches if len(rows) == documents]
    counts = Counter(-(-words // STEP) * STEP for words in longest)
    return sorted(words for words, count in counts.items() if count * epochs >= OFTEN)


def made_ready(
    expert: Expert,
    objective: Objective,
    batches: Iterable[np.ndarray],
    lengths: np.ndarray,
    documents: int,
    epochs: int,
) -> AbstractContextManager[None]:
    """Keep an expert ready for batches such as these of an epoch; without a GPU nobody looks at them."""
    if ranks.world() > 1 or not isinstance(expert, LSTMExpert) or not can_capture(device_of(expert)):
        return nullcontext()  # several processes have shares of batches, each of another shape
    widths = frequent_widths(batches, lengths, documents, epochs)
    unlabeled = objective.config.unlabeled_documents
    return expert.capturing(shapes_read(expert, objective, widths, documents, unlabeled))


def shapes_read(
    expert: Expert, objective: Objective, widths: Iterable[int], documents: int, unlabeled: int
) -> set[Shape]:
    """What an expert reads in steps of an objective over so many documents with labels, and without."""
    if objective.draw is None:
        return {(documents, words, True) for words in widths}
    # dropout inside keeps the two apart, and the second comes while the first is under way
    together = documents if expert.drops_out_inside else documents + unlabeled
    learned = {(together, words, True) for words in widths}
    return learned | {(unlabeled, words, False) for words in widths}
