"""The training loop of every stage: steps, clipping, decay, early stopping, checkpoints, metrics."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mein.errors import RunError
from mein.runtime import ranks
from mein.runtime.progress import Reporter
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors, save_tensors
from mein.training.config import Optimization
from mein.training.imitation_batches import fetched
from mein.training.parallel import sum_gradients

CALIBRATED = "_calibrated"  # at the end of a measure's name: of the two, this one is printed


@dataclass(frozen=True)
class Stage:
    """What the loop needs of a stage. Exactly `parameters` are trained; nothing else changes."""

    name: str
    parameters: Mapping[str, nn.Parameter]
    documents: int
    """Documents in an epoch."""
    plan: Callable[[int], Iterator[np.ndarray]]
    """The batches of an epoch, as rows; the same for the same epoch, always."""
    fetch: Callable[[np.ndarray], Any]
    """One planned batch, or this process's share of it, on its device; called ahead, in a thread."""
    loss: Callable[[Any, int], Tensor]
    """The loss of a fetched batch at one step; its randomness comes from the step's number.
    Those of all processes add up to that of the planned batch."""
    score: Callable[[], dict[str, float]]
    """What is measured after an epoch; the first value decides, the second breaks ties; less is better."""
    min_gain: float = 0.0
    """How far the first value must fall below that of epoch 0 for another epoch to be best."""
    begin: Callable[[int], None] | None = None
    """Called before an epoch's first batch."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors that change from step to step but are not trained; a checkpoint keeps them too."""
    takes_last: bool = False
    """Whether the last epoch is kept, whatever is measured, because the measure is not the goal."""


@dataclass
class StageState:
    """How far a stage has come, to the batch."""

    epoch: int = 0
    batch: int = 0
    documents: int = 0
    step: int = 0
    loss_sum: float = 0.0
    learned: int = 0
    """Documents whose loss is in the sum."""
    not_finite: int = 0
    """Steps with a loss that is not finite."""
    best_epoch: int = 0
    best_score: dict[str, float] = field(default_factory=dict)
    lines: int = 0
    run: str = ""
    """The identity of the run whose stage it is."""


def save_state(
    path: Path,
    stage: Stage,
    state: StageState,
    best: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
) -> None:
    tensors: dict[str, Tensor] = {f"best.{name}": tensor for name, tensor in best.items()}
    for name, parameter in stage.parameters.items():
        tensors[f"now.{name}"] = parameter
        for key, value in optimizer.state[parameter].items():
            tensors[f"{key}.{name}"] = value
    tensors |= {f"carried.{name}": tensor for name, tensor in stage.carried.items()}
    save_tensors(path, tensors, asdict(state))


def restore_state(
    path: Path, stage: Stage, optimizer: torch.optim.Optimizer
) -> tuple[StageState, dict[str, Tensor]]:
    tensors, facts = load_tensors(path)
    _check_shapes(path, stage, tensors)
    state = StageState(**facts)
    devices = {name: p.device for name, p in stage.parameters.items()}
    copy_into(stage.parameters, {name: tensors[f"now.{name}"] for name in devices})
    for name, parameter in stage.parameters.items():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"{key}.{name}" in tensors:
                optimizer.state[parameter][key] = tensors[f"{key}.{name}"].to(parameter.device)
    for name, tensor in stage.carried.items():
        tensor.copy_(tensors[f"carried.{name}"])
    return state, {name: tensors[f"best.{name}"].to(devices[name]) for name in devices}


def _check_shapes(path: Path, stage: Stage, tensors: Mapping[str, Tensor]) -> None:
    """Refuse another network's checkpoint; subtle: a copy would broadcast some tensors."""
    wanted = {f"now.{name}": p.shape for name, p in stage.parameters.items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("now.")}
    if found != wanted:
        raise RunError(
            f"{path} belongs to another network than the one in training: "
            "remove it and resume; the stage then starts again."
        )


@torch.no_grad()
def copy_into(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])


FIRST_STEPS = 10  # how fast the mean forgets the initial weights


