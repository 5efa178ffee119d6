"""The comparison as text: figures, the sentence of the verdict, and the terminal's table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mein.evaluation.comparison import Advice, Row, Verdict
from mein.evaluation.metrics import ERROR, METRICS, metrics_beside_error, percent
from mein.evaluation.systems import EXPERT, MIXTURE

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


def footnote(*, is_approximate: bool = False) -> str:
    """What the columns of `cells` are."""
    notes = [metric.note for metric in METRICS.values() if metric.note is not None]
    test = "p: McNemar, approximate" if is_approximate else "p: exact McNemar"
    return "; ".join(["95% interval: Wilson", *notes, test])


ADVICE: dict[Advice, str] = {
    "model": "Use this model",
    "baseline": "Use the baseline",
    "labels": "Get more labels",
    "unknown": "Not compared with a baseline",
}
"""The advice of a verdict, as a heading."""


def reason_of(verdict: Verdict) -> str:
    """Why a verdict advises what it does, without figures."""
    if verdict.outcome == "seen":
        return beside_baseline(verdict)
    if verdict.baseline is None:
        return "No baseline was evaluated on these documents."
    title, is_measurable = verdict.baseline.title, verdict.baseline.is_measurable
    return {
        "model": f"It has measurably fewer errors than the best baseline, {title}.",
        "baseline": f"{capitalized(title)} has measurably fewer errors than the model."
        if is_measurable
        else f"The model is no better than {title}, which is simpler. A gain worth the effort is unlikely.",
        "labels": f"The model was selected on these documents, so they cannot show that it beats {title}. "
        "Evaluate it on a test set."
        if is_measurable
        else f"There are too few {verdict.part} documents to tell whether the model beats {title}. "
        f"About {_rounded(verdict.enough_documents)} should do. {_until_then(verdict.baseline)}",
        "unknown": f"The model was not compared with {title}.",
    }[verdict.advice]


def capitalized(text: str) -> str:
    """With its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]


def _until_then(baseline: Row) -> str:
    if baseline.gain > 0:
        return "So far its lower error may be chance, and the baseline is simpler."
    return "Until then, use the baseline: it is simpler."


def _rounded(number: int | None) -> str:
    """To two figures, such as 1,300."""
    return f"{int(float(f'{number or 0:.2g}')):,}"


SEEN = "The soft labels have seen these labels"


def title_of(verdict: Verdict) -> str:
    """What was gained, in a few words, without figures."""
    if verdict.outcome == "seen":
        return SEEN
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
    """The verdict with its figures: the baseline first, then what the unlabeled text did."""
    return f"{beside_baseline(verdict)} {effect_of(verdict)}"


def lines_of(verdict: Verdict) -> list[str]:
    """The verdict as the last lines of a training: what to use, and its sentences."""
    return [f"{ADVICE[verdict.advice]}.", beside_baseline(verdict), effect_of(verdict)]


def beside_baseline(verdict: Verdict) -> str:
    """How the model does beside the best baseline, in a sentence."""
    if verdict.outcome == "seen":
        return f"{SEEN}, so no error was measured: give test documents."
    error, row = error_text(verdict.result), verdict.baseline
    if row is None or row.p_value is None:
        return f"{error}% error."
    chance = p_of(verdict, row)
    both = f"{error}% against {error_text(row)}% error ({chance})"
    if not row.is_measurable:
        return f"No better than {row.title}: {both}."
    if row.gain < 0:
        return f"Worse than {row.title}: {both}. Use the baseline."
    points = percent(row.gain, row.scores.documents)
    return f"{error}% error, {points} points below {row.title} ({chance})."


def effect_of(verdict: Verdict) -> str:
    """What was gained from the unlabeled text, the imitators, or the self-training round, in a sentence."""
    if verdict.outcome == "seen":
        return f"The effect of the {verdict.credited} is unknown."
    if verdict.credited == "self-training":
        return _beside_previous_run(verdict)
    if verdict.outcome == "untested":
        if verdict.result.name == EXPERT:
            return "It was trained on labels only."
        return f"The effect of the {verdict.credited} is unknown: the controls were not trained."
    row = _decisive(verdict)
    effect = "did not help measurably" if verdict.outcome == "unclear" else verdict.outcome
    them = "them" if verdict.credited == "imitators" else "it"
    return f"The {verdict.credited} {effect}: {error_text(row)}% error without {them} ({p_of(verdict, row)})."


def _beside_previous_run(verdict: Verdict) -> str:
    if verdict.outcome == "untested":
        return "This self-training round was not compared with the previous run."
    row = _decisive(verdict)
    effect = {
        "helped": "has a lower error than",
        "hurt": "has a higher error than",
        "unclear": "does not differ measurably from",
    }[verdict.outcome]
    before = f"{error_text(row)}% ({p_of(verdict, row)})"
    return f"This self-training round {effect} the previous run, {before}."


def _decisive(verdict: Verdict) -> Row:
    """The control that decided: the best one; where the model beat all, the one least surely beaten."""
    if verdict.outcome == "helped":
        return max(verdict.against, key=lambda row: row.p_value or 0.0)
    measurable = [row for row in verdict.against if row.is_measurable and row.gain < 0]
    return min(measurable or verdict.against, key=lambda row: row.gain)


def p_of(verdict: Verdict, row: Row) -> str:
    """The p-value of a row, which is approximate where the documents were evaluated in folds."""
    assert row.p_value is not None, row.name
    return f"approximate {p_equals(row.p_value)}" if verdict.is_approximate else p_equals(row.p_value)


def render(rows: Sequence[Row], title: str | None = None, *, is_approximate: bool = False) -> "Table":
    """The rows as a table that fits 80 columns: the reference in bold, the best error in green."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    documents = rows[0].scores.documents
    reference = next((row.name for row in rows if row.p_value is None), MIXTURE)
    table = Table(
        title=f"{documents:,} test documents" if title is None else title,
        title_justify="left",
        title_style="bold",
        caption=footnote(is_approximate=is_approximate),
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
