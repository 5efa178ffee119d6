"""The three stages of Algorithm 1 over one loop: train_expert, train_imitators, fine_tune."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.evaluation.metrics import apply_temperature, fit_temperature
from mein.experts.base import Expert
from mein.experts.gpu_lstm import STEP, LstmShape, can_capture
from mein.imitators.projected import projected_loss, stream_of
from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.imitators.windows import Stream
from mein.mixture.gates import FreeGates, Gates
from mein.mixture.inference import CachedLogits, Evidence, imitator_alpha
from mein.mixture.mixture import mix
from mein.runtime import ranks
from mein.runtime.device import device_of
from mein.runtime.seeds import numpy_generator
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from mein.text.batches import PieceBatch, bucketed, pad_words, to_device
from mein.text.ragged import Ragged
from mein.training.config import Imitation, Supervision
from mein.training.imitation_batches import MixedShards
from mein.training.loop import CALIBRATED, Runtime, Stage, StageOutcome, train
from mein.training.objectives import LabeledBatch, Objective, Randomness, neighbors_of_epochs
from mein.training.parallel import own_windows, share_of, shared_logits

OFTEN = 64  # steps with a shape that make up for the cost of capturing it


def frequent_widths(
    batches: Iterable[np.ndarray], lengths: np.ndarray, documents: int, epochs: int
) -> list[int]:
    """Words to which batches of `documents` documents are often padded, in `epochs` epochs of such batches.

    >>> frequent_widths([np.array([0, 1]), np.array([2])], np.array([3, 40, 5]), documents=2, epochs=64)
    [64]
    """
    longest = [int(lengths[rows].max()) for rows in batches if len(rows) == documents]
    counts = Counter(-(-words // STEP) * STEP for words in longest)
    return sorted(words for words, count in counts.items() if count * epochs >= OFTEN)


def captured_for(
    expert: Expert,
    objective: Objective,
    batches: Iterable[np.ndarray],
    lengths: np.ndarray,
    documents: int,
    epochs: int,
) -> AbstractContextManager[None]:
    """Capture an expert on a GPU for the frequent shapes of an epoch's batches; elsewhere, do nothing."""
    if ranks.world() > 1 or not expert.is_captured or not can_capture(device_of(expert)):
        return nullcontext()  # several processes have shares of batches, each of another shape
    widths = frequent_widths(batches, lengths, documents, epochs)
    return expert.capturing(shapes_read(expert, objective, widths, documents))


def shapes_read(
    expert: Expert, objective: Objective, widths: Iterable[int], documents: int
) -> set[LstmShape]:
    """The shapes that an expert reads in steps of an objective with this many labeled documents."""
    unlabeled = objective.unlabeled_documents
    if not unlabeled:
        return {(documents, words, True) for words in widths}
    # with dropout inside, the two are separate, and the second is read while the first is still in use
    together = documents if expert.drops_out_inside else documents + unlabeled
    learned = {(together, words, True) for words in widths}
    return learned | {(unlabeled, words, False) for words in widths}


SMALLEST_BATCH, USUAL_BATCH, LARGEST_BATCH = 512, 8_192, 65_536  # pieces; usually the paper's 32 documents
USUAL_STEPS, FEWEST_STEPS = 500, 200  # of an epoch, with batches up to the usual size and above it


@dataclass(frozen=True)
class LabeledPart:
    """Encoded documents: words, labels, weights (n,), and the imitators' evidence on them.

    Labels are ids (n,), or in stage 1 perhaps probabilities (n, Y).

    alpha (I, n, Y) is constant in stage 3, so it is computed once; in stage 1 there is none: I = 0.
    cached: an expert's logits on them, if it is evaluated more than once.
    """

    words: Ragged
    labels: np.ndarray
    weights: np.ndarray
    alpha: np.ndarray
    cached: CachedLogits | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def logits(self, expert: Expert) -> np.ndarray:
        """z (n, Y)."""
        return shared_logits(expert, self.words) if self.cached is None else self.cached(expert)


def train_expert(
    expert: Expert,
    train_part: LabeledPart,
    dev_part: LabeledPart | None,
    config: Supervision,
    objective: Objective,
    runtime: Runtime,
    seed: int,
    name: str = "expert",
) -> StageOutcome:
    """Theta' = argmin L_s: line 1, which is line 3 with every lambda at -inf."""
    no_gates = FreeGates(0).to(device_of(expert))
    return fine_tune(name, expert, no_gates, train_part, dev_part, config, objective, runtime, seed)


def train_imitators(
    imitators: Imitators,
    unlabeled: Store,
    held_out: Store,
    config: Imitation,
    runtime: Runtime,
    seed: int,
    labeled: Store | None = None,
    name: str = "imitators",
) -> StageOutcome:
    """Phi = argmin L_u: line 2. Learns from the teacher's soft labels, never from labels.

    labeled: documents that are always learned from, beside the unlabeled ones.
    """
    config = suited(config, unlabeled, labeled)
    stage = imitation_stage(imitators, unlabeled, held_out, config, seed, labeled, name)
    return train(stage, config, runtime)


