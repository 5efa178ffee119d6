"""How texts become the features of a frozen encoder: its states, pooled and brought to length 1."""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mein.errors import ConfigError
from mein.hub.facts import read_facts
from mein.hub.networks import load_encoder
from mein.hub.tokens import HubTokenizer
from mein.text.batches import WordBatch, in_batches, pad_words
from mein.text.ragged import Ragged, offsets_of

BATCH_TOKENS, GPU_BATCH_TOKENS = 16_384, 65_536  # tokens in flight
CPU = torch.device("cpu")


class FrozenFeatures:
    """Texts -> rows of F features (float32): x / |x|, x the mean of a text's states, its first or its last.

    Texts of like length share a batch. On a GPU states are computed in bfloat16, elsewhere in
    float32, where a text's features do not depend on its neighbours.
    """

    is_slow = True

    def __init__(
        self, folder: Path, max_length: int | None = None, device: torch.device = CPU, threads: int = 1
    ) -> None:
        facts = read_facts(folder)
        if facts.pooling not in ("mean", "cls", "lasttoken"):
            raise ConfigError(
                f"{facts.model!r} pools its states by {facts.pooling!r}, but features are pooled by mean, "
                "cls or lasttoken: choose another encoder."
            )
        self.device = device
        self._facts = facts
        self._tokenizer = HubTokenizer(folder, max_length, threads)
        self._encoder = load_encoder(folder).to(device)
        self.size: int = self._encoder.config.hidden_size  # type: ignore[union-attr, assignment]

    def __reduce__(self) -> tuple[type["FrozenFeatures"], tuple[Path, int | None, torch.device, int]]:
        tokenizer = self._tokenizer
        return FrozenFeatures, (tokenizer.folder, tokenizer.max_length, self.device, tokenizer.threads)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two of them only if they compute alike, up to rounding."""
        parts = (self._facts.weights, self._facts.pooling, self._tokenizer.fingerprint)
        return hashlib.blake2b(repr(parts).encode("utf-8"), digest_size=16).hexdigest()

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Ragged:
        """The features of each text, F numbers a row, in the order of the texts."""
        tokens = self._tokenizer(texts)
        features = np.zeros((len(texts), self.size), np.float32)
        order = np.argsort(tokens.lengths, kind="stable")
        budget = GPU_BATCH_TOKENS if self.device.type == "cuda" else BATCH_TOKENS

        def read(rows: np.ndarray) -> np.ndarray:
            found: np.ndarray = self._features(pad_words(tokens.take(rows), self.device)).cpu().numpy()
            return found

        features[order] = np.concatenate(
            [np.zeros((0, self.size), np.float32), *in_batches(tokens.lengths, order, budget, read)]
        )
        return Ragged(features.reshape(-1), offsets_of(np.full(len(texts), self.size)))

    def _features(self, batch: WordBatch) -> Tensor:
        """Features (B, F), float32, of tokens (B, T)."""
        T = batch.words.shape[1]
        is_token = torch.arange(T, device=self.device) < batch.lengths.to(self.device)[:, None]  # (B, T)
        is_cuda = self.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16) if is_cuda else nullcontext():
            states = self._encoder(input_ids=batch.words, attention_mask=is_token.long()).last_hidden_state
        states = states.float()  # (B, T, F)
        if self._facts.pooling == "cls":
            pooled = states[:, 0]
        elif self._facts.pooling == "lasttoken":
            pooled = states[torch.arange(len(states)), batch.lengths.cpu() - 1]
        else:
            weight = is_token[..., None].float()
            pooled = (states * weight).sum(1) / weight.sum(1)
        return functional.normalize(pooled, dim=-1)
