"""What a supervised stage minimizes: -log p(y | X), and what each kind of training adds to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from mein.experts.base import Expert
from mein.experts.config import PerturbationConfig
from mein.experts.embedding import PartGenerator, WordEmbedding, drawn_like
from mein.experts.perturb import (
    NEIGHBORS,
    XI,
    LogitsOf,
    divergence,
    nearest_words,
    scaled,
    usual_norm,
    virtual_perturbation,
    word_directions,
    word_perturbation,
)
from mein.mixture.mixture import mix, supervised_loss
from mein.runtime.device import device_of, fast_precision
from mein.runtime.seeds import derive_seed, numpy_generator
from mein.store.store import Store
from mein.text.batches import WordBatch, pad_words, to_device
from mein.text.ragged import Ragged, concatenate
from mein.training.parallel import Share, own_share


@dataclass(frozen=True)
class Randomness:
    """The random streams of one step, by name: equal for the same step, independent of earlier ones."""

    seed: int
    stage: str
    step: int

    def generator(self, name: str, device: torch.device, share: Share | None = None) -> Generator:
        """A generator at the start of the stream, for a complete batch or a share of it."""
        seed = derive_seed(self.seed, name, self.stage, self.step)
        if share is None:
            return Generator(device).manual_seed(seed)
        return PartGenerator(device, share.rows.tolist(), share.of).manual_seed(seed)


@dataclass(frozen=True)
class LabeledBatch:
    """A labeled batch: what the expert reads, alpha (I, B, Y), a constant, labels, weights (B,).

    Labels are ids (B,), or probabilities (B, Y). Or a share of a batch, which is `part` of it.
    """

    batch: WordBatch
    alpha: Tensor
    labels: Tensor
    weights: Tensor
    share: Share | None = None
    part: float = 1.0

    def shared(self) -> "LabeledBatch":
        """This process's share; itself if there is only one process."""
        share = own_share(self.batch.lengths.cpu().numpy())
        if share is None:
            return self
        rows = to_device(share.rows, self.labels.device)
        batch = taken(self.batch, rows)
        return LabeledBatch(
            batch, self.alpha[:, rows], self.labels[rows], self.weights[rows], share, share.part
        )

    def loss(self, logits: Tensor) -> Tensor:
        """L_s of logits (B, Y); of a share, its part of the batch's loss."""
        return supervised_loss(logits, self.labels, self.weights) * self.part


def taken(batch: WordBatch, rows: Tensor) -> WordBatch:
    """Some documents, padded as before: what is drawn for them depends on the longest of all."""
    return WordBatch(batch.words[rows], batch.lengths[rows])


def empty_neighbors(expert: Expert, words: Ragged) -> Tensor:
    """A tensor (V, K) of zeros for every word's neighbors among the words of the labeled text."""
    V, candidates = len(word_table(expert)), len(_candidates(words))
    K = min(NEIGHBORS, candidates - 1)
    return torch.zeros(V, K, dtype=torch.int64, device=device_of(expert))


def neighbors_of_epochs(
    expert: Expert, words: Ragged, neighbors: Tensor | None
) -> tuple[Callable[[int], None] | None, dict[str, Tensor]]:
    """A function that finds the neighbors before each epoch, and the tensor that holds them."""
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


Draw = Callable[[int], tuple[Ragged, np.ndarray]]  # step -> words, and alpha (I, B, Y) on them


class Objective(ABC):
    """What a supervised stage minimizes: L_s of the mixture's logits, and the terms of a kind of training."""

    unlabeled_documents: int = 0
    """Number of unlabeled documents in a step."""
    neighbors: Tensor | None = None
    """The words (V, K) towards which each word may be moved, found before each epoch."""

    @abstractmethod
    def loss(self, expert: Expert, gates: Tensor, labeled: LabeledBatch, randomness: Randomness) -> Tensor:
        """The loss of a step. Its `backward` completes all gradients.

        Subtle: adversarial training has already added to some of them, so they must start at zero.
        """


@dataclass(frozen=True)
class Plain(Objective):
    """L_s."""

    def loss(self, expert: Expert, gates: Tensor, labeled: LabeledBatch, randomness: Randomness) -> Tensor:
        """L_s."""
        embedded, logits_of = _reading(expert, gates, labeled, randomness)
        return labeled.loss(logits_of(embedded))


