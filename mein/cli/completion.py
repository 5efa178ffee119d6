"""mein completion: a script that completes commands and options in a shell. One module per command."""

import os
from typing import Annotated

import typer

from mein.cli.options import argument
from mein.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MEIN_COMPLETE"


def completion(
    shell: Annotated[str, argument("SHELL", f"{', '.join(SHELLS[:-1])}, or {SHELLS[-1]}.")],
) -> None:
    """Print a script that completes commands and options in a shell.

    Examples:
      mein completion bash >> ~/.bashrc
      mein completion fish > ~/.config/fish/completions/mein.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in SHELLS:
        raise UsageError(f"Unknown shell {shell!r}: choose one of {', '.join(SHELLS)}.")
    typer.echo(get_completion_script(prog_name="mein", complete_var=VARIABLE, shell=shell))


def register_shells() -> None:
    """Let typer answer where such a script asks; a normal start does not wait for it."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
