"""python -m paper data: data sets fetched where that is free, checked, and written as Parquet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from mein.cli.console import log, open_console
from mein.errors import InputError
from mein.runtime.files import cache_folder
from mein.runtime.progress import Terminal
from paper.datasets import BENCHMARKS, PARTS, Benchmark, Prepared, find_benchmark, prepare
from paper.datasets.benchmark import downloaded
from paper.datasets.download import Download, OnProgress, fetch

HEADINGS = {"train": "train", "dev": "dev", "test": "test", "unlabeled": "raw"}


def list_benchmarks() -> None:
    """Print every benchmark, the size of its parts, and how it is come by."""
    table = _table("name", "what", "classes", *HEADINGS.values())
    for benchmark in BENCHMARKS.values():
        numbers = [benchmark.classes, *(benchmark.counts.get(part) for part in PARTS)]
        what = f"{benchmark.description} *" if benchmark.downloads else benchmark.description
        table.add_row(benchmark.name, what, *("" if n is None else f"{n:,}" for n in numbers))
    console = open_console()
    console.print(table, "")
    log(console, "* `python -m paper data NAME` downloads it; for others it prints the source.")


def prepare_benchmark(
    name: str,
    source: Path | None,
    out: Path | None,
    seed: int = 0,
    any_counts: bool = False,
    more: Sequence[str] = (),
) -> Prepared:
    """Write the parts of a benchmark as Parquet into a folder, and print what they hold."""
    console = open_console()
    benchmark = find_benchmark(name)
    if source is None:
        source, benchmark = fetch_benchmark(benchmark, console), downloaded(benchmark)
    out = Path("data") / name if out is None else out
    total = None if more else sum(benchmark.counts.values()) or None
    terminal = Terminal(console)
    with terminal.task(f"Reading {name}", total) as task:
        prepared = prepare(benchmark, source, out, seed, any_counts, task.advance, more)
    console.print(_summary(benchmark, prepared), "")
    log(console, f"Written to {out}. Terms: {benchmark.license}.")
    return prepared


def fetch_benchmark(benchmark: Benchmark, console: Console) -> Path:
    """The folder in the cache with the official files, downloaded where they are not there yet."""
    if not benchmark.downloads:
        raise InputError(
            f"{benchmark.name} cannot be downloaded from here; get it from {benchmark.where}; "
            "then name it with --source."
        )
    folder = cache_folder() / "data" / benchmark.name
    for download in benchmark.downloads:
        if not (folder / download.name).exists():
            log(console, f"Downloading {download.url} to {folder}.")
        with _progress(console, download) as on_progress:
            fetch(download, folder, on_progress)
    return folder


@contextmanager
def _progress(console: Console, download: Download) -> Iterator[OnProgress]:
    """A bar on a terminal, gone when the file is there; nothing in a log."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(download.name, total=download.size)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _summary(benchmark: Benchmark, prepared: Prepared) -> Table:
    table = _table("part", "documents", "published", "classes", "smallest", "largest")
    for part, count in prepared.counts.items():
        published = benchmark.counts.get(part)
        shown = "" if published is None else f"{published:,}"
        sizes = sorted(prepared.classes[part].values())
        classes = [f"{n:,}" for n in (len(sizes), sizes[0], sizes[-1])] if sizes else []
        table.add_row(HEADINGS[part], f"{count:,}", shown, *classes)
    return table


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        is_words = heading in ("name", "what", "part")
        table.add_column(heading, justify="left" if is_words else "right")
    return table
