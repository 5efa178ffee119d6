"""A training with everything around it, for mein demo, mein train, and mein store train."""

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mein.cli.console import Output
from mein.engines import HERE, Engine, training_on_ray
from mein.runtime.ranks import is_first

if TYPE_CHECKING:  # what takes a second to import is imported by the functions that use it
    from mein.config import Config
    from mein.data.columns import ColumnsConfig
    from mein.data.corpus import Corpus
    from mein.evaluation.comparison import Row
    from mein.report.record import Finished


@dataclass(frozen=True)
class Request:
    """One training: how, on what, where to, and what to print."""

    config: "Config"
    corpus: "Corpus"
    out: Path
    output: Output
    resume: bool = False
    engine: Engine = HERE


def train_on_engine(request: Request, *, is_on_ray: bool) -> "list[Row]":
    """Train here, or with Algorithm 1 on a cluster; evaluated and reported here."""
    if not is_on_ray:
        return train_and_show(request)
    training_on_ray(
        request.config,
        request.corpus,
        request.out,
        request.output.reporter,
        resume=request.resume,
        processes=request.engine.processes,
    )
    return train_and_show(replace(request, resume=True))


def train_and_show(request: Request) -> "list[Row]":
    """Prepare, train, evaluate, report."""
    from mein.run.algorithm import train
    from mein.run.evaluate import evaluate
    from mein.run.plan import costs_in_short, helpful_in_short
    from mein.run.prepare import prepare
    from mein.runtime.provenance import provenance
    from mein.runtime.run_folder import RunFolder

    folder, reporter = RunFolder(request.out), request.output.reporter
    if request.output.is_verbose:
        reporter.log(_machine(request.config))
    with folder.held():
        run = prepare(request.config, request.corpus, folder, reporter, resume=request.resume)
        if not request.resume and not request.output.is_quiet and is_first():
            for line in costs_in_short(run):
                reporter.log(line)
        if not folder.is_done and not (folder / "provenance.json").exists():
            folder.write_json("provenance.json", provenance(sys.argv))
        train(run)
        rows = evaluate(run)
    if is_first():
        _report(request, rows)
        request.output.log(helpful_in_short(run))
    return rows


def _machine(config: "Config") -> str:
    """What the run works on."""
    import torch

    from mein import __version__
    from mein.runtime.device import choose_device

    device = choose_device(config.runtime.device)
    return (
        f"mein {__version__}, torch {torch.__version__}, device {device}, {torch.get_num_threads()} threads"
    )


def _report(request: Request, rows: "list[Row]") -> None:
    """Leave a model card and a page beside a finished run, and show the table."""
    from mein.evaluation.rendering import lines_of, render
    from mein.report.card import write_card
    from mein.report.charts import counted
    from mein.report.page import write_report
    from mein.report.record import read_finished

    out, output = request.out, request.output
    if not (out / "README.md").exists():  # an edited card is kept
        write_card(out)
    write_report([out], out / "report.html")
    output.console.print()
    finished = read_finished(out)
    documents = counted(rows[0].scores.documents, f"{finished.part} document")
    where = {"dev": " (no --test)", "labeled": ", out of fold (no --test)"}
    title = documents + where[finished.part] if finished.part in where else None
    verdict = finished.verdict
    is_approximate = verdict is not None and verdict.is_approximate
    output.console.print(render(rows, title=title, is_approximate=is_approximate))
    if finished.part == "dev":
        output.log(finished.about_dev)
    output.log(weights_line(finished))
    if verdict is not None:
        for line in lines_of(verdict):
            output.log(line, "bold")
    output.log(next_steps(out, learns=request.config.expert.traits.learns))


def next_steps(out: Path, *, learns: bool) -> str:
    """What to do with a finished run; given probabilities need those of every new text."""
    run, page = shlex.quote(str(out)), shlex.quote(str(out / "report.html"))
    lines = ["Next:", f"  see {page}"]
    if learns:
        lines += [f'  mein explain {run} "a text"', f"  mein predict {run} new.csv --out labeled.csv"]
    else:
        lines.append(f"  mein predict {run} new.csv --soft-labels soft.csv --out labeled.csv")
    return "\n".join(lines)


def weights_line(run: "Finished") -> str:
    """The weight of each component after calibration."""
    if not run.gates:
        return "Weights: none, since there are no imitators."
    return "Weights: " + "   ".join(f"{name} {weight:.2f}" for name, weight in run.weights)


def refuse_taken(out: Path, resume: bool) -> None:
    """Refuse a folder that is not free for a run."""
    from mein.runtime.run_folder import RunFolder

    RunFolder(out).refuse_taken(resume)


def note_whether_new(out: Path, resume: bool, output: Output) -> None:
    """Note that there is no run to resume: it was stopped too early, or its name is wrong."""
    if resume and not out.exists():
        output.log(f"No run to resume in {out}: starting a new one.")


def note_columns(unlabeled: str | None, columns: "ColumnsConfig", output: Output) -> None:
    """Note where unlabeled text lacks the named column and another was used."""
    from mein.data.audit import replaced_columns

    for note in () if unlabeled is None else replaced_columns(unlabeled, columns):
        output.log(note)
