"""The grids as plain data (experts, windows, amounts of text, and seeds of each table); the paper's figures.

Published figures are test error in % and speed in tokens per second.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path("data")
"""Where `python -m paper data` writes the sets by default."""

MAIN = "main"
WINDOWS = (1, 2, 3, 4)
VARIANTS = ("plain", "closed", "random", "imn-paper", "imn", "closed-lexicon", "imn-lexicon")
"""The expert only; stage 3 without imitators; with random vectors; with the paper's gates; with ours; with a
lexicon, but no imitators; with both."""

EXPERTS: dict[str, dict[str, Any]] = {
    "lstm": {"expert.kind": "lstm", "expert.training": "plain"},
    "lm-lstm": {"expert.kind": "lm-lstm", "expert.training": "plain"},
    "adv-lm-lstm": {"expert.kind": "lm-lstm", "expert.training": "adv"},
    "vat-lm-lstm": {"expert.kind": "lm-lstm", "expert.training": "vat"},
    "ivat-lstm": {"expert.kind": "lm-lstm", "expert.training": "ivat"},
    "elmo-lstm": {"expert.kind": "elmo-lstm", "expert.training": "plain"},
    "adv-lm-lstm-large": {"expert.kind": "lm-lstm", "expert.training": "adv", "expert.embedding_dim": 512},
}
"""The paper's rows, and the settings that make each."""

TRANSFORMER: dict[str, Any] = {"expert.kind": "transformer", "expert.training": "plain"}
OURS: dict[str, dict[str, Any]] = {
    "lm-lstm-student": EXPERTS["lm-lstm"],
    "adv-lm-lstm-student": EXPERTS["adv-lm-lstm"],
    "transformer": TRANSFORMER,
    "transformer-student": TRANSFORMER,
}
"""Rows that the paper does not have; transformers for --set expert.model=FOLDER."""

PREVIOUS_RUNS = {name: name.removesuffix("-student") for name in OURS if name.endswith("-student")}
"""Whose mixture, with free gates and a lexicon, predicts the unlabeled text of a self-training round."""

CHOSEN: dict[str, Any] = {
    "pretraining.patience": None,
    "expert_training.epochs": 10,
    "expert_training.patience": None,
    "expert_training.averaging": 0.999,
    "fine_tuning.epochs": 3,
    "fine_tuning.patience": None,
}
CHOSEN_FOR: dict[str, dict[str, Any]] = {
    "lstm": {"expert_training.epochs": 12},
    "lm-lstm": {"expert.mlp_dropout": 0.5, "expert_training.learning_rate": 5e-4},
    "adv-lm-lstm": {"expert.mlp_dropout": 0.5, "expert_training.epochs": 15},
    "adv-lm-lstm-large": {"expert.mlp_dropout": 0.5},
    "transformer": {
        "expert_training.epochs": 4,
        "expert_training.averaging": 0.0,
        "expert_training.learning_rate": 5e-5,
        "fine_tuning.learning_rate": 1e-5,
    },
}
"""What was chosen on IMDB's dev for all rows, and for some: with the preset full, and --set above it. A
transformer's are those of its preset, but for the epochs, set by hand; on some sets CHOSEN_ON, which comes
after them, overrides: on rotten it averages by 0.99, on r52 it learns for 20 epochs."""

CHOSEN_IN_SELF_TRAINING: dict[str, dict[str, Any]] = {
    "transformer-student": {
        "expert_training.epochs": 2,
        "expert_training.batch_documents": 128,
        "expert_training.learning_rate": 1e-4,
    },
}
"""What self-training rounds have instead of what their previous runs have, set by hand."""

CHOSEN_ON: dict[str, dict[str, Any]] = {
    "electronics": {"pretraining.epochs": 12},
    "r52": {
        "expert.mlp_dim": 128,
        "pretraining.lanes": 32,
        "pretraining.segment": 200,
        "pretraining.epochs": 20,
        "expert_training.epochs": 20,
    },
    "rotten": {"pretraining.epochs": 10, "expert_training.averaging": 0.99},
}
"""What other sets have instead, set by hand for their size, their lengths and their classes, not tuned."""

MAIN_RUN: dict[str, Any] = {
    "imitators.windows": list(WINDOWS),
    "imitator_training.documents": None,
    "mixture.method": "no-lexicon",
}
"""The main run of a row, for every preset; its other runs branch off from there."""

OWNED = ("seed", "expert.kind", "expert.training", "expert.language_model", "expert.from_run", *MAIN_RUN)
"""Settings by which cells differ: the grid's to set, not the user's."""

OF_THE_PAPER: dict[str, Any] = {
    "imitator_training.reads_labeled": False,
    "mixture.method": "paper",
    "fine_tuning.patience": None,
}
"""What the paper does after stage 1; imitators are the main run's where they learned as the paper's do."""

OF_RUNS = {"imn-paper": OF_THE_PAPER, "imn-lexicon": {"mixture.method": "ours"}}
"""By what the runs of variants that the main run does not answer differ from it."""

RUN_OF = {"closed-lexicon": "imn-lexicon"}
"""The control that has its run from another variant."""

CONTROLS_OF = {MAIN: ("closed", "random"), "imn-lexicon": ("closed",)}
"""The controls of each run."""

WINDOW_SETS = {
    "A": (1,),
    "B": (1, 2),
    "C": (1, 2, 3),
    "D": WINDOWS,
    "D + 5": (1, 2, 3, 4, 5),
    "without 1": (2, 3, 4),
    "without 1, 2": (3, 4),
    "only 4": (4,),
}
"""The paper's sets of windows, and those of its table of removals."""

