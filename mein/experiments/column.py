"""All cells of one expert on one data set by one seed: trained once, varied from there."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from mein.config import Config
from mein.data.corpus import Corpus
from mein.errors import telling_of_a_full_gpu
from mein.experiments.branch import branch
from mein.experiments.cells import MAIN, OF_RUNS, TEACHERS, Cell
from mein.experiments.experiment import Experiment
from mein.experiments.record import record
from mein.experiments.seconds import seconds_of
from mein.experiments.shared import encoded_text, expert_config, shared_seconds, under_work
from mein.files import link_or_copy
from mein.judge import train_and_judge
from mein.lexicon import LEXICON, LEXICON_OF_TRAIN
from mein.run import identity_of, learned_expert, learned_imitators, prepared_run
from mein.training.folder import RunFolder


def run_column(experiment: Experiment, cells: list[Cell]) -> None:
    """Run cells that share data set, expert and seed; each is recorded as soon as it is known."""
    with under_work(), telling_of_a_full_gpu():
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
    teacher = _teacher(experiment, first)
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


def _teacher(experiment: Experiment, cell: Cell) -> Trained | None:
    """The run that tells a student about unlabelled text, trained first if it is not there yet."""
    if cell.expert not in TEACHERS:
        return None
    lesson = Cell(cell.dataset, TEACHERS[cell.expert], "imn-lexicon", cell.seed)
    return next(_trained(experiment, [lesson]))


def _seconds_with(teacher: Trained) -> float:
    """How long a teacher took, with what it shares with other runs."""
    main = RunFolder(teacher.folder.path.with_name(MAIN))
    return teacher.before + seconds_of(main) + seconds_of(teacher.folder)


def _teach(experiment: Experiment, config: Config, corpus: Corpus, text: RunFolder, main: RunFolder) -> None:
    """The main run's expert and imitators, from which all others branch off while its own stage 3 goes on."""
    with _turn(main, "stages 1 and 2"):
        if main.is_done or (main / "imitators.safetensors").exists():
            main.refuse_others(identity_of(config, corpus))
            return
        branch(text, main, config, corpus, "text")
        with main.held():
            run = prepared_run(config, corpus, main, experiment.reporter, resume=True)
            learned_imitators(run, learned_expert(run))


def _pass_lexicons_on(source: RunFolder, target: RunFolder, settings: Config) -> None:
    """Link what a run has learned from the labels and no expert, so that others need not learn it again."""
    if settings.mixture.hears_lexicon:
        for name in (LEXICON_OF_TRAIN, LEXICON):
            if (source / name).exists():
                link_or_copy(source / name, target / name)


def _turn(folder: RunFolder, what: str = "") -> AbstractContextManager[None]:
    """Wait while another process is at the same run, for other cells or another grid."""
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
    return one.imitators == other.imitators and one.imitator_training == other.imitator_training


def _train(
    experiment: Experiment, config: Config, corpus: Corpus, folder: RunFolder, controls: Sequence[str]
) -> None:
    """Train what is not trained yet, with the controls that the grid has a place for."""
    if not folder.is_done:
        train_and_judge(
            config,
            corpus,
            folder.path,
            experiment.reporter,
            resume=True,
            controls=controls,
            has_baseline=False,
        )
