"""Where a stage stands, to the batch, and how that is kept on disk and taken up again."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mein.errors import RunError
from mein.training.checkpoint import load_tensors, save_tensors


@dataclass(frozen=True)
class Stage:
    """What a stage hands to the loop. Exactly `parameters` are trained; nothing else moves."""

    name: str
    parameters: Mapping[str, nn.Parameter]
    documents: int
    """Documents in an epoch."""
    plan: Callable[[int], Iterator[np.ndarray]]
    """The batches of an epoch, as rows; the same for the same epoch, always."""
    fetch: Callable[[np.ndarray], Any]
    """One planned batch, or our share of it, on its device; this is done ahead, in a thread."""
    loss: Callable[[Any, int], Tensor]
    """The loss of a fetched batch at one step; its randomness comes from the step's number.
    Those of all processes add up to that of the planned batch."""
    score: Callable[[], dict[str, float]]
    """What is measured after an epoch; the first value decides, the second breaks ties; less is better."""
    min_gain: float = 0.0
    """By how much the first value must fall below its start for the start to be left."""
    begin: Callable[[int], None] | None = None
    """What is done before an epoch's first batch."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors that change from step to step but are not trained; a checkpoint keeps them too."""
    takes_last: bool = False
    """Whether the last epoch is taken, whatever is measured: where the measure is not the goal."""


@dataclass
class Standing:
    """Where a stage stands, to the batch."""

    epoch: int = 0
    batch: int = 0
    documents: int = 0
    step: int = 0
    loss_sum: float = 0.0
    learned: int = 0
    """Documents whose loss is in the sum."""
    not_finite: int = 0
    """Steps whose loss is not."""
    best_epoch: int = 0
    best_score: dict[str, float] = field(default_factory=dict)
    lines: int = 0


def save_standing(
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
    tensors |= {f"carried.{name}": tensor for name, tensor in stage.carried.items()}
    save_tensors(path, tensors, asdict(standing))


def restore_standing(
    path: Path, stage: Stage, optimizer: torch.optim.Optimizer
) -> tuple[Standing, dict[str, Tensor]]:
    tensors, facts = load_tensors(path)
    _check_shapes(path, stage, tensors)
    standing = Standing(**facts)
    devices = {name: p.device for name, p in stage.parameters.items()}
    copy_into(stage.parameters, {name: tensors[f"now.{name}"] for name in devices})
    for name, parameter in stage.parameters.items():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"{key}.{name}" in tensors:
                optimizer.state[parameter][key] = tensors[f"{key}.{name}"].to(parameter.device)
    for name, tensor in stage.carried.items():
        tensor.copy_(tensors[f"carried.{name}"])
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
def copy_into(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
