"""What can be told from a network of transformers: its sizes, its limits, which part is the encoder."""

from typing import Any

from torch import nn

NO_LIMIT = 1_000_000  # tokenizers that know none say 10^30


def longest_input(network: nn.Module, of_tokenizer: int) -> int | None:
    """The most tokens that a network can read, special ones included; none where there is no limit."""
    limits = [of_tokenizer, getattr(network.config, "max_position_embeddings", None)]
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa's first token stands at the position behind that of padding: 514 - 2 are left.
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
