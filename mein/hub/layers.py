"""Transformers of which the first layers alone are read, or the last alone learn."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mein.errors import ConfigError
from mein.hub.library import LOADING_PROBLEMS, LOCAL, transformers_quietly


def refuse_to_cut(source: Path, layers: int, model: str) -> None:
    """Refuse to cut a model to more layers than it has, or one whose layers cannot be counted."""
    try:
        with transformers_quietly() as transformers:
            config = transformers.AutoConfig.from_pretrained(source, **LOCAL)
    except LOADING_PROBLEMS:
        return  # whoever loads the network tells what is wrong
    count = getattr(config, "num_hidden_layers", None)
    if count is None:
        raise ConfigError(f"{model!r} does not say how many layers it has: leave expert.layers out.")
    if layers > count:
        raise ConfigError(
            f"expert.layers (={layers}) is more than the {count} layers of {model!r}: "
            "set it lower, or leave it out for all."
        )


def cut(config: Any, layers: int) -> Any:
    """The settings of a network with its first so many layers alone."""
    try:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None) is not None:  # what each layer attends to, where they differ
            config.layer_types = config.layer_types[:layers]
        return type(config).from_dict(config.to_dict())  # as it will be read again, if it can be
    except Exception as problem:  # some count their layers in other ways too, and each complains in its own
        raise ValueError(f"it cannot be cut to {layers} layers") from problem


def freeze(network: nn.Module, layers: int | None, name: str) -> None:
    """Keep from learning all that the state above the first so many layers of a network hangs on."""
    if layers is None:
        return
    encoder: Any = network.base_model
    count = getattr(network.config, "num_hidden_layers", None)
    stacks = [m for m in encoder.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if len(stacks) != 1:
        raise ConfigError(f"The layers of {name!r} cannot be told apart: leave expert.frozen_layers out.")
    if layers >= len(stacks[0]):
        raise ConfigError(
            f"expert.frozen_layers (={layers}) leaves none of the {count} layers of {name!r} to fine-tune: "
            "set it lower, or expert.kind to frozen."
        )
    below = {*stacks[0][:layers].parameters(), *_used_by(network, stacks[0][layers - 1])}
    for parameter in below:
        parameter.requires_grad_(False)


def _used_by(network: nn.Module, layer: nn.Module) -> list[nn.Parameter]:
    """The parameters that what a layer says hangs on, wherever they lie, as autograd finds them."""
    states: list[Tensor] = []

    def keep(_: nn.Module, __: Any, said: Any) -> None:
        states.append(said[0] if isinstance(said, tuple) else said)

    hook = layer.register_forward_hook(keep)
    with transformers_quietly(), torch.enable_grad():
        network(input_ids=torch.tensor([[3, 4, 5]]), attention_mask=torch.ones(1, 3).long())
        hook.remove()
        parameters = list(network.parameters())
        found = torch.autograd.grad(states[0].sum(), parameters, allow_unused=True)
    return [p for p, gradient in zip(parameters, found, strict=True) if gradient is not None]
