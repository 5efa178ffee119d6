"""What reading a source does not say: which columns were guessed against others, and all labels that lack."""

from collections.abc import Iterator

from mein.data.columns import LABEL_NAMES, TEXT_NAMES
from mein.data.files import Source, source_name
from mein.data.labels import listed
from mein.data.readers import (
    ColumnsConfig,
    find_label_column,
    find_text_column,
    read_tables,
)


def guessed_columns(source: Source, columns: ColumnsConfig, *, labeled: bool) -> Iterator[str]:
    """A sentence for each column that was taken although another of the first table has a name like it."""
    roles = [
        ("text", columns.text, TEXT_NAMES, find_text_column),
        ("label", columns.label, LABEL_NAMES, find_label_column),
    ]
    names, called = _column_names(source), source_name(source)
    for role, wanted, known, find in roles if labeled else roles[:1]:
        alike = [name for name in names if name.casefold() in known]
        if wanted is None and len(alike) > 1:
            taken = find(names, None, called)
            others = [name for name in alike if name != taken]
            yield (
                f"{called} has several columns that look like the {role}: {taken!r} is taken, not "
                f"{listed(others)} (--{role}-column names another)."
            )


def _column_names(source: Source) -> list[str]:
    return list(next(read_tables(source)).schema.names)
