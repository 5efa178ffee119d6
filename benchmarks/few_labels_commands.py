"""python -m benchmarks few-labels: its commands, which measure, pack, and show."""

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.draws import PROBLEMS, load_problem, write_packed
from benchmarks.few_labels import SIZES, SYSTEMS, Request, measure, read_lines, runnable
from benchmarks.few_labels_page import write_page
from benchmarks.standings import Line, Suite, suite_of, summary
from mein.cli.console import log, open_console, plain_table
from mein.cli.help import App
from mein.errors import InputError, RunError

app = App("Measure error with few labels, beside what a user would pick instead.")

Data = Annotated[Path, typer.Option(metavar="FOLDER", help="The suite's data, original or packed.")]
Problems = Annotated[str, typer.Option(metavar="NAME,...", help="Problems. Default: all eight.")]
Draws = Annotated[str, typer.Option(metavar="N,...", help="Draws of labels.")]
Only = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Systems. Default: all that can run here.")
]
Encoder = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of all-MiniLM-L6-v2. Default: no encoder.")
]
Mein = Annotated[str, typer.Option(metavar="OPTIONS", help="Further options of `mein train`, in quotes.")]
Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="Number of runs at a time, a thread each.")]
Work = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of answers and embeddings.")]
Out = Annotated[Path, typer.Option(metavar="FILE", help="Result lines, which are continued.")]

DATA, WORK = Path("../shared/data"), Path("runs/few-labels")
RESULTS = WORK / "results.jsonl"
FIGURES = ("problem", "draw", "system", "error %", "F1", "log loss", "calib.", "s")
ALL, DRAWS = ",".join(PROBLEMS), "0,1,2"


@app.command()
def suite(
    data: Data = DATA,
    problems: Problems = ALL,
    draws: Draws = DRAWS,
    only: Only = None,
    encoder: Encoder = None,
    mein: Mein = "",
    jobs: Jobs = 1,
    work: Work = WORK,
    out: Out = RESULTS,
) -> None:
    """Every system on every draw, with the suite's labels and raw text.

    After a stop, the same command continues.
    """
    request = _request(data, problems, draws, only, encoder, mein, work, out)
    failed = _measure("suite", request, jobs)
    lines = [line for line in read_lines(out) if line["problem"] in request.problems]
    found = summary(lines)
    _print_suite(suite_of(lines), found)
    print(json.dumps(found, indent=1))
    _refuse_failed(failed)


@app.command()
def labels(
    data: Data = DATA,
    problems: Problems = ALL,
    draws: Draws = DRAWS,
    sizes: Annotated[str, typer.Option(metavar="N,...", help="Numbers of labels.")] = ",".join(
        map(str, SIZES)
    ),
    only: Only = None,
    encoder: Encoder = None,
    mein: Mein = "",
    jobs: Jobs = 1,
    work: Work = WORK,
    out: Out = RESULTS,
) -> None:
    """Error against the number of labels, from two per class."""
    request = _request(data, problems, draws, only, encoder, mein, work, out, _numbers("--sizes", sizes))
    _refuse_failed(_measure("labels", request, jobs))


@app.command()
def raw(
    data: Data = DATA,
    problems: Problems = ALL,
    draws: Draws = DRAWS,
    only: Only = None,
    encoder: Encoder = None,
    mein: Mein = "",
    jobs: Jobs = 1,
    work: Work = WORK,
    out: Out = RESULTS,
) -> None:
    """Error against unlabeled text: none, a quarter, half, all."""
    request = _request(data, problems, draws, only, encoder, mein, work, out)
    _refuse_failed(_measure("raw", request, jobs))