class Average:
    """a <- d a + (1 - d) w after every step, with d = min(decay, (1 + step) / (10 + step)).

    Early on d is small, so that the mean is of trained weights and not of the start. A decay of 0 keeps
    no mean and uses the weights of the last step.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.parameters = list(parameters.values())
        self.decay = decay
        names = list(parameters) if decay > 0.0 else []
        self.tensors: dict[str, Tensor] = {name: parameters[name].detach().clone() for name in names}

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Update the mean with the weights after a step."""
        if self.tensors:
            decay = min(self.decay, (1 + step) / (FIRST_STEPS + step))
            weights: list[Tensor] = [*self.parameters]
            torch._foreach_lerp_(list(self.tensors.values()), weights, 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the weights by the mean inside the context."""
        kept = [p.detach().clone() for p in self.parameters] if self.tensors else []
        self._fill(list(self.tensors.values()))
        try:
            yield
        finally:
            self._fill(kept)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=False):  # there may be no mean
            parameter.copy_(value)


NOTE_SECONDS = 0.5


@dataclass(frozen=True)
class Runtime:
    """Where and how a run works; none of it changes the result."""

    folder: RunFolder
    reporter: Reporter
    checkpoint_seconds: float


@dataclass(frozen=True)
class StageOutcome:
    """Which epoch was best, what it scored, and how many were run."""

    epoch: int
    score: dict[str, float]
    epochs: int


def train(stage: Stage, config: Optimization, runtime: Runtime) -> StageOutcome:
    """Train to the best epoch; its weights are left in `stage.parameters`.

    Epoch 0, the initial weights, is a candidate. After a kill the stage continues from its last
    checkpoint. Several processes share each batch, and take every step together.
    """
    optimizer = torch.optim.Adam(list(stage.parameters.values()), lr=config.learning_rate, fused=True)
    path = runtime.folder / f"{stage.name}.checkpoint.safetensors"
    ranks.copy_from_first(list(stage.parameters.values()))
    average = Average(stage.parameters, config.averaging)
    means = {f"average.{name}": tensor for name, tensor in average.tensors.items()}
    stage = replace(stage, carried={**stage.carried, **means})
    if ranks.exists(path):
        state, best = restore_state(path, stage, optimizer)
        if state.run != runtime.folder.identity:
            raise RunError(f"{path} belongs to another run: remove it and resume; the stage starts again.")
        runtime.folder.rewind(stage.name, state.lines)
    else:
        runtime.folder.rewind(stage.name, 0)
        state, best = StageState(run=runtime.folder.identity), {}
        best = _evaluate(stage, average, state, best, runtime, seconds=0.0)
    while state.epoch < config.epochs and not _is_stale(state, config):
        started = time.monotonic()
        _run_epoch(stage, average, state, best, config, optimizer, runtime)
        best = _evaluate(stage, average, state, best, runtime, seconds=time.monotonic() - started)
        save_state(path, stage, state, best, optimizer)
    copy_into(stage.parameters, best)
    return StageOutcome(state.best_epoch, state.best_score, state.epoch)


def _is_stale(state: StageState, config: Optimization) -> bool:
    return config.patience is not None and state.epoch - state.best_epoch >= config.patience


def _run_epoch(
    stage: Stage,
    average: Average,
    state: StageState,
    best: dict[str, Tensor],
    config: Optimization,
    optimizer: torch.optim.Optimizer,
    runtime: Runtime,
) -> None:
    path = runtime.folder / f"{stage.name}.checkpoint.safetensors"
    name = f"{stage.name} {state.epoch + 1}/{config.epochs}"
    if stage.begin is not None and state.batch == 0:
        stage.begin(state.epoch)
    losses = Losses(state)
    last_saved = time.monotonic()
    with runtime.reporter.task(name, stage.documents, state.documents) as task:
        left = islice(stage.plan(state.epoch), state.batch, None)
        for rows, batch in fetched(left, stage.fetch):
            loss = take_step(stage, batch, state, config, optimizer)
            average.follow(state.step)
            state.batch += 1
            state.documents += len(rows)
            state.step += 1
            losses.add(loss, len(rows))
            task.advance(len(rows), losses.note())
            if time.monotonic() - last_saved >= runtime.checkpoint_seconds:
                losses.settle()
                save_state(path, stage, state, best, optimizer)
                last_saved = time.monotonic()
    losses.settle()
    _log_not_finite(stage.name, state, runtime.reporter)
    state.epoch += 1


def _log_not_finite(stage: str, state: StageState, reporter: Reporter) -> None:
    """Log how many of an epoch's steps had no finite gradient; stop if none had one."""
    if state.not_finite == state.batch > 0:
        raise RunError(
            f"No step of epoch {state.epoch + 1} of the stage {stage} had a finite gradient: "
            "set a lower learning rate for it, in another --out."
        )
    if state.not_finite:
        reporter.log(f"  {state.not_finite:,} of {state.batch:,} steps had no finite gradient")


class Losses:
    """The losses of an epoch, fetched from the device now and then: fetching each would stall it."""

    def __init__(self, state: StageState) -> None:
        self.state = state
        self.pending: list[tuple[int, Tensor]] = []  # the documents of a step, and their mean
        self.settled = -math.inf
        self.shown = ""

    def add(self, loss: Tensor, documents: int) -> None:
        """Add the mean loss of a step's documents."""
        self.pending.append((documents, loss.double()))

    def settle(self) -> None:
        """Update the sum, one loss after another, so that it does not depend on the clock."""
        if self.pending:
            losses = torch.stack([loss for _, loss in self.pending]).tolist()
            for (documents, _), loss in zip(self.pending, losses, strict=True):
                if math.isfinite(loss):
                    self.state.loss_sum += loss * documents
                    self.state.learned += documents
                else:
                    self.state.not_finite += 1
        self.pending, self.settled = [], time.monotonic()

    def note(self) -> str:
        """The mean so far, at most half a second old."""
        if time.monotonic() - self.settled > NOTE_SECONDS:
            self.settle()
            self.shown = f"loss {self.state.loss_sum / max(1, self.state.learned):.4g}"
        return self.shown


def take_step(
    stage: Stage,
    batch: Any,
    state: StageState,
    config: Optimization,
    optimizer: torch.optim.Optimizer,
) -> Tensor:
    """One step of Adam; the loss of the batch, of all processes' shares, still on its device.

    In half precision a gradient may overflow on its way through a document. Clipping would then make it nan,
    so no step is taken, and the loss is nan.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, state, stage.documents)
    optimizer.zero_grad(set_to_none=True)
    loss = stage.loss(batch, state.step)
    loss.backward()  # type: ignore[no-untyped-call]
    total = sum_gradients(list(stage.parameters.values()), loss.detach())
    if config.clip is not None:
        norm = nn.utils.clip_grad_norm_(list(stage.parameters.values()), config.clip)
        optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]  # 1: a fused Adam skips the step
        total = torch.where(norm.isfinite(), total, math.nan)
    optimizer.step()
    return total


def learning_rate(config: Optimization, state: StageState, documents: int) -> float:
    """The learning rate of the next step."""
    rate = config.learning_rate * config.decay**state.step
    if config.falls_to_zero:
        rate *= 1.0 - (state.epoch + state.documents / documents) / config.epochs
    return rate


def _evaluate(
    stage: Stage,
    average: Average,
    state: StageState,
    best: dict[str, Tensor],
    runtime: Runtime,
    seconds: float,
) -> dict[str, Tensor]:
    """Measure the epoch that just ended, record it, and return the best weights so far."""
    with average.in_place():
        measured = ranks.agreed(stage.score())
        torch.cuda.empty_cache()  # 12 GB with the paper's sizes, for other runs or the next stage
        if stage.takes_last or not state.best_score or _is_better(stage, state, measured):
            state.best_score, state.best_epoch = measured, state.epoch
            best = {name: p.detach().clone() for name, p in stage.parameters.items()}
    loss = state.loss_sum / state.learned if state.learned else None
    skipped = {"not_finite": state.not_finite} if state.not_finite else {}
    facts = {"epoch": state.epoch, "loss": loss, "seconds": round(seconds, 3), **skipped}
    runtime.folder.record(stage.name, **facts, **measured)
    names = [name for name in measured if f"{name}{CALIBRATED}" not in measured]
    shown = ", ".join(f"{name.replace('_', ' ')} {measured[name]:.4g}" for name in names)
    mark = " *" if state.best_epoch == state.epoch and not stage.takes_last else ""
    if measured:
        runtime.reporter.log(f"  {stage.name} epoch {state.epoch}: {shown}{mark}")
    state.lines += 1
    state.batch, state.documents = 0, 0
    state.loss_sum, state.learned, state.not_finite = 0.0, 0, 0
    return best


def _is_better(stage: Stage, state: StageState, measured: dict[str, float]) -> bool:
    """Whether an epoch beats the best so far; epoch 0 is only beaten by `min_gain`."""
    new, old = _rank(measured), _rank(state.best_score)
    if state.best_epoch == 0 and stage.min_gain > 0.0:
        return new[0] < old[0] - stage.min_gain
    return new < old


def _rank(measured: dict[str, float]) -> tuple[float, ...]:
    return tuple(measured.values())[:2]
