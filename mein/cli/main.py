"""mein, the shell door: parses, calls, prints, sets the exit code."""

import sys
from typing import Annotated

import typer

from benchmarks.__main__ import bench
from mein import __version__
from mein.cli.check import check
from mein.cli.explain import explain
from mein.cli.pretrain import pretrain
from mein.cli.serve import serve
from mein.cli.store import encode, imitate, label
from mein.cli.train import demo, init, train
from mein.cli.use import evaluate, export, predict, report
from mein.errors import MeinError, explaining_full_gpu
from mein.runtime import ranks
from paper.__main__ import data, reproduce

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended

app = typer.Typer(
    name="mein",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from; may stand anywhere.")
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
app.add_typer(bench, name="bench")
app.command()(serve)
app.command()(data)
app.command()(reproduce)


def main() -> None:
    """Run the command line; a user's error is one sentence and exit code 2."""
    is_debugging = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        with explaining_full_gpu():
            ranks.join()
            app(prog_name="mein")
    except (MeinError, OSError) as problem:
        if is_debugging:
            raise
        from mein.cli.console import complain

        if ranks.may_complain():
            complain(str(problem) if isinstance(problem, MeinError) else _of_system(problem))
        sys.exit(2)
    except KeyboardInterrupt:
        _show_how_to_resume()
        sys.exit(INTERRUPTED)
    except SystemExit as ended:  # subtle: typer turns Ctrl-C into this, without a word
        if ended.code == INTERRUPTED:
            _show_how_to_resume()
        raise
    finally:
        ranks.leave()


def _show_how_to_resume() -> None:
    if not ranks.is_first():
        return
    sys.stderr.write(
        "\nStopped. The same command goes on from here; a training, or a file half labeled, with --resume.\n"
    )


def _of_system(problem: OSError) -> str:
    """A sentence for what the system refused where nobody expected it."""
    what = "Something" if problem.filename is None else str(problem.filename)
    return f"{what} cannot be read or written ({problem.strerror or problem}): check it, or see --debug."
