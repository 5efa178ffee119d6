"""Experts that others trained: a fine-tuned transformer, given probabilities."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor, nn

from mein.experts.base import Blueprint, Expert
from mein.experts.embedding import own_seed


class TransformerExpert(Expert):
    """z of a Hugging Face network for sequence classification; the words are its tokens.

    `network` takes `inputs_embeds`, `attention_mask` and `position_ids`; its config has `num_labels`.
    One that `reads_the_end` (a decoder) takes the logits of a document's last token and looks for it at
    the end of the row, so documents are moved there. Embeddings are dropped out inside the network, hence
    in `classify`. The network is loaded by `mein.hub.networks.build_transformer`.
    """

    drops_out_inside = True

    def __init__(self, network: nn.Module, reads_the_end: bool = False) -> None:
        super().__init__()
        self.network = network
        self.classes = int(network.config.num_labels)  # type: ignore[union-attr, arg-type]
        self.reads_the_end = reads_the_end

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Embeddings (B, T, D) of tokens (B, T), positions not yet added; never dropped out."""
        embedded: Tensor = self.network.get_input_embeddings()(words)  # type: ignore[operator]
        return embedded

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y) from embeddings (B, T, D) and true lengths (B,), each at least 1.

        A generator gives one draw: its initial seed decides what is dropped out, however often it was used
        before. Other streams of random numbers stay unchanged.
        """
        T = embedded.shape[1]
        lengths = lengths.to(embedded.device)
        inputs = {"inputs_embeds": embedded, "attention_mask": is_before(lengths, T)}
        if self.reads_the_end:
            inputs = _moved_to_the_end(embedded, lengths)
        with in_mode(self.network, dropout is not None), seeded(embedded.device, dropout):
            z: Tensor = self.network(**inputs).logits
        return z


def is_before(lengths: Tensor, T: int) -> Tensor:
    """1 for each of T positions that holds a token, 0 for padding (B, T)."""
    return (torch.arange(T, device=lengths.device) < lengths[:, None]).long()


def _moved_to_the_end(embedded: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    """The network's inputs with the padding in front, positions counted from the first token."""
    T = embedded.shape[1]
    position = torch.arange(T, device=embedded.device) - (T - lengths)[:, None]  # (B, T), < 0: padding
    moved = embedded.gather(1, (position % T)[..., None].expand_as(embedded))
    return {
        "inputs_embeds": moved,
        "attention_mask": (position >= 0).long(),
        "position_ids": position.clamp_min(0),
    }


@contextmanager
def in_mode(network: nn.Module, training: bool) -> Iterator[None]:
    """Put every part of a network in training or evaluation mode; restore each afterwards."""
    before = [(module, module.training) for module in network.modules()]
    network.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training


@contextmanager
def seeded(device: torch.device, dropout: Generator | None) -> Iterator[None]:
    """Start the device's own random numbers at the generator's seed; restore them afterwards."""
    if dropout is None:
        yield
        return
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if is_cuda else []):
        # subtle: torch.manual_seed would also seed devices whose state is not kept
        torch.default_generator.manual_seed(own_seed(dropout))
        if is_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(own_seed(dropout))
        yield


class GivenExpert(Expert):
    """z = log p / tau, where p are the teacher's probabilities for a document; tau starts at 1."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.log_tau = nn.Parameter(torch.zeros(()))

    @classmethod
    def build(cls, blueprint: Blueprint) -> "GivenExpert":
        """One of the kind given."""
        return cls(blueprint.classes)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """The teacher's log-probabilities (B, Y), which take the place of words, unchanged."""
        return words

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        """Logits z (B, Y)."""
        return embedded * (-self.log_tau).exp()
