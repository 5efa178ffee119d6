"""The one training loop: steps, clipping, decay, dev selection, early stopping, checkpoints, metrics."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from mein.errors import RunError
from mein.progress import Reporter
from mein.settings import Settings
from mein.training.checkpoint import load_tensors, save_tensors
from mein.training.folder import RunFolder


class OptimizationConfig(Settings):
    """How a stage is optimised, by Adam."""

    epochs: int = Field(default=30, ge=0)
    """Most passes over the data."""
    patience: Annotated[int, Field(ge=1)] | None = 5
    """Stop after so many epochs without a better one; none never stops early."""
    learning_rate: float = Field(default=1e-3, gt=0.0, allow_inf_nan=False)
    """Of the first step."""
    decay: float = Field(default=0.9998, gt=0.0, le=1.0)
    """The learning rate is multiplied by this after every step."""
    falls_to_zero: bool = False
    """Whether the learning rate also falls linearly to zero at the last epoch's end."""
    clip: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = 5.0
    """Largest norm of the gradient over all parameters; none does not clip."""


@dataclass(frozen=True)
class Stage:
    """What a stage hands to the loop. Exactly `parameters` are trained; nothing else moves."""

    name: str
    parameters: Mapping[str, nn.Parameter]
    documents: int
    """Documents in an epoch."""
    plan: Callable[[int], Iterator[np.ndarray]]
    """The batches of an epoch, as rows; the same for the same epoch, always."""
    loss: Callable[[np.ndarray, int], Tensor]
    """The loss of one planned batch at one step; its randomness comes from the step's number."""
    score: Callable[[], dict[str, float]]
    """What is measured after an epoch; the first value decides, the second breaks ties; less is better."""
    min_gain: float = 0.0
    """By how much the first value must fall below its start for the start to be left."""


@dataclass
class Standing:
    """Where a stage stands, to the batch."""

    epoch: int = 0
    batch: int = 0
    documents: int = 0
    step: int = 0
    loss_sum: float = 0.0
    best_epoch: int = 0
    best_score: dict[str, float] = field(default_factory=dict)
    lines: int = 0


@dataclass(frozen=True)
class Runtime:
    """Where and how a run works; none of it changes the result."""

    folder: RunFolder
    reporter: Reporter
    checkpoint_seconds: float


@dataclass(frozen=True)
class Outcome:
    """Which epoch was best, what it scored, and how many were run."""

    epoch: int
    score: dict[str, float]
    epochs: int


def train(stage: Stage, config: OptimizationConfig, runtime: Runtime) -> Outcome:
    """Train to the best epoch; its weights are left in `stage.parameters`.

    Epoch 0, the weights as they came, is a candidate. After a kill the stage goes on where its
    last checkpoint stood.
    """
    optimizer = torch.optim.Adam(list(stage.parameters.values()), lr=config.learning_rate)
    path = runtime.folder / f"{stage.name}.checkpoint.safetensors"
    if path.exists():
        standing, best = _restore(path, stage, optimizer)
        runtime.folder.rewind(stage.name, standing.lines)
    else:
        runtime.folder.rewind(stage.name, 0)
        standing, best = Standing(), {}
        best = _judge(stage, standing, best, runtime, seconds=0.0)
    while standing.epoch < config.epochs and not _is_stale(standing, config):
        started = time.monotonic()
        _run_epoch(stage, standing, best, config, optimizer, runtime)
        best = _judge(stage, standing, best, runtime, seconds=time.monotonic() - started)
        _save(path, stage, standing, best, optimizer)
    _copy_into(stage.parameters, best)
    return Outcome(standing.best_epoch, standing.best_score, standing.epoch)


def _is_stale(standing: Standing, config: OptimizationConfig) -> bool:
    return config.patience is not None and standing.epoch - standing.best_epoch >= config.patience


def _run_epoch(
    stage: Stage,
    standing: Standing,
    best: dict[str, Tensor],
    config: OptimizationConfig,
    optimizer: torch.optim.Optimizer,
    runtime: Runtime,
) -> None:
    last_saved = time.monotonic()
    path = runtime.folder / f"{stage.name}.checkpoint.safetensors"
    name = f"{stage.name} {standing.epoch + 1}/{config.epochs}"
    with runtime.reporter.task(name, stage.documents, standing.documents) as task:
        for i, rows in enumerate(stage.plan(standing.epoch)):
            if i < standing.batch:
                continue
            loss = _step(stage, rows, standing, config, optimizer)
            standing.batch += 1
            standing.documents += len(rows)
            standing.step += 1
            standing.loss_sum += loss * len(rows)
            task.advance(len(rows), f"loss {standing.loss_sum / standing.documents:.4g}")
            if time.monotonic() - last_saved >= runtime.checkpoint_seconds:
                _save(path, stage, standing, best, optimizer)
                last_saved = time.monotonic()
    standing.epoch += 1


