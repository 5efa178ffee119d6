"""The device that networks run on: which one, at what precision, and how many tokens at once."""

import re
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mein.errors import ConfigError
from mein.runtime import ranks

if TYPE_CHECKING:  # an unknown device is refused without torch
    import torch
    from torch import nn

DEVICES = re.compile("auto|cpu|cuda(:[0-9]{1,3})?")
BATCH_TOKENS = 16_384  # tokens in flight: large enough to keep cores busy, small beside the networks
GPU_BATCH_TOKENS = 262_144


def refuse_unknown_device(name: str) -> None:
    """Refuse a device that no network here runs on: those of torch are more."""
    if not DEVICES.fullmatch(name):
        raise ConfigError(f"Unknown device {name!r}: choose auto, cpu, cuda or cuda:1.")


def choose_device(name: str) -> "torch.device":
    """The device with this name; "auto" is a GPU if there is one. Each process gets its own GPU."""
    refuse_unknown_device(name)
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and ranks.world() > 1:
        name = f"cuda:{ranks.local_rank()}"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"Device {name!r} does not exist: torch finds {torch.cuda.device_count()} GPUs on this machine. "
            "Choose auto or cpu."
        )
    return device


def device_of(network: "nn.Module") -> "torch.device":
    """The device of a network's parameters."""
    return next(network.parameters()).device


def fast_precision(device: "torch.device") -> AbstractContextManager[object]:
    """bfloat16 matrix products on a GPU, float16 in LSTMs; float32 on a CPU."""
    import torch

    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def batch_tokens(device: "torch.device") -> int:
    """How many tokens keep a device busy without filling its memory."""
    return GPU_BATCH_TOKENS if device.type == "cuda" else BATCH_TOKENS
