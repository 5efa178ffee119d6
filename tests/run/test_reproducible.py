"""One seed decides everything: the same seed, the same bytes; another seed, other weights."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mein.model.loading import load_model
from mein.runtime.tensors import load_tensors
from tests.support import tiny

NETWORKS = ("expert", "imitators", "closed", "random", "mixture")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("first") / "run"
    tiny.run(path)
    return path


def disturb() -> None:
    """Use up every global source of randomness a little."""
    torch.manual_seed(99)
    torch.rand(7)
    np.random.seed(98)  # noqa: NPY002 - the global one is what must not matter
    random.seed(os.urandom(8))


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, first: Path) -> None:
    """Whatever else draws random numbers in the process."""
    disturb()
    state = torch.random.get_rng_state()
    tiny.run(tmp_path / "again")
    assert torch.equal(torch.random.get_rng_state(), state)  # nor do we disturb others
    assert tiny.artefacts(tmp_path / "again") == tiny.artefacts(first)
    assert tiny.timeless_metrics(tmp_path / "again") == tiny.timeless_metrics(first)


def test_another_seed_gives_other_weights_everywhere(tmp_path: Path, first: Path) -> None:
    tiny.run(tmp_path / "other", seed=1)
    for name in NETWORKS:
        ours, _ = load_tensors(first / f"{name}.safetensors")
        others, _ = load_tensors(tmp_path / "other" / f"{name}.safetensors")
        for tensor in (n for n in ours if ours[n].shape == others[n].shape):
            assert not torch.equal(ours[tensor], others[tensor]), (name, tensor)


def test_saving_and_loading_changes_no_prediction(tmp_path: Path, first: Path) -> None:
    model = load_model(first, "cpu")
    texts = [*tiny.TEXTS.test_texts, "", "unheardof", "good"]
    expected = model.log_probs(texts)
    model.save(tmp_path / "copy")
    copy = load_model(tmp_path / "copy", "cpu")
    assert np.array_equal(copy.log_probs(texts), expected)
    assert np.array_equal(load_model(first, "cpu").log_probs(texts), expected)
    copy.save(tmp_path / "copy of the copy")
    assert tiny.artefacts(tmp_path / "copy of the copy") == tiny.artefacts(tmp_path / "copy")


def test_a_prediction_does_not_depend_on_its_neighbors(first: Path) -> None:
    model = load_model(first, "cpu")
    texts = tiny.TEXTS.test_texts[:10]
    alone = np.concatenate([model.log_probs([text]) for text in texts])
    np.testing.assert_allclose(model.log_probs(texts), alone, atol=1e-5)
    np.testing.assert_allclose(model.log_probs(texts[::-1]), alone[::-1], atol=1e-5)


def test_the_initial_weights_come_from_the_seed_too(tmp_path: Path) -> None:
    untrained: dict[str, Any] = {
        "expert_training__epochs": 0,
        "imitator_training__epochs": 0,
        "fine_tuning__epochs": 0,
    }
    for seed in (0, 1):
        tiny.run(tmp_path / str(seed), seed=seed, **untrained)
    for name, tensor in (("expert", "lstm.weight_hh_l0"), ("imitators", "convolutions.0.weight")):
        first, second = (load_tensors(tmp_path / seed / f"{name}.safetensors")[0][tensor] for seed in "01")
        assert not torch.equal(first, second)
