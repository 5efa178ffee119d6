"""How a command line is built, run, ended, and what it prints: mein, python -m paper, python -m benchmarks.

Printed sentences have no markup, so that brackets in paths survive. Rich is imported inside functions: help
must not wait for it.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from mein.cli.paths import PathCommand
from mein.errors import MeinError, explaining_full_gpu
from mein.runtime import ranks

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended


class App(typer.Typer):
    """An app whose commands find their paths ready."""

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        """Register a command."""
        return super().command(name, **{"cls": PathCommand} | given)


def new_app(about: str | None = None) -> typer.Typer:
    """An app without commands, whose help fits into 80 columns."""
    return App(
        help=about,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    )


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line; a user's error is one sentence and exit code 2, or a traceback with --debug."""
    is_debugging = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with explaining_full_gpu():
            ranks.join()
            app(prog_name=name)
    except (MeinError, OSError) as problem:
        if is_debugging:
            raise
        if ranks.may_complain():
            complain(str(problem) if isinstance(problem, MeinError) else _of_system(problem))
        sys.exit(2)
    except KeyboardInterrupt:
        _show_how_to_resume()
        sys.exit(INTERRUPTED)
    except SystemExit as ended:  # subtle: typer turns Ctrl-C into this
        if ended.code == INTERRUPTED:
            _show_how_to_resume()
        raise
    finally:
        ranks.leave()


def _show_how_to_resume() -> None:
    if not ranks.is_first():
        return
    sys.stderr.write(
        "\nStopped. Run the same command again to continue; add --resume to train and predict.\n"
    )


def _of_system(problem: OSError) -> str:
    """One sentence for an unexpected system error."""
    what = "Something" if problem.filename is None else str(problem.filename)
    return f"{what} cannot be read or written ({problem.strerror or problem}): check it, or run with --debug."


def open_console(*, stderr: bool = False) -> "Console":
    """A console that prints text literally, wrapped to the terminal's width; on stdout only rank 0 prints."""
    from rich.console import Console

    return Console(
        stderr=stderr, markup=False, highlight=False, emoji=False, quiet=not (stderr or ranks.is_first())
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
