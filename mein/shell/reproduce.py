"""mein reproduce: run what is missing of the paper's experiments, and make the pages from the results."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mein.errors import ConfigError, RunError
from mein.experiments.cells import EXPERTS, Cell, more_data, results, windows
from mein.experiments.column import MAIN, Experiment, run_column, run_name
from mein.experiments.figures import more_data_figure, windows_figure
from mein.experiments.lines import missing, read_lines
from mein.experiments.speed import speed_table
from mein.experiments.tables import results_page
from mein.files import write_atomically
from mein.progress import Reporter, Silence, Terminal
from mein.shell.console import open_console, say
from mein.shell.engine import HERE, Engine, opened, tasks_on_ray

FIGURES = {"more-data": more_data_figure, "windows": windows_figure}
GRIDS = {"results": results, "windows": windows, "more-data": more_data}


@dataclass(frozen=True)
class Request:
    """Which part of the experiments, and where its files lie."""

    grid: str
    datasets: tuple[str, ...]
    experts: tuple[str, ...]
    seeds: range
    data: Path
    work: Path
    results: Path
    preset: str
    settings: dict[str, Any]
    only: str | None
    """Of a grid only the run of this name, as its folder is called; none: all."""
    arguments: tuple[str, ...]
    """The command's own words, for the processes that it starts."""


def reproduce(request: Request, jobs: int, engine: Engine = HERE) -> None:
    """Run the missing cells, a process for each run, several at a time."""
    console = open_console()
    columns = _columns(request)
    cells = sum(map(len, columns))
    say(console, f"{cells} cells are missing, in {len(columns)} runs.")
    with opened(engine) as on_ray:
        if on_ray:
            _run_on_ray(request, columns, console)
            return
    if jobs == 1 or len(columns) <= 1:
        experiment = _experiment(request, Terminal(console))
        for column in columns:
            say(console, f"{column[0].dataset}, {column[0].expert}, seed {column[0].seed}", "bold")
            run_column(experiment, column)
        return
    with ThreadPoolExecutor(jobs) as threads:
        failed = [line for line in threads.map(lambda column: _start(request, column), columns) if line]
    _refuse_failed(failed, len(columns))


def _run_on_ray(request: Request, columns: Sequence[list[Cell]], console: Console) -> None:
    """Run each column as a task of Ray, whose machines share the folders."""
    complaints = []
    runs = [partial(run_column, _experiment(request, Silence()), column) for column in columns]
    for number, complaint in enumerate(tasks_on_ray(runs), start=1):
        say(console, f"{number} of {len(runs)} runs have ended.")
        complaints += [] if complaint is None else [complaint]
    _refuse_failed(complaints, len(runs))


def _experiment(request: Request, reporter: Reporter) -> Experiment:
    return Experiment(request.data, request.work, request.results, request.preset, request.settings, reporter)


def _refuse_failed(complaints: Sequence[str], runs: int) -> None:
    if complaints:
        raise RunError(f"{len(complaints)} of {runs} runs failed, the first so: {complaints[0]}")


def write_pages(folder: Path, page: Path) -> None:
    """Make docs/results.md, and figures beside it, from the lines."""
    if not folder.is_dir():
        raise RunError(f"There is no folder {folder} of results: name it with --results.")
    lines = read_lines(folder)
    shown = []
    for dataset in dict.fromkeys(line["dataset"] for line in lines):
        own = [line for line in lines if line["dataset"] == dataset]
        for name, draw in FIGURES.items():
            figure = draw(dataset, own)
            if figure is not None:
                path = page.with_name(f"{page.stem}-{name}-{dataset}.svg")
                write_atomically(path, figure.encode("utf-8"))
                shown.append(f"![{name.replace('-', ' ')}, {dataset}]({path.name})")
    parts = [results_page(lines), speed_table(folder), "\n".join(shown)]
    text = "\n\n".join(part.strip() for part in parts if part) + "\n"
    write_atomically(page, text.encode("utf-8"))
    say(open_console(), f"Wrote {page}.")


def _columns(request: Request) -> list[list[Cell]]:
    """The missing cells, those that one run answers together; runs that others branch off from first."""
    if request.grid not in GRIDS:
        raise ConfigError(f"Unknown grid {request.grid!r}: choose one of {', '.join(GRIDS)}.")
    for expert in request.experts:
        if expert not in EXPERTS:
            raise ConfigError(f"Unknown expert {expert!r}: choose among {', '.join(EXPERTS)}.")
    done = read_lines(request.results)
    columns: dict[tuple[Any, ...], list[Cell]] = {}
    for dataset in request.datasets:
        cells = missing(GRIDS[request.grid](dataset, request.experts, request.seeds), done)
        for cell in sorted(cells, key=lambda cell: run_name(cell) != MAIN):
            if request.only in (None, run_name(cell)):
                run = (cell.dataset, cell.expert, cell.seed, run_name(cell))
                columns.setdefault(run, []).append(cell)
    return list(columns.values())


def _start(request: Request, column: Sequence[Cell]) -> str | None:
    """Run one column in a process of its own; what it complained of, if it failed."""
    first = column[0]
    only = ["--datasets", first.dataset, "--experts", first.expert, "--seed", str(first.seed), "--seeds", "1"]
    only += ["--only", run_name(first)]
    command = [sys.executable, "-c", "from mein.cli import main; main()", "reproduce"]
    ended = subprocess.run(
        [*command, *request.arguments, *only, "--jobs", "1"], capture_output=True, text=True, check=False
    )
    return None if ended.returncode == 0 else (ended.stderr.strip().splitlines() or ["no word"])[-1]