@dataclass(frozen=True)
class Adversarial(Objective):
    """L_s(e) + L_s(e + r), r = epsilon g / |g| for each document, g the gradient of its own loss."""

    epsilon: float
    """The norm of a perturbation."""
    warm_up_steps: int = 0
    """Steps over which the norm grows from 0."""

    def norm(self, step: int) -> float:
        """The norm of a perturbation at a step."""
        return self.epsilon * min(1.0, (step + 1) / (self.warm_up_steps + 1))

    def loss(self, expert: Expert, gates: Tensor, labeled: LabeledBatch, randomness: Randomness) -> Tensor:
        """L_s(e) + L_s(e + r).

        One way back through the network gives both g and the parameters' gradients of L_s(e); a document's
        weight and the mean over documents only scale g. From e to the embeddings, the returned loss carries
        the gradient: with respect to e it is g + dL_s(e + r)/de.
        """
        embedded, logits_of = _reading(expert, gates, labeled, randomness)
        e = embedded.detach().requires_grad_()
        clean = labeled.loss(logits_of(e))
        clean.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        assert e.grad is not None
        clean, g = clean.detach(), e.grad  # subtle: frees the first reading before the second
        perturbed = labeled.loss(logits_of(embedded + scaled(g, self.norm(randomness.step))))
        carries_g = (embedded * g).sum()
        return clean + perturbed + (carries_g - carries_g.detach())


@dataclass(frozen=True)
class Virtual(Objective):
    """L_s + KL(p || q): the mixture's prediction on unlabeled text, and on the same text perturbed.

    p is a constant. The perturbation is vat's, or ivat's where there are neighbors.
    """

    draw: Draw
    epsilon: float
    """The norm of a perturbation."""
    unlabeled_documents: int = 64
    xi: float = XI
    """The norm of vat's random first step."""
    neighbors: Tensor | None = None

    def loss(self, expert: Expert, gates: Tensor, labeled: LabeledBatch, randomness: Randomness) -> Tensor:
        """L_s + KL(p || q).

        The labeled and the perturbed documents go through the network together, because a batch of twice
        the size costs a GPU hardly more; but separately where q would otherwise have another mask than p.
        """
        device = device_of(expert)
        dropout = randomness.generator("dropout", device, labeled.share)
        embedded = _embedded(expert, labeled.batch, dropout)
        batch, alpha, share = self._unlabeled(randomness.step, device)
        part = 1.0 if share is None else share.part
        # The spelling names the random stream: another one would draw other masks.
        others = _embedded(expert, batch, randomness.generator("unlabelled dropout", device, share))
        inside = randomness.generator("dropout", device, share)

        def logits_of(perturbed: Tensor) -> Tensor:
            return _logits(expert, gates, perturbed, batch.lengths, alpha, inside)

        with torch.no_grad():
            z = logits_of(others)
        noise = randomness.generator("noise", device, share)
        with _constant(expert):
            perturbed = others + self._perturbation(expert, logits_of, others, z, batch, noise)
        if expert.drops_out_inside:
            z_s = _logits(expert, gates, embedded, labeled.batch.lengths, labeled.alpha, dropout)
            return labeled.loss(z_s) + divergence(z, logits_of(perturbed)).mean() * part
        lengths = torch.cat([labeled.batch.lengths, batch.lengths])
        evidence = torch.cat([labeled.alpha, alpha], dim=1)
        both = _logits(expert, gates, _stacked(embedded, perturbed), lengths, evidence, dropout)
        B = len(labeled.labels)
        return labeled.loss(both[:B]) + divergence(z, both[B:]).mean() * part

    def _unlabeled(self, step: int, device: torch.device) -> tuple[WordBatch, Tensor, Share | None]:
        """A step's documents without labels and alpha (I, B, Y) on them, or this process's share."""
        words, evidence = self.draw(step)
        batch, alpha = pad_words(words, device), to_device(evidence, device)
        share = own_share(words.lengths)
        if share is None:
            return batch, alpha, None
        rows = to_device(share.rows, device)
        return taken(batch, rows), alpha[:, rows], share

    def _perturbation(
        self,
        expert: Expert,
        logits_of: LogitsOf,
        embedded: Tensor,
        logits: Tensor,
        batch: WordBatch,
        random: Generator,
    ) -> Tensor:
        """The perturbation (B, T, D) of vat, or of ivat where there are neighbors."""
        if self.neighbors is not None:
            directions = word_directions(word_table(expert), batch.words, self.neighbors)
            return word_perturbation(logits_of, embedded, logits, directions, self.epsilon)
        noise = drawn_like(embedded, random, lambda empty: empty.normal_(generator=random))
        position = torch.arange(embedded.shape[1], device=embedded.device)
        is_inside = position < batch.lengths[:, None] - 1  # neither padding nor the end of sequence
        noise = noise * is_inside[..., None]
        return virtual_perturbation(logits_of, embedded, logits, noise, self.xi, self.epsilon)


