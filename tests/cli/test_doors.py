"""MeinClassifier and `mein train` have the same names, but for what is listed here with its reason."""

import inspect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from mein import MeinClassifier
from mein.cli.main import app
from mein.config import load_config
from mein.errors import ConfigError
from tests.support.reviews import LABELS, NEW, RAW, TEXTS, tiny
from tests.support.shell import TINY, mein, refuses, write_csv

ALIKE = {
    "settings": "set",  # scikit-learn's parameter is one object; an option is given once for each setting
    "random_state": "seed",  # scikit-learn's name
    "run_dir": "out",  # optional in Python: without it the folder is temporary
}
ONLY_PYTHON = {
    "self": "Python's",
    "X": "texts are in memory",
    "y": "so are labels",
    "sample_weight": "weights of single texts, which a file has no column for",
    "class_weight": "a mapping, which --set class_weight= cannot hold; balanced it can",
    "compares": "the command always compares",
    "expert": "an object, which a command line cannot name",
    "device": "an estimator is moved after training; --set runtime.device",
}
ONLY_SHELL = {
    "labeled": "X and y",
    "dev": "MeinClassifier is validated by scikit-learn's own splitters",
    "test": "so is it evaluated",
    "text_column": "texts in memory have no columns; a file of unlabeled text: settings",
    "label_column": "the same",
    "config": "settings takes a dict, which tomllib reads",
    "seeds": "a loop in Python",
    "resume": "a killed Python process fits again",
    "engine": "a command starts and ends a cluster",
    "address": "the same",
    "processes": "the same",
    "quiet": "Python is quiet unless verbose=True",
    "json": "verdict_ and the run folder hold it",
    "help": "help(MeinClassifier)",
}


def shell() -> set[str]:
    """The options of `mein train` by their long names, as Python spells them."""
    group: Any = typer.main.get_command(app)
    names = (max(param.opts, key=len) for param in group.commands["train"].params)
    return {name.removeprefix("--").replace("-", "_") for name in names} | {"help"}


def python() -> set[str]:
    """The parameters of MeinClassifier and of its fit."""
    functions = (MeinClassifier.__init__, MeinClassifier.fit)
    return set(itertools.chain.from_iterable(inspect.signature(one).parameters for one in functions))


def test_both_doors_have_the_same_names_but_for_those_listed() -> None:
    translated = {ALIKE.get(name, name) for name in python() - set(ONLY_PYTHON)}
    assert translated == shell() - set(ONLY_SHELL)
    assert set(ONLY_PYTHON) | set(ALIKE) <= python()
    assert set(ONLY_SHELL) | set(ALIKE.values()) <= shell()


ENCODER = {
    None: ("frozen", None),  # the preset of this name
    "small": ("frozen", None),
    "transformer": ("transformer", 5e-5),
    "frozen": ("frozen", None),
}


@pytest.mark.parametrize("preset", ENCODER)
def test_an_encoder_is_frozen_unless_the_preset_tunes_one(preset: str | None) -> None:
    config = load_config(preset, encoder="path/to/MiniLM")
    kind, rate = ENCODER[preset]
    assert (config.expert.kind, config.expert.model) == (kind, "path/to/MiniLM")
    assert rate is None or config.expert_training.learning_rate == rate


def test_an_encoder_may_be_in_the_home_folder() -> None:
    assert load_config(encoder="~/MiniLM").expert.model == str(Path.home() / "MiniLM")


def test_an_encoder_stays_with_the_kind_that_is_named() -> None:
    overrides = {"expert.kind": "transformer", "expert_training.learning_rate": 1e-5}
    assert load_config("small", overrides=overrides, encoder="x").expert.kind == "transformer"
    with pytest.raises(
        ConfigError, match=r"^expert.kind is 'lstm', which has no encoder: remove it, or 'x'\.$"
    ):
        load_config("small", overrides={"expert.kind": "lstm"}, encoder="x")


def test_both_doors_take_an_encoder(tmp_path: Path) -> None:
    """There is none of this name: both refuse it in the same sentence."""
    labeled = write_csv(tmp_path / "train.csv", TEXTS, LABELS)
    sentence = r".*no/such.*"
    refuses(sentence, "train", "--labeled", labeled, "--encoder", "./no/such", "-o", tmp_path / "run", "-q")
    with pytest.raises(Exception, match="no/such"):
        MeinClassifier(encoder="./no/such").fit(TEXTS, LABELS)


def test_python_takes_a_previous_run(tmp_path: Path) -> None:
    first = tiny(run_dir=tmp_path / "first").fit(TEXTS, LABELS, unlabeled=RAW)
    second = tiny(from_run=tmp_path / "first").fit(TEXTS, LABELS, unlabeled=RAW)
    assert second.model_.config.expert.from_run == str(tmp_path / "first")
    assert not np.array_equal(first.predict_proba(NEW), second.predict_proba(NEW))


def test_the_shell_takes_the_seed_of_python(tmp_path: Path) -> None:
    labeled = write_csv(tmp_path / "train.csv", TEXTS, LABELS)
    raw = write_csv(tmp_path / "raw.csv", RAW)
    words = ["--labeled", labeled, "--unlabeled", raw, "--out", tmp_path / "run", *TINY, "--seed", 4, "-q"]
    assert mein("train", *words).code == 0
    assert MeinClassifier.load(tmp_path / "run").random_state == 4
