"""All cells of one expert on one data set by one seed: trained once, varied from there."""

import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.bench.hardware import hardware
from mein.building import words_of_language_model
from mein.config import Config, load_config
from mein.data.corpus import Corpus, corpus_of_files
from mein.data.readers import ColumnsConfig
from mein.errors import InputError
from mein.evaluation.table import CLOSED_GATES, EXPERT, MIXTURE, RANDOM_VECTORS
from mein.experiments.branch import branch, share
from mein.experiments.cells import EXPERTS, PAPER_GATES, Cell
from mein.experiments.lines import Line, append_lines, line_of
from mein.inference import choose_device
from mein.judge import log_probs_of_all, read_correct, train_and_judge
from mein.labeled import read_labeled
from mein.prepare import prepare
from mein.pretrain import language_model
from mein.progress import Reporter
from mein.run import identity_of
from mein.text.store import Store
from mein.text.words import Words
from mein.training.folder import RunFolder
from mein.training.loop import Runtime

SYSTEMS = {
    "plain": EXPERT,
    "closed": CLOSED_GATES,
    "random": RANDOM_VECTORS,
    "imn": MIXTURE,
    "imn-paper": MIXTURE,
}
MAIN = "main"
PARTS = ("train", "unlabeled", "dev", "test")
OF_TEXT = ("words", "pieces", "removes_test_overlap", "runtime")  # settings that encoded text depends on
OF_LANGUAGE_MODELS = (*OF_TEXT, "pretraining")  # and those of a language model, besides its sizes
SIZES = ("expert.kind", "expert.embedding_dim", "expert.hidden_dim", "expert.normalizes_embeddings")
TEXTS = (("train", "unlabeled"), ("held_out",))  # what a language model learns from and is judged on


@dataclass(frozen=True)
class Experiment:
    """Where data, work and results lie, and what every run has in common."""

    data: Path
    """A folder for each data set with train and test .parquet, and dev and unlabeled where there are."""
    work: Path
    results: Path
    preset: str
    settings: dict[str, Any]
    reporter: Reporter

    def place(self, dataset: str, seed: int) -> str:
        """The folder of a data set, under `data` and under `work`; some have one for each seed."""
        own = f"{dataset}/seed-{seed}"
        return own if (self.data / own).is_dir() else dataset

    def corpus(self, dataset: str, seed: int) -> Corpus:
        """The parts of a data set, as `mein data` leaves them."""
        folder = self.data / self.place(dataset, seed)
        paths = {part: folder / f"{part}.parquet" for part in PARTS}
        for part in ("train", "test"):
            if not paths[part].exists():
                raise InputError(
                    f"{paths[part]} is missing: make it with `mein data {dataset} --out {folder}`."
                )
        unlabeled, dev = (str(paths[p]) if paths[p].exists() else None for p in ("unlabeled", "dev"))
        return corpus_of_files(str(paths["train"]), unlabeled, dev, str(paths["test"]), ColumnsConfig())

    def config(self, **named: Any) -> Config:
        """The common settings with some of their own."""
        return load_config(self.preset, overrides=self.settings | named)

    def shared_config(self, sections: tuple[str, ...], **named: Any) -> Config:
        """The settings of what runs share, whatever else is set for some of them."""
        own = {name: value for name, value in self.settings.items() if name.split(".")[0] in sections}
        return load_config(self.preset, overrides=own | named)


def run_column(experiment: Experiment, cells: list[Cell]) -> None:
    """Run cells that share data set, expert and seed; each is recorded as soon as it is known."""
    first = cells[0]
    corpus = experiment.corpus(first.dataset, first.seed)
    work = experiment.work / experiment.place(first.dataset, first.seed)
    base = _prepared(experiment, work, corpus)
    config = _expert_config(experiment, first, work, base, corpus)
    main = RunFolder(work / first.expert / f"seed-{first.seed}" / MAIN)
    with RunFolder(main.path.parent).held(waits=True):  # another process may be at it, for other cells
        if not main.is_done:
            branch(base, main, config, corpus, "text")
            _train(experiment, config, corpus, main)
    _record(experiment, [cell for cell in cells if run_name(cell) == MAIN], config, corpus, main)
    for cell in cells:
        if run_name(cell) != MAIN:
            own = _cell_config(config, cell)
            folder = RunFolder(main.path.with_name(run_name(cell)))
            branch(main, folder, own, corpus, "imitators" if _is_whole(cell) else "expert")
            _train(experiment, own, corpus, folder, controls=False)
            _record(experiment, [cell], own, corpus, folder)


def run_name(cell: Cell) -> str:
    """The folder of the run that answers a cell: main, which trains the expert, or one that branches off."""
    if cell.variant != "imn-paper" and _is_whole(cell):
        return MAIN
    windows = "".join(map(str, cell.windows))
    return f"{cell.variant}-w{windows}-u{'all' if cell.unlabeled is None else cell.unlabeled}"


