"""A transformer that says which token stood where one is masked: how it reads on before it is an expert."""

from typing import Any

from torch import Generator, Tensor, nn

from mein.experts.transformer import in_mode, is_before, seeded


class MaskedModel(nn.Module):
    """Logits over the vocabulary of a masked language model of Hugging Face, where they are asked for.

    `network` is one whose head looks at one position at a time, on top of `network.base_model`.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @property
    def encoder(self) -> nn.Module:
        """The part that an expert takes over."""
        encoder: nn.Module = self.network.base_model  # type: ignore[assignment]
        return encoder

    def forward(self, words: Tensor, lengths: Tensor, places: Tensor, dropout: Generator | None) -> Tensor:
        """Logits (N, V) at places (N,) of the flattened tokens (B, T), of true lengths (B,).

        As in a `TransformerExpert`, a generator's seed decides what is dropped out. B: documents, T: tokens
        of the longest, N: places, V: vocabulary.
        """

        def only_there(module: nn.Module, inputs: Any, found: Any) -> Any:
            # The head is most of the work: V is large. It gets one document of N tokens.
            found.last_hidden_state = found.last_hidden_state.flatten(0, 1)[places][None]  # (1, N, D)
            return found

        is_token = is_before(lengths.to(words.device), words.shape[1])
        hook = self.encoder.register_forward_hook(only_there)
        try:
            with in_mode(self.network, dropout is not None), seeded(words.device, dropout):
                logits: Tensor = self.network(input_ids=words, attention_mask=is_token).logits[0]
        finally:
            hook.remove()
        return logits
