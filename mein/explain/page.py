"""An explanation as text for the terminal, and as a self-contained HTML page with heat maps of the text."""

from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files
from string import Template

from mein.explain.explanation import Explanation, Piece

Value = Callable[[Piece], float]


def sum_of_parts(explanation: Explanation) -> str:
    """Such as: log-odds +1.20 = +0.70 (expert) +0.50 (imitator c=1)."""
    total = f"log-odds {explanation.log_odds:+.2f}"
    if explanation.is_empty:
        return (
            f"{total}: the share of each class in training, because the text has no word that the run knows"
        )
    parts = {"expert": explanation.expert}
    parts |= {"lexicon": explanation.lexicon} if explanation.lexicon else {}
    parts |= {f"imitator c={c}": part for c, part in explanation.imitators.items()}
    return f"{total} = " + " ".join(f"{value:+.2f} ({name})" for name, value in parts.items())


def laid_out(explanation: Explanation) -> Iterator[tuple[str, Piece | None]]:
    """The complete text, in strings that are a piece or lie between pieces."""
    at = 0
    for piece in explanation.pieces:
        yield explanation.text[at : piece.start], None
        yield explanation.text[piece.start : piece.stop], piece
        at = piece.stop
    yield explanation.text[at:], None


def scale(explanation: Explanation, value: Value) -> float:
    """The largest absolute value of a piece, the unit of the colors; never 0."""
    return max((abs(value(piece)) for piece in explanation.pieces), default=0.0) or 1.0


def as_page(explanation: Explanation, top: int = 30) -> str:
    """The page, with the `top` strongest fragments."""
    template = Template(files("mein.explain").joinpath("page.html").read_text(encoding="utf-8"))
    label, alternative = escape(str(explanation.label)), escape(str(explanation.alternative))
    return template.substitute(
        title=f"Why {label} and not {alternative}",
        label=label,
        alternative=alternative,
        probability=f"{explanation.probability:.3f}",
        sentence=escape(sum_of_parts(explanation)),
        maps="\n".join(_maps(explanation)),
        rows="\n".join(_rows(explanation, top)),
    )


def _maps(explanation: Explanation) -> Iterator[str]:
    total = sum(explanation.imitators.values())
    yield _map(explanation, "all", f"All windows together: {total:+.2f}", lambda piece: piece.contribution)
    for c, part in explanation.imitators.items():
        title = f"Windows of {2 * c + 1} pieces (c={c}): {part:+.2f}"
        yield _map(explanation, f"window-{c}", title, lambda piece, c=c: piece.windows[c])  # type: ignore[misc]


def _map(explanation: Explanation, name: str, title: str, value: Value) -> str:
    strongest = scale(explanation, value)
    spans = "".join(
        escape(text) if piece is None else _span(text, value(piece), strongest)
        for text, piece in laid_out(explanation)
    )
    heading = f'<h2 id="{name}">{escape(title)}</h2>'
    return f'<section aria-labelledby="{name}">{heading}<p class="map">{spans}</p></section>'


def _span(text: str, value: float, strongest: float) -> str:
    side, strength = "for" if value > 0 else "against", 0.75 * abs(value) / strongest
    if strength < 0.02:
        return f'<span title="{value:+.3f}">{escape(text)}</span>'
    return f'<span class="{side}" style="--s:{strength:.2f}" title="{value:+.3f}">{escape(text)}</span>'


def _rows(explanation: Explanation, top: int) -> Iterator[str]:
    first, second = (explanation.labels.index(y) for y in (explanation.label, explanation.alternative))
    for fragment in explanation.fragments[:top]:
        p = fragment.probabilities
        cells = (f"{fragment.contribution:+.3f}", f"{2 * fragment.window + 1}", f"{p[first]:.3f}")
        numbers = "".join(f"<td>{cell}</td>" for cell in (*cells, f"{p[second]:.3f}"))
        yield f'<tr>{numbers}<td class="name">{escape(fragment.text)}</td></tr>'
