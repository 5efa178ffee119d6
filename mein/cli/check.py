"""mein check: what the data holds, and what is wrong with it, before anything is trained."""

from rich import box
from rich.table import Table

from mein.cli.console import complain, log, open_console
from mein.data.audit import NAMES, Audit, audit
from mein.data.columns import ColumnsConfig

END_CLASSES = 6  # of the most frequent and of the rarest; a longer list would push the rest off the screen


def check_data(
    labeled: str,
    unlabeled: str | None,
    dev: str | None,
    test: str | None,
    text_column: str | None,
    label_column: str | None,
) -> int:
    """Print the audit; return how many things would stop a training, each said on stderr."""
    console = open_console()
    columns = ColumnsConfig(text=text_column, label=label_column)
    found = audit(labeled, unlabeled, dev, test, columns)
    if found.parts:
        console.print(_figures(found), "")
    if "labeled" in found.parts:
        console.print(_classes(found), "")
    for note in found.notes:
        log(console, f"- {note}")
    for problem in found.problems:
        complain(problem)
    if not found.problems:
        log(console, "Nothing stands in the way of training.", "bold")
    return len(found.problems)


def _figures(found: Audit) -> Table:
    table = _table("documents", "classes", "words:\nmedian", "\n95 %", "\nmost", "empty", "repeated")
    for name, part in found.parts.items():
        classes = "" if name == "unlabeled" else f"{len(part.class_counts):,}"
        words = (part.median_words, part.words_95th, part.most_words)
        counts = (f"{n:,}" for n in (*words, part.empty, part.duplicates))
        table.add_row(NAMES[name], f"{part.documents:,}", classes, *counts)
    return table


def _classes(found: Audit) -> Table:
    """How often each class occurs, the most frequent first."""
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
    """A label as it is, or quoted where it could be taken for another."""
    is_plain = label.isprintable() and label == " ".join(label.split()) != ""
    return label if is_plain else repr(label)


def _table(*headers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", max_width=24, no_wrap=True)
    for header in headers:
        table.add_column(header, justify="right")
    return table