def suited(config: Imitation, unlabeled: Store, labeled: Store | None = None) -> Imitation:
    """The settings with a batch that suits the corpus, and a learning rate that suits the batch."""
    if config.batch_tokens is not None or config.batch_documents is not None:
        return config
    tokens = _batch_tokens(unlabeled, labeled, config)
    rate = config.learning_rate * math.sqrt(max(1.0, tokens / USUAL_BATCH))
    return replace(config, batch_tokens=tokens, learning_rate=rate)


def imitation_stage(
    imitators: Imitators,
    unlabeled: Store,
    held_out: Store,
    config: Imitation,
    seed: int,
    labeled: Store | None = None,
    name: str = "imitators",
) -> Stage:
    """Stage 2 for the loop."""
    device = device_of(imitators)
    tokens = config.batch_tokens
    if tokens is None:
        tokens = _batch_tokens(unlabeled, labeled, config)
    chosen = drawn_rows(len(unlabeled), config.documents, seed)
    stores = [unlabeled] if labeled is None else [unlabeled, labeled]
    if chosen is not None and labeled is not None:
        chosen = np.concatenate([chosen, np.ones(len(labeled), dtype=bool)])
    text = MixedShards(stores, imitators.offset.shape[1], device, seed)
    own, number, processes = own_windows(imitators)

    def plan(epoch: int) -> Iterator[np.ndarray]:
        return text.plan(epoch, chosen, tokens, config.batch_documents)

    def fetch(rows: np.ndarray) -> tuple[PieceBatch, Tensor, Stream]:
        pieces, probs, local = text.fetch(rows)
        share = share_of(pieces.lengths[local], number, processes)
        local = local[share.rows]  # the loss is linear in the soft labels: a mean becomes a part of one
        batch = pieces.pack(local, own.gap)
        stream = stream_of(own, batch.pieces, probs.shape[1])
        return batch, probs[to_device(local, device)] * share.part, stream

    def loss(fetched: tuple[PieceBatch, Tensor, Stream], step: int) -> Tensor:
        batch, expert_probs, stream = fetched
        return projected_loss(own, batch.pieces, batch.document, expert_probs, stream=stream)

    score = partial(imitation_scores, imitators, held_out)
    named = dict(imitators.named_parameters())
    documents = len(text) if chosen is None else int(chosen.sum())
    takes_last = config.falls_to_zero  # the rate is then 0, and agreement with the teacher is not the goal
    return Stage(name, named, documents, plan, fetch, loss, score, takes_last=takes_last)


def drawn_rows(documents: int, wanted: int | None, seed: int) -> np.ndarray | None:
    """Which documents (n,) are among `wanted` random ones; None: all. Larger draws hold smaller ones."""
    if wanted is None or wanted >= documents:
        return None
    order = numpy_generator(seed, "drawn documents").permutation(documents)
    is_drawn = np.zeros(documents, dtype=bool)
    is_drawn[order[:wanted]] = True
    return is_drawn


def fine_tune(
    name: str,
    expert: Expert,
    gates: Gates,
    train_part: LabeledPart,
    dev_part: LabeledPart | None,
    config: Supervision,
    objective: Objective,
    runtime: Runtime,
    seed: int,
) -> StageOutcome:
    """Theta, Lambda = argmin L'_s: line 3. Without imitators it is the control "closed gates".

    Without dev the last epoch is kept.
    """
    device, lengths = device_of(expert), train_part.words.lengths
    constants = (train_part.labels, train_part.weights, train_part.alpha)
    labels, weights, alpha = (torch.from_numpy(array).to(device) for array in constants)

    def plan(epoch: int) -> Iterator[np.ndarray]:
        order = numpy_generator(seed, "order", name, epoch).permutation(len(train_part))
        yield from bucketed(lengths, config.batch_documents, order)

    def fetch(rows: np.ndarray) -> LabeledBatch:
        batch, at = pad_words(train_part.words.take(rows), device), to_device(rows, device)
        return LabeledBatch(batch, alpha[:, at], labels[at], weights[at]).shared()

    def loss(batch: LabeledBatch, step: int) -> Tensor:
        return objective.loss(expert, gates(), batch, Randomness(seed, name, step))

    @torch.no_grad()
    def score() -> dict[str, float]:
        if dev_part is None:
            return {}
        z = torch.from_numpy(dev_part.logits(expert))
        logits = mix(z, torch.from_numpy(dev_part.alpha), gates().cpu())
        return supervised_scores(logits, dev_part.labels, dev_part.weights)

    trained = {**_prefixed("expert", expert), **_prefixed("gates", gates)}
    if (min_gain := config.min_gain) is None and dev_part is not None:
        min_gain = standard_error(ranks.agreed(score())["dev_error"], dev_part.weights)
    begin, carried = neighbors_of_epochs(expert, train_part.words, objective.neighbors)
    takes_last = dev_part is None
    stage = Stage(
        name, trained, len(train_part), plan, fetch, loss, score, min_gain or 0.0, begin, carried, takes_last
    )
    with captured_for(expert, objective, plan(0), lengths, config.batch_documents, config.epochs):
        return train(stage, config, runtime)


