"""The loop: its arithmetic equals Adam by hand, and it leaves the best epoch's weights, whichever that is."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mein.errors import RunError
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.training.config import Optimization
from mein.training.loop import Runtime, Stage, StageOutcome, StageState, learning_rate, train

X = [[1.0, 2.0], [0.5, -1.0], [-2.0, 0.3], [0.1, 0.7], [1.5, 1.1]]
Y = [3.0, -1.0, 0.5, 2.0, -0.7]
BATCHES = [[0, 1], [2, 3], [4]]


def runtime_in(path: Path, checkpoint_seconds: float = 1e9) -> Runtime:
    return Runtime(RunFolder(path), Quiet(), checkpoint_seconds)


class Listening(Quiet):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.mixture_log_probs: list[str] = []

    def log(self, line: str) -> None:
        self.mixture_log_probs.append(line)


def as_it_is(rows: np.ndarray) -> np.ndarray:
    """A stage that has nothing to fetch."""
    return rows


def batches(epoch: int) -> Iterator[np.ndarray]:
    yield from (np.array(rows) for rows in BATCHES)


def adam_by_hand(epochs: int, learning_rate: float, decay: float, clip: float | None) -> list[float]:
    """Adam on mean (w x + b - y)^2, in Python's own numbers: [w_1, w_2, b]."""
    theta, m, v = [0.3, -0.2, 0.1], [0.0] * 3, [0.0] * 3
    for step in range(epochs * len(BATCHES)):
        rows = BATCHES[step % len(BATCHES)]
        gradient = [0.0] * 3
        for r in rows:
            inputs = [*X[r], 1.0]
            error = sum(t * x for t, x in zip(theta, inputs, strict=True)) - Y[r]
            gradient = [g + 2 * error * x / len(rows) for g, x in zip(gradient, inputs, strict=True)]
        norm = math.sqrt(sum(g * g for g in gradient))
        if clip is not None and norm > clip:
            gradient = [g * clip / (norm + 1e-6) for g in gradient]
        rate = learning_rate * decay**step
        for k, g in enumerate(gradient):
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.999 * v[k] + 0.001 * g * g
            m_hat, v_hat = m[k] / (1 - 0.9 ** (step + 1)), v[k] / (1 - 0.999 ** (step + 1))
            theta[k] -= rate * m_hat / (math.sqrt(v_hat) + 1e-8)
    return theta


@pytest.mark.parametrize("clip", [None, 0.4, 100.0])
def test_adam_with_decay_and_clipping_equals_the_hand_written_one(tmp_path: Path, clip: float | None) -> None:
    w = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.double))
    b = nn.Parameter(torch.tensor(0.1, dtype=torch.double))
    x, y = torch.tensor(X, dtype=torch.double), torch.tensor(Y, dtype=torch.double)
    epochs = iter(range(100))

    def loss(rows: np.ndarray, step: int) -> Tensor:
        return ((x[rows] @ w + b - y[rows]) ** 2).mean()

    stage = Stage(
        "toy", {"w": w, "b": b}, len(X), batches, as_it_is, loss, lambda: {"score": -float(next(epochs))}
    )
    config = Optimization(epochs=4, learning_rate=0.1, decay=0.9, clip=clip)
    assert train(stage, config, runtime_in(tmp_path)).epoch == 4
    expected = adam_by_hand(4, 0.1, 0.9, clip)
    assert [*w.tolist(), b.item()] == pytest.approx(expected, rel=1e-12)


def test_the_learning_rate_decays_with_every_step() -> None:
    config = Optimization(learning_rate=0.5, decay=0.9)
    rates = [learning_rate(config, StageState(step=step), 10) for step in range(3)]
    assert rates == pytest.approx([0.5, 0.45, 0.405])


