"""What reading a source does not say: which columns were guessed against others, or in another's place."""

from collections.abc import Iterator

from mein.data.columns import (
    LABEL_NAMES,
    TEXT_NAMES,
    ColumnsConfig,
    find_label_column,
    find_text_column,
    has_column,
)
from mein.data.files import Source, find_files, source_name
from mein.data.labels import listed
from mein.data.readers import column_names


def guessed_columns(source: Source, columns: ColumnsConfig, *, labeled: bool) -> Iterator[str]:
    """A sentence for each column that was taken although another has a name like it, or a better right."""
    roles = [
        ("text", columns.text, TEXT_NAMES, find_text_column),
        ("label", columns.label, LABEL_NAMES, find_label_column),
    ]
    names, called = _first_columns(source), source_name(source)
    for role, wanted, known, find in roles if labeled else roles[:1]:
        alike = [name for name in names if name.casefold() in known]
        if wanted is None and len(alike) > 1:
            taken = find(names, None, called)
            others = [name for name in alike if name != taken]
            yield (
                f"{called} has several columns that look like the {role}: {taken!r} is taken, not "
                f"{listed(others)} (--{role}-column names another)."
            )
    if not labeled:
        yield from replaced_columns(source, columns)


def replaced_columns(source: Source, columns: ColumnsConfig) -> Iterator[str]:
    """A sentence for each column that raw text was taken from because it lacks the one that is named."""
    wanted = columns.text
    if wanted is None:
        return
    files_of: dict[str, list[str]] = {}
    for file in find_files(source):
        names = [] if file.format == "txt" else column_names(file)  # lines have no column to name
        if names and not has_column(names, wanted):
            taken = find_text_column(names, wanted, file.name, may_guess=True)
            files_of.setdefault(taken, []).append(file.name)
    for taken, (first, *others) in files_of.items():
        files = "file" if len(others) == 1 else "files"
        lack = f"and {len(others):,} more {files} lack" if others else "lacks"
        yield f"{first} {lack} the column {wanted!r}: {taken!r} is taken for the text."


def _first_columns(source: Source) -> list[str]:
    """The names of the columns of a source's first table that has any."""
    tables = (column_names(file) for file in find_files(source) if not file.is_document)
    return next((names for names in tables if names), [])