def standard_error(error: float, weights: np.ndarray) -> float:
    """The standard error of an error in %, on documents with these weights (n,)."""
    w = weights.astype(np.float64)
    return math.sqrt(error * (100.0 - error) / (w.sum() ** 2 / (w**2).sum()))


def _batch_tokens(unlabeled: Store, labeled: Store | None, config: Imitation) -> int:
    """Small batches for a small corpus, which would have only a few large ones in an epoch."""
    share = 1.0 if config.documents is None else min(1.0, config.documents / max(1, len(unlabeled)))
    return usual_batch(
        share * unlabeled.manifest.pieces + (0 if labeled is None else labeled.manifest.pieces)
    )


def usual_batch(total: float) -> int:
    """Pieces in a batch of a corpus with `total` pieces."""
    if total < USUAL_BATCH * USUAL_STEPS:
        return max(SMALLEST_BATCH, int(total / USUAL_STEPS))
    return min(LARGEST_BATCH, int(total / FEWEST_STEPS))


def _prefixed(prefix: str, module: nn.Module) -> dict[str, nn.Parameter]:
    return {f"{prefix}.{name}": p for name, p in module.named_parameters() if p.numel() and p.requires_grad}


# What is measured after an epoch.

MOST_CALIBRATED = 5_000  # documents of dev that a temperature is fitted on after every epoch


def supervised_scores(logits: Tensor, labels: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Error (in %) decides between epochs, log-loss breaks ties; the calibrated one is shown, and decides
    nothing. Documents count by weight.

    Subtle: sums are exact, so that ties stay ties, whichever documents are wrong.
    """
    y, w = torch.from_numpy(labels), torch.from_numpy(weights).double()
    total, is_wrong = math.fsum(w.tolist()), logits.argmax(dim=1) != y
    losses = functional.cross_entropy(logits.double(), y, reduction="none")
    error = 100.0 * (math.fsum(w[is_wrong].tolist()) / total)
    found = {"dev_error": error, "dev_log_loss": (w @ losses).item() / total}
    return found | {f"dev_log_loss{CALIBRATED}": _calibrated_loss(logits.double().numpy(), labels, weights)}


def _calibrated_loss(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Log-loss at the temperature that calibrates: without it, a confident expert looks worse than it is."""
    some = slice(MOST_CALIBRATED)
    temperature = fit_temperature(logits[some], labels[some], weights=weights[some])
    log_probs = apply_temperature(logits, temperature)[np.arange(len(labels)), labels]
    w = weights.astype(np.float64)
    return float(-(w @ log_probs) / w.sum())


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

    kl: the mean over positions and imitators, which is what stage 2 minimizes.
    document_loss: the cross-entropy of softmax(s sum_i alpha_i), centered, against the expert, at the
    best scale s: whether alpha ranks documents as the expert does. It is smallest while the imitators know
    only what the expert knows best, and rises as they learn what the expert cannot predict.
    """
    device = device_of(imitators)
    evidence_of = Evidence(imitators, imitators.offset.shape[1])
    evidence, targets, kl, positions = [], [], 0.0, 0
    for shard in range(held_out.shard_count):
        pieces, probs = held_out.pieces(shard), held_out.column(EXPERT_COLUMN, shard)
        for rows, batch, log_probs in evidence_of.window_log_probs(pieces):
            p = torch.from_numpy(probs[rows]).to(device)
            entropy = -(torch.xlogy(p, p).sum(1) * batch.lengths).sum() * len(imitators.windows)
            kl += (imitation_loss(p, log_probs, batch.document) * len(p) - entropy).item()
            positions += int(batch.lengths.sum()) * len(imitators.windows)
            evidence.append(average_windows(log_probs, batch.document, batch.lengths).sum(0).cpu())
            targets.append(p.cpu())
    together = torch.cat(evidence).double()
    loss = _best_scaled_loss(together - together.mean(0), torch.cat(targets).double())
    return {"kl": kl / max(1, positions), "document_loss": loss}


def _best_scaled_loss(evidence: Tensor, targets: Tensor) -> float:
    scales = 2.0 ** np.arange(-2.0, 7.5, 0.5)
    losses = [-(targets * torch.log_softmax(s * evidence, 1)).sum(1).mean().item() for s in scales]
    return min(losses)
