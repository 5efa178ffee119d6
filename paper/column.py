"""All cells of one expert on one data set and seed: trained once, branched from there, one line per cell.

A branch links what it shares with the main run. Runs on a data set share its encoded text and the language
models. A line has errors on dev and test, times, and the command that reproduces it.
"""

import json
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.measure import hardware
from mein import __version__
from mein.config import Config
from mein.data.corpus import Corpus
from mein.errors import InputError, RunError, explaining_full_gpu
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, RANDOM_IMITATORS
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN
from mein.model.artefacts import HUB, verified
from mein.model.build import open_reader, words_of_language_model
from mein.model.loading import Classifiers
from mein.run.algorithm import learned_expert, learned_imitators
from mein.run.documents import UnlabeledTexts, read_labeled
from mein.run.evaluate import encoded, log_probs_of_all, read_correct
from mein.run.pipeline import train_and_evaluate
from mein.run.prepare import encode_parts, identity_of, prepare, refuse_other_documents
from mein.run.teacher import teaches_with_lexicon
from mein.run.warm_start import language_model
from mein.runtime.device import choose_device
from mein.runtime.files import link_or_copy, sha256_of
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors, save_tensors
from mein.store.files import EXPERT_COLUMN, LABELS
from mein.store.store import Store
from mein.text.words import Words
from mein.training.loop import Runtime
from paper.cells import DATA, MAIN, OF_RUNS, PREVIOUS_RUNS, Cell
from paper.experiment import OF_TEXT, Experiment
from paper.lines import append_lines, line_of, seconds_of

TEXT = ("words.txt", "pieces.model", "vocabularies.json", "labels.json", "prepared.json")

Shared = Literal["text", "expert", "imitators"]


def branch(source: RunFolder, target: RunFolder, config: Config, corpus: Corpus, shared: Shared) -> None:
    """Make `target` a run of its own settings that has what `source` has up to and with `shared`.

    text: vocabularies, encoded documents, and what a transformer started from; expert: also the expert and
    its word on unlabeled text; imitators: also these, less their offset where the new settings do not
    center evidence.
    """
    with target.held():
        share(source, target, config, corpus, shared)


def share(source: RunFolder, target: RunFolder, config: Config, corpus: Corpus, shared: Shared) -> None:
    """The same in a folder that the caller holds."""
    target.claim(identity_of(config, corpus), resume=(target / "config.json").exists())
    for path in sorted((source / "encoded").rglob("*.*")):
        is_word = f".{EXPERT_COLUMN}." in path.name or path.name == LABELS
        if shared != "text" or not is_word:
            link_or_copy(path, target / str(path.relative_to(source.path)))
    for path in sorted(path for path in (source / HUB).rglob("*") if path.is_file()):
        link_or_copy(path, target / str(path.relative_to(source.path)))
    for name in [*TEXT, *(["expert.safetensors"] if shared != "text" else [])]:
        link_or_copy(source / name, target / name)
    if shared == "imitators" and not (target / "imitators.safetensors").exists():
        tensors, facts = load_tensors(source / "imitators.safetensors")
        if not config.mixture.centers_evidence:
            tensors["offset"].zero_()
        save_tensors(target / "imitators.safetensors", tensors, facts)


