"""Before Algorithm 1: a transformer is pre-trained further on raw text, by predicting hidden tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mein.errors import InputError
from mein.experts.transformer import MaskedModel
from mein.hub.masked import Vocabulary
from mein.runtime.device import batch_tokens, device_of, fast_precision
from mein.runtime.seeds import numpy_generator
from mein.text.batches import WordBatch, bucketed, in_batches, pad_words, to_device
from mein.text.ragged import Ragged
from mein.training.config import PretrainingConfig
from mein.training.language_model import EncodedText
from mein.training.loop import Runtime, Stage, StageOutcome, train
from mein.training.objectives import Randomness
from mein.training.parallel import Share, own_share

MASKED_STAGE = "masked_model"
AS_MASK, AS_OTHER = 0.8, 0.1  # shares of the chosen tokens; the others are shown unchanged
NOT_HIDDEN = -1


def train_masked_model(
    model: MaskedModel,
    vocabulary: Vocabulary,
    text: EncodedText,
    held_out: EncodedText,
    longest: int | None,
    config: PretrainingConfig,
    runtime: Runtime,
    seed: int,
) -> StageOutcome:
    """Learn to predict hidden tokens in passages of at most `longest` tokens; evaluated on held-out text."""
    device = device_of(model)
    passages = Passages(text, longest, config.lanes, seed)
    evaluated = hidden_once(held_out, longest, vocabulary, config.masked, seed)
    if len(passages) == 0 or not any(hidden.count for hidden in evaluated):
        raise InputError(
            f"Of {len(passages):,} passages to learn from and {sum(map(len, evaluated)):,} held out there is "
            "no token to hide: give more text, in words that the model knows, or a larger pretraining.masked."
        )

    def fetch(rows: np.ndarray) -> MaskedBatch:
        random = numpy_generator(seed, "masks", int(rows[0]))  # a row's number depends on its epoch
        return own_part(hide(passages.take(rows), vocabulary, config.masked, random), device)

    def loss(batch: MaskedBatch, step: int) -> Tensor:
        dropout = Randomness(seed, MASKED_STAGE, step).generator("dropout", device, batch.share)
        return token_losses(model, batch, dropout).sum() * batch.weight

    def score() -> dict[str, float]:
        return {"perplexity": perplexity(model, evaluated)}

    named = dict(model.named_parameters())  # tied ones once
    stage = Stage(MASKED_STAGE, named, len(passages), passages.plan, fetch, loss, score)
    return train(stage, config, runtime)


class Passages:
    """A text in passages of at most `longest` tokens, numbered across shards and epochs."""

    def __init__(self, text: EncodedText, longest: int | None, lanes: int, seed: int) -> None:
        self.lanes, self.seed = lanes, seed
        self._shard = lru_cache(maxsize=2)(lambda shard: text.words(shard).pieces(longest))
        self.starts = np.cumsum([0, *(len(self._shard(shard)) for shard in range(text.shard_count))])

    def __len__(self) -> int:
        """How many there are."""
        return int(self.starts[-1])

    def plan(self, epoch: int) -> Iterator[np.ndarray]:
        """The batches of an epoch, as rows: shard by shard in random order, batched by length."""
        for shard in numpy_generator(self.seed, "shards", epoch).permutation(len(self.starts) - 1):
            lengths = self._shard(shard).lengths
            order = numpy_generator(self.seed, "passages", epoch, int(shard)).permutation(len(lengths))
            for rows in bucketed(lengths, self.lanes, order):
                yield rows + self.starts[shard] + epoch * len(self)

    def take(self, rows: np.ndarray) -> Ragged:
        """The tokens of planned rows."""
        rows = rows % len(self)
        shard = int(np.searchsorted(self.starts, rows[0], side="right")) - 1
        return self._shard(shard).take(rows - self.starts[shard])


@dataclass(frozen=True)
class Hidden:
    """Passages as shown, and in the same rows the hidden tokens, or NOT_HIDDEN."""

    shown: Ragged
    wanted: Ragged

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self.shown)

    @property
    def count(self) -> int:
        """How many tokens are hidden."""
        return int((self.wanted.values != NOT_HIDDEN).sum())

    def take(self, rows: np.ndarray) -> "Hidden":
        """Some of the passages."""
        return Hidden(self.shown.take(rows), self.wanted.take(rows))


def hide(passages: Ragged, vocabulary: Vocabulary, share: float, random: np.random.Generator) -> Hidden:
    """Choose each token that is not special with probability `share`, and show another in its place.

    Of ten chosen tokens, eight are shown as the mask, one as a random ordinary token, one unchanged.
    """
    offsets = passages.offsets - passages.offsets[0]
    tokens = passages.values[passages.offsets[0] : passages.offsets[-1]].astype(np.int64)
    is_chosen = (random.random(len(tokens)) < share) & ~vocabulary.is_special[tokens]
    fate = random.random(len(tokens))
    others = vocabulary.ordinary[random.integers(len(vocabulary.ordinary), size=len(tokens))]
    changed = np.where(fate < AS_MASK, vocabulary.mask, np.where(fate < AS_MASK + AS_OTHER, others, tokens))
    shown = np.where(is_chosen, changed, tokens)
    return Hidden(Ragged(shown, offsets), Ragged(np.where(is_chosen, tokens, NOT_HIDDEN), offsets))


def hidden_once(
    text: EncodedText, longest: int | None, vocabulary: Vocabulary, share: float, seed: int
) -> list[Hidden]:
    """The passages of each shard of a short text, hidden once for all epochs."""
    return [
        hide(text.words(n).pieces(longest), vocabulary, share, numpy_generator(seed, "judging masks", n))
        for n in range(text.shard_count)
    ]


@dataclass(frozen=True)
class MaskedBatch:
    """Shown tokens, the places (N,) of the hidden ones in the flattened (B, T), and these (N,).

    `weight` is 1 / the number of hidden tokens of all processes, so that sums add up to the mean.
    """

    batch: WordBatch
    places: Tensor
    wanted: Tensor
    weight: float = 1.0
    share: Share | None = None


def own_part(hidden: Hidden, device: torch.device) -> MaskedBatch:
    """This process's share of a batch on a device; all of it if there is only one process."""
    share = own_share(hidden.shown.lengths)
    weight = 1.0 / max(1, hidden.count)
    if share is None:
        return replace(batch_of(hidden, device), weight=weight)
    own = batch_of(hidden.take(share.rows), device)
    return replace(own, weight=weight * float(share.counts), share=share)


