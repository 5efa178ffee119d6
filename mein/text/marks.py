"""The part of a long text that is worth showing, with what its pieces said marked on it."""

import numpy as np

LONGEST = 900  # characters of a text that are shown
Mark = list[float]  # start, stop, score: [int, int, float] in JSON


def excerpt(text: str, marks: list[Mark], longest: int = LONGEST) -> tuple[str, list[Mark]]:
    """The stretch of a long text where most was said, cut at words, with the marks inside it.

    >>> excerpt("one two three four five six", [[8, 13, 2.0]], longest=20)
    ('… two three four …', [[6, 11, 2.0]])
    """
    if len(text) <= longest:
        return text, marks
    weight = np.zeros(len(text) + 1)
    for start, _, score in marks:
        weight[int(start) + 1] += abs(score)
    total = np.cumsum(weight)
    size = longest - 4
    said = total[size:] - total[: len(total) - size]  # in each stretch of this size
    fullest = np.flatnonzero(said >= said.max() - 1e-9)
    first = int(fullest[len(fullest) // 2])  # with what was said in its middle
    stop = first + size
    first, stop = _at_words(text, first, stop)
    before, after = ("… " if first > 0 else ""), (" …" if stop < len(text) else "")
    shift = len(before) - first
    inside = [
        [start + shift, end + shift, score] for start, end, score in marks if first <= start and end <= stop
    ]
    return before + text[first:stop].rstrip() + after, inside


def _at_words(text: str, first: int, stop: int) -> tuple[int, int]:
    """The stretch less the words that it cuts; as it is where no whole word is left."""
    start = first if first == 0 else text.find(" ", first - 1) + 1
    end = stop if stop == len(text) else text.rfind(" ", 0, stop + 1)
    return (start, end) if 0 <= start < end else (first, stop)
