"""Hugging Face networks from a folder: classifiers and encoders, cut to their first layers or partly frozen.


Also the transformers library, imported where it is used and kept quiet; the networks' sizes and limits; and
`mein.json`, the file of facts that marks a fetched folder as complete.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mein.errors import ConfigError, MissingExtra, RunError
from mein.experts.base import Blueprint
from mein.experts.transformer import TransformerExpert

# What transformers raises where a file is missing, damaged, or of an unknown type.
LOADING_PROBLEMS = (OSError, ValueError, LookupError, TypeError, RuntimeError, ImportError, SafetensorError)
LOCAL = {"local_files_only": True, "trust_remote_code": False}  # for all that it loads


@contextmanager
def transformers_quietly() -> Iterator[Any]:
    """The library, without its progress bars, its tables of missing weights and its warnings."""
    try:
        import transformers
    except ImportError as problem:
        raise missing(problem) from problem
    logging = transformers.utils.logging
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield transformers
        finally:
            logging.set_verbosity(verbosity)
            if has_bars:
                logging.enable_progress_bar()


def missing(problem: ImportError) -> MissingExtra:
    """One sentence for a package that is not installed."""
    return MissingExtra(
        f"Hugging Face experts need the package transformers ({problem}): pip install '.[transformers]'"
    )


def reason(problem: Exception) -> str:
    """The first sentence of a library's error message, to quote in an error of mein."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0].split(". ")[0].rstrip(" .:")


def refuse_to_cut(source: Path, layers: int, model: str) -> None:
    """Refuse to cut a model to more layers than it has, or one whose layers cannot be counted."""
    try:
        with transformers_quietly() as transformers:
            config = transformers.AutoConfig.from_pretrained(source, **LOCAL)
    except LOADING_PROBLEMS:
        return  # loading the network reports what is wrong
    count = getattr(config, "num_hidden_layers", None)
    if count is None:
        raise ConfigError(f"{model!r} does not name its number of layers: remove expert.layers.")
    if layers > count:
        raise ConfigError(
            f"expert.layers (={layers}) is more than the {count} layers of {model!r}: "
            "set it lower, or remove it to use all."
        )


def cut(config: Any, layers: int) -> Any:
    """The settings of a network reduced to its first layers."""
    try:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None) is not None:  # what each layer attends to, where they differ
            config.layer_types = config.layer_types[:layers]
        return type(config).from_dict(config.to_dict())  # as it will be read again, if it can be
    except Exception as problem:  # configurations differ, and so do the errors that they raise
        raise ValueError(f"it cannot be cut to {layers} layers") from problem


def freeze(network: nn.Module, layers: int | None, name: str) -> None:
    """Freeze all parameters that the output of a network's first layers depends on."""
    if layers is None:
        return
    encoder: Any = network.base_model
    count = getattr(network.config, "num_hidden_layers", None)
    stacks = [m for m in encoder.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if len(stacks) != 1:
        raise ConfigError(f"The layers of {name!r} cannot be distinguished: leave expert.frozen_layers out.")
    if layers >= len(stacks[0]):
        raise ConfigError(
            f"expert.frozen_layers (={layers}) leaves none of the {count} layers of {name!r} to fine-tune: "
            "set it lower, or expert.kind to frozen."
        )
    below = {*stacks[0][:layers].parameters(), *_used_by(network, stacks[0][layers - 1])}
    for parameter in below:
        parameter.requires_grad_(False)


def _used_by(network: nn.Module, layer: nn.Module) -> list[nn.Parameter]:
    """All parameters that the output of a layer depends on, as autograd finds them."""
    states: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    hook = layer.register_forward_hook(keep)
    with transformers_quietly(), torch.enable_grad():
        network(input_ids=torch.tensor([[3, 4, 5]]), attention_mask=torch.ones(1, 3).long())
        hook.remove()
        parameters = list(network.parameters())
        found = torch.autograd.grad(states[0].sum(), parameters, allow_unused=True)
    return [p for p, gradient in zip(parameters, found, strict=True) if gradient is not None]


NO_LIMIT = 1_000_000  # tokenizers without a limit have 10^30


def longest_input(network: nn.Module, of_tokenizer: int) -> int | None:
    """The most tokens that a network can encode, special ones included; none where there is no limit."""
    limits = [of_tokenizer, getattr(network.config, "max_position_embeddings", None)]
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa's first token has the position after that of padding: 514 - 2 are left.
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - first)
    known = [limit for limit in limits if limit is not None and 0 < limit < NO_LIMIT]
    return min(known, default=None)


