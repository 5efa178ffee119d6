"""python -m paper data | run | page: the paper's data sets, its experiments, its tables."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mein.cli.console import run_app
from mein.cli.help import App
from mein.cli.options import Address, EngineName, Set
from mein.engines import Engine
from paper.cells import DATA

RESULTS = Path("results")

app = App("The paper again: its data sets, its experiments, and our numbers beside its own.")


def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="imdb, rotten, elec, ... Default: list all."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Official folder or archive. Default: download it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for the Parquet files. Default: data/NAME.")
    ] = None,
    more: Annotated[list[str], typer.Option(metavar="FILE", help="More unlabeled text. Repeatable.")] = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of random splits, as in rotten.")] = 0,
    any_counts: Annotated[
        bool, typer.Option("--any-counts", help="Accept a source with other counts than published.")
    ] = False,
) -> None:
    """Fetch a benchmark, check it, and write it as Parquet.

    Downloads are kept in $MEIN_CACHE. Default: mein in $XDG_CACHE_HOME or ~/.cache.
    """
    from paper.commands import list_benchmarks, prepare_benchmark

    if name is None:
        list_benchmarks()
    else:
        prepare_benchmark(name, source, out, seed, any_counts, more)


def run(
    grid: Annotated[str, typer.Option(metavar="NAME", help="results, windows, or more-data.")] = "results",
    datasets: Annotated[str, typer.Option(metavar="A,B", help="Folders under --data.")] = "imdb",
    experts: Annotated[
        str, typer.Option(metavar="A,B", help="The paper's, such as lstm, or others, such as transformer.")
    ] = "lstm,lm-lstm,adv-lm-lstm",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="First seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Number of seeds.")] = 1,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of `python -m paper data`.")] = DATA,
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for run folders. Large.")] = Path(
        "runs/reproduce"
    ),
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of result lines.")] = RESULTS,
    preset: Annotated[str, typer.Option(metavar="NAME", help="Preset, as in `mein train`.")] = "full",
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    only: Annotated[str | None, typer.Option(metavar="NAME", hidden=True)] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Number of runs at a time.")] = 1,
    engine: EngineName = "processes",
    address: Address = None,
) -> None:
    """Run the missing cells of the paper's experiments."""
    from mein.config import parse_overrides
    from paper.run import Request, reproduce

    request = Request(
        grid=grid,
        datasets=tuple(dict.fromkeys(datasets.split(","))),
        experts=tuple(dict.fromkeys(experts.split(","))),
        seeds=range(seed, seed + seeds),
        data=data,
        work=work,
        results=results,
        preset=preset,
        settings=parse_overrides(set_),
        only=only,
        arguments=tuple(sys.argv[2:]),
    )
    reproduce(request, jobs, Engine(engine, address))


def page(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Output page.")] = Path("docs/results.md"),
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of result lines.")] = RESULTS,
) -> None:
    """Write the tables and figures from the result lines."""
    from paper.run import write_pages

    write_pages(results, out)


app.command()(data)
app.command()(run)
app.command()(page)


def main() -> None:
    """Run the command line."""
    run_app(app, "python -m paper")


if __name__ == "__main__":
    main()