def test_the_learning_rate_falls_to_zero_at_the_end_of_the_last_epoch() -> None:
    config = Optimization(learning_rate=1.0, decay=1.0, falls_to_zero=True, epochs=4)
    places = [(0, 0), (0, 5), (1, 0), (3, 0), (3, 9)]
    rates = [learning_rate(config, StageState(epoch=e, documents=d), 10) for e, d in places]
    assert rates == pytest.approx([1.0, 0.875, 0.75, 0.25, 0.025])
    assert learning_rate(config, StageState(epoch=4), 10) == 0.0


def scripted(
    tmp_path: Path,
    scores: Sequence[tuple[float, ...]],
    patience: int | None = None,
    min_gain: float = 0.0,
) -> tuple[StageOutcome, int]:
    """Train on scripted scores; the outcome, and after which epoch the weights that are left were."""
    w = nn.Parameter(torch.zeros(2))
    after: list[list[float]] = []

    def score() -> dict[str, float]:
        after.append(w.tolist())
        return {f"measure_{k}": value for k, value in enumerate(scores[len(after) - 1])}

    stage = Stage("toy", {"w": w}, len(X), batches, as_it_is, lambda rows, step: w.sum(), score, min_gain)
    config = Optimization(epochs=len(scores) - 1, patience=patience)
    outcome = train(stage, config, runtime_in(tmp_path))
    return outcome, after.index(w.tolist())


def test_the_first_value_chooses_the_epoch(tmp_path: Path) -> None:
    outcome, left = scripted(tmp_path, [(9.0, 0.0), (5.0, 9.0), (4.0, 9.0), (6.0, 0.0)])
    assert (outcome.epoch, left, outcome.epochs) == (2, 2, 3)
    assert outcome.score == {"measure_0": 4.0, "measure_1": 9.0}


def test_the_second_value_breaks_ties_and_the_third_nothing(tmp_path: Path) -> None:
    outcome, left = scripted(tmp_path, [(5.0, 3.0, 1.0), (5.0, 2.0, 9.0), (5.0, 2.0, 0.0), (5.0, 4.0, 0.0)])
    assert (outcome.epoch, left) == (1, 1)


def test_the_start_is_left_only_for_more_than_the_least_gain(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    outcome, left = scripted(tmp_path / "a", [(9.0, 5.0), (7.5, 0.0), (7.0, 0.0)], min_gain=2.0)
    assert (outcome.epoch, left) == (0, 0)
    outcome, left = scripted(tmp_path / "b", [(9.0, 5.0), (6.9, 9.0), (6.8, 9.0)], min_gain=2.0)
    assert (outcome.epoch, left) == (2, 2)  # once it is left, the best epoch counts again


def test_the_weights_that_came_are_a_candidate(tmp_path: Path) -> None:
    outcome, left = scripted(tmp_path, [(1.0,), (2.0,), (3.0,)])
    assert (outcome.epoch, left, outcome.epochs) == (0, 0, 2)


def test_the_last_epoch_is_a_candidate(tmp_path: Path) -> None:
    outcome, left = scripted(tmp_path, [(3.0,), (2.0,), (1.0,)])
    assert (outcome.epoch, left) == (2, 2)


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 6), (3, 7), (None, 8)])
def test_patience_counts_epochs_without_a_better_one(
    tmp_path: Path, patience: int | None, epochs: int
) -> None:
    scores = [(9.0,), (8.0,), (7.0,), (7.5,), (6.0,), (6.5,), (6.2,), (6.0,), (6.1,)]
    outcome, left = scripted(tmp_path, scores, patience)
    assert outcome.epochs == epochs
    assert outcome.epoch == left == (2 if patience == 1 else 4)


def test_no_epochs_leave_the_weights_alone(tmp_path: Path) -> None:
    outcome, left = scripted(tmp_path, [(1.0,)])
    assert (outcome.epoch, left, outcome.epochs) == (0, 0, 0)


def test_only_the_named_parameters_move(tmp_path: Path) -> None:
    named, other = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    scores = iter([{"score": 2.0}, {"score": 1.0}])

    def loss(rows: np.ndarray, step: int) -> Tensor:
        return (named * other).sum()

    stage = Stage("toy", {"named": named}, 5, batches, as_it_is, loss, lambda: next(scores))
    train(stage, Optimization(epochs=1), runtime_in(tmp_path))
    assert named.item() < 1.0
    assert other.item() == 1.0


