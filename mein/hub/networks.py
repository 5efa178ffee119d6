"""Networks from a folder: a classifier whose head may start fresh, an encoder without a head."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from mein.errors import ConfigError
from mein.experts.transformer import TransformerExpert
from mein.hub.facts import damaged, read_facts
from mein.hub.layers import cut, freeze
from mein.hub.library import LOADING_PROBLEMS, LOCAL, reason, transformers_quietly

TOLERANCE = 1e-3  # of logits; far above rounding, far below what a misread position or padding does


def load_transformer(
    folder: Path, classes: int, seed: int, frozen_layers: int | None = None
) -> TransformerExpert:
    """The expert in a folder that `fetch` wrote; what its weights lack is drawn from the seed."""
    facts = read_facts(folder)
    try:
        network, _ = load_classifier(folder, classes, seed)
    except LOADING_PROBLEMS as problem:
        raise damaged(folder, problem) from problem
    expert = as_expert(network, str(folder))
    freeze(network, frozen_layers, facts.model)
    return expert


def load_encoder(folder: Path) -> nn.Module:
    """The encoder in a folder that `fetch` wrote."""
    try:
        return _load("AutoModel", folder)[0]
    except LOADING_PROBLEMS as problem:
        raise damaged(folder, problem) from problem


def load_classifier(
    source: Path, classes: int, seed: int, layers: int | None = None
) -> tuple[nn.Module, set[str]]:
    """A network for sequence classification, and the names of its parameters that start fresh.

    With `layers`, it has its first so many alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return _load("AutoModelForSequenceClassification", source, layers, num_labels=classes)


def load_masked_network(source: Path, seed: int, layers: int | None = None) -> tuple[nn.Module, set[str]]:
    """A masked language model, and the names of its parameters that start fresh, drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return _load("AutoModelForMaskedLM", source, layers)


def reads_the_end(network: nn.Module) -> bool:
    """Whether a network for sequence classification is a decoder, which looks at the last token alone."""
    return "score" in dict(network.named_children())  # what decoders of transformers call their head


def as_expert(network: nn.Module, name: str) -> TransformerExpert:
    """The network as an expert, tried on two short documents.

    It must say of embeddings what it says of tokens, whatever the padding behind them.
    """
    config: Any = network.config
    if reads_the_end(network) and config.pad_token_id is None:
        config.pad_token_id = 0  # it refuses batches without one, and never looks at it
    expert = TransformerExpert(network, reads_the_end(network))
    tokens = [token for token in range(3, 9) if token != config.pad_token_id][:5]
    words, lengths = torch.tensor([[*tokens[:3], 0, 0], tokens]), torch.tensor([3, 5])
    try:
        with transformers_quietly(), torch.no_grad():
            alone = network(input_ids=words[:1, :3], attention_mask=torch.ones(1, 3).long()).logits
            padded = expert(words, lengths)[:1]
    except LOADING_PROBLEMS as problem:
        raise ConfigError(
            f"{name} cannot be an expert ({reason(problem)}): choose an encoder such as BERT or RoBERTa."
        ) from problem
    if not torch.allclose(alone, padded, rtol=TOLERANCE, atol=TOLERANCE):
        raise ConfigError(
            f"{name} cannot be an expert, since padding or embeddings in the place of tokens change what it "
            "says: choose an encoder such as BERT or RoBERTa."
        )
    return expert


def _load(
    kind: Literal["AutoModel", "AutoModelForSequenceClassification", "AutoModelForMaskedLM"],
    source: Path,
    layers: int | None = None,
    **settings: Any,
) -> tuple[nn.Module, set[str]]:
    """A network on the CPU, in float32 and evaluation mode, and what its weights lack."""
    with transformers_quietly() as transformers:
        config = transformers.AutoConfig.from_pretrained(source, **LOCAL, **settings)
        network, report = getattr(transformers, kind).from_pretrained(
            source,
            config=config if layers is None else cut(config, layers),
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # a head for another number of classes starts fresh
            output_loading_info=True,
            **LOCAL,
        )
    fresh = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    return network.float().eval(), fresh
