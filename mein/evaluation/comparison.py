"""The final comparison: every system beside the mixture, and one sentence that says who won."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from mein.evaluation.metrics import Scores, evaluate
from mein.evaluation.significance import BootstrapResult, mcnemar, paired_bootstrap, wilson_interval
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, PREVIOUS_RUN

SIGNIFICANT = 0.05
RIVALS = {EXPERT: "", CLOSED_GATES: ": the same fine-tuning without the imitators"}
"""What the mixture must beat before the unlabeled text gets the credit, and what it is."""

UNLABELED_TEXT = "unlabeled text"
IMITATORS = "imitators"


@dataclass(frozen=True)
class Row:
    """One system: its scores and how it compares with the reference, usually the mixture."""

    name: str
    scores: Scores
    interval: tuple[float, float]
    """The 95 % interval of Wilson around the error, in %."""
    p_value: float | None
    """Exact McNemar against the reference; None for the reference itself."""
    difference: BootstrapResult | None
    """This error minus the reference's in points, resampled; above 0: the reference is better."""


def compare(
    labels: NDArray[np.integer],
    systems: dict[str, NDArray[np.float64]],
    *,
    seed: int,
    reference: str = MIXTURE,
) -> list[Row]:
    """A row for each system, in the order given, from its log-probabilities (n, Y).

    Where the reference is not among the systems, nothing is compared with it.
    """
    correct = {name: log_probs.argmax(axis=1) == labels for name, log_probs in systems.items()}
    rows = []
    for name, log_probs in systems.items():
        scores, p_value, difference = evaluate(log_probs, labels), None, None
        if reference in systems and name != reference:
            p_value = mcnemar(correct[name], correct[reference])
            difference = paired_bootstrap(correct[name], correct[reference], seed)
        interval = wilson_interval(scores.error, scores.documents)
        rows.append(Row(name, scores, interval, p_value, difference))
    return rows


def headline(rows: Sequence[Row], *, credited: str = UNLABELED_TEXT, is_self_training: bool = False) -> str:
    """One sentence: did the unlabeled text help, not help measurably, or hurt?

    The mixture must beat the expert, or nothing was gained, and closed gates, or the gain came from
    fine-tuning. It helped where it beats both with p < 0.05 (as both must hold, two tests at 5 %
    do not add up), it hurt where either beats it with p < 0.05. Without closed gates nothing tells.
    Where the expert itself has read that text, this tells of the imitators alone: credit them.
    A student, whose expert has heard of that text too, is compared with its teacher instead.
    """
    by_name = {row.name: row for row in rows}
    if is_self_training:
        return _beside_previous_run(rows, by_name.get(PREVIOUS_RUN))
    controls = [by_name[name] for name in RIVALS if name in by_name]
    if MIXTURE not in by_name or not controls:
        return _without_comparison(rows)
    versus = [_versus(row, by_name[MIXTURE]) for row in controls]
    if CLOSED_GATES not in by_name:
        return f"Nothing tells what the {credited} did, without closed gates: {versus[0]}."
    is_better = [_is_measurable(row) and _gain(row) > 0 for row in controls]
    if all(is_better):
        verdict = "helped"
    elif any(_is_measurable(row) and _gain(row) < 0 for row in controls):
        verdict = "hurt"
    else:
        verdict = "did not help measurably"
    chance = [row.name for row in controls if not _is_measurable(row)]
    note = f"; the difference from {' and '.join(chance)} may be chance" if chance else ""
    return f"The {credited} {verdict}: {' and '.join(versus)}{note}."


def render(rows: Sequence[Row], reference: str = MIXTURE, title: str | None = None) -> Table:
    """The rows as a table that fits 80 columns: the reference in bold, the best error in green."""
    documents = rows[0].scores.documents
    table = Table(
        title=f"{documents:,} test documents" if title is None else title,
        title_justify="left",
        title_style="bold",
        caption="95 % interval: Wilson; calibration: ECE, 15 bins; p: exact McNemar",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("")
    for header in ("error\n%", "95 %\ninterval", "macro\nF1", "log\nloss", "calib.\nerror"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column(f"p vs\n{reference}", justify="right", no_wrap=True)
    best = min(row.scores.error for row in rows)
    for row in rows:
        style = "bold" if row.name == reference else ""
        table.add_row(*_cells(row, is_best=row.scores.error == best), style=style)
    return table


def _cells(row: Row, *, is_best: bool) -> list[Text]:
    scores = row.scores
    low, high = (percent(bound, scores.documents) for bound in row.interval)
    p_value = "" if row.p_value is None else _p_value(row.p_value)
    return [
        Text(row.name),
        Text(percent(scores.error, scores.documents), style="green" if is_best else ""),
        Text(f"{low}–{high}", style="dim"),
        Text(f"{scores.macro_f1:.3f}"),
        Text(f"{scores.log_loss:.3f}"),
        Text(f"{scores.calibration_error:.3f}"),
        Text(p_value, style="" if _is_measurable(row) else "dim"),
    ]


def _is_measurable(row: Row) -> bool:
    return row.p_value is not None and row.p_value < SIGNIFICANT


def _gain(row: Row) -> float:
    """By how many points the reference errs less than this row."""
    return 0.0 if row.difference is None else row.difference.difference


def _versus(row: Row, reference: Row) -> str:
    """Such as: 14.2 % -> 9.8 % error (p = 0.0003, expert vs mixture)."""
    before, after = (percent(r.scores.error, r.scores.documents) for r in (row, reference))
    assert row.p_value is not None, row.name
    p_value = _p_value(row.p_value)
    p_value = p_value.replace("<", "p < ") if "<" in p_value else f"p = {p_value}"
    who = f"{row.name} vs {reference.name}{RIVALS.get(row.name, '')}"
    return f"{before} % -> {after} % error ({p_value}, {who})"


def _beside_previous_run(rows: Sequence[Row], teacher: Row | None) -> str:
    """Whether a student errs less than its teacher, the run before; why, a table cannot tell."""
    if teacher is None or teacher.p_value is None:
        error = percent(rows[-1].scores.error, rows[-1].scores.documents)
        return f"Nothing compares this student with its teacher here: {rows[-1].name}, {error} % error."
    verdict = "cannot be told from"
    if _is_measurable(teacher):
        verdict = "errs less than" if _gain(teacher) > 0 else "errs more than"
    return f"The student {verdict} its teacher: {_versus(teacher, rows[-1])}."


def _without_comparison(rows: Sequence[Row]) -> str:
    row = rows[-1]
    error = percent(row.scores.error, row.scores.documents)
    return f"Nothing tells whether unlabeled text helps here: {row.name} alone, {error} % error."


def percent(value: float, documents: int) -> str:
    """One decimal, or two where there are enough documents for the second to mean something."""
    return f"{value:.1f}" if documents < 5_000 else f"{value:.2f}"


def _p_value(value: float) -> str:
    """Such as 0.41, 0.0320, 0.0003, <0.0001."""
    if value < 0.0001:
        return "<0.0001"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"
