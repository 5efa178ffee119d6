"""Masked language models: fetched, tested, and saved as encoders in the format of transformers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mein.errors import ConfigError
from mein.experts.transformer import MaskedModel
from mein.hub.fetch import (
    CONFIG,
    POOLING,
    Loaded,
    fetch_as,
    filling,
    load_network,
    load_tokenizer,
    sync,
    without,
)
from mein.hub.networks import (
    LOADING_PROBLEMS,
    TOLERANCE,
    as_expert,
    damaged_model,
    embeddings_of,
    load_masked_network,
    read_facts,
    reason,
    refuse_to_cut,
    transformers_quietly,
)

TEMPORARY = ".leaving"  # where its files lie until all are written


def leave(network: nn.Module, weights: Mapping[str, Tensor], fetched: Path, folder: Path) -> None:
    """Save a network with these weights in a folder, with tokenizer and pooling of the `fetched` one.

    Its config.json comes last: without it the folder does not count as a model.
    """
    with filling(folder / TEMPORARY, folder) as temporary:
        (temporary / POOLING).parent.mkdir()
        with transformers_quietly():
            _tokenizer(fetched).save_pretrained(temporary)
            network.save_pretrained(temporary, state_dict=dict(weights))  # type: ignore[operator]
        text = json.dumps({"pooling_mode": read_facts(fetched).pooling}, indent=2)
        (temporary / POOLING).write_text(text + "\n", encoding="utf-8")
        sync(temporary)
        _move(temporary, folder)


def _tokenizer(fetched: Path) -> Any:
    """The fetched tokenizer, with the network's limit."""
    tokenizer, longest = load_tokenizer(fetched, str(fetched)), read_facts(fetched).longest
    if longest is not None:
        tokenizer.model_max_length = longest
    return tokenizer


def _move(temporary: Path, folder: Path) -> None:
    """Move all files of one folder to the other, config.json last."""
    files = [path for path in temporary.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path == temporary / CONFIG):
        target = folder / path.relative_to(temporary)
        target.parent.mkdir(exist_ok=True)
        path.replace(target)


REMEDY = "choose an encoder such as BERT or RoBERTa, or train without `mein pretrain`"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens: the mask, whether a token is special (V,), and the ordinary ones (n,)."""

    mask: int
    is_special: np.ndarray
    ordinary: np.ndarray


def fetch_masked(model: str, folder: Path, layers: int | None = None) -> None:
    """Leave in `folder` a masked language model and its tokenizer; it appears complete or not at all.

    A model that cannot be pre-trained, or not be an expert afterwards, is refused here, before training.
    """

    def load(source: Path, tokenizer: Any) -> Loaded:
        network, fresh = _load_masked(source, model, layers)
        mask = tokenizer.mask_token_id
        if mask is None or mask >= embeddings_of(network):
            raise ConfigError(f"{model!r} has no mask token, so no token can be hidden: {REMEDY}.")
        classifier, of_head = load_network(source, model, 2, layers)  # refuses half an encoder
        as_expert(classifier, repr(model))
        _try(MaskedModel(network), model)
        return network, without(network, fresh) | _pooling_layer(without(classifier, of_head))

    fetch_as(model, folder, 0, load)


def load_masked(folder: Path, seed: int) -> tuple[MaskedModel, Vocabulary]:
    """The model in a folder that `fetch_masked` wrote; missing weights are drawn from the seed."""
    tokenizer = load_tokenizer(folder, read_facts(folder).model)
    try:
        network, _ = load_masked_network(folder, seed)
    except LOADING_PROBLEMS as problem:
        raise damaged_model(folder, problem) from problem
    token = np.arange(embeddings_of(network))  # some models have more than their tokenizer knows
    is_special = np.isin(token, tokenizer.all_special_ids)
    is_ordinary = np.isin(token, [*tokenizer.get_vocab().values()]) & ~is_special
    return MaskedModel(network), Vocabulary(tokenizer.mask_token_id, is_special, token[is_ordinary])


def save_encoder(model: MaskedModel, fetched: Path, folder: Path) -> None:
    """Save the model's encoder in a folder, with the tokenizer of the `fetched` one.

    The pooling layer of a classifier, which a masked language model lacks, comes from the fetched one.
    """
    prefix = f"{model.network.base_model_prefix}."
    pooling: dict[str, Tensor] = {}
    for path in fetched.glob("*.safetensors"):
        layer = _pooling_layer(load_file(path))
        pooling |= {name.removeprefix(prefix): value for name, value in layer.items()}
    leave(model.encoder, model.encoder.state_dict() | pooling, fetched, folder)


def _pooling_layer(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the layer between an encoder and a classifier."""
    return {name: value for name, value in weights.items() if "pooler" in name}


def _load_masked(source: Path, model: str, layers: int | None) -> tuple[nn.Module, set[str]]:
    if layers is not None:
        refuse_to_cut(source, layers, model)
    try:
        return load_masked_network(source, 0, layers)
    except LOADING_PROBLEMS as problem:
        raise ConfigError(
            f"{model!r} cannot be loaded as a masked language model ({reason(problem)}): {REMEDY}."
        ) from problem


@torch.no_grad()
def _try(model: MaskedModel, name: str) -> None:
    """Refuse a network whose logits change with padding or if computed at some places only."""
    tokens, places = torch.tensor([[3, 4, 5, 0, 0], [3, 4, 5, 6, 7]]), torch.tensor([1, 2, 8])
    try:
        with transformers_quietly():
            alone = [model.network(input_ids=row[None]).logits[0] for row in (tokens[0, :3], tokens[1])]
            found = model(tokens, torch.tensor([3, 5]), places, None)
    except (*LOADING_PROBLEMS, AttributeError) as problem:
        raise ConfigError(f"{name!r} cannot be pre-trained ({reason(problem)}): {REMEDY}.") from problem
    wanted = torch.stack([alone[0][1], alone[0][2], alone[1][3]])
    if found.shape != wanted.shape or not torch.allclose(wanted, found, rtol=TOLERANCE, atol=TOLERANCE):
        raise ConfigError(
            f"{name!r} cannot be pre-trained, since its head uses more than one token: {REMEDY}."
        )
