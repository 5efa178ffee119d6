"""The supervised loss and its perturbed terms.

A labeled batch, or a process's share of one, and the random streams of a step.

The words that ivat may push a word to: the nearest of the labeled text, found anew before each epoch.

What labeled batches are punished for: -log p(y | X), and what perturbations add to it.

Documents without labels for vat and ivat: a batch for every step, the same for the same step.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from mein.experts.base import Expert
from mein.experts.embedding import PartGenerator, WordEmbedding, drawn_like
from mein.experts.perturb import (
    LogitsOf,
    PerturbationConfig,
    divergence,
    nearest_words,
    scaled,
    usual_norm,
    virtual_perturbation,
    word_directions,
    word_perturbation,
)
from mein.mixture.inference import device_of, fast_precision
from mein.mixture.mixture import mix, supervised_loss
from mein.runtime.seeds import derive_seed, numpy_generator
from mein.store.store import Store
from mein.text.batches import WordBatch, pad_words, to_device
from mein.text.ragged import Ragged, concatenate
from mein.training.parallel import Share, own_share


@dataclass(frozen=True)
class Randomness:
    """The random streams of one step, by name: equal for the same step, whatever came before."""

    seed: int
    stage: str
    step: int

    def generator(self, name: str, device: torch.device, share: Share | None = None) -> Generator:
        """A generator at the start of the stream, for a whole batch or a share of it."""
        seed = derive_seed(self.seed, name, self.stage, self.step)
        if share is None:
            return Generator(device).manual_seed(seed)
        return PartGenerator(device, share.rows.tolist(), share.of).manual_seed(seed)


@dataclass(frozen=True)
class Labeled:
    """A labeled batch: what the expert reads, alpha (I, B, Y), a constant, labels, weights (B,).

    Labels are ids (B,), or probabilities (B, Y). Or a share of one, which is `part` of the whole batch.
    """

    batch: WordBatch
    alpha: Tensor
    labels: Tensor
    weights: Tensor
    share: Share | None = None
    part: float = 1.0

    def shared(self) -> "Labeled":
        """This process's share; itself where there is no other."""
        share = own_share(self.batch.lengths.cpu().numpy())
        if share is None:
            return self
        rows = to_device(share.rows, self.labels.device)
        batch = taken(self.batch, rows)
        return Labeled(batch, self.alpha[:, rows], self.labels[rows], self.weights[rows], share, share.part)

    def loss(self, logits: Tensor) -> Tensor:
        """L_s of logits (B, Y); of a share, its part of the whole batch's."""
        return supervised_loss(logits, self.labels, self.weights) * self.part


def taken(batch: WordBatch, rows: Tensor) -> WordBatch:
    """Some documents, padded as they were: what is drawn for them hangs on the longest of all."""
    return WordBatch(batch.words[rows], batch.lengths[rows])


def room_for_neighbors(expert: Expert, words: Ragged, config: PerturbationConfig) -> Tensor:
    """A tensor (V, K) for the neighbors of every word among those of the labeled text."""
    V, candidates = len(word_table(expert)), len(_candidates(words))
    K = min(config.neighbors, candidates - 1)
    return torch.zeros(V, K, dtype=torch.int64, device=device_of(expert))


def neighbors_of_epochs(
    expert: Expert, words: Ragged, neighbors: Tensor | None
) -> tuple[Callable[[int], None] | None, dict[str, Tensor]]:
    """What finds the neighbors anew before each epoch, and the tensor that holds them."""
    if neighbors is None:
        return None, {}
    candidates = torch.from_numpy(_candidates(words)).to(neighbors.device)

    def find(epoch: int) -> None:
        neighbors.copy_(nearest_words(word_table(expert), candidates, neighbors.shape[1]))

    return find, {"neighbors": neighbors}


def word_table(expert: Expert) -> Tensor:
    """The embedding of every word (V, D), a constant."""
    embedding = expert.get_submodule("embedding")
    assert isinstance(embedding, WordEmbedding)
    return embedding.table().detach()


def _candidates(words: Ragged) -> np.ndarray:
    return np.unique(words.values).astype(np.int64)


SAMPLE_DOCUMENTS = 128  # by which the norm of a push is chosen

Draw = Callable[[int], tuple[Ragged, np.ndarray]]  # step -> words, and alpha (I, B, Y) on them


