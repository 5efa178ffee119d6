"""The comparison as text: figures, the sentence of the verdict, and the terminal's table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mein.evaluation.comparison import Row, Verdict
from mein.evaluation.metrics import ERROR, METRICS, metrics_beside_error, percent
from mein.evaluation.systems import EXPERT, MIXTURE, SYSTEMS

if TYPE_CHECKING:
    from rich.table import Table


def p_text(value: float | None) -> str:
    """Such as 0.41, 0.0320, 0.0003, <0.0001; nothing for none."""
    if value is None:
        return ""
    if value < 0.0001:
        return "<0.0001"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def p_equals(value: float) -> str:
    """Such as p = 0.41, p < 0.0001."""
    return "p < 0.0001" if value < 0.0001 else f"p = {p_text(value)}"


def signed(value: float, digits: int = 2) -> str:
    """With its sign, a true minus: +1.25, −0.30."""
    text = f"{abs(value):.{digits}f}"
    return f"−{text}" if value < 0 and float(text) else f"+{text}"


def error_text(row: Row) -> str:
    """Such as 17.0."""
    return row.scores.text(METRICS[ERROR])


def interval_text(row: Row) -> str:
    """Such as 15.4–18.7."""
    return "–".join(percent(bound, row.scores.documents) for bound in row.interval)


def with_interval(value: str, interval: str) -> str:
    """Such as 17.0% (95% interval 15.4–18.7)."""
    return f"{value} (95% interval {interval})"


def headings(reference: str = MIXTURE) -> list[str]:
    """The columns of `cells`."""
    titles = [metric.title for metric in metrics_beside_error()]
    return [METRICS[ERROR].title, "95% interval", *titles, f"p vs {reference}"]


def cells(row: Row) -> list[str]:
    """The figures of a row as every table shows them."""
    figures = [row.scores.text(metric) for metric in metrics_beside_error()]
    return [error_text(row), interval_text(row), *figures, p_text(row.p_value)]


def footnote() -> str:
    """What the columns of `cells` are."""
    notes = [metric.note for metric in METRICS.values() if metric.note is not None]
    return "; ".join(["95% interval: Wilson", *notes, "p: exact McNemar"])


def title_of(verdict: Verdict) -> str:
    """The verdict in a few words, without figures."""
    if verdict.credited == "self-training":
        return {
            "helped": "Lower error than the previous run",
            "hurt": "Higher error than the previous run",
            "unclear": "No measurable difference from the previous run",
            "untested": "Self-training, not compared with the previous run",
        }[verdict.outcome]
    return {
        "helped": f"The {verdict.credited} helped",
        "hurt": f"The {verdict.credited} hurt",
        "unclear": f"No measurable help from the {verdict.credited}",
        "untested": "Trained on labels only" if verdict.result.name == EXPERT else "Trained without controls",
    }[verdict.outcome]


def sentence_of(verdict: Verdict) -> str:
    """The verdict in one sentence with its figures; all that is printed of a verdict is made from it."""
    versus = " and ".join(_versus(row, verdict.result) for row in verdict.against)
    if verdict.credited == "self-training":
        return _beside_previous_run(verdict, versus)
    if verdict.outcome == "untested":
        if versus:
            return f"Without closed gates the effect of the {verdict.credited} is unknown: {versus}."
        return f"The effect of the {verdict.credited} was not measured: {_by_itself(verdict)}."
    effect = "did not help measurably" if verdict.outcome == "unclear" else verdict.outcome
    chance = [row.title for row in verdict.against if not row.is_measurable]
    note = f"; the difference from {' and '.join(chance)} may be chance" if chance else ""
    return f"The {verdict.credited} {effect}: {versus}{note}."


def _beside_previous_run(verdict: Verdict, versus: str) -> str:
    effect = {
        "helped": "has a lower error than",
        "hurt": "has a higher error than",
        "unclear": "does not differ measurably from",
    }
    if verdict.outcome == "untested":
        return f"Self-training was not compared with the previous run: {_by_itself(verdict)}."
    return f"This self-training round {effect[verdict.outcome]} the previous run: {versus}."


def _by_itself(verdict: Verdict) -> str:
    return f"{verdict.result.title} only, {error_text(verdict.result)}% error"


def _versus(row: Row, result: Row) -> str:
    """Such as: 14.2% -> 9.8% error (p = 0.0003, expert vs mixture)."""
    assert row.p_value is not None, row.name
    note = SYSTEMS[row.name].note if row.name in SYSTEMS else None
    who = f"{row.title} vs {result.title}" + ("" if note is None else f": {note}")
    return f"{error_text(row)}% -> {error_text(result)}% error ({p_equals(row.p_value)}, {who})"


def render(rows: Sequence[Row], reference: str = MIXTURE, title: str | None = None) -> "Table":
    """The rows as a table that fits 80 columns: the reference in bold, the best error in green."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    documents = rows[0].scores.documents
    table = Table(
        title=f"{documents:,} test documents" if title is None else title,
        title_justify="left",
        title_style="bold",
        caption=footnote(),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("")
    metrics = [metric.short_title or metric.title for metric in metrics_beside_error()]
    for heading in (METRICS[ERROR].short_title or "", "95% interval", *metrics, f"p vs {reference}"):
        table.add_column("\n".join(heading.rsplit(" ", 1)), justify="right", no_wrap=True)
    best = min(row.scores.error for row in rows)
    for row in rows:
        is_best, is_reference = row.scores.error == best, row.name == reference
        error, interval, *figures, p_value = cells(row)
        table.add_row(
            Text(row.title),
            Text(error, style="green" if is_best else ""),
            Text(interval, style="dim"),
            *figures,
            Text(p_value, style="" if row.is_measurable else "dim"),
            style="bold" if is_reference else "",
        )
    return table
