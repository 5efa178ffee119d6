"""Where the shell's words go: as they are, without markup, so that no bracket in a path is lost."""

from rich.console import Console
from rich.text import Text

from mein.ranks import is_first


def open_console(*, stderr: bool = False) -> Console:
    """A console that prints every word literally, wrapped to the terminal's width.

    Of several processes only the first is heard, but for errors.
    """
    return Console(
        stderr=stderr, markup=False, highlight=False, emoji=False, quiet=not (stderr or is_first())
    )


def say(console: Console, sentence: str | Text, style: str = "") -> None:
    """A sentence, wrapped at words on a terminal and left in one line in a log."""
    console.print(sentence, style=style, soft_wrap=not console.is_terminal)


def complain(sentence: str) -> None:
    """One sentence on stderr about what the user can mend."""
    console = open_console(stderr=True)
    say(console, Text.assemble(("Error:", "bold red"), " ", sentence))
