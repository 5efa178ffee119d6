"""Few labels: mein and its peers on the same draws, a process for each, a result line for each.

A line is on disk as soon as its system is done, and is not measured again. As a module it runs one job:
`python -m benchmarks.few_labels JSON`.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.draws import (
    PROBLEMS,
    Cell,
    Document,
    Problem,
    load_problem,
    read_cell,
    write_cell,
    write_table,
)
from benchmarks.peers import PEERS, Answer, Resources
from benchmarks.standings import OURS, Line, score
from mein import __version__
from mein.errors import InputError, MeinError, RunError
from mein.runtime.files import held_folder, write_atomically, writing_failed
from mein.runtime.processes import own_path

SYSTEMS = (*PEERS, *OURS)
LEARN_FROM_RAW = ("self-training", *OURS)
SETFIT_PROBLEMS = ("trec", "cr", "agnews", "banking77")
SIZES = (50, 100, 200, 400, 800, 1_600)
SHARES = (0.0, 0.25, 0.5, 1.0)
STOPPED = (-2, -15, 130, 143)  # by Ctrl-C, or by whoever ends a process
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """One system on one cell."""

    problem: str
    draw: int
    labels: int
    share: float
    """Of the unlabeled text."""
    system: str

    @property
    def cell(self) -> str:
        """The name of its cell's folder."""
        return f"{self.problem}-{self.draw}-{self.labels}-{self.share:g}"


@dataclass(frozen=True)
class Request:
    """Which jobs, from which files, and where lines and answers go."""

    problems: tuple[str, ...]
    draws: tuple[int, ...]
    systems: tuple[str, ...]
    data: Path
    work: Path
    out: Path
    encoder: Path | None = None
    options: tuple[str, ...] = ()
    """Further words of `mein train`."""
    sizes: tuple[int, ...] = SIZES

    def __post_init__(self) -> None:
        """Refuse systems that cannot run."""
        for system in self.systems:
            if needs_encoder(system) and self.encoder is None:
                raise InputError(f"{system!r} needs an encoder: name its folder by --encoder.")
        if "setfit" in self.systems and find_spec("setfit") is None:
            raise InputError(
                "'setfit' needs the package setfit, which is not installed: pip install setfit, or leave it "
                "out of --only."
            )

    @cached_property
    def _problems(self) -> dict[str, Problem]:
        return {}

    def problem(self, name: str) -> Problem:
        """A problem by its name, read once."""
        if name not in self._problems:
            self._problems[name] = load_problem(name, self.data, self.draws)
        return self._problems[name]


def needs_encoder(system: str) -> bool:
    """Whether a system starts from a pre-trained encoder."""
    return "minilm" in system or system == "setfit"


def runnable(encoder: Path | None) -> tuple[str, ...]:
    """The systems that can run here."""
    found = [system for system in SYSTEMS if encoder is not None or not needs_encoder(system)]
    return tuple(system for system in found if system != "setfit" or find_spec("setfit") is not None)


def suite_jobs(request: Request) -> Iterator[Job]:
    """Every system on every draw, with the suite's number of labels."""
    for problem in request.problems:
        yield from _of_cell(request, problem, PROBLEMS[problem].labels)


def label_jobs(request: Request) -> Iterator[Job]:
    """Every system with more and more labels, from two per class."""
    for name in request.problems:
        problem = request.problem(name)
        most = min(map(len, problem.orders.values()))
        for size in request.sizes:
            if 2 * problem.classes <= size <= most:
                yield from _of_cell(request, name, size)


def raw_jobs(request: Request) -> Iterator[Job]:
    """Systems that learn from unlabeled text with more and more of it; the others once."""
    for problem in request.problems:
        for share in SHARES:
            yield from _of_cell(request, problem, PROBLEMS[problem].labels, share)


def _of_cell(request: Request, problem: str, labels: int, share: float = 1.0) -> Iterator[Job]:
    for draw in request.draws:
        for system in request.systems:
            is_left_out = system == "setfit" and problem not in SETFIT_PROBLEMS
            # Without unlabeled text self-training is TF-IDF.
            is_same = share < 1 and (system not in LEARN_FROM_RAW or (share == 0 and system not in OURS))
            if not (is_left_out or is_same):
                yield Job(problem, draw, labels, share, system)


MODES = {"suite": suite_jobs, "labels": label_jobs, "raw": raw_jobs}


