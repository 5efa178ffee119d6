"""mein check: what the data holds, and what is wrong with it, before anything is trained."""

from rich.console import Console
from rich.table import Table

from mein.data.audit import Audit, audit
from mein.data.readers import ColumnsConfig
from mein.errors import InputError


def check_data(
    labeled: str,
    unlabeled: str | None,
    dev: str | None,
    test: str | None,
    text_column: str | None,
    label_column: str | None,
) -> None:
    """Print the audit; where something would stop a training, say so and fail."""
    console = Console()
    columns = ColumnsConfig(text=text_column, label=label_column)
    found = audit(labeled, unlabeled, dev, test, columns)
    console.print(_table(found))
    for remark in found.remarks:
        console.print(f"- {remark}", highlight=False)
    if found.problems:
        raise InputError(" ".join(found.problems))
    console.print("Nothing stands in the way of training.", style="bold")


def _table(found: Audit) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for header in ("documents", "classes", "words: median", "95 %", "most", "empty", "repeated"):
        table.add_column(header, justify="right")
    for name, part in found.parts.items():
        figures = (
            part.documents,
            len(part.class_counts),
            part.median_words,
            part.words_95th,
            part.most_words,
        )
        table.add_row(name, *(f"{n:,}" for n in (*figures, part.empty, part.duplicates)))
    return table
