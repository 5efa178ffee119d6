"""How texts become the tokens of somebody else's tokenizer."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from mein.errors import ConfigError
from mein.hub.facts import damaged, read_facts
from mein.hub.library import missing
from mein.text.ragged import Ragged, concatenate, ragged

FILE = "tokenizer.json"
PARALLELISM = "TOKENIZERS_PARALLELISM"
BATCH_TEXTS = 256  # texts that a thread cuts at once
SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair: no UTF-8


class HubTokenizer:
    """Texts -> token ids (int32), special ones included, of each text at most `max_length`, the first.

    Without `max_length` the model's own limit holds, which also holds above it. A text that spells a
    special token, such as [SEP], is cut like any other text. No text is without tokens.
    One that `reads_on` gives a longer text whole: passages of `max_length` tokens end to end, the last one
    shorter, each with special tokens of its own.
    Pickling keeps the folder's name and not the vocabulary.
    """

    is_slow = False

    def __init__(
        self, folder: Path, max_length: int | None = None, threads: int = 1, reads_on: bool = False
    ) -> None:
        facts = read_facts(folder)
        self.folder = folder
        self.threads = threads
        self.reads_on = reads_on
        known = [limit for limit in (max_length, facts.longest) if limit is not None]
        self.max_length = min(known, default=None)
        self._blank = facts.blank
        self._tokenizer = _load(folder, self.max_length)
        if reads_on:  # subtle: 0.23.1 and 0.23.2 of the library lose the rest of a text that they cut
            self._tokenizer.no_truncation()

    def __reduce__(self) -> tuple[type["HubTokenizer"], tuple[Path, int | None, int, bool]]:
        return HubTokenizer, (self.folder, self.max_length, self.threads, self.reads_on)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two tokenizers only if they cut alike."""
        how = (self.max_length, self._blank, *(["reads on to the end"] if self.reads_on else []))
        content = (self.folder / FILE).read_bytes() + repr(how).encode("utf-8")
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """The token ids of each text, one at least."""
        batches = [texts[start : start + BATCH_TEXTS] for start in range(0, len(texts), BATCH_TEXTS)]
        with _own_threads_only():
            if self.threads == 1 or len(batches) == 1:
                return concatenate(map(self._cut, batches))
            with ThreadPoolExecutor(self.threads) as threads:  # the library works without Python's lock
                return concatenate(threads.map(self._cut, batches))

    def _cut(self, texts: Sequence[str]) -> Ragged:
        readable = [SURROGATE.sub("\ufffd", text) for text in texts]
        found = self._tokenizer.encode_batch_fast(readable)
        rows = [self._in_passages(tokens) if self.reads_on else tokens.ids for tokens in found]
        return ragged([row or [self._blank] for row in rows])

    def _in_passages(self, tokens: Any) -> list[int]:
        """All tokens of a text in passages, with the special tokens around it around each, end to end."""
        ids, is_special = tokens.ids, tokens.special_tokens_mask
        if self.max_length is None or len(ids) <= self.max_length:
            return list(ids)
        first, last = is_special.index(0), len(ids) - is_special[::-1].index(0)
        room = self.max_length - first - (len(ids) - last)
        starts = range(first, last, room)
        passages = (ids[:first] + ids[start : min(start + room, last)] + ids[last:] for start in starts)
        return [number for passage in passages for number in passage]


def _load(folder: Path, max_length: int | None) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as problem:
        raise missing(problem) from problem
    try:
        tokenizer = Tokenizer.from_file(str(folder / FILE))
    except Exception as problem:  # the library raises nothing more special
        raise damaged(folder, problem) from problem
    specials = tokenizer.num_special_tokens_to_add(False)
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
    """Keep the library from threads of its own, of which it warns at every later fork.

    Whoever set its variable knows why, and is obeyed.
    """
    is_ours = PARALLELISM not in os.environ
    if is_ours:
        os.environ[PARALLELISM] = "false"
    try:
        yield
    finally:
        if is_ours:
            os.environ.pop(PARALLELISM, None)