def blank_token(network: nn.Module) -> int:
    """The token for a document without any: the end of a sequence, or padding, or the first one."""
    config: Any = network.config
    known = [config.eos_token_id, config.pad_token_id, 0]
    return next(token for token in known if isinstance(token, int) and token >= 0)


def embeddings_of(network: nn.Module) -> int:
    """How many tokens have an embedding."""
    embedding: Any = network.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.weight.shape[0])


def is_of_encoder(network: nn.Module, parameter: str) -> bool:
    """Whether a parameter belongs to what was pre-trained, not to a head or the layer that pools for it."""
    return parameter.startswith(f"{network.base_model_prefix}.") and "pooler" not in parameter


FACTS = "mein.json"


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a fetched model."""

    model: str
    """The folder or the name on the hub that it came from."""
    classes: int
    """Y."""
    longest: int | None
    """The most tokens that it can encode, where there is a limit."""
    blank: int
    """The token that stands for a document without any."""
    pooling: str
    """How its encoder's states become features: `mean`, `cls`, `lasttoken`, or an unknown way; `static`: it
    has no states, but a vector for each token."""
    weights: str
    """Hash of its weights."""
    prefix: str = ""
    """What its encoder is given before every text."""


def read_facts(folder: Path) -> ModelFacts:
    """The facts about a model that `fetch` left in a folder."""
    try:
        return ModelFacts(**json.loads((folder / FACTS).read_text(encoding="utf-8")))
    except FileNotFoundError as problem:
        raise RunError(f"{folder} holds no fetched model, {FACTS} is missing: fetch it again.") from problem
    except LOADING_PROBLEMS as problem:
        raise damaged_model(folder, problem) from problem


def damaged_model(folder: Path, problem: Exception) -> RunError:
    """One sentence for a folder that `fetch` wrote and that can no longer be read."""
    return RunError(f"{folder} is damaged ({reason(problem)}): remove it and fetch the model again.")


TOLERANCE = 1e-3  # of logits; far above rounding, far below what a misread position or padding does


def load_transformer(
    folder: Path, classes: int, seed: int, frozen_layers: int | None = None
) -> TransformerExpert:
    """The expert in a folder that `fetch` wrote; missing weights are drawn from the seed."""
    facts = read_facts(folder)
    try:
        network, _ = load_classifier(folder, classes, seed)
    except LOADING_PROBLEMS as problem:
        raise damaged_model(folder, problem) from problem
    expert = as_expert(network, str(folder))
    freeze(network, frozen_layers, facts.model)
    return expert


def build_transformer(blueprint: Blueprint) -> TransformerExpert:
    """One of the kind transformer."""
    frozen_layers = blueprint.settings.frozen_layers
    return load_transformer(blueprint.hub, blueprint.classes, blueprint.seed, frozen_layers)


def load_encoder(folder: Path) -> nn.Module:
    """The encoder in a folder that `fetch` wrote."""
    try:
        return _load("AutoModel", folder)[0]
    except LOADING_PROBLEMS as problem:
        raise damaged_model(folder, problem) from problem


def load_classifier(
    source: Path, classes: int, seed: int, layers: int | None = None
) -> tuple[nn.Module, set[str]]:
    """A network for sequence classification, and the names of its parameters that start fresh.

    With `layers`, it keeps only that many, from the first.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return _load("AutoModelForSequenceClassification", source, layers, num_labels=classes)


def reads_the_end(network: nn.Module) -> bool:
    """Whether a network for sequence classification is a decoder, which uses the last token only."""
    return "score" in dict(network.named_children())  # what decoders of transformers call their head


def as_expert(network: nn.Module, name: str) -> TransformerExpert:
    """The network as an expert, tested on two short documents.

    Its logits must be the same from embeddings as from tokens, whatever the padding after them.
    """
    config: Any = network.config
    if reads_the_end(network) and config.pad_token_id is None:
        config.pad_token_id = 0  # it refuses batches without one, and never uses it
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
            f"{name} cannot be an expert, since padding, or embeddings instead of tokens, change its logits: "
            "choose an encoder such as BERT or RoBERTa."
        )
    return expert


def _load(
    kind: Literal["AutoModel", "AutoModelForSequenceClassification"],
    source: Path,
    layers: int | None = None,
    **settings: Any,
) -> tuple[nn.Module, set[str]]:
    """A network on the CPU, in float32 and evaluation mode, and the names of missing weights."""
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
