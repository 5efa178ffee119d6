"""An expert with the same weights is evaluated once on the same documents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Generator, Tensor, nn

from mein.evaluation.systems import CLOSED_GATES, EXPERT
from mein.experts.base import Expert
from mein.experts.lstm import LSTMExpert
from mein.mixture.inference import CachedLogits, expert_logits
from mein.runtime.progress import QUIET
from mein.text.ragged import ragged
from tests.support import tiny

WORDS = ragged([[1, 2], [3], [2, 2, 1]])


class Adding(Expert):
    """Logits: the sum of a document's words times a weight for each class."""

    classes = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.zeros(2))
        self.asked = 0

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        return words.float()

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        self.asked += len(embedded)
        return embedded.sum(1, keepdim=True) * self.weight + self.get_buffer("offset")


def test_an_expert_is_asked_again_only_when_its_weights_have_changed() -> None:
    expert, word = Adding(), CachedLogits(WORDS, "dev", QUIET)
    assert_array_equal(word(expert), [[3, 3], [3, 3], [5, 5]])
    word(expert)
    other = Adding()
    assert_array_equal(word(other), word(expert))
    assert (expert.asked, other.asked) == (3, 0)
    with torch.no_grad():
        expert.weight[1] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))  # the smallest step there is
    assert word(expert)[2, 1] > 5
    expert.get_buffer("offset")[0] = 1
    assert_array_equal(word(expert)[:, 0], [4, 4, 6])
    assert expert.asked == 9
    assert_array_equal(word(other), [[3, 3], [3, 3], [5, 5]])
    assert_array_equal(word(expert), expert_logits(expert, WORDS))


def test_processes_that_ask_together_ask_when_the_first_does() -> None:
    expert, first = Adding(), [True, False, True]
    word = CachedLogits(WORDS, "dev", QUIET, agreed=lambda differs: first.pop(0))
    word(expert)
    with torch.no_grad():
        expert.weight.add_(1)
    assert_array_equal(word(expert), [[3, 3], [3, 3], [5, 5]])  # the first had not moved
    assert_array_equal(word(expert), [[6, 6], [6, 6], [10, 10]])


def test_a_run_whose_mixture_stays_at_its_start_reads_no_document_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = LSTMExpert.classify

    def counted(self: LSTMExpert, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        if not torch.is_grad_enabled():
            read.append(len(lengths))
        return original(self, embedded, lengths, dropout)

    monkeypatch.setattr(LSTMExpert, "classify", counted)
    settings: dict[str, Any] = {"fine_tuning__epochs": 0}
    settings |= {"dev_fraction": 0.25}
    rows = tiny.run(tmp_path / "run", **settings)
    labeled, raw, test, dev = 80, 120, 40, 20
    # dev: before stage 1, after each of its two epochs, and once more if the first or the start was the best
    asked = sum(read) - (labeled - dev) - raw - test
    assert asked in (3 * dev, 4 * dev)
    assert len({row.scores.error for row in rows if row.name in (EXPERT, CLOSED_GATES)}) == 1


def test_cached_logits_are_those_that_would_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that asks each time leaves the same files, to the bit."""
    settings: dict[str, Any] = {"fine_tuning__patience": None, "fine_tuning__learning_rate": 0.01}
    tiny.run(tmp_path / "once", **settings)

    def ask(self: CachedLogits, expert: Expert) -> np.ndarray:
        return expert_logits(expert, self.words)

    monkeypatch.setattr(CachedLogits, "__call__", ask)
    tiny.run(tmp_path / "always", **settings)
    assert tiny.artefacts(tmp_path / "once") == tiny.artefacts(tmp_path / "always")
