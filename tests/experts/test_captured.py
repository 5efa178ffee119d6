"""Runs of an LSTM that were captured: who gets which, one at a time; and on a GPU, the same gradients."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mein.experts import gpu_lstm as captured
from mein.experts.config import ExpertConfig
from mein.experts.gpu_lstm import Captures, Forward, LstmShape, RecurrentRun, read_in_range
from mein.experts.lstm import LSTMExpert
from mein.runtime import ranks
from mein.text.batches import pad_words
from mein.text.ragged import Ragged, ragged
from mein.training import objectives, stages
from mein.training import stages as shapes
from mein.training.config import Supervision
from mein.training.loop import Stage, StageOutcome
from mein.training.objectives import Adversarial, LabeledBatch, Objective, Plain, Randomness, Virtual
from mein.training.stages import frequent_widths, shapes_read

D, H, VOCABULARY = 8, 16, 50
SHAPES = [(3, 32, True), (3, 64, True), (2, 32, False)]


def captures(
    monkeypatch: pytest.MonkeyPatch,
    shapes: Iterable[LstmShape],
    has_state: bool = False,
    lstm: nn.LSTM | None = None,
) -> Captures:
    """Where there is no GPU: the runs are the LSTM's own, each behind a function that checks its shape."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9, 10))
    monkeypatch.setattr(captured, "_captured", _watched)
    return Captures(lstm or nn.LSTM(D, H, batch_first=True), shapes, has_state)


def _watched(forward: Forward, lstm: nn.LSTM, documents: int, words: int, *_: object) -> RecurrentRun:
    def run(embedded: Tensor, *state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert embedded.shape == (documents, words, D)
        found: tuple[Tensor, Tensor, Tensor] = forward(embedded, *state)
        return found

    return run


@pytest.mark.parametrize(
    ("documents", "words", "learns", "width"),
    [(3, 32, True, 32), (3, 1, True, 32), (3, 33, True, 64), (2, 9, False, 32)],
)
def test_the_shortest_run_that_is_long_enough(
    monkeypatch: pytest.MonkeyPatch, documents: int, words: int, learns: bool, width: int
) -> None:
    reading = captures(monkeypatch, SHAPES).fit(torch.zeros(documents, words, D), learns)
    assert isinstance(reading, captured.Reading)
    assert reading.words == width


@pytest.mark.parametrize(
    ("documents", "words", "learns"), [(3, 65, True), (2, 9, True), (3, 9, False), (3, 96, True)]
)
def test_no_run_for_other_shapes(
    monkeypatch: pytest.MonkeyPatch, documents: int, words: int, learns: bool
) -> None:
    """Nor one that would read far more padding than words."""
    assert (
        captures(monkeypatch, [*SHAPES, (3, 128, True)]).fit(torch.zeros(documents, words, D), learns) is None
    )


def test_a_state_is_carried_over_exact_widths_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind padding it would be another."""
    found = captures(monkeypatch, SHAPES, has_state=True)
    assert found.fit(torch.zeros(3, 31, D), learns=True) is None
    assert found.fit(torch.zeros(3, 32, D), learns=True) is not None


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = captures(monkeypatch, SHAPES)
    first = found.fit(torch.zeros(3, 32, D), learns=True)
    assert first is not None
    assert found.fit(torch.zeros(2, 32, D), learns=False) is None
    del first
    assert found.fit(torch.zeros(2, 32, D), learns=False) is not None


def test_nothing_is_captured_where_memory_is_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    captures(monkeypatch, [])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4, 10))
    assert Captures(nn.LSTM(D, H, batch_first=True), SHAPES, has_state=False).runs == {}


def test_a_run_is_under_way_until_its_way_back_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the gradients that the LSTM itself gives, for a batch that is a little shorter."""
    torch.manual_seed(0)
    lstm, embedded = nn.LSTM(D, H, batch_first=True), torch.randn(3, 20, D)
    found = captures(monkeypatch, SHAPES, lstm=lstm)
    gradients: list[list[Tensor | None]] = []
    for fit in (None, found.fit):
        lstm.zero_grad()
        read = embedded.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            outputs, _ = read_in_range(lstm, read, fit=fit)
        if fit is not None:
            assert found.in_use() is not None
        outputs.square().sum().backward()  # type: ignore[no-untyped-call]
        gradients.append([read.grad, *(parameter.grad for parameter in lstm.parameters())])
        assert outputs.shape == (3, 20, H)
    del outputs
    assert found.in_use() is None
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-2)


