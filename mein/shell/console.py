"""Where the shell's words go: as they are, without markup, so that no bracket in a path is lost."""

from rich.console import Console


def open_console(*, stderr: bool = False) -> Console:
    """A console that prints every word literally, wrapped to the terminal's width."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def complain(sentence: str) -> None:
    """One sentence on stderr about what the user can mend."""
    console = open_console(stderr=True)
    console.print("Error: ", style="bold red", end="")
    console.print(sentence, soft_wrap=True)