def test_the_metrics_hold_each_epoch_and_its_mean_loss(tmp_path: Path) -> None:
    """The loss of a batch counts as often as it has documents: (2*1 + 2*2 + 1*3) / 5."""
    w = nn.Parameter(torch.zeros(1))
    numbers = iter([1.0, 2.0, 3.0, 2.0, 2.0, 2.0])

    def loss(rows: np.ndarray, step: int) -> Tensor:
        return w.sum() * 0 + next(numbers)

    stage = Stage("toy", {"w": w}, 5, batches, as_it_is, loss, lambda: {"score": 1.0})
    train(stage, Optimization(epochs=2), runtime_in(tmp_path))
    found = [(line["epoch"], line["loss"]) for line in RunFolder(tmp_path).metrics("toy")]
    assert found == [(0, None), (1, pytest.approx(9 / 5)), (2, pytest.approx(2.0))]


def test_the_loss_gets_the_number_of_the_step_and_the_plan_that_of_the_epoch(tmp_path: Path) -> None:
    w = nn.Parameter(torch.zeros(1))
    steps, epochs = [], []

    def plan(epoch: int) -> Iterator[np.ndarray]:
        epochs.append(epoch)
        return batches(epoch)

    def loss(rows: np.ndarray, step: int) -> Tensor:
        steps.append(step)
        return w.sum()

    stage = Stage("toy", {"w": w}, 5, plan, as_it_is, loss, lambda: {"score": 1.0})
    train(stage, Optimization(epochs=2), runtime_in(tmp_path))
    assert (steps, epochs) == ([0, 1, 2, 3, 4, 5], [0, 1])