@dataclass(frozen=True)
class Objective:
    """What a supervised stage minimizes beside L_s: nothing, or how much perturbations change it."""

    training: str = "plain"
    config: PerturbationConfig = field(default_factory=PerturbationConfig)
    draw: Draw | None = None
    """Documents without labels, for vat and ivat."""
    neighbors: Tensor | None = None
    """The words (V, K) that ivat may push each word to."""
    epsilon: float = 5.0
    """The norm of a push."""
    warm_up_steps: int = 0
    """Steps over which the norm of adv grows from 0."""

    def adversarial_norm(self, step: int) -> float:
        """The norm of a push of adv at a step."""
        return self.epsilon * min(1.0, (step + 1) / (self.warm_up_steps + 1))


def objective_loss(
    expert: Expert, gates: Tensor, labeled: Labeled, objective: Objective, randomness: Randomness
) -> Tensor:
    """L_s of the mixture's logits, plus the perturbed term. Its `backward` completes all gradients.

    Subtle: adversarial training has filled some of them by then, so they must be zero before.
    """
    dropout = randomness.generator("dropout", device_of(expert), labeled.share)
    embedded = _embedded(expert, labeled.batch, dropout)

    def logits_of(perturbed: Tensor) -> Tensor:
        return _logits(expert, gates, perturbed, labeled.batch.lengths, labeled.alpha, dropout)

    if objective.training == "adv":
        return _adversarial(logits_of, embedded, labeled, objective.adversarial_norm(randomness.step))
    if objective.draw is not None:
        return _virtual(expert, gates, embedded, labeled, objective, randomness, dropout)
    return labeled.loss(logits_of(embedded))


def _adversarial(logits_of: LogitsOf, embedded: Tensor, labeled: Labeled, epsilon: float) -> Tensor:
    """L_s(e) + L_s(e + r), r = epsilon g / |g| for each document, g the gradient of its own loss.

    One way back through the network gives both g and the parameters' gradients of L_s(e); a document's
    weight and the mean over documents only scale g. The rest of the way, from e to the embeddings, is
    left to the loss that is returned, whose gradient with respect to e is g + dL_s(e + r)/de.
    """
    e = embedded.detach().requires_grad_()
    clean = labeled.loss(logits_of(e))
    clean.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    assert e.grad is not None
    clean, g = clean.detach(), e.grad  # subtle: the first reading must be let go before the second
    perturbed = labeled.loss(logits_of(embedded + scaled(g, epsilon)))
    carries_g = (embedded * g).sum()
    return clean + perturbed + (carries_g - carries_g.detach())


def _virtual(
    expert: Expert,
    gates: Tensor,
    embedded: Tensor,
    labeled: Labeled,
    objective: Objective,
    randomness: Randomness,
    dropout: Generator,
) -> Tensor:
    """L_s plus KL(p || q): what the mixture says of unlabeled text, and of the same text perturbed.

    p is a constant. The labeled and the perturbed documents go through the network together, for a
    batch of twice the size costs a GPU hardly more; not so where q would then meet another mask than p.
    """
    device = device_of(expert)
    batch, alpha, share = _unlabeled(objective, randomness.step, device)
    part = 1.0 if share is None else share.part
    others = _embedded(expert, batch, randomness.generator("unlabeled dropout", device, share))
    inside = randomness.generator("dropout", device, share)

    def logits_of(perturbed: Tensor) -> Tensor:
        return _logits(expert, gates, perturbed, batch.lengths, alpha, inside)

    with torch.no_grad():
        z = logits_of(others)
    noise = randomness.generator("noise", device, share)
    with _constant(expert):
        perturbed = others + _perturbation(expert, logits_of, others, z, batch, objective, noise)
    if expert.drops_out_inside:
        z_s = _logits(expert, gates, embedded, labeled.batch.lengths, labeled.alpha, dropout)
        return labeled.loss(z_s) + divergence(z, logits_of(perturbed)).mean() * part
    lengths = torch.cat([labeled.batch.lengths, batch.lengths])
    evidence = torch.cat([labeled.alpha, alpha], dim=1)
    both = _logits(expert, gates, _stacked(embedded, perturbed), lengths, evidence, dropout)
    B = len(labeled.labels)
    return labeled.loss(both[:B]) + divergence(z, both[B:]).mean() * part


