"""The command `mein`: its commands, in the order of its help."""

from typing import Annotated

import typer

from mein import __version__
from mein.cli.check import check
from mein.cli.console import new_app, run_app
from mein.cli.explain import explain
from mein.cli.pretrain import pretrain
from mein.cli.serve import serve
from mein.cli.store import encode, imitate, label
from mein.cli.train import demo, init, train
from mein.cli.use import evaluate, export, predict, report

app = new_app()


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Allowed anywhere.")
    ] = False,
) -> None:
    """Text classifiers from a few labels and a lot of raw text."""
    if show:
        typer.echo(f"mein {__version__}")
        raise typer.Exit


app.command()(demo)
app.command()(init)
app.command()(check)
app.command()(train)
app.command()(pretrain)
app.command()(evaluate)
app.command()(report)
app.command()(encode)
app.command()(label)
app.command()(imitate)
app.command()(predict)
app.command()(explain)
app.command()(export)
app.command()(serve)


def main() -> None:
    """Run the command line."""
    run_app(app, "mein")
