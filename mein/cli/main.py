"""The command `mein`: its commands, in the order of its help."""

from typing import Annotated

import typer

from mein import __version__
from mein.cli import store
from mein.cli.check import check
from mein.cli.completion import completion, register_shells
from mein.cli.console import run_app
from mein.cli.demo import demo
from mein.cli.evaluate import evaluate
from mein.cli.explain import explain
from mein.cli.export import export
from mein.cli.help import App
from mein.cli.init import init
from mein.cli.options import flag
from mein.cli.predict import predict
from mein.cli.pretrain import pretrain
from mein.cli.report import report
from mein.cli.serve import serve
from mein.cli.train import train

app = App("Text classifiers from a few labels and a lot of raw text.")


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, flag("--version", "Show the version.")] = False,
    debug: Annotated[bool, flag("--debug", "Show the traceback of an error. Allowed anywhere.")] = False,
) -> None:
    """Show the version, or nothing: the help has the rest."""
    if show:
        typer.echo(f"mein {__version__}")
        raise typer.Exit


app.add("Start", demo, init, check, train)
app.add("Use", evaluate, predict, explain, report, serve)
app.add("More", pretrain, export, completion)
app.add_typer(store.app, name="store", rich_help_panel="More")


def main() -> None:
    """Run the command line."""
    register_shells()
    run_app(app, "mein")
