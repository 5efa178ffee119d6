"""Python -m paper data | run | page.

mein data: the command that lists, fetches and prepares benchmarks.

mein reproduce, as the shell knows it.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mein.cli.options import Address, EngineName, Set
from paper.cells import DATA


def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="imdb, rotten, elec ...; without one, all are listed."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The official folder or archive; else downloaded.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the Parquet files go; else data/NAME.")
    ] = None,
    more: Annotated[
        list[str], typer.Option(metavar="FILE", help="Further raw text; may be given again.")
    ] = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of random splits, as rotten has.")] = 0,
    any_counts: Annotated[
        bool, typer.Option("--any-counts", help="Take a source whose counts are not the published ones.")
    ] = False,
) -> None:
    """Fetch a benchmark, check it, and write it as Parquet.

    Downloads are kept in $MEIN_CACHE, else in mein in $XDG_CACHE_HOME or ~/.cache.
    """
    from paper.commands import list_benchmarks, prepare_benchmark

    if name is None:
        list_benchmarks()
    else:
        prepare_benchmark(name, source, out, seed, any_counts, more)


Page = Annotated[Path | None, typer.Option(metavar="FILE", help="Only make this page from the result lines.")]


def reproduce(
    grid: Annotated[str, typer.Option(metavar="NAME", help="results, windows or more-data.")] = "results",
    datasets: Annotated[str, typer.Option(metavar="A,B", help="Folders under --data.")] = "imdb",
    experts: Annotated[
        str, typer.Option(metavar="A,B", help="The paper's: lstm, lm-lstm ...; ours: transformer ...")
    ] = "lstm,lm-lstm,adv-lm-lstm",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 1,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="What `mein data` made.")] = DATA,
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="For runs; large.")] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="For result lines.")] = Path("results"),
    preset: Annotated[str, typer.Option(metavar="NAME", help="As in `mein train`.")] = "full",
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    only: Annotated[str | None, typer.Option(metavar="NAME", hidden=True)] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at a time.")] = 1,
    page: Page = None,
    engine: EngineName = "processes",
    address: Address = None,
) -> None:
    """Run the paper's experiments: our numbers beside its own."""
    from mein.config import parse_overrides
    from paper import run as shell

    if page is not None:
        shell.write_pages(results, page)
        return
    request = shell.Request(
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
    shell.reproduce(request, jobs, (engine, address))
