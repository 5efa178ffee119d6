"""How a command line is built, run, ended, and what it prints: mein, python -m paper, python -m benchmarks.

Printed sentences have no markup, so that brackets in paths survive. Rich is imported inside functions: help
must not wait for it.
"""

import json
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from mein.cli.help import ClickException, usage_sentence
from mein.errors import MeinError, explaining_full_gpu
from mein.runtime import ranks

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mein.runtime.progress import Reporter

# Control characters, ends of lines, changes of direction, and half characters: escaped in an error.
NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MOST_SHOWN, END_SHOWN = 1_000, 200  # characters of an error, and of its end, which has the remedy
INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line; a user's error is one sentence and exit code 2, or a traceback with --debug."""
    is_debugging = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with explaining_full_gpu():
            ranks.join()
            code = app(prog_name=name, standalone_mode=False)
    except (MeinError, OSError, ClickException) as problem:
        if is_debugging:
            raise
        if ranks.may_complain():
            complain(_sentence(problem))
        sys.exit(2)
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        ranks.leave()
    if code == INTERRUPTED:  # subtle: typer turns Ctrl-C into this
        _show_how_to_resume()
    sys.exit(code)


def _sentence(problem: Exception) -> str:
    if isinstance(problem, ClickException):
        return usage_sentence(problem)
    return _of_system(problem) if isinstance(problem, OSError) else str(problem)


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


@dataclass(frozen=True)
class Output:
    """Where a command prints: progress and notes, and its result for people or, as JSON, for programs."""

    is_quiet: bool = False
    is_verbose: bool = False
    as_json: bool = False
    """Whether stdout takes the JSON only; all else goes to stderr."""

    @cached_property
    def console(self) -> "Console":
        """For what people read."""
        console = open_console(stderr=self.as_json)
        console.quiet = self.is_quiet or not ranks.is_first()
        return console

    @cached_property
    def reporter(self) -> "Reporter":
        """For progress, which only rank 0 shows."""
        from mein.runtime.progress import Quiet, Terminal

        return Quiet() if self.console.quiet else Terminal(self.console, shows_times=self.is_verbose)

    def log(self, sentence: "str | Text", style: str = "") -> None:
        """A sentence for people."""
        log(self.console, sentence, style)

    def give(self, content: object) -> None:
        """The result as JSON, on stdout."""
        if ranks.is_first():
            print(json.dumps(content, ensure_ascii=False, indent=1))


def log(console: "Console", sentence: "str | Text", style: str = "") -> None:
    """A sentence, wrapped on a terminal and on one line in a log."""
    console.print(sentence, style=style, soft_wrap=not console.is_terminal)


def complain(sentence: str) -> None:
    """One sentence on stderr about a problem that the user can fix; names in it may hold any sign."""
    from rich.text import Text

    console = open_console(stderr=True)
    cut = f"{sentence[:MOST_SHOWN]} ... {sentence[-END_SHOWN:]}"
    shown = NOT_SHOWN.sub(lambda found: repr(found[0])[1:-1], min(sentence, cut, key=len))
    log(console, Text.assemble(("Error:", "bold red"), " ", shown))


def plain_table(*headers: str, left: tuple[str, ...] = (), gap: int = 2, **style: Any) -> "Table":
    """A table with a line below its headers; columns are right-aligned except those in `left`."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), **style)
    for header in headers:
        table.add_column(header, justify="left" if header in left else "right")
    return table
