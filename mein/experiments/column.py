"""All cells of one expert on one data set by one seed: trained once, varied from there."""

from contextlib import AbstractContextManager
from typing import Any

from mein.config import Config
from mein.data.corpus import Corpus
from mein.experiments.branch import branch
from mein.experiments.cells import MAIN, OF_VARIANTS, Cell
from mein.experiments.experiment import Experiment
from mein.experiments.record import record
from mein.experiments.shared import encoded_text, expert_config, shared_seconds, under_work
from mein.judge import train_and_judge
from mein.training.folder import RunFolder


def run_column(experiment: Experiment, cells: list[Cell]) -> None:
    """Run cells that share data set, expert and seed; each is recorded as soon as it is known."""
    first = cells[0]
    with under_work():
        corpus = experiment.corpus(first.dataset, first.seed)
        work = experiment.work / experiment.place(first.dataset, first.seed)
        text = encoded_text(experiment, work, corpus)
        config = expert_config(experiment, first, work, text, corpus)
        shared = shared_seconds(config, text)
        main = RunFolder(work / first.expert / f"seed-{first.seed}" / MAIN)
        with _turn(main):
            branch(text, main, config, corpus, "text")
            _train(experiment, config, corpus, main)
        record(experiment, [cell for cell in cells if cell.run == MAIN], config, corpus, main, shared)
        for cell in cells:
            if cell.run != MAIN:
                own, folder = _cell_config(config, cell), RunFolder(main.path.with_name(cell.run))
                with _turn(folder):
                    branch(main, folder, own, corpus, "imitators" if _learn_alike(own, config) else "expert")
                    _train(experiment, own, corpus, folder)
                record(experiment, [cell], own, corpus, folder, shared)


def _turn(folder: RunFolder) -> AbstractContextManager[None]:
    """Wait while another process is at the same run, for other cells or another grid."""
    return RunFolder(folder.path.parent / "turns" / folder.path.name).held(waits=True)


def _cell_config(config: Config, cell: Cell) -> Config:
    overrides: dict[str, Any] = {"imitators.windows": list(cell.windows)}
    overrides |= {"imitator_training.documents": cell.unlabeled}
    overrides |= OF_VARIANTS.get(cell.variant, {})
    settings = config.model_dump(mode="json")
    for name, value in overrides.items():
        section, key = name.split(".")
        settings[section][key] = value
    return Config.model_validate(settings)


def _learn_alike(one: Config, other: Config) -> bool:
    """Whether imitators of the same expert come out the same."""
    return one.imitators == other.imitators and one.imitator_training == other.imitator_training


def _train(experiment: Experiment, config: Config, corpus: Corpus, folder: RunFolder) -> None:
    """Train what is not trained yet; the main run also has the controls."""
    if not folder.is_done:
        has_controls = folder.path.name == MAIN
        train_and_judge(
            config,
            corpus,
            folder.path,
            experiment.reporter,
            resume=True,
            controls=has_controls,
            has_baseline=False,
        )
