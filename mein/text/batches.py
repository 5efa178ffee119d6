"""Batches: padded and bucketed by length for experts, packed end to end for imitators."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mein.errors import is_of_a_full_gpu
from mein.text.ragged import Ragged

BUCKET_BATCHES = 50  # documents are sorted by length inside runs of this many batches
LEAST_BATCH_TOKENS = 1_024  # with fewer, a full GPU is an error

Found = TypeVar("Found")


@dataclass(frozen=True)
class WordBatch:
    """Documents for an expert: `words` (B, T), padded with 0 at the end; `lengths` (B,)."""

    words: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class PieceBatch:
    """Documents for imitators, laid end to end with `gap` zeros before, between and after them.

    `pieces` (S,); `document` (S,): the row in the batch that a position belongs to, B in a gap;
    `lengths` (B,): J, the number of real positions of each document.
    """

    pieces: Tensor
    document: Tensor
    lengths: Tensor


def pad_words(words: Ragged, device: torch.device) -> WordBatch:
    """Pad documents, each of one word or more, with zeros to the longest."""
    lengths = words.lengths.astype(np.int64)
    kind = np.int64 if words.values.dtype.kind == "i" else np.float32
    padded = np.zeros((len(words), int(lengths.max())), dtype=kind)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = words.values[words.offsets[0] : words.offsets[-1]]
    return WordBatch(to_device(padded, device), to_device(lengths, device))


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on a device; to a GPU from pinned memory, so that no thread waits for the copy."""
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def pack_pieces(pieces: Ragged, gap: int, device: torch.device) -> PieceBatch:
    """Documents end to end, `gap` zero pieces around each, so that no window sees two of them.

    >>> batch = pack_pieces(Ragged(np.array([5, 6, 7]), np.array([0, 2, 3])), 1, torch.device("cpu"))
    >>> batch.pieces.tolist(), batch.document.tolist()
    ([0, 5, 6, 0, 7, 0], [2, 0, 0, 2, 1, 2])
    """
    return PiecesOnDevice(pieces, device).pack(np.arange(len(pieces)), gap)


class PiecesOnDevice:
    """Documents of pieces that were sent to a device once; batches of them are put together there."""

    def __init__(self, pieces: Ragged, device: torch.device) -> None:
        first, last = pieces.offsets[0], pieces.offsets[-1]
        self.lengths = pieces.lengths
        self.values = functional.pad(to_device(pieces.values[first:last], device), (1, 0))  # the gaps' zero
        self.starts = pieces.offsets[:-1] - first + 1

    def pack(self, rows: np.ndarray, gap: int) -> PieceBatch:
        """These documents end to end, `gap` zeros around each.

        The length of the stream is computed here, without waiting for the device.
        """
        B, lengths = len(rows), self.lengths[rows]
        size = int(lengths.sum()) + gap * (B + 1)
        part, width = np.full(2 * B + 1, B), np.full(2 * B + 1, gap)  # gap, document, gap, document, gap
        part[1::2], width[1::2] = np.arange(B), lengths
        begin = np.cumsum(lengths + gap) - lengths  # of each document in the stream
        shift = np.append(self.starts[rows] - begin, -size)  # from there to its values; from a gap to none
        sent = to_device(np.concatenate([part, width, shift]), self.values.device)
        parts, widths, shifts = torch.split(sent, [2 * B + 1, 2 * B + 1, B + 1])
        document = torch.repeat_interleave(parts, widths, output_size=size)
        at = torch.arange(size, device=sent.device).add_(shifts[document]).clamp_min_(0)
        return PieceBatch(self.values[at].long(), document, widths[1::2])


def bucketed(lengths: np.ndarray, batch_size: int, order: np.ndarray) -> list[np.ndarray]:
    """Cut `order` into batches of documents of like length; the batches keep the order's shuffle."""
    span = BUCKET_BATCHES * batch_size
    rank = np.argsort(order)  # the place of each document in the shuffle
    batches: list[np.ndarray] = []
    for start in range(0, len(order), span):
        run = order[start : start + span]
        run = run[np.argsort(lengths[run], kind="stable")]
        cut = [run[i : i + batch_size] for i in range(0, len(run), batch_size)]
        # subtle: batches must not be sorted by length; the rank of a document in each decides
        batches.extend(sorted(cut, key=lambda batch: int(rank[batch[0]])))
    return batches


def by_tokens(
    lengths: np.ndarray, order: np.ndarray, tokens: int, documents: int | None
) -> Iterator[np.ndarray]:
    """Cut `order` into batches of `tokens` tokens, or, if given, of `documents` documents.

    A document counts one token more than it has, so that empty ones do not gather in one batch.
    """
    if documents is not None:
        starts = np.arange(0, len(order), documents)
    else:
        cost = lengths[order] + 1
        starts = np.flatnonzero(np.diff((np.cumsum(cost) - cost) // tokens, prepend=-1))
    for start, stop in zip(starts, np.append(starts[1:], len(order)), strict=False):
        yield order[start:stop]


def in_batches(
    lengths: np.ndarray, order: np.ndarray, tokens: int, read: Callable[[np.ndarray], Found]
) -> Iterator[Found]:
    """What `read` returns for each batch of documents in turn; batches become smaller if a GPU is full."""
    done = 0
    while done < len(order):
        try:
            for rows in by_tokens(lengths, order[done:], tokens, None):
                found = read(rows)
                done += len(rows)
                yield found
        except RuntimeError as problem:
            if not is_of_a_full_gpu(problem) or tokens <= LEAST_BATCH_TOKENS:
                raise
        if done < len(order):  # here no variable holds the batch that was too large
            torch.cuda.empty_cache()
            tokens //= 2