@app.command()
def pack(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Output folder, for --data elsewhere.")],
    data: Data = DATA,
    problems: Problems = ALL,
    draws: Draws = DRAWS,
) -> None:
    """Write what the draws need, compressed, for another machine."""
    chosen = _numbers("--draws", draws)
    total = 0
    for name in _known(problems, "--problems", PROBLEMS):
        path = write_packed(load_problem(name, data, chosen), folder)
        total += path.stat().st_size
        log(open_console(stderr=True), f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    log(open_console(), f"{folder} holds {total / 1e6:.1f} MB.")


@app.command()
def page(
    results: Annotated[list[Path], typer.Argument(metavar="FILE ...", help="Result lines.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output page; its picture is beside it.")] = Path(
        "docs/few-labels-suite.md"
    ),
) -> None:
    """Write tables as a page, and the picture beside it."""
    lines = []
    for path in results:
        if not path.is_file():
            raise InputError(
                f"{path}: there is no such file. Measure with `python -m benchmarks few-labels`."
            )
        lines += read_lines(path)
    for path in write_page(lines, out):
        log(open_console(), f"Wrote {path}.")


def _request(
    data: Path,
    problems: str,
    draws: str,
    only: str | None,
    encoder: Path | None,
    mein: str,
    work: Path,
    out: Path,
    sizes: tuple[int, ...] = SIZES,
) -> Request:
    return Request(
        problems=_known(problems, "--problems", PROBLEMS),
        draws=_numbers("--draws", draws),
        systems=runnable(encoder) if only is None else _known(only, "--only", SYSTEMS),
        data=data,
        work=work,
        out=out,
        encoder=encoder,
        options=tuple(shlex.split(mein)),
        sizes=sizes,
    )


def _known(text: str, option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names of a list that is separated by commas."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in found:
        if name not in names:
            raise InputError(f"{option} {name!r} is unknown: choose among {', '.join(names)}.")
    return found


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        found = (-1,)
    if min(found) < 0:
        raise InputError(f"{option} {text!r} is no list of numbers: give them as 0,1,2.")
    return found


def _measure(mode: str, request: Request, jobs: int) -> list[str]:
    console = open_console(stderr=True)
    return measure(request, mode, jobs, lambda sentence: log(console, sentence))


def _refuse_failed(failed: Sequence[str]) -> None:
    if failed:
        raise RunError(
            f"{len(failed)} runs failed; the same command repeats them. The first: {failed[0].rstrip('.')}."
        )


def _print_suite(suite: Suite, found: dict[str, Any]) -> None:
    """Every line, p of ours against each peer, means, ratios, and bars."""
    console = open_console(stderr=True)
    table = plain_table(*FIGURES, left=FIGURES[:3])
    for system, draws in suite.items():
        for problem, lines in draws.items():
            for draw, line in sorted(lines.items()):
                table.add_row(problem, str(draw), system, *_texts(line))
    console.print(table, "")
    for ours, pairs in found["pairs"].items():
        table = plain_table(ours, "draw", "against", "gained", "lost", "p", "Holm's", left=(ours, "against"))
        for pair in pairs:
            counts = (str(pair[name]) for name in ("gained", "lost"))
            p_values = (f"{pair[name]:.2g}" for name in ("p", "adjusted_p"))
            table.add_row(pair["problem"], str(pair["draw"]), pair["peer"], *counts, *p_values)
        console.print(table, "")
    table = plain_table("mean", *FIGURES[3:], "ratios", left=("mean",))
    for system, means in found["means"].items():
        of_ours = (
            f"{by_peer[system]['mean']:.2f} ({ours})"
            for ours, by_peer in found["ratios"].items()
            if system in by_peer
        )
        table.add_row(system, *_texts(means), ", ".join(of_ours))
    console.print(table, "")
    table = plain_table("target", "to reach", "found", "", left=("target", ""))
    for bar in found["bars"]:
        reach = f"{'≥' if bar['is_least'] else '≤'} {bar['bar']:.3g}"
        table.add_row(bar["name"], reach, f"{bar['found']:.3g}", "met" if bar["is_met"] else "missed")
    console.print(table)


def _texts(line: Line) -> list[str]:
    """Error, macro F1, log loss, calibration error, and seconds as text."""
    names = ("error", "macro_f1", "log_loss", "calibration_error", "seconds")
    return [f"{line[name]:.{digits}f}" for name, digits in zip(names, (1, 3, 3, 3, 1), strict=True)]