def job_of(line: Line) -> Job:
    """What a line is the result of."""
    return Job(line["problem"], line["draw"], line["labels"], line["share"], line["system"])


def read_lines(path: Path) -> list[Line]:
    """The lines of a file, the last of each job; a last line that a kill cut short does not count."""
    found: dict[Job, Line] = {}
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as problem:
        raise InputError(f"{path} cannot be read ({problem.strerror}): give another file.") from problem
    for number, text in enumerate(content.split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
            found[job_of(line)] = line
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(
                f"{path} line {number} is no result line: remove it, and measure again."
            ) from problem
    return list(found.values())


def measure(request: Request, mode: str, beside: int, report: Callable[[str], None]) -> list[str]:
    """Run the jobs of a mode that have no line yet, several beside each other; returns what failed.

    A job that failed before is run again.
    """
    wanted = list(dict.fromkeys(MODES[mode](request)))
    with held_folder(request.work, remedy="choose another --work"):
        lines = read_lines(request.out)
        _refuse_other_options(request, lines)
        done = {job_of(line) for line in lines if line["error"] is not None}
        jobs = [job for job in wanted if job not in done]
        report(f"{len(jobs)} of {len(wanted)} runs are missing.")
        _drop_partial_line(request.out)
        if beside > 1:  # those that take longest first, so that they do not end last
            jobs.sort(key=lambda job: (job.system not in OURS, -list(PROBLEMS).index(job.problem)))
        return _measure_all(request, jobs, beside, report)


def _refuse_other_options(request: Request, lines: Sequence[Line]) -> None:
    """Refuse to mix results of mein with one set of options and with another."""
    for line in lines:
        found, wanted = line.get("options"), " ".join(request.options)
        if found is not None and found != wanted and line["system"] in request.systems:
            raise InputError(
                f"{request.out} has results of mein with the options {found!r}, and --mein is {wanted!r}: "
                "choose another --out."
            )


def _drop_partial_line(path: Path) -> None:
    """Take away a last line that a kill cut short; make the folder of a new file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            content = path.read_bytes()
            complete = content[: content.rfind(b"\n") + 1]
            if complete != content:
                write_atomically(path, complete)
    except OSError as problem:
        raise writing_failed(path, problem) from problem


def _measure_all(request: Request, jobs: list[Job], beside: int, report: Callable[[str], None]) -> list[str]:
    left, lock, failed = Counter(job.cell for job in jobs), threading.Lock(), []
    threads = ThreadPoolExecutor(beside)
    try:
        futures = {threads.submit(_measured, request, job, left, lock): job for job in jobs}
        for number, future in enumerate(as_completed(futures), 1):
            job, line = futures[future], future.result()
            _append(request.out, line)
            found = f"{line['error']:.1f}% error" if line["error"] is not None else f"failed: {line['why']}"
            name = f"{job.problem} {job.draw}, {job.labels:,} labels, {line['raw']:,} raw, {job.system}"
            report(f"{number} of {len(jobs)}: {name}: {found}, {line['seconds']:.0f} s")
            failed += [f"{name}: {line['why']}"] if line["error"] is None else []
    finally:
        threads.shutdown(cancel_futures=True)
    return failed


def _append(path: Path, line: Line) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise writing_failed(path, problem) from problem


def _measured(request: Request, job: Job, left: "Counter[str]", lock: threading.Lock) -> Line:
    """The line of a job, from a process of its own with one thread; its cell is there before and during."""
    folder = request.work / "cells" / job.cell
    with lock:
        cell = request.problem(job.problem).cell(job.draw, job.labels, job.share)
        if not (folder / "test.csv").exists():
            write_cell(cell, folder)
    resources = Resources(request.encoder, request.work / "embeddings", folder, request.options)
    found = _in_process(job, resources)
    with lock:
        left[job.cell] -= 1
        if left[job.cell] == 0:  # the answers stay
            for name in ("test", "raw", "labeled"):
                (folder / f"{name}.csv").unlink(missing_ok=True)
    return {**asdict(job), "raw": len(cell.raw), **found}


def _in_process(job: Job, resources: Resources) -> Line:
    words = {**asdict(job), **{name: str(value) for name, value in _paths(resources)}}
    given = json.dumps({**words, "options": resources.options})
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "benchmarks.few_labels", given],
        env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": own_path()},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode in STOPPED:
        raise RunError("The measurement was stopped: give the same command again to continue.")
    if done.returncode == 0:
        found: Line = json.loads(done.stdout.splitlines()[-1])
        return found
    last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
    return _failed(" ".join([f"its process ended with code {done.returncode}", *last]), start)


def _paths(resources: Resources) -> Iterator[tuple[str, Path]]:
    for name in ("encoder", "embeddings", "folder"):
        path = getattr(resources, name)
        if path is not None:
            yield name, path.resolve()


def _failed(why: str, start: float) -> Line:
    return {"error": None, "why": why, "seconds": round(time.perf_counter() - start, 1)}


def run_job(job: Job, resources: Resources) -> Line:
    """Train, predict, and score one system on the cell in `resources.folder`; answers are kept there.

    A failure of the system gives a line with its reason.
    """
    start = time.perf_counter()
    cell = read_cell(resources.folder)
    extra: Line = {}
    try:
        if job.system in OURS:
            answer, extra = run_mein(job, cell, resources)
        else:
            answer = PEERS[job.system](cell, resources)
    except (MeinError, ValueError, MemoryError) as problem:
        return _failed(str(problem) or type(problem).__name__, start)
    truth = np.array([document.label for document in cell.test])
    np.savez_compressed(
        resources.folder / f"{job.system}.npz",
        answers=answer.classes[answer.probabilities.argmax(1)].astype(str),
        probabilities=answer.probabilities.astype(np.float32),
        truth=truth,
        classes=answer.classes.astype(str),
    )
    seconds = {"seconds": round(answer.seconds, 1), "version": __version__}
    return {**score(answer.probabilities, answer.classes, truth), **seconds, **extra}


def run_mein(job: Job, cell: Cell, resources: Resources) -> tuple[Answer, Line]:
    """`mein train`, then `mein predict`; the seconds are of the first. Also its controls, each with p.

    Controls are evaluated on test documents of the classes that have labels: of others all are wrong.
    """
    folder, run = resources.folder, resources.folder / f"run-{job.system}"
    shutil.rmtree(run, ignore_errors=True)
    words = ["train", "--labeled", folder / "labeled.csv", "--out", run, *resources.options]
    words += ["--unlabeled", folder / "raw.csv"] if cell.raw else []
    words += ["--encoder", resources.encoder] if needs_encoder(job.system) else []
    start = time.perf_counter()
    _mein(*words)
    seconds = time.perf_counter() - start
    out = folder / f"predicted-{job.system}.csv"
    _mein("predict", run, folder / "test.csv", "--out", out, "--all-probabilities")
    answer = replace(_predicted(out), seconds=seconds)
    classes, known = {document.label for document in cell.labeled}, folder / f"known-{job.system}.csv"
    write_table(known, Document._fields, [document for document in cell.test if document.label in classes])
    systems = json.loads(_mein("evaluate", run, known, "--json"))["systems"]
    controls = {row["system"]: {name: row[name] for name in ("error", "p_value")} for row in systems}
    shutil.rmtree(run, ignore_errors=True)
    out.unlink()
    known.unlink()
    shown = [word.name if isinstance(word, Path) else word for word in words]
    command, options = " ".join(["mein", *map(str, shown)]), " ".join(resources.options)
    return answer, {"command": command, "options": options, "controls": controls}


def _mein(*words: object) -> str:
    """The standard output of a command of mein; its sentence as an error where it fails."""
    command = [sys.executable, "-P", "-m", "mein", *map(str, words)]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": own_path()}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", env=environment, check=False
    )
    if done.returncode in STOPPED:
        raise KeyboardInterrupt
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise RunError(f"mein {words[0]} ended with code {done.returncode}: {' '.join(last)[:300]}")
    return done.stdout


def _predicted(path: Path) -> Answer:
    """The probabilities that `mein predict` wrote, its classes in alphabetical order."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    classes = sorted(name[2:] for name in head if name.startswith("p_"))
    columns = [head.index(f"p_{name}") for name in classes]
    return Answer(np.array(classes), np.array([[float(row[i]) for i in columns] for row in rows]), 0.0)


def main(arguments: Sequence[str]) -> None:
    """Run the job that a parent describes, and print its line."""
    given: dict[str, Any] = json.loads(arguments[0])
    paths = {name: Path(given.pop(name)) for name in ("embeddings", "folder")}
    encoder = given.pop("encoder", None)
    options = tuple(given.pop("options"))
    resources = Resources(None if encoder is None else Path(encoder), **paths, options=options)
    print(json.dumps(run_job(Job(**given), resources)))


if __name__ == "__main__":
    main(sys.argv[1:])
