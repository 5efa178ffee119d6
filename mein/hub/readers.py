"""Texts to the tokens of a Hugging Face tokenizer, or to the features of a frozen encoder."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mein.errors import ConfigError
from mein.hub.networks import damaged_model, load_encoder, missing, read_facts, reason
from mein.runtime.files import sha256_of
from mein.text.batches import WordBatch, in_batches, pad_words
from mein.text.ragged import Ragged, concatenate, offsets_of, ragged

FILE, NETWORK = "tokenizer.json", "config.json"
PARALLELISM = "TOKENIZERS_PARALLELISM"
BATCH_TEXTS = 256  # texts that a thread cuts at once
SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair: no UTF-8


class HubTokenizer:
    """Texts -> token ids (int32), special ones included, of each text at most `max_length`, the first.

    The model's own limit holds where it is lower than `max_length`, or without one. A text that spells a
    special token, such as [SEP], is cut like any other text. Every text has at least one token; but bare
    ones, for static embeddings, are neither special nor unknown, and there may be none.
    Pickling keeps the folder's name and not the vocabulary.
    """

    is_slow, size = False, None
    is_beside_words = False

    def __init__(
        self, folder: Path, max_length: int | None = None, threads: int = 1, *, is_bare: bool = False
    ) -> None:
        facts = read_facts(folder)
        self.folder = folder
        self.threads = threads
        self.is_bare = is_bare
        known = [limit for limit in (max_length, facts.longest) if limit is not None]
        self.max_length = min(known, default=None)
        self._blank = facts.blank
        self._tokenizer = _cutting(folder, self.max_length, is_bare)
        self._unknown = _unknown_token(self._tokenizer) if is_bare else None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(HubTokenizer, is_bare=self.is_bare), (self.folder, self.max_length, self.threads)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two tokenizers only if they tokenize alike."""
        how = (self.max_length, self._blank, *(["bare"] if self.is_bare else []))
        content = (self.folder / FILE).read_bytes() + repr(how).encode("utf-8")
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """The token ids of each text."""
        batches = [texts[start : start + BATCH_TEXTS] for start in range(0, len(texts), BATCH_TEXTS)]
        with _own_threads_only():
            if self.threads == 1 or len(batches) == 1:
                return concatenate(map(self._cut, batches))
            with ThreadPoolExecutor(self.threads) as threads:  # the library works without Python's lock
                return concatenate(threads.map(self._cut, batches))

    def _cut(self, texts: Sequence[str]) -> Ragged:
        readable = [SURROGATE.sub("\ufffd", text) for text in texts]
        if self.is_bare:
            found = self._tokenizer.encode_batch_fast(readable, add_special_tokens=False)
            return ragged([[token for token in tokens.ids if token != self._unknown] for tokens in found])
        found = self._tokenizer.encode_batch_fast(readable)
        return ragged([tokens.ids or [self._blank] for tokens in found])


def load_tokens(folder: Path) -> Any:
    """The tokenizer in a folder, by the library tokenizers."""
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise missing(problem) from problem
    try:
        return Tokenizer.from_file(str(folder / FILE))
    except Exception as problem:  # the library raises nothing more special
        raise ValueError(reason(problem)) from problem


def _unknown_token(tokenizer: Any) -> int | None:
    """The token for what the vocabulary lacks, if there is one."""
    if not hasattr(tokenizer.model, "unk_token"):  # of a unigram model it is in the file only
        found: int | None = json.loads(tokenizer.to_str())["model"].get("unk_id")
        return found
    token = tokenizer.model.unk_token
    return None if token is None else tokenizer.token_to_id(token)


def _cutting(folder: Path, max_length: int | None, is_bare: bool) -> Any:
    """The tokenizer in a folder, which pads nothing and cuts where it is told to."""
    try:
        tokenizer = load_tokens(folder)
    except ValueError as problem:
        raise damaged_model(folder, problem) from problem
    specials = 0 if is_bare else tokenizer.num_special_tokens_to_add(False)
    if max_length is not None and max_length <= specials:
        raise ConfigError(
            f"max_length (={max_length}) leaves no room beside {specials} special tokens: "
            f"set it to {specials + 1} or more."
        )
    # subtle: some are saved with a padding and a cut of their own (MiniLM: both to 128)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    tokenizer.encode_special_tokens = True
    return tokenizer


@contextmanager
def _own_threads_only() -> Iterator[None]:
    """Keep the library from starting threads, of which it warns at every later fork.

    If its variable is already set, it stays unchanged.
    """
    is_ours = PARALLELISM not in os.environ
    if is_ours:
        os.environ[PARALLELISM] = "false"
    try:
        yield
    finally:
        if is_ours:
            os.environ.pop(PARALLELISM, None)


BATCH_TOKENS, GPU_BATCH_TOKENS = 16_384, 65_536  # tokens in flight
CPU = torch.device("cpu")


class FrozenFeatures:
    """Texts -> rows of F features (float32): x / |x|, x the mean of a text's states, its first or its last.

    Texts of similar length share a batch. States are computed in bfloat16 on a GPU and in float32
    elsewhere, where of a text's neighbors its features depend by rounding only. A prompt that the model
    declares as its default comes before every text.
    """

    is_slow = is_beside_words = True

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
        """Equal for two of them only if they compute the same, up to rounding."""
        facts = self._facts
        network = sha256_of(self._tokenizer.folder / NETWORK)
        parts = (facts.weights, network, facts.pooling, facts.prefix, self._tokenizer.fingerprint)
        return hashlib.blake2b(repr(parts).encode("utf-8"), digest_size=16).hexdigest()

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Ragged:
        """The features of each text, F numbers a row, in the order of the texts."""
        tokens = self._tokenizer([self._facts.prefix + text for text in texts])
        features = np.zeros((len(texts), self.size), np.float32)
        order = np.argsort(tokens.lengths, kind="stable")
        budget = GPU_BATCH_TOKENS if self.device.type == "cuda" else BATCH_TOKENS

        def read(rows: np.ndarray) -> int:
            batch = pad_words(tokens.take(rows), self.device)
            features[rows] = self._features(batch).cpu().numpy()
            return len(rows)

        done = sum(in_batches(tokens.lengths, order, budget, read))
        assert done == len(texts)
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
