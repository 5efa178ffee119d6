"""mein, the shell door: parses, calls, prints, sets the exit code."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mein import __version__
from mein.errors import MeinError

app = typer.Typer(
    name="mein",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

Labeled = Annotated[
    str, typer.Option(metavar="FILE", help="Labelled documents: a file, folder, glob or URL.")
]
Unlabeled = Annotated[str | None, typer.Option(metavar="FILE", help="Raw documents, without labels.")]
Dev = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labelled documents to choose by; else some are split off.")
]
Test = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labelled documents to judge by, once, at the end.")
]
TextColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column with the text; else guessed.")
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column with the label; else guessed.")
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="small (a CPU), full (a GPU) or paper; else what fits the machine."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A config of `mein init`, or a run's config.json."),
]
Set = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Such as imitators.windows=[1,2]; repeatable.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="All randomness comes from it.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="The run folder to make.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]


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


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Of the corpus and of the run.")] = 0,
    resume: Resume = False,
) -> None:
    """Train on the embedded corpus: two minutes on two cores.

    300 labelled documents, 20,000 without labels, 2,000 to judge by; made from the seed.
    """
    from mein.shell.train import run_demo

    run_demo(out, seed, resume)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")] = Path("mein.toml"),
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
    """Audit the data: counts, lengths, duplicates, leaks, labels.

    The exit code is 2 where something would stop a training.
    """
    from mein.shell.check import check_data

    if check_data(labeled, unlabeled, dev, test, text_column, label_column):
        raise typer.Exit(2)


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
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Train so many times; gives mean and spread.")
    ] = 1,
    resume: Resume = False,
) -> None:
    """Train a classifier and judge it beside its controls.

    Settings come from the defaults, then the preset, then the config, then --set: the last word wins.
    """
    from mein.config import parse_overrides
    from mein.shell.train import run_training

    named = {"columns.text": text_column, "columns.label": label_column, "seed": seed}
    given = {name: value for name, value in named.items() if value is not None}
    settings = (preset, config, parse_overrides(set_) | given)
    run_training((labeled, unlabeled, dev, test), out, settings, seeds, resume)


@app.command()
def evaluate(
    run: Run,
    documents: Annotated[str, typer.Argument(metavar="FILE", help="Labelled documents.")],
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    as_json: AsJson = False,
) -> None:
    """Judge a trained run, beside its controls, on labelled documents."""
    from mein.shell.use import evaluate_run

    evaluate_run(run, documents, text_column, label_column, as_json)


@app.command()
def predict(
    run: Run,
    documents: Annotated[str, typer.Argument(metavar="FILE", help="csv, tsv, jsonl, parquet, txt ...")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write them; its ending names the format.")
    ],
    text_column: TextColumn = None,
) -> None:
    """Label the documents of a file of any size."""
    from mein.shell.use import predict_documents

    predict_documents(run, documents, out, text_column)


@app.command()
def explain(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to classify.")],
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many fragments to show.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Show the label of a text, and which fragments spoke for it."""
    from mein.shell.use import explain_text

    explain_text(run, text, top, as_json)


bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure speed and memory, as JSON.")
app.add_typer(bench, name="bench")
Figures = Annotated[Path | None, typer.Option(metavar="FILE", help="Where to put the JSON; else stdout.")]
Workers = Annotated[int, typer.Option(min=1, metavar="N", help="Processes that encode text.")]


@bench.command("encode")
def bench_encode(
    documents: Annotated[
        str | None, typer.Option(metavar="FILE", help="Documents to encode; else the embedded corpus.")
    ] = None,
    text_column: TextColumn = None,
    workers: Workers = 2,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of ours and of theirs.")] = 5,
    out: Figures = None,
) -> None:
    """Documents a second into the store, beside sentencepiece alone."""
    from mein.shell.bench import run_encode

    run_encode(documents, text_column, workers, repeats, out)


@bench.command("memory")
def bench_memory(
    sizes: Annotated[list[int] | None, typer.Argument(metavar="N", hidden=True)] = None,
    documents: Annotated[
        list[int], typer.Option(min=1, metavar="N ...", help="Sizes of the corpus, one or more.")
    ] = [200_000, 2_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Workers = 2,
    out: Figures = None,
) -> None:
    """Peak memory of encoding and of stage 2 at several sizes of corpus."""
    from mein.shell.bench import run_memory

    run_memory([*documents, *(sizes or [])], workers, out)


def main() -> None:
    """Run the command line; a user's error is one sentence and exit code 2."""
    is_debugging = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        app(prog_name="mein")
    except (MeinError, OSError) as problem:
        if is_debugging:
            raise
        from mein.shell.console import complain

        complain(str(problem) if isinstance(problem, MeinError) else _of_system(problem))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. A run in training goes on from its last checkpoint with --resume.\n")
        sys.exit(130)


def _of_system(problem: OSError) -> str:
    """A sentence for what the system refused where nobody expected it."""
    what = "Something" if problem.filename is None else str(problem.filename)
    return f"{what} cannot be read or written ({problem.strerror or problem}): check it, or see --debug."
