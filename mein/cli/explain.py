"""mein explain: the text in colors, the fragments in a table, a page, or JSON. One module per command."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mein.cli.console import log, open_console, plain_table
from mein.cli.options import AsJson, RunPath, SoftLabelFile, argument, option, whole
from mein.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from mein.explain import Explanation

SMALLEST_SCALE = 0.05  # of the strongest piece's contribution; below, a piece has no color
COLORS = {True: (40, 170, 90), False: (215, 70, 60)}


def explain(
    run: RunPath,
    text: Annotated[str, argument("TEXT", "Text to classify.")],
    label: Annotated[str | None, option("NAME", "Label to explain. Default: the most probable.")] = None,
    against: Annotated[
        str | None,
        option("NAME", "Label to compare it with. Default: the next most probable."),
    ] = None,
    top: Annotated[
        int,
        option("N", "Number of fragments to show. Default: 12.", parser=whole("--top", 0)),
    ] = 12,
    soft_labels: SoftLabelFile = None,
    html: Annotated[Path | None, option("FILE", "Also write a page with the text in colors.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a text's label and the fragments behind it.

    Examples:
      mein explain runs/reviews "the battery died after a week"
      mein explain runs/reviews "the battery died" --html why.html
    """
    from mein.explain import as_page
    from mein.explain import explain as explanation_of
    from mein.model.loading import load_model
    from mein.runtime.files import is_utf8, write_atomically

    if not is_utf8(text):
        raise InputError(f"The text {text!r:.60} is not UTF-8: give it in UTF-8.")
    model = load_model(run, soft_labels=soft_labels)
    explanation = explanation_of(model, text, label, against)
    if html is not None:
        write_atomically(html, as_page(explanation, max(top, 1)).encode("utf-8", "replace"))
    if as_json:
        print(json.dumps(explanation.to_dict(), ensure_ascii=False))
        return
    _show(explanation, top)
    if html is not None:
        log(open_console(), f"Wrote {html}.")


def _show(explanation: "Explanation", top: int) -> None:
    from rich.text import Text

    from mein.explain.explanation import ENCODER

    console = open_console()
    console.print(_summary(explanation))
    if any(fragment.contribution for fragment in explanation.fragments[:1]):
        console.print(Text.assemble("\n", colored(explanation), "\n"))
        console.print(_fragment_table(explanation, top))
        log(
            console,
            "p: the imitator's probability for the fragment by itself, before its gate.",
            "dim",
        )
        if ENCODER in explanation.shares.of:
            log(console, "encoder: the effect of leaving the words out, which is no exact share.", "dim")
    elif explanation.is_empty:
        log(console, "The run knows no word of this text: p is the share of each class in training.")
    else:
        log(console, "No fragment contributed: the expert is no sum of words, and no gate is open.")


def colored(explanation: "Explanation") -> "Text":
    """The text in colors: green pieces raise the log-odds, red ones lower them."""
    from rich.text import Text

    from mein.explain.page import laid_out, scale

    strongest = scale(explanation, lambda piece: piece.contribution)
    lines = Text()
    for shown, piece in laid_out(explanation):
        lines.append(shown, style="" if piece is None else _style(piece.contribution / strongest))
    return lines


def _style(share: float) -> str:
    """A tint between white and the full color, with black letters: readable on any terminal."""
    if abs(share) < SMALLEST_SCALE:
        return ""
    red, green, blue = (round(255 - abs(share) * (255 - part)) for part in COLORS[share > 0])
    return f"black on rgb({red},{green},{blue})"


def _summary(explanation: "Explanation") -> "Text":
    from rich.text import Text

    from mein.explain.page import sum_of_parts

    lines = Text()
    lines.append(f"{explanation.label}", style="bold")
    place = "before" if explanation.log_odds >= 0 else "behind"
    lines.append(f"  p = {explanation.probability:.3f}, {place} {explanation.alternative}\n")
    if explanation.is_empty:
        return lines.append(f"log-odds {explanation.log_odds:+.2f}")
    return lines.append(sum_of_parts(explanation))


def _fragment_table(explanation: "Explanation", top: int) -> "Table":
    from rich.text import Text

    from mein.explain.page import component, quoted

    table = plain_table(title="Most influential fragments", title_justify="left", title_style="bold")
    for name in ("log-odds", "for", "component", "p(label)", "p(other)"):
        table.add_column(name, justify="left" if name in ("for", "component") else "right", max_width=24)
    table.add_column("fragment")
    first, second = (explanation.labels.index(y) for y in (explanation.label, explanation.alternative))
    for fragment in explanation.fragments[:top]:
        style = "green" if fragment.contribution > 0 else "red"
        p = fragment.probabilities
        table.add_row(
            Text(f"{fragment.contribution:+.3f}", style=style),
            str(explanation.contribution_label(fragment)),
            component(fragment),
            *((f"{p[first]:.3f}", f"{p[second]:.3f}") if p else ("", "")),
            quoted(fragment),
        )
    return table
