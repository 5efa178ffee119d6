"""What a training is going to take on this machine: seconds, memory, and disk.

Stage 2 is most of it. Its seconds are those of a step, measured here on random pieces, times the steps. For
the rest there are constants, of a machine on which the reference step takes `REFERENCE_SECONDS`; another
machine, or a busy one, is slower by the factor that its reference step shows.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from mein.config import Config
from mein.imitators.config import ImitatorsConfig
from mein.imitators.projected import projected_loss, stream_of
from mein.imitators.reference import Imitators
from mein.run.documents import FOLDS, held_out_count
from mein.run.folds import SCORED_DOCUMENTS, epochs_of_fold
from mein.run.linear_fits import MOST_DOCUMENTS, VIEWS
from mein.runtime.device import choose_device
from mein.runtime.seeds import derive_seed
from mein.text.features import LATENT, MOST_NGRAMS
from mein.training.stages import usual_batch

REFERENCE = ImitatorsConfig(embedding_dim=64, channels=64)
REFERENCE_PIECES, REFERENCE_VOCABULARY = 512, 1_300
REFERENCE_SECONDS = 0.0042  # of a step of these, two classes, on one core of the machine of the constants
MEASURED_SECONDS = 0.1  # of steps of one size

START = 4.0  # seconds to import, to learn vocabularies, to report
ENCODING = 1.2e-6  # for a piece: to cut text into words and pieces, to count them, to store them
FEATURES = 2e-6  # for a piece of at most `MOST_DOCUMENTS` documents: word vectors, n-grams, latent dimensions
FIT, FIT_NUMBER, FIT_CUBE = (
    0.03,
    3.3e-8,
    3e-11,
)  # for a logit, n^2 logits, n^3: all fits of a view, n documents
LEXICON = 8e-7  # for a piece and a logit: one lexicon
LABELING, AS_CLASSES = 1e-8, 50  # for a piece and a class; the work that classes share is as much as so many
SCORING = 0.4  # of a step on the same pieces, for text that is only evaluated

START_BYTES, PIECE_BYTES = (
    560e6,
    130,
)  # of libraries; for a piece of at most `MOST_DOCUMENTS` documents, while features are learned
FIT_MATRICES, FIT_LOGITS = 8, 150  # of documents x documents, and of documents x classes, in float64
COPIES = 6  # of imitators on disk: the network, and a checkpoint with the best, the means, and Adam's two
EXPERTS, FREQUENT = 4, 0.05  # experts in a folder; n-grams of a piece of unlabeled text that get weights
SYSTEMS_PREDICTED, FOLDER_BYTES = 7, 2e6  # and what does not grow: report, vocabularies, highlights
ENCODER_BYTES = 700e6  # of MiniLM and its batches


@dataclass(frozen=True)
class Amounts:
    """What a training reads. Pieces are means of a document, counted or estimated."""

    labeled: int
    classes: int
    labeled_pieces: float
    unlabeled: int = 0
    pieces: float = 0.0
    evaluated: int = 0
    features: int = 0
    """Numbers that an encoder computes of each document."""
    encoder_seconds: float | None = 0.0
    """To encode a document; None: not known."""

    @property
    def learned_from(self) -> int:
        """Unlabeled documents that imitators learn from."""
        return self.unlabeled - held_out_count(self.unlabeled) if self.unlabeled > 1 else 0


@dataclass(frozen=True)
class ImitatorSets:
    """Imitators that are trained: so many sets, each on so many pieces, in so many epochs."""

    sets: int
    documents: int
    pieces: float
    epochs: int
    batch: int
    scored: float
    """Pieces that every epoch is evaluated on."""

    @property
    def steps(self) -> float:
        """Of all sets."""
        return self.sets * self.epochs * max(1.0, self.pieces / self.batch)

    @property
    def scored_steps(self) -> float:
        """Of the same size, for text that is evaluated before each epoch and after the last."""
        return self.sets * (self.epochs + 1) * self.scored / self.batch


@dataclass(frozen=True)
class Forecast:
    """Seconds by part, peak memory of the process, and the largest size of the run folder."""

    seconds: dict[str, float]
    memory_bytes: float
    disk_bytes: float
    is_complete: bool
    """Not where an expert learns by steps, or where an encoder is not here yet: those are left out."""

    @property
    def total(self) -> float:
        """All seconds."""
        return sum(self.seconds.values())


def imitations(config: Config, amounts: Amounts) -> list[ImitatorSets]:
    """The last imitators and, where all labels teach, those of the folds."""
    if not amounts.learned_from:
        return []
    settings, all_of_it = config.imitator_training, amounts.learned_from
    held_out = amounts.unlabeled - all_of_it

    def imitation(sets: int, documents: int, epochs: int, scored: int) -> ImitatorSets:
        documents = documents if settings.documents is None else min(documents, settings.documents)
        pieces = documents * amounts.pieces
        batch = usual_batch(pieces)
        if settings.batch_documents is not None:
            batch = max(1, round(settings.batch_documents * amounts.pieces))
        return ImitatorSets(sets, documents, pieces, epochs, batch, scored * amounts.pieces)

    found = [imitation(1, all_of_it, settings.epochs, held_out)]
    if config.expert.traits.is_fitted:
        documents = min(all_of_it, MOST_DOCUMENTS)
        epochs = epochs_of_fold(documents * amounts.pieces, settings.epochs)
        found.append(imitation(FOLDS, documents, epochs, min(held_out, SCORED_DOCUMENTS)))
    return found


def vocabulary(config: Config, amounts: Amounts) -> int:
    """About how many pieces are learned: small corpora have too few frequent words for all."""
    pieces = amounts.labeled * amounts.labeled_pieces + amounts.unlabeled * amounts.pieces
    return int(min(config.pieces.vocabulary_size, 6 * math.sqrt(pieces) + 10))


def forecast(config: Config, amounts: Amounts, step: Callable[[int], float], pace: float) -> Forecast:
    """The costs, from the seconds of a step with a batch of so many pieces.

    pace: how many times longer the reference step takes here than on the machine of the constants.
    """
    sets, is_fitted = imitations(config, amounts), config.expert.traits.is_fitted
    n, Y = amounts.labeled, amounts.classes
    logits = Y if Y > 2 else 1
    labeled, unlabeled = n * amounts.labeled_pieces, amounts.unlabeled * amounts.pieces
    evaluated = amounts.evaluated * amounts.labeled_pieces
    learned = labeled + min(amounts.unlabeled, MOST_DOCUMENTS) * amounts.pieces
    views = (len(VIEWS) if amounts.features else len(VIEWS) - 1) + 1  # and the baseline's
    labelings = unlabeled + 4 * evaluated + sum(one.sets * one.pieces for one in sets[1:])
    constants = {
        "start": START,
        "text": ENCODING * (labeled + unlabeled + evaluated),
        "features": FEATURES * learned * is_fitted,
        "fits": views * (logits * (FIT + FIT_NUMBER * n**2) + FIT_CUBE * n**3) * is_fitted,
        "lexicon": LEXICON * (FOLDS + 1) * labeled * logits * bool(sets) * config.mixture.has_lexicon,
        "labeling": LABELING * (Y + AS_CLASSES) * labelings,
    }
    seconds = {name: pace * value for name, value in constants.items()}
    seconds["encoder"] = (amounts.encoder_seconds or 0.0) * (n + amounts.unlabeled + amounts.evaluated)
    seconds["imitators"] = sum((one.steps + SCORING * one.scored_steps) * step(one.batch) for one in sets)
    memory = (
        ENCODER_BYTES * bool(amounts.features)
        + PIECE_BYTES * learned
        + 8 * n * (FIT_MATRICES * n + FIT_LOGITS * Y)
    )
    is_complete = is_fitted and amounts.encoder_seconds is not None
    return Forecast(seconds, START_BYTES + memory * is_fitted, _disk(config, amounts, sets), is_complete)


def _disk(config: Config, amounts: Amounts, sets: Sequence[ImitatorSets]) -> float:
    """Bytes of a run folder when it is largest: the text, also that of folds, networks, predictions."""
    n, Y, V = amounts.labeled, amounts.classes, vocabulary(config, amounts)
    labeled, unlabeled = n * amounts.labeled_pieces, amounts.unlabeled * amounts.pieces
    D, N = config.imitators.embedding_dim, config.imitators.channels
    imitators = V * D + sum((2 * c + 1) * D * N + (Y + 1) * N for c in config.imitators.windows)
    text = 8 * (labeled + unlabeled) + (n + amounts.unlabeled) * (2 * amounts.features + 4 * Y + 16)
    copies = 1 + sum(one.sets * one.documents for one in sets[1:]) / max(1, amounts.unlabeled)
    ngrams = (labeled + min(MOST_NGRAMS, FREQUENT * unlabeled)) * config.expert.traits.is_fitted
    experts = ngrams * LATENT + EXPERTS * (ngrams + V) * (Y + 3)
    predictions = SYSTEMS_PREDICTED * amounts.evaluated * Y * 2
    return FOLDER_BYTES + copies * text + 4 * (COPIES * imitators * bool(sets) + experts + predictions)


def measured(
    config: Config, amounts: Amounts, clock: Callable[[], float] = time.perf_counter
) -> Callable[[int], float]:
    """The seconds of a step with a batch of so many pieces, measured here at most once for each size."""

    @cache
    def step(batch: int) -> float:
        sizes = (vocabulary(config, amounts), amounts.classes, batch, amounts.pieces)
        return _step_seconds(config.imitators, config.runtime.device, *sizes, clock)

    return step


def measured_pace(config: Config, clock: Callable[[], float] = time.perf_counter) -> float:
    """How many times longer the reference step takes here."""
    sizes = (REFERENCE_VOCABULARY, 2, REFERENCE_PIECES, 32.0)
    return _step_seconds(REFERENCE, "cpu", *sizes, clock) / REFERENCE_SECONDS


def _step_seconds(
    config: ImitatorsConfig,
    device: str,
    vocabulary_size: int,
    classes: int,
    batch: int,
    length: float,
    clock: Callable[[], float],
) -> float:
    """Seconds of a step: the median of some, on random pieces, as frequent as words by Zipf's law."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(0, "forecast"))
        imitators = Imitators(config, vocabulary_size, classes).to(choose_device(device))
    optimizer = torch.optim.Adam(imitators.parameters(), fused=True)
    draws = np.random.default_rng(0).random(batch)
    pieces = torch.from_numpy((vocabulary_size**draws).astype(np.int64))
    documents = max(1, round(batch / max(1.0, length)))
    document = torch.arange(batch) * documents // batch
    probs = torch.full((documents, classes), 1 / classes)
    on_device = [tensor.to(imitators.offset.device) for tensor in (pieces, document, probs)]
    return float(np.median(list(_timed(imitators, optimizer, on_device, clock))))


def _timed(
    imitators: Imitators,
    optimizer: torch.optim.Optimizer,
    given: Sequence[torch.Tensor],
    clock: Callable[[], float],
) -> Iterator[float]:
    """The seconds of each step after the first, which takes longer; at least one."""
    pieces, document, probs = given
    until = float("inf")
    while (before := clock()) < until:
        optimizer.zero_grad(set_to_none=True)
        stream = stream_of(imitators, pieces, probs.shape[1])
        loss = projected_loss(imitators, pieces, document, probs, stream=stream)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()  # waits for a GPU
        if until == float("inf"):
            until = clock() + MEASURED_SECONDS
        else:
            yield clock() - before
