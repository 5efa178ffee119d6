"""mein, the shell door: parses, calls, prints, sets the exit code."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mein import __version__
from mein.errors import MeinError

app = typer.Typer(
    name="mein",
    help="Text classifiers from a few labels and a lot of raw text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Labeled = Annotated[str, typer.Option(help="Labelled documents: a file, folder, glob or URL.")]
Unlabeled = Annotated[str | None, typer.Option(help="Raw documents, without labels.")]
Dev = Annotated[str | None, typer.Option(help="Labelled documents to choose by; else some are split off.")]
Test = Annotated[str | None, typer.Option(help="Labelled documents to judge by, read once at the end.")]
TextColumn = Annotated[str | None, typer.Option(help="Name of the column with the text.")]
LabelColumn = Annotated[str | None, typer.Option(help="Name of the column with the label.")]
Preset = Annotated[str | None, typer.Option(help="small (a CPU), full (a GPU) or paper.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A config from `mein init`, or a run's.")]
Set = Annotated[list[str], typer.Option("--set", help="key=value, such as imitators.windows=[1,2].")]
Seed = Annotated[int | None, typer.Option(help="All randomness comes from it.")]
Run = Annotated[Path, typer.Argument(help="A run folder.")]
Out = Annotated[Path, typer.Option(help="The run folder to make.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """Text classifiers from a few labels and a lot of raw text."""
    if show:
        typer.echo(f"mein {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Of the corpus and of the run.")] = 0,
    resume: Resume = False,
) -> None:
    """Train on the embedded corpus: 300 labels, 20,000 raw documents, 2,000 to judge by."""
    from mein.shell.train import run_demo

    run_demo(out, seed, resume)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("mein.toml"),
    preset: Preset = None,
) -> None:
    """Write a config with every setting, its value and what it means."""
    from mein.shell.train import write_config

    write_config(path, preset)


@app.command()
def check(
    labeled: Labeled,
    unlabeled: Unlabeled = None,
    dev: Dev = None,
    test: Test = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
) -> None:
    """Audit the data before training: counts, lengths, duplicates, leaks, labels."""
    from mein.shell.check import check_data

    check_data(labeled, unlabeled, dev, test, text_column, label_column)


@app.command()
def train(
    labeled: Labeled,
    out: Out,
    unlabeled: Unlabeled = None,
    dev: Dev = None,
    test: Test = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Seed = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many times, and give mean and spread.")] = 1,
    resume: Resume = False,
) -> None:
    """Train a classifier and judge it beside its controls."""
    from mein.config import parse_overrides
    from mein.shell.train import run_training

    named = {"columns.text": text_column, "columns.label": label_column, "seed": seed}
    given = {name: value for name, value in named.items() if value is not None}
    settings = (preset, config, parse_overrides(set_) | given)
    run_training((labeled, unlabeled, dev, test), out, settings, seeds, resume)


@app.command()
def evaluate(
    run: Run,
    documents: Annotated[str, typer.Argument(help="Labelled documents.")],
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Judge a trained run, and everything it was compared with, on labelled documents."""
    from mein.shell.use import evaluate_run

    evaluate_run(run, documents, text_column, label_column, as_json)


@app.command()
def predict(
    run: Run,
    documents: Annotated[str, typer.Argument(help="Documents: csv, tsv, jsonl, parquet, txt ...")],
    out: Annotated[Path, typer.Option(help="Where to write them, labelled; the ending names the format.")],
    text_column: TextColumn = None,
) -> None:
    """Label the documents of a file of any size."""
    from mein.shell.use import predict_documents

    predict_documents(run, documents, out, text_column)


@app.command()
def explain(
    run: Run,
    text: Annotated[str, typer.Argument(help="The text to classify.")],
    top: Annotated[int, typer.Option(help="How many fragments to show.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print all parts as JSON.")] = False,
) -> None:
    """Show the label of a text and the fragments that spoke for and against it."""
    from mein.shell.use import explain_text

    explain_text(run, text, top, as_json)


bench = typer.Typer(help="Measure speed and memory; results are JSON.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line; a user's error is one sentence and exit code 2."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        app()
    except MeinError as problem:
        if debug:
            raise
        Console(stderr=True).print(f"[bold red]Error:[/] {problem}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. A run in training goes on from its last checkpoint with --resume.\n")
        sys.exit(130)
