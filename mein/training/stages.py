"""Algorithm 1: train_expert, train_imitators, fine_tune. Its three lines, over one loop."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from mein.experts.lstm import LSTMExpert
from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.inference import BATCH_TOKENS, device_of, expert_logits, fast_precision, imitator_alpha
from mein.mixture import Gates, MixtureConfig, mix, supervised_loss
from mein.progress import Reporter
from mein.seeds import derive_seed, numpy_generator
from mein.text.batches import bucketed, by_tokens, pack_pieces, pad_words
from mein.text.ragged import Ragged
from mein.text.store import Store
from mein.training.loop import OptimizationConfig, Outcome, Runtime, Stage, train

EPOCH_STEPS, SMALLEST_BATCH, LARGEST_BATCH = 500, 512, 8_192  # pieces in a batch of stage 2
EXPERT_COLUMN = "expert"  # p(y | X, Theta'), beside each shard of the unlabelled store


class SupervisedConfig(OptimizationConfig):
    """How the expert, or the mixture, learns from labels."""

    batch_documents: int = Field(default=32, ge=1)
    """Documents in a batch."""
    min_gain: Annotated[float, Field(ge=0.0)] | None = 0.0
    """Points of dev error that must be gained to leave the start; none: its standard error, as with
    few dev documents the best of many epochs is better by chance alone."""


class ImitationConfig(OptimizationConfig):
    """How the imitators learn from the expert."""

    epochs: int = Field(default=8, ge=0)
    """Most passes over the unlabelled text."""
    patience: Annotated[int, Field(ge=1)] | None = 4
    """Stop after so many epochs without a better one; none never stops early."""
    decay: float = Field(default=1.0, gt=0.0, le=1.0)
    """The learning rate is multiplied by this after every step."""
    falls_to_zero: bool = True
    """Whether the learning rate also falls linearly to zero at the last epoch's end."""
    clip: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Largest norm of the gradient over all parameters; none does not clip."""
    batch_tokens: Annotated[int, Field(ge=1)] | None = None
    """Pieces in a batch; none: 8,192, fewer where an epoch would then have less than 500 steps."""
    batch_documents: Annotated[int, Field(ge=1)] | None = None
    """Documents in a batch, instead of pieces."""


@dataclass(frozen=True)
class LabeledPart:
    """Encoded documents: words, label ids (n,), weights (n,), and the imitators' evidence on them.

    alpha (I, n, Y) is constant in stage 3, so it is computed once; in stage 1 there is none: I = 0.
    """

    words: Ragged
    labels: np.ndarray
    weights: np.ndarray
    alpha: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def train_expert(
    expert: LSTMExpert,
    train_part: LabeledPart,
    dev_part: LabeledPart,
    config: SupervisedConfig,
    runtime: Runtime,
    seed: int,
) -> Outcome:
    """Theta' = argmin L_s: the first line. It is the third with every lambda at -inf."""
    no_gates = Gates(MixtureConfig(), 0).to(device_of(expert))
    return fine_tune("expert", expert, no_gates, train_part, dev_part, config, runtime, seed)


def label_documents(expert: LSTMExpert, stores: Sequence[Store], reporter: Reporter) -> None:
    """Write p(y | X, Theta') beside every shard that lacks it: soft, without dropout, once."""
    with reporter.task("labelling", sum(len(store) for store in stores)) as task:
        for store in stores:
            for shard in range(store.shard_count):
                words = store.words(shard)
                if not store.has_column(EXPERT_COLUMN, shard):
                    z = torch.from_numpy(expert_logits(expert, words))
                    store.write_column(EXPERT_COLUMN, shard, functional.softmax(z, dim=1).numpy())
                task.advance(len(words))


def train_imitators(
    imitators: Imitators,
    unlabeled: Store,
    held_out: Store,
    config: ImitationConfig,
    runtime: Runtime,
    seed: int,
) -> Outcome:
    """Phi = argmin L_u: the second line. Reads the expert's word on each document, never a label."""
    device = device_of(imitators)
    tokens = _batch_tokens(unlabeled) if config.batch_tokens is None else config.batch_tokens
    starts = np.concatenate([[0], np.cumsum(unlabeled.shard_lengths)])

    @lru_cache(maxsize=1)
    def shard_arrays(shard: int) -> tuple[Ragged, np.ndarray]:
        return unlabeled.pieces(shard), unlabeled.column(EXPERT_COLUMN, shard)

    def plan(epoch: int) -> Iterator[np.ndarray]:
        for shard in numpy_generator(seed, "shards", epoch).permutation(unlabeled.shard_count):
            lengths = shard_arrays(int(shard))[0].lengths
            order = numpy_generator(seed, "documents", epoch, int(shard)).permutation(len(lengths))
            for rows in by_tokens(lengths, order, tokens, config.batch_documents):
                yield rows + starts[shard]

    def loss(rows: np.ndarray, step: int) -> Tensor:
        shard = int(np.searchsorted(starts, rows[0], side="right")) - 1
        pieces, probs = shard_arrays(shard)
        local = rows - starts[shard]
        batch = pack_pieces(pieces.take(local), imitators.gap, device)
        expert_probs = torch.from_numpy(probs[local]).to(device)
        with fast_precision(device):
            log_probs = imitators(batch.pieces)
        return imitation_loss(expert_probs, log_probs.float(), batch.document)

    def score() -> dict[str, float]:
        return imitation_scores(imitators, held_out)

    named = dict(imitators.named_parameters())
    return train(Stage("imitators", named, len(unlabeled), plan, loss, score), config, runtime)


