"""An explanation as one self-contained HTML page: the text as a heat map, together and window by window."""

from collections.abc import Iterator
from html import escape
from importlib.resources import files
from string import Template

from mein.explain.explanation import Explanation
from mein.explain.layout import Value, laid_out, scale, sum_of_parts


def as_page(explanation: Explanation, top: int = 30) -> str:
    """The page; of the fragments it lists the strongest so many."""
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
