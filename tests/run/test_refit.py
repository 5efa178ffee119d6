"""Experts that learn by gradients learn again from all labels; what has not seen dev is evaluated on it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mein.data.corpus import source_of_lists
from mein.data.splits import split_dev
from mein.mixture.gates import Weights
from mein.model.artefacts import EXPERT_OF_ALL, of_train
from mein.model.loading import load_model
from mein.report.record import read_finished
from mein.run import state
from mein.run.refit import fixed_gates
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import derive_seed
from mein.runtime.tensors import load_facts, load_tensors
from tests.support import tiny
from tests.support.tiny import TEXTS

SYSTEMS = ("closed", "random", "mixture")
LEARNING: dict[str, Any] = {
    "expert_training__learning_rate": 0.05,
    "expert_training__epochs": 6,
    "expert__kind": "average",
}
LABELS = TEXTS.labeled_labels
DEV = split_dev(np.array([sorted(set(LABELS)).index(y) for y in LABELS]), None, derive_seed(0, "dev"))[1]


def weights(path: Path, name: str) -> dict[str, np.ndarray]:
    return {key: tensor.numpy() for key, tensor in load_tensors(path / f"{name}.safetensors")[0].items()}


def is_same(path: Path, name: str, other: str) -> bool:
    one, two = weights(path, name), weights(path, other)
    return all((one[key] == two[key]).all() for key in one)


def test_labels_of_dev_teach_what_predicts_and_not_what_is_evaluated_on_dev(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_test = replace(tiny.corpus(), test=None)
    tiny.run(tmp_path / "all", without_test, **LEARNING)
    monkeypatch.setattr(state, "MOST_LABELS", len(LABELS) - 1)
    tiny.run(tmp_path / "split", without_test, **LEARNING)
    of_all, split = ((tmp_path / name / "predictions.parquet").read_bytes() for name in ("all", "split"))
    assert of_all == split
    answers = [load_model(tmp_path / name).log_probs(TEXTS.test_texts) for name in ("all", "split")]
    assert np.abs(answers[0] - answers[1]).max() > 0.01
    notes = [read_finished(tmp_path / name).about_dev for name in ("all", "split")]
    assert notes[0].endswith(
        "selected, by networks that did not learn from them. Those that predict learned from all labels."
    )
    assert notes[1].endswith("on which everything was selected.")


def test_dev_documents_of_a_linear_expert_chose_nothing(tmp_path: Path) -> None:
    corpus = replace(tiny.corpus(dev=source_of_lists(TEXTS.test_texts, TEXTS.test_labels)), test=None)
    tiny.run(tmp_path / "run", replace(corpus, unlabeled=None), expert__kind="linear")
    assert read_finished(tmp_path / "run").about_dev.endswith(
        "these are the dev documents, which chose nothing."
    )


def test_with_test_documents_every_system_is_of_all_labels(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", **LEARNING)
    assert not is_same(tmp_path / "run", EXPERT_OF_ALL, "expert")
    for system in SYSTEMS:
        assert is_same(tmp_path / "run", system, EXPERT_OF_ALL)  # stage 3 kept the start
        assert is_same(tmp_path / "run", of_train(system), "expert")


def test_stage_3_is_repeated_with_the_gates_that_dev_chose(tmp_path: Path) -> None:
    path = tmp_path / "run"
    settings: dict[str, Any] = {
        "fine_tuning__learning_rate": 0.02,
        "fine_tuning__patience": None,
        "fine_tuning__epochs": 4,
    }
    tiny.run(path, **LEARNING | settings)
    tuned = [name for name in SYSTEMS if load_facts(path / f"{of_train(name)}.safetensors")["epochs"]]
    assert tuned
    for system in tuned:
        assert not is_same(path, system, EXPERT_OF_ALL)
        found, wanted = (load_facts(path / f"{name}.safetensors") for name in (system, of_train(system)))
        assert found == wanted
    assert not list(path.glob("*checkpoint*"))


def test_gates_that_dev_chose_do_not_learn() -> None:
    gates = fixed_gates(Weights(np.array([1.0, -2.0]), lexicon=3.0))
    assert gates().tolist() == [1.0, -2.0, 3.0]
    assert not any(parameter.requires_grad for parameter in gates.parameters())


def test_it_takes_about_as_many_steps(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", **LEARNING | {"expert_training__epochs": 40})
    chosen = load_facts(tmp_path / "run/expert.safetensors")["epochs"]
    assert chosen > 2
    lines = [line for line in RunFolder(tmp_path / "run").metrics(EXPERT_OF_ALL) if "epoch" in line]
    assert lines[-1]["epoch"] == round(chosen * (len(LABELS) - len(DEV)) / len(LABELS))


@pytest.mark.parametrize("why", ["paper", "dev", "many"])
def test_the_old_split_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """By a preset of the paper, with dev documents, or with many labels, everything is as it was."""
    corpus = tiny.corpus()
    settings: dict[str, Any] = {}
    if why == "paper":
        settings = {"mixture__method": "paper"}
    elif why == "dev":
        corpus = replace(corpus, dev=source_of_lists(TEXTS.test_texts, TEXTS.test_labels))
    else:
        monkeypatch.setattr(state, "MOST_LABELS", len(LABELS) - 1)
    tiny.run(tmp_path / "run", corpus, **settings)
    assert not list((tmp_path / "run").glob("*of-*"))
    for name in ("expert", *SYSTEMS):
        assert "epochs" not in load_facts(tmp_path / f"run/{name}.safetensors")
