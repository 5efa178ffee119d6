"""An experiment: where its data, runs, and results are, and the settings that its runs share.

Also which settings a request may change, and when two requests have the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mein.config import Config, load_config
from mein.data.columns import ColumnsConfig
from mein.data.corpus import Corpus, corpus_of_files, source_of_lists
from mein.errors import ConfigError, InputError
from mein.run.documents import read_labeled
from mein.runtime.progress import Reporter
from paper.cells import (
    CHOSEN,
    CHOSEN_FOR,
    CHOSEN_IN_SELF_TRAINING,
    CHOSEN_ON,
    EXPERTS,
    MAIN_RUN,
    OURS,
    OWNED,
    PREVIOUS_RUNS,
)
from paper.datasets import BENCHMARKS
from paper.published import GONE, digest_of


def shared_settings(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides by dotted name, tables taken apart; refuse those by which the cells of a grid differ."""
    settings = {name: value for name, value in _flat(overrides).items() if GONE.get(name) != value}
    for name in OWNED:
        if name in settings:
            raise ConfigError(
                f"{name} is the grid's own to set: leave out --set {name}=..., "
                "and choose cells by --grid, --experts and --seed."
            )
    return settings


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
        flat |= inner
    return flat


PARTS = ("train", "unlabeled", "dev", "test")
OF_TEXT = ("dev_fraction", "class_weight", "words", "pieces", "runtime")
"""Settings that encoded text, and the labels beside it, depend on."""


@dataclass(frozen=True)
class Experiment:
    """Where data, work and results lie, and what every run has in common."""

    data: Path
    """A folder for each data set with train, test and unlabeled .parquet, and dev where there is one."""
    work: Path
    results: Path
    preset: str
    settings: dict[str, Any]
    reporter: Reporter

    def datasets(self) -> list[str]:
        """What lies under `data`."""
        found = [path for depth in ("*", "*/seed-*") for path in self.data.glob(f"{depth}/train.parquet")]
        return sorted({path.relative_to(self.data).parts[0] for path in found})

    def place(self, dataset: str, seed: int) -> str:
        """The folder of a data set, under `data` and under `work`; some have one for each seed."""
        has_own = any((self.data / dataset).glob("seed-*/train.parquet"))
        return f"{dataset}/seed-{seed}" if has_own else dataset

    def parts(self, dataset: str, seed: int) -> dict[str, Path]:
        """The files of a data set by part; refuse a set that lacks one that its cells need."""
        known = self.datasets()
        if dataset not in known:
            remedy = f"choose among {', '.join(known)}" if known else "make one with `python -m paper data`"
            raise InputError(
                f"There is no data set {dataset!r} (a folder with train.parquet) under {self.data}: {remedy}."
            )
        folder = self.data / self.place(dataset, seed)
        paths = {part: folder / f"{part}.parquet" for part in PARTS}
        for part in ("train", "test", "unlabeled"):
            if not paths[part].exists():
                more = " --more FILE" if part == "unlabeled" else ""
                more += f" --seed {seed}" if folder.name == f"seed-{seed}" else ""
                made = f", or make the set with `python -m paper data {dataset}{more} --out {folder}`"
                raise InputError(
                    f"{paths[part]} is missing, and every table needs it: "
                    f"put it there{made if dataset in BENCHMARKS else ''}."
                )
        return {part: path for part, path in paths.items() if path.exists()}

    def corpus(self, dataset: str, seed: int) -> Corpus:
        """The parts of a data set; dev, where it has none, is split off alike for all seeds.

        Seeds share the encoded text, and the language model, which must not see dev.
        """
        paths = {part: str(path) for part, path in self.parts(dataset, seed).items()}
        files = (paths["train"], paths["unlabeled"], paths.get("dev"), paths["test"])
        corpus = corpus_of_files(*files, ColumnsConfig())
        if corpus.dev is not None:
            return corpus
        found = read_labeled(self.shared_config(dataset, OF_TEXT, seed=0), corpus)
        train, dev = (found.labels.decode(ids) for ids in (found.train_ids, found.dev_ids))
        return replace(
            corpus,
            labeled=source_of_lists(found.train_texts, train),
            dev=source_of_lists(found.dev_texts, dev),
        )

    def config(self, dataset: str, expert: str, seed: int, **named: Any) -> Config:
        """The settings of an expert's main run."""
        chosen = self._chosen(dataset, expert) | self.settings
        own = MAIN_RUN | (EXPERTS | OURS)[expert] | {"seed": seed} | named
        return load_config(self.preset, overrides=chosen | own)

    def _chosen(self, dataset: str, expert: str | None = None) -> dict[str, Any]:
        """What we chose for an expert's row, or for all; other presets are taken at their word."""
        if self.preset != "full":
            return {}
        own = {} if expert is None else CHOSEN_FOR.get(PREVIOUS_RUNS.get(expert, expert), {})
        self_training = {} if expert is None else CHOSEN_IN_SELF_TRAINING.get(expert, {})
        return CHOSEN | own | CHOSEN_ON.get(dataset, {}) | self_training

    def digest(self, dataset: str, expert: str) -> str:
        """A digest that distinguishes an expert's results with these settings from others."""
        before = self.config(dataset, PREVIOUS_RUNS.get(expert, expert), 0)
        return digest_of(self.config(dataset, expert, 0), before)

    def shared_config(self, dataset: str, sections: tuple[str, ...], **named: Any) -> Config:
        """The settings of what runs on a data set share, whatever else is set for some of them."""
        given = self._chosen(dataset) | self.settings
        own = {name: value for name, value in given.items() if name.split(".")[0] in sections}
        return load_config(self.preset, overrides=own | named)
