"""An explanation as text for the terminal, and as a self-contained HTML page with heat maps of the text."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from mein.explain.explanation import ENCODER, EXPERT, LEXICON, Explanation, Piece
from mein.explain.fragments import Fragment

Value = Callable[[Piece], float]
DEPTHS = 15  # of color, named in the page's style


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
    return f"{total} = {_sum(parts)}{_sum_of_expert(explanation)}"


def _sum_of_expert(explanation: Explanation) -> str:
    """Such as: , of the expert +0.60 (words and pairs) +0.10 (constant); nothing where it cannot be split."""
    if EXPERT not in explanation.shares.of:
        return ""
    constant = explanation.rest[EXPERT]
    parts = {"words and pairs": explanation.expert - explanation.encoder - constant}
    parts |= {"encoder": explanation.encoder} if ENCODER in explanation.shares.of else {}
    return f"; the expert: {_sum(parts | {'constant': constant})}"


def _sum(parts: dict[str, float]) -> str:
    return " ".join(f"{value:+.2f} ({name})" for name, value in parts.items())


def component(fragment: Fragment) -> str:
    """The component that reads a fragment, such as: imitator c=1."""
    return fragment.source if fragment.window is None else f"{fragment.source} c={fragment.window}"


def quoted(fragment: Fragment) -> str:
    """A fragment's text, and how often it occurs if that is more than once."""
    return fragment.text if fragment.times == 1 else f"{fragment.text} ({fragment.times:,} times)"


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
        policy=_policy(template.template),
        label=label,
        alternative=alternative,
        probability=f"{explanation.probability:.3f}",
        sentence=escape(sum_of_parts(explanation)),
        maps="\n".join(_maps(explanation)),
        rows="\n".join(_rows(explanation, top)),
    )


def _policy(page: str) -> str:
    """The content security policy of the page: its own style and nothing else."""
    style = page[page.index("<style>") + len("<style>") : page.index("</style>")]
    digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


TITLES = {
    EXPERT: "Words and pairs of the expert",
    ENCODER: "Words left out of what the encoder reads",
    LEXICON: "Up to three pieces, by the lexicon",
}


def _maps(explanation: Explanation) -> Iterator[str]:
    totals = {name: float(values.sum()) for name, values in explanation.shares.of.items()}
    together = f"All that can be split, together: {sum(totals.values()):+.2f}"
    yield _map(explanation, "all", together, lambda piece: piece.contribution)
    for name, total in totals.items():
        title = TITLES[name] if name in TITLES else f"Windows of {2 * int(name) + 1} pieces (c={name})"
        anchor = name if name in TITLES else f"window-{name}"
        value = lambda piece, name=name: piece.parts[name]  # noqa: E731
        yield _map(explanation, anchor, f"{title}: {total:+.2f}", value)


def _map(explanation: Explanation, name: str, title: str, value: Value) -> str:
    strongest = scale(explanation, value)
    spans = "".join(
        escape(text) if piece is None else _span(text, value(piece), strongest)
        for text, piece in laid_out(explanation)
    )
    heading = f'<h2 id="{name}">{escape(title)}</h2>'
    return f'<section aria-labelledby="{name}">{heading}<p class="map">{spans}</p></section>'


def _span(text: str, value: float, strongest: float) -> str:
    side, depth = "for" if value > 0 else "against", round(DEPTHS * abs(value) / strongest)
    name = f' class="{side} s{depth}"' if depth else ""
    return f'<span{name} title="{value:+.3f}">{escape(text)}</span>'


def _rows(explanation: Explanation, top: int) -> Iterator[str]:
    first, second = (explanation.labels.index(y) for y in (explanation.label, explanation.alternative))
    for fragment in explanation.fragments[:top]:
        p = fragment.probabilities
        both = (f"{p[first]:.3f}", f"{p[second]:.3f}") if p else ("", "")
        cells = (f"{fragment.contribution:+.3f}", component(fragment), *both)
        numbers = "".join(f"<td>{cell}</td>" for cell in cells)
        yield f'<tr>{numbers}<td class="name">{escape(quoted(fragment))}</td></tr>'
