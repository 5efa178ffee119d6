"""mein data: the command that lists, fetches and prepares benchmarks."""

from pathlib import Path
from typing import Annotated

import typer


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
    from mein.shell.data import list_benchmarks, prepare_benchmark

    if name is None:
        list_benchmarks()
    else:
        prepare_benchmark(name, source, out, seed, any_counts, more)
