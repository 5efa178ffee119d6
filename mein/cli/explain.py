"""mein explain: the text in colors, the fragments in a table, a page, or JSON."""

import json
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from mein.cli.console import log, open_console
from mein.cli.run_use import soft_labels_of
from mein.explain import Explanation, as_page, explain
from mein.explain.page import laid_out, scale, sum_of_parts
from mein.model.loading import load_model
from mein.runtime.files import write_atomically

SMALLEST_SCALE = 0.05  # of the strongest piece's contribution; below, a piece has no color
COLORS = {True: (40, 170, 90), False: (215, 70, 60)}


def explain_text(
    path: Path,
    text: str,
    labels: tuple[str | None, str | None],
    top: int,
    soft_label_file: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show the label of a text and who spoke for it."""
    explanation = explain(load_model(path, soft_labels=soft_labels_of(path, soft_label_file)), text, *labels)
    if html is not None:
        write_atomically(html, as_page(explanation, max(top, 1)).encode("utf-8", "replace"))
    if as_json:
        print(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1))
        return
    _show(explanation, top)
    if html is not None:
        log(open_console(), f"Wrote {html}.")


def _show(explanation: Explanation, top: int) -> None:
    console = open_console()
    console.print(_summary(explanation))
    if any(fragment.contribution for fragment in explanation.fragments):
        console.print(Text.assemble("\n", colored(explanation), "\n"))
        console.print(_fragment_table(explanation, top))
        log(
            console,
            "p is what the imitator says of the fragment alone, before its gate.",
            "dim",
        )
    elif explanation.is_silent:
        log(
            console, "The text holds no word that the run knows: this is the share of each class in training."
        )
    else:
        log(console, "No fragment moved it: the imitators have no say in this run (their gates are closed).")


def colored(explanation: Explanation) -> Text:
    """The text itself: green pieces moved the log-odds up, red ones down, the strongest the brightest."""
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


def _summary(explanation: Explanation) -> Text:
    lines = Text()
    lines.append(f"{explanation.label}", style="bold")
    place = "before" if explanation.log_odds >= 0 else "behind"
    lines.append(f"  p = {explanation.probability:.3f}, {place} {explanation.alternative}\n")
    if explanation.is_silent:
        return lines.append(f"log-odds {explanation.log_odds:+.2f}")
    return lines.append(sum_of_parts(explanation))


def _fragment_table(explanation: Explanation, top: int) -> Table:
    table = Table(
        title="What moved it most",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name in ("log-odds", "for", "pieces", "p(label)", "p(other)"):
        table.add_column(name, justify="left" if name == "for" else "right", max_width=24)
    table.add_column("fragment")
    first, second = (explanation.labels.index(y) for y in (explanation.label, explanation.alternative))
    for fragment in explanation.fragments[:top]:
        style = "green" if fragment.contribution > 0 else "red"
        table.add_row(
            Text(f"{fragment.contribution:+.3f}", style=style),
            str(explanation.contribution_label(fragment)),
            str(2 * fragment.window + 1),
            f"{fragment.probabilities[first]:.3f}",
            f"{fragment.probabilities[second]:.3f}",
            fragment.text,
        )
    return table