def fine_tune(
    name: str,
    expert: LSTMExpert,
    gates: Gates,
    train_part: LabeledPart,
    dev_part: LabeledPart,
    config: SupervisedConfig,
    runtime: Runtime,
    seed: int,
) -> Outcome:
    """Theta, Lambda = argmin L'_s: the third line. With no imitators it is the control "closed gates"."""
    device = device_of(expert)
    labels, weights, alpha = (
        torch.from_numpy(a).to(device) for a in (train_part.labels, train_part.weights, train_part.alpha)
    )

    def plan(epoch: int) -> Iterator[np.ndarray]:
        order = numpy_generator(seed, "order", name, epoch).permutation(len(train_part))
        yield from bucketed(train_part.words.lengths, config.batch_documents, order)

    def loss(rows: np.ndarray, step: int) -> Tensor:
        batch = pad_words(train_part.words.take(rows), device)
        dropout = torch.Generator(device).manual_seed(derive_seed(seed, "dropout", name, step))
        with fast_precision(device):
            z = expert(batch.words, batch.lengths, dropout).float()
        logits = mix(z, alpha[:, rows], gates())
        return supervised_loss(logits, labels[rows], weights[rows])

    @torch.no_grad()
    def score() -> dict[str, float]:
        z = torch.from_numpy(expert_logits(expert, dev_part.words))
        logits = mix(z, torch.from_numpy(dev_part.alpha), gates().cpu())
        return supervised_scores(logits, dev_part.labels)

    trained = {**_prefixed("expert", expert), **_prefixed("gates", gates)}
    min_gain = config.min_gain
    if min_gain is None:
        error = score()["dev_error"]
        min_gain = math.sqrt(error * (100.0 - error) / len(dev_part))
    return train(Stage(name, trained, len(train_part), plan, loss, score, min_gain), config, runtime)


def supervised_scores(logits: Tensor, labels: np.ndarray) -> dict[str, float]:
    """Error (in %) decides between epochs, log-loss breaks ties."""
    y = torch.from_numpy(labels)
    error = 100.0 * (logits.argmax(dim=1) != y).double().mean().item()
    return {"dev_error": error, "dev_log_loss": functional.cross_entropy(logits.double(), y).item()}


def _batch_tokens(unlabeled: Store) -> int:
    """Small steps for a small corpus, which would end an epoch after a handful of large ones."""
    total = sum(int(unlabeled.pieces(shard).offsets[-1]) for shard in range(unlabeled.shard_count))
    return int(np.clip(total / EPOCH_STEPS, SMALLEST_BATCH, LARGEST_BATCH))


@torch.no_grad()
def center_evidence(imitators: Imitators, held_out: Store) -> None:
    """Set the imitators' offset to their mean alpha over documents that they did not learn from."""
    classes = imitators.offset.shape[1]
    shards = range(held_out.shard_count)
    alpha = [imitator_alpha(imitators, held_out.pieces(shard), classes) for shard in shards]
    mean = np.concatenate(alpha, axis=1).mean(axis=1, dtype=np.float64)
    imitators.offset += torch.from_numpy(mean).to(imitators.offset)


@torch.no_grad()
def imitation_scores(imitators: Imitators, held_out: Store) -> dict[str, float]:
    """How well the imitators follow the expert on text that they did not learn from.

    document_loss: the cross-entropy of softmax(s sum_i alpha_i), centred, against the expert, at the
    best scale s: whether alpha ranks documents as the expert does, which is what the mixture uses.
    kl: the mean over positions and imitators, which is what stage 2 minimises.
    """
    device = device_of(imitators)
    evidence, targets, kl, positions = [], [], 0.0, 0
    for shard in range(held_out.shard_count):
        pieces, probs = held_out.pieces(shard), held_out.column(EXPERT_COLUMN, shard)
        for rows in by_tokens(pieces.lengths, np.arange(len(pieces)), BATCH_TOKENS, None):
            batch = pack_pieces(pieces.take(rows), imitators.gap, device)
            p = torch.from_numpy(probs[rows]).to(device)
            log_probs = imitators(batch.pieces)
            entropy = -(torch.xlogy(p, p).sum(1) * batch.lengths).sum() * len(imitators.windows)
            kl += (imitation_loss(p, log_probs, batch.document) * len(p) - entropy).item()
            positions += int(batch.lengths.sum()) * len(imitators.windows)
            evidence.append(average_windows(log_probs, batch.document, batch.lengths).sum(0).cpu())
            targets.append(p.cpu())
    together = torch.cat(evidence).double()
    loss = _best_scaled_loss(together - together.mean(0), torch.cat(targets).double())
    return {"document_loss": loss, "kl": kl / max(1, positions)}


def _best_scaled_loss(evidence: Tensor, targets: Tensor) -> float:
    scales = 2.0 ** np.arange(-2.0, 7.5, 0.5)
    losses = [-(targets * torch.log_softmax(s * evidence, 1)).sum(1).mean().item() for s in scales]
    return min(losses)


def _prefixed(prefix: str, module: nn.Module) -> dict[str, nn.Parameter]:
    return {f"{prefix}.{name}": p for name, p in module.named_parameters() if p.numel()}
