"""The table of `mein train --seeds`. Not part of train.py because it needs numpy at import; help is fast."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mein.cli.console import plain_table
from mein.evaluation.comparison import Row
from mein.evaluation.rendering import p_text
from mein.evaluation.significance import mean_and_spread, paired_bootstrap
from mein.evaluation.systems import MIXTURE
from mein.run.evaluate import read_correct
from mein.runtime.files import write_atomically


def show_seeds(out: Path, folders: Sequence[Path], tables: Sequence[Sequence[Row]], console: Console) -> None:
    """Print the table over seeds, and leave its figures in seeds.json.

    The folders are those of the runs; none where the runs were not judged on the same documents,
    for then their answers cannot be paired.
    """
    figures = over_seeds(tables, [read_correct(folder) for folder in folders])
    write_atomically(out / "seeds.json", json.dumps(figures, indent=1).encode("utf-8"))
    console.print()
    console.print(_render(figures, len(tables)))


def over_seeds(
    tables: Sequence[Sequence[Row]], correct: Sequence[dict[str, np.ndarray]]
) -> dict[str, dict[str, Any]]:
    """Errors in %, their mean and spread, and the p-value against the mixture, seeds pooled."""
    figures = {}
    for rows in zip(*tables, strict=True):
        name, errors = rows[0].name, [row.scores.error for row in rows]
        mean, spread = mean_and_spread(errors)
        p_value = None
        if name != MIXTURE and correct and MIXTURE in correct[0]:
            theirs, ours = (np.stack([answers[key] for answers in correct]) for key in (name, MIXTURE))
            p_value = paired_bootstrap(theirs, ours, seed=0).p_value
        figures[name] = {
            "title": rows[0].title,
            "errors": errors,
            "mean": mean,
            "spread": spread,
            "p_value": p_value,
        }
    return figures


def _render(figures: dict[str, dict[str, Any]], seeds: int) -> Table:
    table = plain_table(
        "",
        "error %",
        "spread",
        f"p vs {MIXTURE}",
        left=("",),
        title=f"{seeds} seeds",
        title_justify="left",
        title_style="bold",
        caption="spread: standard deviation; p: paired bootstrap, seeds pooled",
        caption_justify="left",
    )
    for name, figure in figures.items():
        shown = f"{figure['mean']:.2f}", f"{figure['spread']:.2f}", p_text(figure["p_value"])
        table.add_row(figure["title"], *shown, style="bold" if name == MIXTURE else "")
    return table