def _step(
    stage: Stage,
    rows: np.ndarray,
    standing: Standing,
    config: OptimizationConfig,
    optimizer: torch.optim.Optimizer,
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, standing, stage.documents)
    optimizer.zero_grad(set_to_none=True)
    loss = stage.loss(rows, standing.step)
    loss.backward()  # type: ignore[no-untyped-call]
    if config.clip is not None:
        nn.utils.clip_grad_norm_(list(stage.parameters.values()), config.clip)
    optimizer.step()
    return loss.item()


def learning_rate(config: OptimizationConfig, standing: Standing, documents: int) -> float:
    """The learning rate of the next step."""
    rate = config.learning_rate * config.decay**standing.step
    if config.falls_to_zero:
        rate *= 1.0 - (standing.epoch + standing.documents / documents) / config.epochs
    return rate


def _judge(
    stage: Stage, standing: Standing, best: dict[str, Tensor], runtime: Runtime, seconds: float
) -> dict[str, Tensor]:
    """Measure the epoch that just ended, record it, and return the best weights so far."""
    measured = stage.score()
    if not standing.best_score or _is_better(stage, standing, measured):
        standing.best_score, standing.best_epoch = measured, standing.epoch
        best = {name: p.detach().clone() for name, p in stage.parameters.items()}
    loss = standing.loss_sum / standing.documents if standing.documents else None
    runtime.folder.record(stage.name, epoch=standing.epoch, loss=loss, seconds=round(seconds, 3), **measured)
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in measured.items())
    mark = " *" if standing.best_epoch == standing.epoch else ""
    runtime.reporter.say(f"  {stage.name} epoch {standing.epoch}: {shown}{mark}")
    standing.lines += 1
    standing.batch, standing.documents, standing.loss_sum = 0, 0, 0.0
    return best


def _is_better(stage: Stage, standing: Standing, measured: dict[str, float]) -> bool:
    """Whether an epoch beats the best so far; the start is left only for more than chance gives."""
    new, old = _rank(measured), _rank(standing.best_score)
    if standing.best_epoch == 0 and stage.min_gain > 0.0:
        return new[0] < old[0] - stage.min_gain
    return new < old


def _rank(measured: dict[str, float]) -> tuple[float, ...]:
    return tuple(measured.values())[:2]


def _save(
    path: Path,
    stage: Stage,
    standing: Standing,
    best: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
) -> None:
    tensors: dict[str, Tensor] = {f"best.{name}": tensor for name, tensor in best.items()}
    for name, parameter in stage.parameters.items():
        tensors[f"now.{name}"] = parameter
        for key, value in optimizer.state[parameter].items():
            tensors[f"{key}.{name}"] = value
    save_tensors(path, tensors, asdict(standing))


def _restore(
    path: Path, stage: Stage, optimizer: torch.optim.Optimizer
) -> tuple[Standing, dict[str, Tensor]]:
    tensors, facts = load_tensors(path)
    _check_shapes(path, stage, tensors)
    standing = Standing(**facts)
    devices = {name: p.device for name, p in stage.parameters.items()}
    _copy_into(stage.parameters, {name: tensors[f"now.{name}"] for name in devices})
    for name, parameter in stage.parameters.items():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"{key}.{name}" in tensors:
                value = tensors[f"{key}.{name}"]
                on = value if key == "step" else value.to(parameter.device)
                optimizer.state[parameter][key] = on
    return standing, {name: tensors[f"best.{name}"].to(devices[name]) for name in devices}


def _check_shapes(path: Path, stage: Stage, tensors: Mapping[str, Tensor]) -> None:
    """Refuse another network's checkpoint; subtle: copying alone would broadcast some of them."""
    wanted = {f"now.{name}": p.shape for name, p in stage.parameters.items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("now.")}
    if found != wanted:
        raise RunError(
            f"{path} belongs to another network than the one in training: "
            "remove it and resume; the stage then starts again."
        )


@torch.no_grad()
def _copy_into(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
