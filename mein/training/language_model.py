"""Before Algorithm 1: a language model is pre-trained on all training text, without labels."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mein.errors import InputError
from mein.experts.language_model import LanguageModel, reversal, word_losses
from mein.runtime import ranks
from mein.runtime.device import batch_tokens, device_of, fast_precision
from mein.runtime.seeds import numpy_generator
from mein.text.batches import in_batches, pad_words, to_device
from mein.text.ragged import Ragged
from mein.training.config import Pretraining
from mein.training.loop import Runtime, Stage, StageOutcome, train
from mein.training.objectives import Randomness
from mein.training.parallel import Share, own_share


def segment_losses(
    model: LanguageModel,
    direction: int,
    rows: Tensor,
    state: Tensor,
    rate: float = 0.0,
    dropout: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """-log p (B, L) of every next word in rows (B, L + 1), 0 where it is padding, and the state after them.

    Padding is read and then left out, because selecting words would wait for the GPU.
    """
    with fast_precision(device_of(model)):
        outputs, state = model.read(direction, rows[:, :-1], state, rate, dropout)
    wanted = rows[:, 1:]
    read = outputs.flatten(0, 1).to(model.embedding.weight.dtype)
    losses = word_losses(model.softmax, read, wanted.flatten()).view(wanted.shape)
    return losses * (wanted != 0), state


def mean_loss(
    model: LanguageModel,
    direction: int,
    rows: Tensor,
    state: Tensor,
    rate: float,
    dropout: torch.Generator,
    share: Share | None,
) -> tuple[Tensor, Tensor]:
    """The mean of `segment_losses`, and the state after them, a constant; of a share, its part of the mean.

    The state covers the rows of all processes, so that another number of processes can continue.
    """
    words = (rows[:, 1:] != 0).sum()
    if share is None:
        losses, after = segment_losses(model, direction, rows, state, rate, dropout)
        return losses.sum() / words, after.detach()
    own = to_device(share.rows, rows.device)
    losses, read = segment_losses(model, direction, rows[own], state[:, :, own], rate, dropout)
    after = torch.zeros_like(state)
    if share.counts:
        after[:, :, own] = read.detach()
    ranks.add_up(after)
    return losses.sum() / words * float(share.counts), after


STAGE = "language_model"


class EncodedText(Protocol):
    """Encoded text in shards; a store is one."""

    @property
    def shard_count(self) -> int:
        """How many shards there are."""

    def words(self, shard: int) -> Ragged:
        """The word numbers of each document of a shard."""


def train_language_model(
    model: LanguageModel,
    texts: Sequence[EncodedText],
    held_out: EncodedText,
    config: Pretraining,
    runtime: Runtime,
    seed: int,
) -> StageOutcome:
    """Learn to predict the next word (and the previous one) of texts; evaluated on held-out text."""
    device = device_of(model)
    blocks = Blocks(texts, config, seed)
    if blocks.columns == 0:
        raise InputError("There is too little text for a language model: give more than a document or two.")
    states = [model.reader(i).start(config.lanes) for i in range(len(model.readers))]

    def loss(segment: TextSegment, step: int) -> Tensor:
        dropout = Randomness(seed, STAGE, step).generator("dropout", device, segment.share)
        total = torch.zeros((), device=device)
        for direction, rows in enumerate(segment.rows):
            state = states[direction][:, :, : len(rows)]
            start = torch.zeros_like(state) if segment.is_first else state.clone()
            found, after = mean_loss(model, direction, rows, start, config.dropout, dropout, segment.share)
            state.copy_(after)
            total = total + found
        return total

    def fetch(columns: np.ndarray) -> TextSegment:
        return blocks.segment(columns, device, len(model.readers))

    def score() -> dict[str, float]:
        return {"perplexity": perplexity(model, held_out)}

    carried = {f"state{direction}": state for direction, state in enumerate(states)}
    named = dict(model.named_parameters())
    stage = Stage(STAGE, named, blocks.columns, blocks.plan, fetch, loss, score, carried=carried)
    with full_speed_softmax(), ExitStack() as stack:
        if ranks.world() == 1 and max(blocks.widths) >= config.segment:
            for direction in range(len(model.readers)):  # before other threads use the device
                stack.enter_context(model.reader(direction).capturing(config.lanes, config.segment))
        return train(stage, config, runtime)


@dataclass(frozen=True)
class TextSegment:
    """Words (B, L + 1) for each direction, whether a block begins with them, and this process's rows."""

    rows: list[Tensor]
    is_first: bool
    share: Share | None


