"""mein check: the data, what training would use of it, its cost, what would help. One module per command."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from mein.cli.console import Output, complain, plain_table
from mein.cli.options import (
    AsJson,
    Dev,
    Encoder,
    IsQuiet,
    LabelColumn,
    Labeled,
    Preset,
    Test,
    TextColumn,
    Unlabeled,
)

if TYPE_CHECKING:
    from rich.table import Table

    from mein.data.audit import Audit
    from mein.run.plan import Plan

END_CLASSES = 6  # of the most frequent and of the rarest; a longer list would push the rest off the screen


def check(
    labeled: Labeled,
    unlabeled: Unlabeled = None,
    dev: Dev = None,
    test: Test = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    preset: Preset = None,
    encoder: Encoder = None,
    quiet: IsQuiet = False,
    as_json: AsJson = False,
) -> None:
    """Audit the data: counts, lengths, duplicates, leaks, labels. Print what training would use and take.

    The exit code is 2 if a problem would stop training.

    Examples:
      mein check --labeled train.csv --unlabeled raw.jsonl.gz --test test.csv
      mein check --labeled train.csv --json > audit.json
    """
    from mein.config import default_preset, load_config
    from mein.data.audit import audit
    from mein.data.columns import ColumnsConfig

    output = Output(quiet, as_json=as_json)
    columns = ColumnsConfig(text=text_column, label=label_column)
    named = {f"columns.{name}": value for name, value in columns if value is not None}
    config = load_config(preset, overrides=named, encoder=encoder)
    found, plan = audit(labeled, unlabeled, dev, test, columns), None
    if not found.problems:
        from mein.run.plan import planned, preset_of

        plan = planned(config, preset_of(preset, None, encoder, default_preset), found)
    if as_json:
        output.give(audit_as_json(found) | plan_as_json(plan))
    else:
        _show(found, plan, output)
    for problem in found.problems:
        complain(problem)
    if found.problems:
        raise typer.Exit(2)
    output.log("No problems found.", "bold")


def audit_as_json(found: "Audit") -> dict[str, Any]:
    """The audit for programs."""
    return {
        "parts": {name: asdict(part) for name, part in found.parts.items()},
        "overlaps": {" in ".join(names[::-1]): count for names, count in found.overlaps.items()},
        "notes": found.notes,
        "problems": found.problems,
    }


def plan_as_json(plan: "Plan | None") -> dict[str, Any]:
    """What training would use and take, for programs; nothing where it would not begin."""
    if plan is None:
        return {}
    return {
        "uses": {choice.name: {"value": choice.value, "why": choice.why} for choice in plan.choices},
        "takes": asdict(plan.costs) | {"total_seconds": plan.costs.total},
        "would_help": plan.helpful,
    }


def _show(found: "Audit", plan: "Plan | None", output: Output) -> None:
    if found.parts:
        output.console.print(_figures(found), "")
    if "labeled" in found.parts:
        output.console.print(_classes(found), "")
    for note in found.notes:
        output.log(f"- {note}")
    if plan is not None:
        from mein.run.plan import shown_costs

        output.log("Training uses:")
        for choice in plan.choices:
            output.log(f"- {choice.name}: {choice.value} ({choice.why})")
        output.log(f"On this machine it takes {shown_costs(plan.costs)}.")
        output.log("What would help more:")
        for way in plan.helpful:
            output.log(f"- {way}")


def _figures(found: "Audit") -> "Table":
    from mein.data.audit import NAMES

    table = _table("documents", "classes", "words:\nmedian", "\n95%", "\nmost", "empty", "repeated")
    for name, part in found.parts.items():
        classes = "" if name == "unlabeled" else f"{len(part.class_counts):,}"
        words = (part.median_words, part.words_95th, part.most_words)
        counts = (f"{n:,}" for n in (*words, part.empty, part.duplicates))
        table.add_row(NAMES[name], f"{part.documents:,}", classes, *counts)
    return table


def _classes(found: "Audit") -> "Table":
    """How often each class occurs, the most frequent first."""
    from mein.data.audit import NAMES

    parts = {name: part for name, part in found.parts.items() if name != "unlabeled"}
    table = _table(*(NAMES[name] for name in parts))
    counts = parts["labeled"].class_counts
    names = sorted(counts, key=lambda name: (-counts[name], name))
    rows = [
        (_shown(name), *(f"{part.class_counts.get(name, 0):,}" for part in parts.values())) for name in names
    ]
    if len(rows) > 2 * END_CLASSES:
        rows[END_CLASSES:-END_CLASSES] = [(f"... and {len(rows) - 2 * END_CLASSES:,} more between",)]
    for row in rows:
        table.add_row(*row)
    return table


def _shown(label: str) -> str:
    """A label unchanged, or quoted where it could be confused with another."""
    is_plain = label.isprintable() and label == " ".join(label.split()) != ""
    return label if is_plain else repr(label)


def _table(*headers: str) -> "Table":
    table = plain_table()
    table.add_column("", max_width=24, no_wrap=True)
    for header in headers:
        table.add_column(header, justify="right")
    return table