AMOUNTS = (5_000, 20_000, 50_000, 100_000, 150_000)
"""Unlabeled documents in "more data, better performance"."""


@dataclass(frozen=True)
class Cell:
    """One number of a table: a variant of an expert on a data set, by one seed."""

    dataset: str
    expert: str
    variant: str
    seed: int
    windows: tuple[int, ...] = WINDOWS
    unlabeled: int | None = None
    """Number of unlabeled documents for the imitators; None: all."""

    @property
    def is_complete(self) -> bool:
        """Whether it is made from all windows and all text, as the main run is."""
        return self.windows == WINDOWS and self.unlabeled is None

    @property
    def trained_as(self) -> str:
        """The variant whose run answers it: its own, but for a control of another."""
        return RUN_OF.get(self.variant, self.variant)

    @property
    def run(self) -> str:
        """The folder of the run that answers it: main, which trains the expert, or one that branches off."""
        if self.trained_as not in OF_RUNS and self.is_complete:
            return MAIN
        windows = "".join(map(str, self.windows))
        return f"{self.trained_as}-w{windows}-u{'all' if self.unlabeled is None else self.unlabeled}"

    @property
    def controls(self) -> tuple[str, ...]:
        """The controls of that run."""
        return CONTROLS_OF.get(MAIN if self.run == MAIN else self.trained_as, ())


def results(dataset: str, experts: tuple[str, ...], seeds: range) -> Iterator[Cell]:
    """The table of results: every variant of every expert."""
    for expert in experts:
        for seed in seeds:
            yield from (Cell(dataset, expert, variant, seed) for variant in VARIANTS)


def windows(dataset: str, experts: tuple[str, ...], seeds: range) -> Iterator[Cell]:
    """The effect of window sizes: sets A to D, one more window, and fewer small ones."""
    for expert in experts:
        for seed in seeds:
            yield from (Cell(dataset, expert, "imn", seed, chosen) for chosen in WINDOW_SETS.values())


def more_data(dataset: str, experts: tuple[str, ...], seeds: range) -> Iterator[Cell]:
    """More data, better performance."""
    for expert in experts:
        for seed in seeds:
            yield from (Cell(dataset, expert, "imn", seed, WINDOWS, amount) for amount in AMOUNTS)


RESULTS: dict[str, dict[str, dict[str, float]]] = {
    "lstm": {
        "plain": {"elec": 10.09, "imdb": 10.98, "rotten": 26.47, "rcv1": 14.14},
        "random": {"elec": 9.87, "imdb": 10.75, "rotten": 27.27, "rcv1": 14.04},
        "imn-paper": {"elec": 8.83, "imdb": 10.04, "rotten": 24.93, "rcv1": 12.31},
    },
    "lm-lstm": {
        "plain": {"elec": 5.72, "imdb": 7.25, "rotten": 16.80, "rcv1": 8.37},
        "random": {"elec": 5.71, "imdb": 7.01, "rotten": 16.78, "rcv1": 7.83},
        "imn-paper": {"elec": 5.48, "imdb": 6.51, "rotten": 15.91, "rcv1": 7.53},
    },
    "adv-lm-lstm": {
        "plain": {"elec": 5.38, "imdb": 6.58, "rotten": 15.73, "rcv1": 7.89},
        "random": {"elec": 5.34, "imdb": 6.27, "rotten": 15.11, "rcv1": 7.78},
        "imn-paper": {"elec": 5.14, "imdb": 6.07, "rotten": 13.98, "rcv1": 7.51},
    },
    "vat-lm-lstm": {
        "plain": {"elec": 5.47, "imdb": 6.20, "rotten": 18.50, "rcv1": 8.44},
        "imn-paper": {"elec": 5.16},
    },
    "ivat-lstm": {"plain": {"elec": 5.18, "imdb": 5.66, "rotten": 14.12, "rcv1": 11.68}},
    "elmo-lstm": {"plain": {"imdb": 8.67}},
    "adv-lm-lstm-large": {"plain": {"imdb": 6.66, "elec": 5.38}},
}
"""The table of results; VAT as the authors ran it again, iVAT as Sato published it, -Large from the text."""

REMOVED_WINDOWS = {(1, 2, 3, 4): 5.14, (2, 3, 4): 5.18, (3, 4): 5.26, (4,): 5.23}
"""ADV-LM-LSTM + IMN on Elec without the smaller windows."""

MORE_DATA: dict[str, dict[int, float]] = {
    "elec": {
        5_000: 5.362,
        20_000: 5.279,
        50_000: 5.258,
        100_000: 5.182,
        200_000: 5.140,
        2_000_000: 5.130,
        4_000_000: 5.102,
        6_000_000: 5.062,
    },
    "rcv1": {5_000: 7.814, 50_000: 7.559, 250_000: 7.536, 500_000: 7.524, 668_640: 7.495},
}
"""ADV-LM-LSTM + IMN by unlabeled documents, read off the drawing on the authors' poster (+-0.005)."""

SPEED = {
    "lm-lstm": 41_914,
    "adv-lm-lstm": 13_791,
    "vat-lm-lstm": 9_602,
    "c = 1": 555_613,
    "c = 1, 2": 236_065,
    "c = 1, 2, 3": 122_076,
    "c = 1, 2, 3, 4": 75_393,
}
"""Tokens a second in training on a V100."""