def batch_of(hidden: Hidden, device: torch.device) -> MaskedBatch:
    """Passages, padded, on a device."""
    lengths, wanted = hidden.wanted.lengths, hidden.wanted.values
    row = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(wanted)) + row * lengths.max() - hidden.wanted.offsets[row]
    is_hidden = wanted != NOT_HIDDEN
    places, tokens = (to_device(array[is_hidden], device) for array in (place, wanted))
    return MaskedBatch(pad_words(hidden.shown, device), places, tokens)


def token_losses(model: MaskedModel, batch: MaskedBatch, dropout: torch.Generator | None = None) -> Tensor:
    """-log p (N,) of every hidden token."""
    with fast_precision(batch.wanted.device):
        logits = model(batch.batch.words, batch.batch.lengths, batch.places, dropout)
    return functional.cross_entropy(logits.float(), batch.wanted, reduction="none")


@torch.no_grad()
def perplexity(model: MaskedModel, passages: Sequence[Hidden]) -> float:
    """exp of the mean -log p of a hidden token."""
    device = device_of(model)
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0

    def read(hidden: Hidden, rows: np.ndarray) -> Tensor:
        return token_losses(model, batch_of(hidden.take(rows), device)).double().sum()

    for hidden in passages:
        lengths = hidden.shown.lengths
        order = np.argsort(lengths, kind="stable")
        for loss in in_batches(lengths, order, batch_tokens(device) // 8, partial(read, hidden)):
            total += loss
        count += hidden.count
    return math.exp(min(700.0, total.item() / max(1, count)))