SYSTEMS = {
    "plain": EXPERT,
    "closed": CLOSED_GATES,
    "random": RANDOM_IMITATORS,
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
    verified(folder)
    labeled = read_labeled(config, corpus)
    device = choose_device(config.runtime.device)
    classifiers = Classifiers(folder, config, device, knows_dev=False)
    on_dev = log_probs_of_all(classifiers, "dev", encoded(classifiers.mixture, "dev", labeled.dev_texts))
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
        figures = {
            "dev_error": 100.0 * float(np.mean(on_dev[system].argmax(axis=1) != labeled.dev_ids)),
            "test_error": 100.0 * float(np.mean(~correct[system])),
            "command": command(experiment, cell),
        }
        lines.append(line_of(cell, figures | common, correct[system]))
    append_lines(experiment.results / f"{cells[0].dataset}.jsonl", lines)


def command(experiment: Experiment, cell: Cell) -> str:
    """What makes a cell anew."""
    grid = "more-data" if cell.unlabeled is not None else "results" if cell.is_complete else "windows"
    words = [
        "python",
        "-m",
        "paper",
        "run",
        "--grid",
        grid,
        "--datasets",
        cell.dataset,
        "--experts",
        cell.expert,
    ]
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

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return __version__


OF_LANGUAGE_MODELS = (*OF_TEXT, "optimizer", "pretraining")  # settings that one depends on, besides its sizes
SIZES = ("kind", "embedding_dim", "hidden_dim")  # of an expert and its own
SEEN = "seen.json"  # the checksums of files that runs have seen
LEARNED = 0.9  # share of the unlabeled documents; the others are held out, or in the test set
TEXTS = (("train", "unlabeled"), ("held_out",))  # what a language model learns from and is evaluated on


@contextmanager
def under_work() -> Iterator[None]:
    """Name the option that folders of runs come from here, where `mein train` has another."""
    try:
        yield
    except RunError as problem:
        raise type(problem)(str(problem).replace("--out", "--work")) from problem


def encoded_text(experiment: Experiment, cell: Cell, work: Path, corpus: Corpus) -> RunFolder:
    """The encoded text that all runs on a data set share; one whose expert has its own words has its own."""
    main = experiment.config(cell.dataset, cell.expert, cell.seed)
    name = "text" if main.expert.traits.reads_words else f"text-{PREVIOUS_RUNS.get(cell.expert, cell.expert)}"
    # The transformer lies beside its text, in the folder hub, with the layers that are read.
    cut = "" if main.expert.layers is None else f"-of-{main.expert.layers}-layers"
    folder = RunFolder(work / (name + cut))
    own = {} if main.expert.traits.reads_words else {"expert.model": main.expert.model}
    config = experiment.shared_config(cell.dataset, OF_TEXT, seed=0, **own)
    with folder.held(waits=True):
        folder.claim(identity_of(config, corpus), resume=(folder / "config.json").exists())
        _refuse_other_files(folder, corpus)
        labeled = read_labeled(config, corpus)
        reader = open_reader(main, folder, labeled.labels.classes, choose_device(config.runtime.device))
        with folder.timed("encoding"):
            refuse_other_documents(labeled, corpus, folder)
            unlabeled = UnlabeledTexts(corpus.unlabeled, corpus.test_survey.known)
            counts = encode_parts(config, labeled, unlabeled, folder, experiment.reporter, reader)
    if counts.get("unlabeled", 0) == 0:
        raise InputError(
            f"{corpus.names['unlabeled']} holds no document that imitators can learn from: "
            "add more unlabeled text."
        )
    return folder


def _refuse_other_files(folder: RunFolder, corpus: Corpus) -> None:
    """Refuse unlabeled text or a test set other than those of earlier runs (labels have their digest)."""
    seen = {part: sha256_of(Path(corpus.names[part])) for part in ("unlabeled", "test")}
    if (folder / SEEN).exists():
        for part, digest in folder.read_json(SEEN).items():
            if digest != seen[part]:
                raise InputError(
                    f"{corpus.names[part]} differs from the file of the runs beside {folder.path}: "
                    "restore it, or choose another --work and --results."
                )
    else:
        folder.write_json(SEEN, seen)


def cells_that_fit(experiment: Experiment, cells: Sequence[Cell]) -> list[Cell]:
    """The cells without those that need more unlabeled text than their data set has, which are logged."""
    fitting = [cell for cell in cells if cell.unlabeled is None]
    places: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.unlabeled is not None:
            places.setdefault(experiment.place(cell.dataset, cell.seed), []).append(cell)
    for place, own in places.items():
        corpus = experiment.corpus(own[0].dataset, own[0].seed)
        text = encoded_text(experiment, own[0], experiment.work / place, corpus)
        most = int(text.read_json("prepared.json")["unlabeled"])
        too_many = sorted({n for cell in own if (n := cell.unlabeled or 0) * LEARNED > most})
        fitting += [cell for cell in own if cell.unlabeled not in too_many]
        if too_many:
            listed = ", ".join(f"{amount:,}" for amount in too_many)
            experiment.reporter.log(
                f"{place} has {most:,} unlabeled documents to learn from: {listed} are left out."
            )
    return fitting


def expert_config(
    experiment: Experiment,
    cell: Cell,
    work: Path,
    text: RunFolder,
    corpus: Corpus,
    teacher: RunFolder | None = None,
) -> Config:
    """The settings of an expert, whose language model is trained first if it is not there yet."""
    named = {} if teacher is None else {"expert.from_run": str(teacher.path)}
    config = experiment.config(cell.dataset, cell.expert, cell.seed, **named)
    if not config.expert.traits.has_language_model:
        return config
    folder = RunFolder(work / f"language-model-{config.expert.kind}-{config.expert.embedding_dim}")
    sizes = {f"expert.{name}": getattr(config.expert, name) for name in SIZES}
    own = experiment.shared_config(cell.dataset, OF_LANGUAGE_MODELS, **sizes, seed=0)
    with folder.held(waits=True):
        share(text, folder, own, corpus, "text")
        if not (folder / "language_model.safetensors").exists():
            texts, held_out = ([Store.open(folder / f"encoded/{part}") for part in parts] for parts in TEXTS)
            words = Words.load(folder / "words.txt")
            runtime = Runtime(folder, experiment.reporter, own.runtime.checkpoint_seconds)
            with folder.timed("language_model"):
                language_model(own, words, texts, held_out[0], runtime, choose_device(own.runtime.device))
    named["expert.language_model"] = str(folder.path)
    found = experiment.config(cell.dataset, cell.expert, cell.seed, **named)
    words_of_language_model(found)  # refuses what does not fit
    return found


def shared_seconds(config: Config, text: RunFolder) -> float:
    """How long what an expert shares with other runs took: its text, and its language model if it has one."""
    path = config.expert.language_model
    return seconds_of(text) + (0.0 if path is None else seconds_of(RunFolder(Path(path))))


def run_column(experiment: Experiment, cells: list[Cell]) -> None:
    """Run cells that share data set, expert and seed; each is recorded as soon as it is known."""
    with under_work(), explaining_full_gpu():
        for trained in _trained(experiment, cells):
            record(experiment, trained.cells, trained.config, trained.corpus, trained.folder, trained.before)


@dataclass(frozen=True)
class Trained:
    """A finished run, the cells that it answers, and the seconds that went by before it began."""

    cells: list[Cell]
    config: Config
    corpus: Corpus
    folder: RunFolder
    before: float


def _trained(experiment: Experiment, cells: list[Cell]) -> Iterator[Trained]:
    """Every run that cells of one column need, as soon as it is finished."""
    first = cells[0]
    corpus = experiment.corpus(first.dataset, first.seed)
    work = experiment.work / experiment.place(first.dataset, first.seed)
    text = encoded_text(experiment, first, work, corpus)
    teacher = _previous_run(experiment, first)
    config = expert_config(experiment, first, work, text, corpus, None if teacher is None else teacher.folder)
    before = shared_seconds(config, text) if teacher is None else _seconds_with(teacher)
    main = RunFolder(work / first.expert / f"seed-{first.seed}" / MAIN)
    _teach(experiment, config, corpus, text, main)
    for name in dict.fromkeys(cell.run for cell in cells):
        own = [cell for cell in cells if cell.run == name]
        folder, settings = RunFolder(main.path.with_name(name)), _run_config(config, own[0])
        with _turn(folder):
            if name != MAIN:
                is_alike = _learn_alike(settings, config)
                branch(main, folder, settings, corpus, "imitators" if is_alike else "expert")
            _pass_lexicons_on(text, folder, settings)
            _train(experiment, settings, corpus, folder, own[0].controls)
            _pass_lexicons_on(folder, text, settings)
        yield Trained(own, settings, corpus, folder, before)


def _previous_run(experiment: Experiment, cell: Cell) -> Trained | None:
    """The previous run of a self-training round, trained first if it does not exist yet."""
    if cell.expert not in PREVIOUS_RUNS:
        return None
    cell = Cell(cell.dataset, PREVIOUS_RUNS[cell.expert], "imn-lexicon", cell.seed)
    return next(_trained(experiment, [cell]))


def _seconds_with(teacher: Trained) -> float:
    """The time of a previous run, with what it shares with other runs."""
    main = RunFolder(teacher.folder.path.with_name(MAIN))
    return teacher.before + seconds_of(main) + seconds_of(teacher.folder)


def _teach(experiment: Experiment, config: Config, corpus: Corpus, text: RunFolder, main: RunFolder) -> None:
    """The main run's expert and imitators, from which all others branch off during its stage 3."""
    with _turn(main, "stages 1 and 2"):
        if main.is_done or (main / "imitators.safetensors").exists():
            main.refuse_others(identity_of(config, corpus))
            return
        branch(text, main, config, corpus, "text")
        with main.held():
            run = prepare(config, corpus, main, experiment.reporter, resume=True)
            learned_imitators(run, learned_expert(run))


def _pass_lexicons_on(source: RunFolder, target: RunFolder, settings: Config) -> None:
    """Link what a run has learned from the labels and no expert, so that others need not learn it again."""
    if settings.mixture.has_lexicon:
        for name in (LEXICON_OF_TRAIN, LEXICON):
            if (source / name).exists():
                link_or_copy(source / name, target / name)


def _turn(folder: RunFolder, what: str = "") -> AbstractContextManager[None]:
    """Wait while another process works on the same run, for other cells or another grid."""
    return RunFolder(folder.path.parent / "turns" / (folder.path.name + what)).held(waits=True)


def _run_config(config: Config, cell: Cell) -> Config:
    """The settings of the run that answers a cell."""
    overrides: dict[str, Any] = {"imitators.windows": list(cell.windows)}
    overrides |= {"imitator_training.documents": cell.unlabeled}
    overrides |= OF_RUNS.get(cell.trained_as, {})
    settings = config.model_dump(mode="json")
    for name, value in overrides.items():
        section, key = name.split(".")
        settings[section][key] = value
    return Config.model_validate(settings)


def _learn_alike(one: Config, other: Config) -> bool:
    """Whether imitators of the same expert come out the same."""
    has_one_teacher = teaches_with_lexicon(one) == teaches_with_lexicon(other)
    is_one_network = one.imitators == other.imitators
    return has_one_teacher and is_one_network and one.imitator_training == other.imitator_training


def _train(
    experiment: Experiment, config: Config, corpus: Corpus, folder: RunFolder, controls: Sequence[str]
) -> None:
    """Train what is not trained yet, with the controls that the grid has a place for."""
    if not folder.is_done:
        train_and_evaluate(
            config,
            corpus,
            folder.path,
            experiment.reporter,
            resume=True,
            controls=controls,
            has_baseline=False,
        )