def _unlabeled(
    objective: Objective, step: int, device: torch.device
) -> tuple[WordBatch, Tensor, Share | None]:
    """A step's documents without labels and alpha (I, B, Y) on them, or our share of both."""
    assert objective.draw is not None
    words, evidence = objective.draw(step)
    batch, alpha = pad_words(words, device), to_device(evidence, device)
    share = own_share(words.lengths)
    if share is None:
        return batch, alpha, None
    rows = to_device(share.rows, device)
    return taken(batch, rows), alpha[:, rows], share


@contextmanager
def _constant(expert: Expert) -> Iterator[None]:
    """Spare the way back to an expert's parameters, whose gradient is not asked for."""
    trained = [parameter for parameter in expert.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _perturbation(
    expert: Expert,
    logits_of: LogitsOf,
    embedded: Tensor,
    logits: Tensor,
    batch: WordBatch,
    objective: Objective,
    random: Generator,
) -> Tensor:
    """The push (B, T, D) of vat, or of ivat where there are neighbors."""
    if objective.neighbors is not None:
        directions = word_directions(word_table(expert), batch.words, objective.neighbors)
        return word_perturbation(logits_of, embedded, logits, directions, objective.epsilon)
    noise = drawn_like(embedded, random, lambda room: room.normal_(generator=random))
    position = torch.arange(embedded.shape[1], device=embedded.device)
    is_inside = position < batch.lengths[:, None] - 1  # neither padding nor the end of sequence
    noise = noise * is_inside[..., None]
    return virtual_perturbation(logits_of, embedded, logits, noise, objective.config.xi, objective.epsilon)


def _embedded(expert: Expert, batch: WordBatch, dropout: Generator) -> Tensor:
    """Embeddings (B, T, D), dropped out: what is added to them later meets the same mask."""
    with fast_precision(device_of(expert)):
        return expert.embed(batch.words, batch.lengths, dropout)


def _logits(
    expert: Expert, gates: Tensor, embedded: Tensor, lengths: Tensor, alpha: Tensor, dropout: Generator
) -> Tensor:
    """The mixture's logits (B, Y) of embeddings (B, T, D); the mixing stays in full precision."""
    with fast_precision(device_of(expert)):
        z = expert.classify(embedded, lengths, dropout)
    return mix(z.to(embedded.dtype), alpha.to(embedded.dtype), gates)


def _stacked(first: Tensor, second: Tensor) -> Tensor:
    """Two batches of embeddings as one (B + B', T, D), the shorter one padded with zeros."""
    T = max(first.shape[1], second.shape[1])
    return torch.cat([functional.pad(x, (0, 0, 0, T - x.shape[1])) for x in (first, second)])


@torch.no_grad()
def perturbation_norm(expert: Expert, words: Ragged, training: str, config: PerturbationConfig) -> float:
    """The norm of a push as set, or as it suits the first labeled documents."""
    if config.epsilon is not None or training == "plain":
        return 5.0 if config.epsilon is None else config.epsilon
    batch = pad_words(words.take(np.arange(min(len(words), SAMPLE_DOCUMENTS))), device_of(expert))
    embedded = expert.embed(batch.words, batch.lengths, None)
    is_inside = torch.arange(embedded.shape[1], device=embedded.device) < batch.lengths[:, None]
    return usual_norm(embedded * is_inside[..., None], training)


CANDIDATES = 16  # batches that one batch of like length is drawn from


class UnlabeledBatches:
    """Documents of like length, labeled or not but without their labels, for each step anew."""

    def __init__(self, stores: list[Store], documents: int, seed: int) -> None:
        self.shards = [(store, shard) for store in stores for shard in range(store.shard_count)]
        self.sizes = np.array([store.shard_lengths[shard] for store, shard in self.shards])
        self.documents = documents
        self.seed = seed

    def __call__(self, step: int) -> tuple[Ragged, Ragged]:
        """The words and the pieces of a step's documents."""
        random = numpy_generator(self.seed, "unlabeled batch", step)
        store, shard = self.shards[random.choice(len(self.shards), p=self.sizes / self.sizes.sum())]
        words = store.words(shard)
        batches = max(1, min(CANDIDATES, len(words) // self.documents))
        candidates = random.permutation(len(words))[: batches * self.documents]
        candidates = candidates[np.argsort(words.lengths[candidates], kind="stable")]
        start = (
            int(random.integers(batches)) * self.documents
        )  # one of them: all lengths as often as they are
        rows = candidates[start : start + self.documents]
        return concatenate([words.take(rows)]), concatenate([store.pieces(shard).take(rows)])
