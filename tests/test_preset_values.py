"""What every preset comes to, stage by stage: the values from before settings were derived.

If a value has to change, figures do: say so in CHANGELOG.md.
"""

from dataclasses import fields
from typing import Any

import pytest

from mein.config import PRESETS, Config, load_config
from mein.mixture.gates import GATES
from mein.run.teacher import teaches_with_lexicon
from mein.run.warm_start import stage_1
from mein.training.config import Optimization

FIELDS = {
    "pretraining": (
        "epochs",
        "patience",
        "learning_rate",
        "decay",
        "falls_to_zero",
        "clip",
        "averaging",
        "lanes",
        "segment",
        "dropout",
    ),
    "expert_training": (
        "epochs",
        "patience",
        "learning_rate",
        "decay",
        "falls_to_zero",
        "clip",
        "averaging",
        "batch_documents",
        "min_gain",
    ),
    "imitator_training": (
        "epochs",
        "patience",
        "learning_rate",
        "decay",
        "falls_to_zero",
        "clip",
        "averaging",
        "batch_tokens",
        "batch_documents",
        "documents",
    ),
    "fine_tuning": (
        "epochs",
        "patience",
        "learning_rate",
        "decay",
        "falls_to_zero",
        "clip",
        "averaging",
        "batch_documents",
        "min_gain",
    ),
}
VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "pretraining": {
        "small": (10, 3, 0.002, 1.0, True, 1.0, 0.0, 16, 35, 0.4),
        "full": (30, 3, 0.002, 1.0, True, 1.0, 0.0, 64, 400, 0.4),
        "paper": (50, None, 0.001, 1.0, False, 5.0, 0.0, 32, 100, 0.5),
        "paper-large": (50, None, 0.001, 1.0, False, 5.0, 0.0, 32, 100, 0.5),
        "transformer": (10, 3, 0.002, 1.0, True, 1.0, 0.0, 16, 35, 0.4),
        "frozen": (10, 3, 0.002, 1.0, True, 1.0, 0.0, 16, 35, 0.4),
    },
    "expert_training": {
        "small": (40, 10, 0.003, 0.9998, False, 5.0, 0.0, 16, 0.0),
        "full": (30, 5, 0.001, 0.9998, False, 5.0, 0.0, 32, 0.0),
        "paper": (30, None, 0.001, 0.9998, False, 5.0, 0.0, 32, 0.0),
        "paper-large": (30, None, 0.001, 0.9998, False, 5.0, 0.0, 32, 0.0),
        "transformer": (6, 2, 5e-05, 1.0, True, 1.0, 0.0, 16, 0.0),
        "frozen": (40, 10, 0.003, 1.0, False, None, 0.0, 16, 0.0),  # unused: it is fitted
    },
    "imitator_training": {
        "small": (5, None, 0.002, 1.0, True, None, 0.0, None, None, None),
        "full": (8, None, 0.001, 1.0, True, None, 0.0, None, None, None),
        "paper": (10, 2, 0.001, 1.0, False, None, 0.0, None, 32, None),
        "paper-large": (10, 2, 0.001, 1.0, False, None, 0.0, None, 32, None),
        "transformer": (5, None, 0.002, 1.0, True, None, 0.0, None, None, None),
        "frozen": (5, None, 0.002, 1.0, True, None, 0.0, None, None, None),
    },
    "fine_tuning": {
        "small": (10, 3, 0.0001, 0.9998, False, 5.0, 0.0, 16, None),
        "full": (30, 5, 0.0001, 0.9998, False, 5.0, 0.0, 32, None),
        "paper": (30, None, 0.0001, 0.9998, False, 5.0, 0.0, 32, 0.0),
        "paper-large": (30, None, 0.0001, 0.9998, False, 5.0, 0.0, 32, 0.0),
        "transformer": (2, 1, 1e-05, 1.0, True, 1.0, 0.0, 16, None),
        "frozen": (10, 3, 0.0001, 0.9998, False, 5.0, 0.0, 16, None),
    },
}
"""By stage and preset; without the patience of imitators whose rate falls to zero, which had no effect."""

METHODS = {  # free or sigmoid gates, whether evidence is centered, a lexicon, and who reads labeled text
    "small": ("free", True, True, True, True),
    "full": ("free", True, True, False, False),
    "paper": ("sigmoid", False, False, False, False),
    "paper-large": ("sigmoid", False, False, False, False),
    "transformer": ("free", True, True, True, False),
    "frozen": ("free", True, True, True, True),
}


def stages_of(config: Config) -> dict[str, Optimization]:
    """How each stage is optimized."""
    return {
        "pretraining": config.pretraining.resolved(config.optimizer),
        "expert_training": stage_1(config),
        "imitator_training": config.imitator_training.resolved(config.optimizer),
        "fine_tuning": config.fine_tuning.resolved(config.expert.traits),
    }


@pytest.mark.parametrize("stage", FIELDS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_stage_of_a_preset_is_optimized_as_ever(preset: str, stage: str) -> None:
    found = stages_of(load_config(preset))[stage]
    assert {field.name for field in fields(found)} == set(FIELDS[stage])
    assert tuple(getattr(found, name) for name in FIELDS[stage]) == VALUES[stage][preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_mixes_as_ever(preset: str) -> None:
    config = load_config(preset)
    mixture = config.mixture
    gates = {"FreeGates": "free", "SigmoidGates": "sigmoid"}[GATES[mixture.method].__name__]
    reads = config.imitator_training.reads_labeled
    found = (gates, mixture.centers_evidence, mixture.has_lexicon, reads, teaches_with_lexicon(config))
    assert found == METHODS[preset]


def test_a_self_training_round_has_at_most_five_epochs_in_every_preset() -> None:
    """As long as they were when they had a setting of their own, whose default was 5."""
    given = {"expert.from_run": "run"}
    fitted = {name: {"expert.kind": "average"} for name in ("small", "frozen")}  # takes no steps
    rounds = [load_config(name, overrides=given | fitted.get(name, {})) for name in PRESETS]
    assert {stage_1(config).epochs for config in rounds} == {5}