def _is_whole(cell: Cell) -> bool:
    """Whether a cell is made from all windows and all text, as the main run is."""
    return cell.windows == Cell("", "", "", 0).windows and cell.unlabeled is None


def _prepared(experiment: Experiment, work: Path, corpus: Corpus) -> RunFolder:
    """The encoded text that all runs on a data set share."""
    folder = RunFolder(work / "text")
    config = experiment.shared_config(OF_TEXT, seed=0)
    with folder.held(waits=True):
        folder.claim(identity_of(config, corpus), resume=(folder / "config.json").exists())
        prepare(config, corpus, read_labeled(config, corpus), folder, experiment.reporter)
    return folder


def _expert_config(experiment: Experiment, cell: Cell, work: Path, base: RunFolder, corpus: Corpus) -> Config:
    """The settings of an expert, whose language model is trained first if it is not there yet."""
    settings = EXPERTS[cell.expert]
    config = experiment.config(**settings, seed=cell.seed)
    if not config.expert.has_language_model:
        return config
    folder = RunFolder(work / f"language-model-{config.expert.kind}-{config.expert.embedding_dim}")
    sizes = {name: value for name, value in (experiment.settings | settings).items() if name in SIZES}
    own = experiment.shared_config(OF_LANGUAGE_MODELS, **sizes, seed=0)
    with folder.held(waits=True):
        if not (folder / "language_model.safetensors").exists():
            share(base, folder, own, corpus, "text")
            texts, held_out = ([Store.open(folder / f"encoded/{part}") for part in parts] for parts in TEXTS)
            words = Words.load(folder / "words.txt")
            runtime = Runtime(folder, experiment.reporter, own.runtime.checkpoint_seconds)
            language_model(own, words, texts, held_out[0], runtime, choose_device(own.runtime.device))
    found = experiment.config(**settings, seed=cell.seed, **{"expert.language_model": str(folder.path)})
    words_of_language_model(found)  # refuses what does not fit
    return found


def _cell_config(config: Config, cell: Cell) -> Config:
    overrides: dict[str, Any] = {"imitators.windows": list(cell.windows)}
    overrides |= {"imitator_training.documents": cell.unlabeled}
    overrides |= PAPER_GATES if cell.variant == "imn-paper" else {}
    settings = config.model_dump(mode="json")
    for name, value in overrides.items():
        section, key = name.split(".")
        settings[section][key] = value
    return Config.model_validate(settings)


def _train(
    experiment: Experiment, config: Config, corpus: Corpus, folder: RunFolder, controls: bool = True
) -> None:
    started = time.monotonic()
    train_and_judge(
        config,
        corpus,
        folder.path,
        experiment.reporter,
        resume=True,
        controls=controls,
        has_baseline=False,
    )
    folder.record("seconds", seconds=round(time.monotonic() - started, 1))


def _record(
    experiment: Experiment,
    cells: list[Cell],
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
) -> None:
    """Write the results of cells that one run folder answers."""
    if not cells:
        return
    seconds = sum(line["seconds"] for line in folder.metrics("seconds"))
    labeled = read_labeled(config, corpus)
    on_dev = log_probs_of_all(folder, config, "dev", labeled.dev_texts)
    correct = read_correct(folder.path)
    lines: list[Line] = []
    for cell in cells:
        system = SYSTEMS[cell.variant]
        dev_error = 100.0 * float(np.mean(on_dev[system].argmax(axis=1) != labeled.dev_ids))
        figures = {
            "dev_error": dev_error,
            "test_error": 100.0 * float(np.mean(~correct[system])),
            "seconds": round(seconds, 1),
            "command": _command(experiment, cell),
            "commit": _commit(),
            "hardware": _hardware(config),
        }
        lines.append(line_of(cell, figures, correct[system]))
    append_lines(experiment.results / f"{cells[0].dataset}.jsonl", lines)


def _command(experiment: Experiment, cell: Cell) -> str:
    """What makes a cell anew."""
    grid = "more-data" if cell.unlabeled is not None else "results" if _is_whole(cell) else "windows"
    words = ["mein", "reproduce", "--grid", grid, "--datasets", cell.dataset, "--experts", cell.expert]
    words += ["--seed", str(cell.seed), "--preset", experiment.preset]
    for name, value in experiment.settings.items():
        words += ["--set", f"{name}={'none' if value is None else value}"]
    return shlex.join(words)


def _hardware(config: Config) -> str:
    device = choose_device(config.runtime.device)
    found = hardware()
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return f"{found['cores']} cores{gpu}"


def _commit() -> str:
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return asked.stdout.strip()
