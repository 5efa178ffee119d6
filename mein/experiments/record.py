"""From a finished run to result lines: errors on dev and test, time, and what makes them anew."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein import __version__
from mein.bench.hardware import hardware
from mein.config import Config
from mein.data.corpus import Corpus
from mein.errors import RunError
from mein.evaluation.table import CLOSED_GATES, EXPERT, MIXTURE, RANDOM_VECTORS
from mein.experiments.cells import DATA, Cell
from mein.experiments.experiment import Experiment
from mein.experiments.lines import append_lines, line_of
from mein.experiments.seconds import seconds_of
from mein.inference import choose_device
from mein.judge import log_probs_of_all, read_correct
from mein.labeled import read_labeled
from mein.training.folder import RunFolder

SYSTEMS = {
    "plain": EXPERT,
    "closed": CLOSED_GATES,
    "random": RANDOM_VECTORS,
    "imn": MIXTURE,
    "imn-paper": MIXTURE,
    "closed-lexicon": CLOSED_GATES,
    "imn-lexicon": MIXTURE,
}
PACKAGE = Path(__file__).parent.parent


def record(
    experiment: Experiment,
    cells: list[Cell],
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
    shared_seconds: float,
) -> None:
    """Write the results of cells that one run folder answers."""
    if not cells:
        return
    labeled = read_labeled(config, corpus)
    on_dev = log_probs_of_all(folder, config, "dev", labeled.dev_texts)
    correct = read_correct(folder.path)
    common = {
        "seconds": round(seconds_of(folder), 1),
        "shared_seconds": round(shared_seconds, 1),
        "settings": experiment.digest(cells[0].dataset, cells[0].expert),
        "commit": commit(PACKAGE),
        "hardware": _hardware(config),
    }
    lines = []
    for cell in cells:
        system = SYSTEMS[cell.variant]
        if system not in on_dev or system not in correct:
            raise RunError(
                f"{folder.path} has lost files of {system}: remove the folder, and run this again."
            )
        figures = {
            "dev_error": 100.0 * float(np.mean(on_dev[system].argmax(axis=1) != labeled.dev_ids)),
            "test_error": 100.0 * float(np.mean(~correct[system])),
            "command": command(experiment, cell),
        }
        lines.append(line_of(cell, figures | common, correct[system]))
    append_lines(experiment.results / f"{cells[0].dataset}.jsonl", lines)


def command(experiment: Experiment, cell: Cell) -> str:
    """What makes a cell anew."""
    grid = "more-data" if cell.unlabeled is not None else "results" if cell.is_whole else "windows"
    words = ["mein", "reproduce", "--grid", grid, "--datasets", cell.dataset, "--experts", cell.expert]
    words += ["--seed", str(cell.seed), "--preset", experiment.preset]
    words += [] if experiment.data == DATA else ["--data", str(experiment.data)]
    for name, value in experiment.settings.items():
        words += ["--set", f"{name}={_as_set(value)}"]
    return shlex.join(words)


def _as_set(value: Any) -> str:
    """A value as --set takes it."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _hardware(config: Config) -> str:
    device = choose_device(config.runtime.device)
    found = hardware()
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return f"{found['cores']} cores{gpu}"


def commit(package: Path) -> str:
    """The commit that a package's files are checked out from, with a plus where they differ from it.

    The version where they are of no checkout, though their folder may lie in one.
    """

    def asked(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        asked("ls-files", "--error-unmatch", "__init__.py")
        return asked("rev-parse", "--short", "HEAD") + ("+" if asked("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return __version__