@dataclass(frozen=True)
class Ingredients:
    """What an objective is made of."""

    expert: Expert
    words: Ragged
    """The labeled documents."""
    config: PerturbationConfig
    warm_up_steps: int
    """Steps over which the norm of an adversarial perturbation grows from 0."""
    draw: Callable[[], Draw]
    """Open the unlabeled text; called only by objectives that read it."""

    def epsilon(self, fiftieths: float = 1.0) -> float:
        """The norm of a perturbation: the setting, or one that suits the first labeled documents."""
        return perturbation_norm(self.expert, self.words, self.config, fiftieths)


def _virtual(made_of: Ingredients, *, fiftieths: float = 1.0, neighbors: Tensor | None = None) -> Virtual:
    config = made_of.config
    epsilon = made_of.epsilon(fiftieths)
    return Virtual(made_of.draw(), epsilon, config.unlabeled_documents, neighbors=neighbors)


OBJECTIVES: dict[str, Callable[[Ingredients], Objective]] = {  # by expert.training
    "plain": lambda made_of: Plain(),
    "adv": lambda made_of: Adversarial(made_of.epsilon(), made_of.warm_up_steps),
    "vat": _virtual,
    "ivat": lambda made_of: _virtual(
        made_of,
        fiftieths=3.0,
        neighbors=empty_neighbors(made_of.expert, made_of.words),
    ),
}


def _reading(
    expert: Expert, gates: Tensor, labeled: LabeledBatch, randomness: Randomness
) -> tuple[Tensor, LogitsOf]:
    """Embeddings (B, T, D) of a labeled batch, and a function from them to the mixture's logits."""
    dropout = randomness.generator("dropout", device_of(expert), labeled.share)
    embedded = _embedded(expert, labeled.batch, dropout)

    def logits_of(perturbed: Tensor) -> Tensor:
        return _logits(expert, gates, perturbed, labeled.batch.lengths, labeled.alpha, dropout)

    return embedded, logits_of


@contextmanager
def _constant(expert: Expert) -> Iterator[None]:
    """Compute no gradient of an expert's parameters."""
    trained = [parameter for parameter in expert.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _embedded(expert: Expert, batch: WordBatch, dropout: Generator) -> Tensor:
    """Embeddings (B, T, D), dropped out before anything is added to them."""
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


SAMPLE_DOCUMENTS = 128  # that determine the norm of a perturbation


@torch.no_grad()
def perturbation_norm(
    expert: Expert, words: Ragged, config: PerturbationConfig, fiftieths: float = 1.0
) -> float:
    """The norm of a perturbation: the setting, or fiftieths of that of the first labeled documents."""
    if config.epsilon is not None:
        return config.epsilon
    batch = pad_words(words.take(np.arange(min(len(words), SAMPLE_DOCUMENTS))), device_of(expert))
    embedded = expert.embed(batch.words, batch.lengths, None)
    is_inside = torch.arange(embedded.shape[1], device=embedded.device) < batch.lengths[:, None]
    return usual_norm(embedded * is_inside[..., None]) * fiftieths


CANDIDATES = 16  # batches, sorted by length, that one batch is drawn from


class UnlabeledBatches:
    """Documents of similar length for each step, from labeled and unlabeled text, without labels."""

    def __init__(self, stores: list[Store], documents: int, seed: int) -> None:
        self.shards = [(store, shard) for store in stores for shard in range(store.shard_count)]
        self.sizes = np.array([store.shard_lengths[shard] for store, shard in self.shards])
        self.documents = documents
        self.seed = seed

    def __call__(self, step: int) -> tuple[Ragged, Ragged]:
        """The words and the pieces of a step's documents."""
        random = numpy_generator(self.seed, "unlabelled batch", step)  # another name is another stream
        store, shard = self.shards[random.choice(len(self.shards), p=self.sizes / self.sizes.sum())]
        words = store.words(shard)
        batches = max(1, min(CANDIDATES, len(words) // self.documents))
        candidates = random.permutation(len(words))[: batches * self.documents]
        candidates = candidates[np.argsort(words.lengths[candidates], kind="stable")]
        start = int(random.integers(batches)) * self.documents  # so all lengths are drawn by frequency
        rows = candidates[start : start + self.documents]
        return concatenate([words.take(rows)]), concatenate([store.pieces(shard).take(rows)])