def test_adversarial_training_lets_its_first_reading_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that both of its readings are captured ones."""
    expert = LSTMExpert(ExpertConfig(embedding_dim=D, hidden_dim=H), VOCABULARY, 2)
    found = captures(monkeypatch, [(4, 32, True)], lstm=expert.lstm)
    taken = []

    def fit(embedded: Tensor, learns: bool) -> RecurrentRun | None:
        run = Captures.fit(found, embedded, learns)
        taken.append(run is not None)
        return run

    expert.captures = found
    monkeypatch.setattr(found, "fit", fit)
    fast = torch.autocast("cpu", torch.bfloat16)
    monkeypatch.setattr(objectives, "fast_precision", lambda device: fast)
    step(expert, "adv", torch.device("cpu"))
    assert taken == [True, True]


def test_widths_that_come_often() -> None:
    lengths = np.array([10, 32, 33, 64, 65])
    batches = [np.array([0, 1]), np.array([2, 3]), np.array([2, 3]), np.array([4])]
    assert frequent_widths(batches, lengths, documents=2, epochs=64) == [32, 64]
    assert frequent_widths(batches, lengths, documents=2, epochs=32) == [64]


def test_shapes_of_an_objective() -> None:
    plain = LSTMExpert(ExpertConfig(embedding_dim=D, hidden_dim=H), VOCABULARY, 2)
    inside = LSTMExpert(ExpertConfig(embedding_dim=D, hidden_dim=H, mlp_dropout=0.5), VOCABULARY, 2)
    vat = Virtual(draw, 1.0, unlabeled_documents=6)
    assert shapes_read(plain, Adversarial(1.0), [32], 4) == {(4, 32, True)}
    assert shapes_read(plain, vat, [32], 4) == {(10, 32, True), (6, 32, False)}
    assert shapes_read(inside, vat, [32], 4) == {(4, 32, True), (6, 32, False)}


class Watched(LSTMExpert):
    """An expert that records what it was prepared for."""

    ready: set[LstmShape] | None = None

    @contextmanager
    def capturing(self, shapes: Iterable[LstmShape]) -> Iterator[None]:
        self.ready = set(shapes)
        yield
        self.ready = None


@pytest.mark.parametrize(("processes", "gpu"), [(1, True), (2, True), (1, False)])
def test_a_stage_captures_where_it_can(monkeypatch: pytest.MonkeyPatch, processes: int, gpu: bool) -> None:
    expert = Watched(ExpertConfig(embedding_dim=D, hidden_dim=H), VOCABULARY, 2)
    monkeypatch.setattr(shapes, "can_capture", lambda device: gpu)
    monkeypatch.setattr(ranks, "world", lambda: processes)
    seen = []

    def watched(stage: Stage, *_: object) -> StageOutcome:
        seen.append(expert.ready)
        return StageOutcome(0, {}, 0)

    monkeypatch.setattr(stages, "train", watched)
    labels, nothing = np.arange(4) % 2, np.zeros((0, 4, 2), np.float32)
    part = stages.LabeledPart(WORDS, labels, np.ones(4, np.float32), nothing)
    config = Supervision(batch_documents=4, epochs=64)
    unused: Any = None
    stages.train_expert(expert, part, part, config, Plain(), unused, seed=0)
    assert seen == [{(4, 32, True)} if gpu and processes == 1 else None]
    assert expert.ready is None


WORDS = ragged([[*np.random.default_rng(n).integers(2, VOCABULARY, 4 + n).tolist(), 1] for n in range(4)])


def draw(step: int) -> tuple[Ragged, np.ndarray]:
    return WORDS, np.zeros((0, len(WORDS), 2), np.float32)


OF: dict[str, Objective] = {
    "plain": Plain(),
    "adv": Adversarial(1.0),
    "vat": Virtual(draw, 1.0, unlabeled_documents=4),
}


def step(expert: LSTMExpert, training: str, device: torch.device) -> Tensor:
    """The gradient of a step, all parameters end to end."""
    labels, weights = torch.arange(4, device=device) % 2, torch.ones(4, device=device)
    labeled = LabeledBatch(pad_words(WORDS, device), torch.zeros(0, 4, 2, device=device), labels, weights)
    expert.zero_grad()
    gates = torch.zeros(0, device=device)
    OF[training].loss(expert, gates, labeled, Randomness(0, "expert", 3)).backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.ravel() for p in expert.parameters() if p.grad is not None])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("training", ["plain", "adv", "vat"])
def test_captured_experts_learn_alike(training: str) -> None:
    torch.manual_seed(0)
    device = torch.device("cuda")
    config = ExpertConfig(embedding_dim=64, hidden_dim=128)
    expert = LSTMExpert(config, VOCABULARY, 2).to(device)
    truth = step(expert, training, device)
    wanted = shapes_read(expert, OF[training], [32, 64], 4)
    with expert.capturing(wanted):
        assert expert.captures is not None
        assert set(expert.captures.runs) == wanted
        for _ in range(2):
            found = step(expert, training, device)
            assert (found - truth).norm() / truth.norm() < 5e-3
        with torch.no_grad():  # a graph that runs again must see that weights have changed
            for parameter in expert.parameters():
                parameter.mul_(0.9)
        changed = step(expert, training, device)
    assert (changed - step(expert, training, device)).norm() / changed.norm() < 5e-3
    assert (changed - truth).norm() / truth.norm() > 1e-2
