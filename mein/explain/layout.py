"""An explanation laid out for showing, on a terminal or a page: the text in pieces, the sum in words."""

from collections.abc import Callable, Iterator

from mein.explain.explanation import Explanation, Piece

Value = Callable[[Piece], float]


def sum_of_parts(explanation: Explanation) -> str:
    """Such as: log-odds +1.20 = +0.70 (expert) +0.50 (imitator c=1)."""
    whole = f"log-odds {explanation.log_odds:+.2f}"
    if explanation.is_silent:
        return f"{whole}: the share of each class in training, for the text holds no word that the run knows"
    parts = {"expert": explanation.expert}
    parts |= {"lexicon": explanation.lexicon} if explanation.lexicon else {}
    parts |= {f"imitator c={c}": part for c, part in explanation.imitators.items()}
    return f"{whole} = " + " ".join(f"{value:+.2f} ({name})" for name, value in parts.items())


def laid_out(explanation: Explanation) -> Iterator[tuple[str, Piece | None]]:
    """The text from its first character to its last, in strings that are a piece or lie between pieces."""
    at = 0
    for piece in explanation.pieces:
        yield explanation.text[at : piece.start], None
        yield explanation.text[piece.start : piece.stop], piece
        at = piece.stop
    yield explanation.text[at:], None


def scale(explanation: Explanation, value: Value) -> float:
    """The strongest value of a piece, by which the others are coloured; never 0."""
    return max((abs(value(piece)) for piece in explanation.pieces), default=0.0) or 1.0