class Blocks:
    """The text as matrices of words (lanes, columns), each read from left to right from a zero state.

    A block is a shard, its documents end to end. Its number of columns is the same in every epoch.
    """

    def __init__(self, texts: Sequence[EncodedText], config: Pretraining, seed: int) -> None:
        self.config, self.seed = config, seed
        self.parts = [(text, shard) for text in texts for shard in range(text.shard_count)]
        totals = [int(text.words(shard).lengths.sum()) for text, shard in self.parts]
        self.widths = [max(0, math.ceil(total / self._lanes(total)) - 1) for total in totals]
        """Columns that have a next word."""
        self.starts = np.concatenate([[0], np.cumsum(self.widths)])[:-1]

        self._matrix = lru_cache(maxsize=2)(self.matrix)

    @property
    def columns(self) -> int:
        """How many there are in an epoch."""
        return int(sum(self.widths))

    def plan(self, epoch: int) -> Iterator[np.ndarray]:
        """The segments of an epoch, as numbers of columns; blocks in random order.

        Columns are numbered across epochs, so that a number determines its epoch too.
        """
        for block in numpy_generator(self.seed, "blocks", epoch).permutation(len(self.parts)):
            for start in range(0, self.widths[block], self.config.segment):
                stop = min(start + self.config.segment, self.widths[block])
                yield np.arange(start, stop) + self.starts[block] + epoch * self.columns

    def segment(self, columns: np.ndarray, device: torch.device, directions: int) -> TextSegment:
        """The words of planned columns and of the one behind them; the other direction's from the end."""
        epoch, first = divmod(int(columns[0]), self.columns)
        block = int(np.searchsorted(self.starts, first, side="right")) - 1
        start = first - int(self.starts[block])
        ahead, behind = self._matrix(epoch, block)
        rows = [matrix[:, start : start + len(columns) + 1] for matrix in (ahead, behind)[:directions]]
        share = own_share((rows[0][:, 1:] != 0).sum(1))
        return TextSegment(
            [to_device(np.ascontiguousarray(part), device) for part in rows], start == 0, share
        )

    def matrix(self, epoch: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """The words (lanes, columns) of a block, padded with 0 at the end of rows, and each row reversed."""
        ahead = self._words(epoch, block)
        lengths = torch.from_numpy((ahead != 0).sum(1))
        return ahead, np.take_along_axis(ahead, reversal(lengths, ahead.shape[1]).numpy(), 1)

    def _words(self, epoch: int, block: int) -> np.ndarray:
        """The words (lanes, columns) of a block, padded with 0 at the end of rows."""
        text, shard = self.parts[block]
        words = text.words(shard)
        order = numpy_generator(self.seed, "stream", epoch, block).permutation(len(words))
        return side_by_side(words.take(order), self._lanes(int(words.lengths.sum())))

    def _lanes(self, words: int) -> int:
        """Fewer lanes if the stream is too short for a segment in each."""
        return int(np.clip(words // self.config.segment, 1, self.config.lanes))


def side_by_side(words: Ragged, lanes: int) -> np.ndarray:
    """Documents end to end, cut into lanes of equal length (lanes, columns).

    >>> side_by_side(Ragged(np.array([5, 1, 6, 7, 1]), np.array([0, 2, 5])), 2).tolist()
    [[5, 1, 6], [7, 1, 0]]
    """
    columns = math.ceil(len(words.values) / lanes)
    matrix = np.zeros(lanes * columns, np.int64)
    matrix[: len(words.values)] = words.values
    return matrix.reshape(lanes, columns)


@torch.no_grad()
def perplexity(model: LanguageModel, held_out: EncodedText) -> float:
    """exp of the mean -log p of a word, over all words and directions, each document from a zero state."""
    device = device_of(model)
    total, words = torch.zeros(2, dtype=torch.float64, device=device)
    for shard in range(held_out.shard_count):
        documents = held_out.words(shard)
        order = np.argsort(documents.lengths, kind="stable")
        order = order[documents.lengths[order] > 1]  # the others have no word after another
        read = partial(_loss_and_words, model, documents)
        for loss, count in in_batches(documents.lengths, order, batch_tokens(device) // 8, read):
            total += loss
            words += count
    return math.exp(min(700.0, total.item() / max(1.0, words.item())))


def _loss_and_words(model: LanguageModel, documents: Ragged, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """The sum of -log p over some documents' words and all directions, and the number of words."""
    batch = pad_words(documents.take(rows), device_of(model))
    mirrored = batch.words.gather(1, reversal(batch.lengths, batch.words.shape[1]))
    total, words = torch.zeros(2, dtype=torch.float64, device=batch.words.device)
    for direction, read in enumerate([batch.words, mirrored][: len(model.readers)]):
        start = model.reader(direction).start(len(rows))
        losses, _ = segment_losses(model, direction, read, start)
        total += losses.double().sum()
        words += (read[:, 1:] != 0).sum()
    return total, words


@contextmanager
def full_speed_softmax() -> Iterator[None]:
    """TF32 products on a GPU: the softmax over a vocabulary stays in float32, for range, not for digits."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