class Overflow(torch.autograd.Function):
    """A loss that is not a number, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor) -> Tensor:
        return weights.sum() * math.nan

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.tensor([math.inf, 1.0], device=gradient.device)


def overflowing(
    path: Path, at: Sequence[int], clip: float | None = 5.0, device: str = "cpu"
) -> tuple[list[list[float]], list[str]]:
    """The weights before each of six steps and after them, some of which overflow; and what was logged."""
    w, seen, listening = nn.Parameter(torch.zeros(2, device=device)), [], Listening()

    def loss(rows: np.ndarray, step: int) -> Tensor:
        seen.append(w.tolist())
        return Overflow.apply(w) if step in at else w.sum()  # type: ignore[no-untyped-call]

    stage = Stage("toy", {"w": w}, 5, batches, as_it_is, loss, lambda: {"score": w.sum().item()})
    config = Optimization(epochs=2, learning_rate=1.0, decay=1.0, clip=clip)
    train(stage, config, Runtime(RunFolder(path), listening, 1e9))
    return [*seen, w.tolist()], [line for line in listening.mixture_log_probs if "finite" in line]


def test_a_step_without_a_finite_gradient_is_skipped_and_reported(tmp_path: Path) -> None:
    """Adam goes on as if there had been no such step: each of the others takes 1 off."""
    weights, logged = overflowing(tmp_path, at=[1, 3, 4])
    assert weights == [[pytest.approx(w, abs=1e-5)] * 2 for w in (0, -1, -1, -2, -2, -2, -3)]
    assert logged == [f"  {count} of 3 steps had no finite gradient" for count in (1, 2)]
    lines = RunFolder(tmp_path).metrics("toy")
    assert [line.get("not_finite") for line in lines] == [None, 1, 2]
    first, second = (line["loss"] for line in lines[1:])
    assert (first, second) == pytest.approx(((2 * 0 + 1 * -2) / 3, -4))


@pytest.mark.gpu
def test_a_gpu_leaves_the_same_steps_out(tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        (tmp_path / device).mkdir()
    here, there = (overflowing(tmp_path / name, at=[1, 3, 4], device=name) for name in ("cpu", "cuda"))
    np.testing.assert_allclose(here[0], there[0], rtol=1e-5)
    assert here[1] == there[1]


def test_a_gradient_that_is_not_clipped_is_taken_at_its_word_and_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No step of epoch 2 "):
        overflowing(tmp_path, at=[1], clip=None)
    assert [line.get("not_finite") for line in RunFolder(tmp_path).metrics("toy")] == [None, 2]


def test_an_epoch_without_a_finite_gradient_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No step of epoch 2 of the stage toy had a finite gradient"):
        overflowing(tmp_path, at=[3, 4, 5])


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_an_epoch_is_evaluated_and_kept_by_the_mean_of_its_weights(tmp_path: Path, averaging: float) -> None:
    """Each step takes 1 off a weight that starts at 0; the last epoch is the best."""
    w, evaluated = nn.Parameter(torch.zeros(1, dtype=torch.double)), []
    steps = []

    def loss(rows: np.ndarray, step: int) -> Tensor:
        steps.append(w.item())
        return w.sum() * 1e6

    def score() -> dict[str, float]:
        evaluated.append(w.item())
        return {"score": w.item()}

    stage = Stage("toy", {"w": w}, 5, batches, as_it_is, loss, score)
    config = Optimization(epochs=2, learning_rate=1.0, decay=1.0, clip=None, averaging=averaging)
    train(stage, config, runtime_in(tmp_path))
    means = [0.0]
    for step in range(6):
        d = min(averaging, (1 + step) / (10 + step))
        means.append(d * means[-1] + (1 - d) * -(step + 1))
    assert steps == pytest.approx([0, -1, -2, -3, -4, -5])
    assert evaluated == pytest.approx([means[0], means[3], means[6]])
    assert w.item() == pytest.approx(means[6])


@pytest.mark.parametrize("averaging", [0.0, 0.9])
@pytest.mark.parametrize("stops_at", range(1, 9))
def test_a_stage_that_stops_in_the_middle_goes_on_there(
    tmp_path: Path, stops_at: int, averaging: float
) -> None:
    """A checkpoint at each step: the batches of both lives together are those of one."""

    def live(path: Path, last: int) -> tuple[list[int], list[float], StageOutcome | None]:
        w, seen = nn.Parameter(torch.ones(3)), []

        def loss(rows: np.ndarray, step: int) -> Tensor:
            if step == last:
                raise KeyboardInterrupt  # stands for a kill: nothing of the loop catches it
            seen.append(step)
            return (w**2).sum() * len(rows)

        stage = Stage("toy", {"w": w}, 5, batches, as_it_is, loss, lambda: {"score": w.sum().item()})
        try:
            outcome = train(stage, Optimization(epochs=3, averaging=averaging), runtime_in(path, 0.0))
        except KeyboardInterrupt:
            return seen, [], None
        return seen, w.tolist(), outcome

    whole = live(tmp_path / "whole", 10**6)
    first, _, _ = live(tmp_path / "parts", stops_at)
    second = live(tmp_path / "parts", 10**6)
    assert first + second[0] == whole[0] == list(range(9))
    assert second[1:] == whole[1:]


@pytest.mark.parametrize(("takes_last", "epoch"), [(True, 3), (False, 0)])
def test_the_last_epoch_is_kept_if_a_stage_takes_it(tmp_path: Path, takes_last: bool, epoch: int) -> None:
    """What is measured gets worse and worse: the best is the start, which is marked where it decides."""
    w = nn.Parameter(torch.zeros(1))
    stage = Stage(
        "toy",
        {"w": w},
        5,
        batches,
        as_it_is,
        lambda rows, step: -w.sum(),
        lambda: {"score": w.sum().item()},
        takes_last=takes_last,
    )
    listening = Listening()
    runtime = Runtime(RunFolder(tmp_path / "whole"), listening, 1e9)
    outcome = train(stage, Optimization(epochs=3, patience=None), runtime)
    assert outcome.epoch == epoch
    assert (w.item() > 0) == takes_last
    assert [line.endswith(" *") for line in listening.mixture_log_probs] == [
        not takes_last,
        False,
        False,
        False,
    ]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
