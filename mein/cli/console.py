"""What commands print: sentences without markup, so that brackets in paths survive, and plain tables.

Rich is imported inside functions: help must not wait for it.
"""

from typing import TYPE_CHECKING, Any

from mein.runtime.ranks import is_first

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def open_console(*, stderr: bool = False) -> "Console":
    """A console that prints text literally, wrapped to the terminal's width; on stdout only rank 0 prints."""
    from rich.console import Console

    return Console(
        stderr=stderr, markup=False, highlight=False, emoji=False, quiet=not (stderr or is_first())
    )


def log(console: "Console", sentence: "str | Text", style: str = "") -> None:
    """A sentence, wrapped on a terminal and on one line in a log."""
    console.print(sentence, style=style, soft_wrap=not console.is_terminal)


def complain(sentence: str) -> None:
    """One sentence on stderr about a problem that the user can fix."""
    from rich.text import Text

    console = open_console(stderr=True)
    log(console, Text.assemble(("Error:", "bold red"), " ", sentence))


def plain_table(*headers: str, left: tuple[str, ...] = (), gap: int = 2, **style: Any) -> "Table":
    """A table with a line below its headers; columns are right-aligned except those in `left`."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), **style)
    for header in headers:
        table.add_column(header, justify="left" if header in left else "right")
    return table
