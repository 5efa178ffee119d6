"""Run what is missing of the paper's experiments, and make the pages from the results."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from mein.cli.console import log, open_console
from mein.engines import HERE, Engine, opened, tasks_on_ray
from mein.errors import ConfigError, MeinError, RunError
from mein.runtime.files import write_atomically, writing_failed
from mein.runtime.processes import own_path
from mein.runtime.progress import Quiet, Reporter, Terminal
from paper.cells import EXPERTS, MAIN, OURS, PREVIOUS_RUNS, Cell, more_data, results, windows
from paper.column import cells_that_fit, run_column, under_work
from paper.experiment import Experiment, shared_settings
from paper.lines import Line, append_lines, missing, read_lines
from paper.tables import more_data_figure, results_page, speed_table, windows_figure

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
    columns = _columns(request, _experiment(request, Terminal(console)))
    cells = sum(map(len, columns))
    log(console, f"{cells} cells are missing, in {len(columns)} runs.")
    for dataset in request.datasets if columns else ():
        append_lines(request.results / f"{dataset}.jsonl", [])  # refuses a place that cannot be written to
    with opened(engine) as on_ray:
        if on_ray:
            failed = _run_on_ray(request, columns, console)
        elif jobs == 1 or len(columns) <= 1:
            failed = _run_here(request, columns, console)
        else:
            failed = _run_beside(request, columns, jobs, console)
    if failed:
        start = "" if len(columns) == 1 else f"{len(failed)} of {len(columns)} runs failed. The first: "
        raise RunError(start + failed[0])


def _run_here(request: Request, columns: Sequence[list[Cell]], console: Console) -> list[str]:
    """Run one column after another; returns the errors."""
    errors = []
    experiment = _experiment(request, Terminal(console))
    for column in columns:
        log(console, f"{column[0].dataset}, {column[0].expert}, seed {column[0].seed}", "bold")
        try:
            run_column(experiment, column)
        except MeinError as problem:
            log(console, f"This run failed: {problem}")
            errors.append(str(problem))
    return errors


def _run_beside(request: Request, columns: Sequence[list[Cell]], jobs: int, console: Console) -> list[str]:
    """Run several columns at a time, logging each that ends; returns the errors."""
    errors = []
    with ThreadPoolExecutor(jobs) as threads:
        runs = {threads.submit(_start, request, column): column[0] for column in columns}
        for number, run in enumerate(as_completed(runs), start=1):
            cell, error = runs[run], run.result()
            name = f"{cell.dataset}, {cell.expert}, seed {cell.seed}, {cell.run}"
            log(console, f"{number} of {len(runs)}: {name} {'has ended' if error is None else 'failed'}.")
            errors += [] if error is None else [error]
    return errors


def _run_on_ray(request: Request, columns: Sequence[list[Cell]], console: Console) -> list[str]:
    """Run each column as a task of Ray, whose machines share the folders."""
    errors = []
    runs = [partial(run_column, _experiment(request, Quiet()), column) for column in columns]
    for number, error in enumerate(tasks_on_ray(runs), start=1):
        log(console, f"{number} of {len(runs)} runs have ended.")
        errors += [] if error is None else [error]
    return errors


def _experiment(request: Request, reporter: Reporter) -> Experiment:
    settings = shared_settings(request.settings)
    return Experiment(request.data, request.work, request.results, request.preset, settings, reporter)


def write_pages(folder: Path, page: Path) -> None:
    """Make docs/results.md, and figures beside it, from the lines."""
    if not folder.is_dir():
        raise RunError(f"There is no folder {folder} of results: name it with --results.")
    lines = read_lines(folder)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise writing_failed(page, problem) from problem
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
    log(open_console(), f"Wrote {page}.")


def _columns(request: Request, experiment: Experiment) -> list[list[Cell]]:
    """The missing cells, those that one run answers together; runs that others branch off from first."""
    if request.grid not in GRIDS:
        raise ConfigError(f"Unknown grid {request.grid!r}: choose one of {', '.join(GRIDS)}.")
    for expert in request.experts:
        if expert not in EXPERTS | OURS:
            raise ConfigError(f"Unknown expert {expert!r}: choose among {', '.join(EXPERTS | OURS)}.")
        if expert in PREVIOUS_RUNS and request.grid == "more-data":
            raise ConfigError(
                f"{expert} has learned from all unlabeled text: choose others for the grid more-data."
            )
    done = read_lines(request.results)
    _refuse_other_settings(request, experiment, done)
    grids = (GRIDS[request.grid](name, request.experts, request.seeds) for name in request.datasets)
    cells = [cell for grid in grids for cell in missing(grid, done) if request.only in (None, cell.run)]
    for dataset, seed in dict.fromkeys((cell.dataset, cell.seed) for cell in cells):
        experiment.parts(dataset, seed)  # refuses a set that is missing or incomplete
    with under_work():
        cells = cells_that_fit(experiment, cells)
    columns: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.run != MAIN):
        columns.setdefault((cell.dataset, cell.expert, cell.seed, cell.run), []).append(cell)
    return list(columns.values())


def _refuse_other_settings(request: Request, experiment: Experiment, done: Sequence[Line]) -> None:
    """Results of an expert on a data set are of one kind, or their mean would mean nothing."""
    wanted = product(request.datasets, request.experts)
    digests = {(dataset, expert): experiment.digest(dataset, expert) for dataset, expert in wanted}
    others = [
        line
        for line in done
        if line["settings"] != digests.get((line["dataset"], line["expert"]), line["settings"])
    ]
    if others:
        rows = ", ".join(sorted({f"{line['expert']} on {line['dataset']}" for line in others}))
        raise ConfigError(
            f"{len(others)} cells have results of other settings ({rows}): take the settings of their "
            f"`command`, remove their lines from {request.results}, or give another --results."
        )


def _start(request: Request, column: Sequence[Cell]) -> str | None:
    """Run one column in a process of its own; what it complained of, if it failed."""
    first = column[0]
    only = ["--datasets", first.dataset, "--experts", first.expert, "--seed", str(first.seed), "--seeds", "1"]
    only += ["--only", first.run]
    command = [sys.executable, "-P", "-m", "paper", "run", *request.arguments, *only, "--jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": own_path()}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode == 0:
        return None
    return (ended.stderr.strip().splitlines() or ["no word"])[-1].removeprefix("Error: ")
