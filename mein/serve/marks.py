"""An explanation laid over the text as it was written: how much each word spoke, per window."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mein.data.labels import Label
from mein.explain import Explanation, explain
from mein.model import Model
from mein.text.words import words_in


def explained(model: Model, text: str, top: int, label: Label | None = None) -> dict[str, Any]:
    """The explanation with its `top` fragments, all probabilities, and the text in marked segments."""
    explanation = explain(model, text, label)
    segments, shares = marks(model, text, explanation)
    fragments = [
        {
            "text": fragment.text,
            "window": fragment.window,
            "start": fragment.start,
            "stop": fragment.stop,
            "contribution": fragment.contribution,
        }
        for fragment in explanation.fragments[:top]
    ]
    return {
        "label": explanation.label,
        "probability": explanation.probability,
        "alternative": explanation.alternative,
        "probabilities": dict(zip(map(str, model.labels.classes), explanation.probabilities, strict=True)),
        "log_odds": explanation.log_odds,
        "expert": explanation.expert,
        "lexicon": explanation.lexicon,
        "imitators": {str(window): part for window, part in explanation.imitators.items()},
        "is_silent": explanation.is_silent,
        "fragments": fragments,
        "segments": segments,
        "shares": {str(window): values.tolist() for window, values in shares.items()},
    }


def marks(model: Model, text: str, explanation: Explanation) -> tuple[list[str], dict[int, np.ndarray]]:
    """The text cut at its words, and each word's share of a window's part in the log-odds.

    Segments are gap, word, gap, ..., word, gap; joined they are the text. The shares of a window add up
    to its part.
    """
    found = words_in(text, model.encoder.words_config)
    lengths = [len(pieces) for pieces in model.encoder.pieces.encode([word for word, _, _ in found])]
    segments, end = [], 0
    for _, start, stop in found:
        segments += [text[end:start], text[start:stop]]
        end = stop
    segments.append(text[end:])
    shares = {
        window: _by_word(np.array([piece.windows[window] for piece in explanation.pieces]), lengths)
        for window in (explanation.imitators if explanation.pieces else ())
    }
    return segments, shares


def _by_word(values: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Sums over runs of these lengths."""
    ends = np.concatenate([[0.0], values.cumsum()])[np.cumsum([0, *lengths])]
    return np.diff(ends)
