"""Pushes on embeddings: exact norms, nothing on padding, each document's own, towards what hurts most."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from mein.experts.config import ExpertConfig, PerturbationConfig
from mein.experts.lstm import LSTMExpert
from mein.experts.perturb import (
    divergence,
    nearest_words,
    scaled,
    usual_norm,
    virtual_perturbation,
    word_directions,
    word_perturbation,
)
from mein.text.batches import WordBatch, pad_words
from mein.text.ragged import ragged
from mein.training.objectives import Adversarial, LabeledBatch, Randomness, perturbation_norm

WORDS, CLASSES, D = 30, 3, 6
DOCUMENTS = [[7, 3, 9, 4, 1], [5, 1], [8, 8, 2, 1], [12, 6, 3, 20, 11, 9, 1]]
SURROUNDINGS: list[tuple[list[int], int]] = [  # which documents share the batch, and how much padding more
    ([0, 1, 2, 3], 0),
    ([0, 1, 2, 3], 4),
    ([2, 0], 0),
    ([3], 2),
]


class Recorded(LSTMExpert):
    """An expert that remembers what it was asked to classify."""

    def __init__(self, config: ExpertConfig, frequencies: Tensor | None = None) -> None:
        super().__init__(config, WORDS, CLASSES, frequencies)
        self.seen: list[Tensor] = []

    def forward(self, words: Tensor, lengths: Tensor, dropout: torch.Generator | None = None) -> Tensor:
        raise AssertionError("the objective asks for embed and classify")

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: torch.Generator | None) -> Tensor:
        self.seen.append(embedded.detach().clone())
        return super().classify(embedded, lengths, dropout)


def expert_of(dropout: float = 0.0) -> Recorded:
    torch.manual_seed(5)
    config = ExpertConfig(embedding_dim=D, hidden_dim=7, mlp_dim=5)
    expert = Recorded(config, torch.arange(float(WORDS)))
    expert.dropout = dropout
    return expert


def batch_of(rows: Sequence[int], more_padding: int = 0) -> WordBatch:
    batch = pad_words(ragged([DOCUMENTS[row] for row in rows]), torch.device("cpu"))
    return WordBatch(torch.nn.functional.pad(batch.words, (0, more_padding)), batch.lengths)


def adversarial_push(expert: Recorded, rows: Sequence[int], more_padding: int, epsilon: float) -> Tensor:
    """ADV's r, seen from outside: the second embeddings that were classified less the first."""
    batch = batch_of(rows, more_padding)
    labels = torch.tensor([row % CLASSES for row in rows])
    weights = torch.tensor([1.0 + row for row in rows])
    labeled = LabeledBatch(batch, torch.zeros(0, len(rows), CLASSES), labels, weights)
    expert.seen.clear()
    Adversarial(epsilon).loss(expert, torch.zeros(0), labeled, Randomness(1, "s", 0))
    clean, perturbed = expert.seen
    return perturbed - clean


def unlabeled_perturbation(kind: str, rows: Sequence[int], more_padding: int, epsilon: float) -> Tensor:
    """VAT's or iVAT's r; a document's noise is its own, whichever batch it is in."""
    expert, batch = expert_of(), batch_of(rows, more_padding)

    def logits_of(embedded: Tensor) -> Tensor:
        return expert.classify(embedded, batch.lengths, None)

    embedded = expert.embed(batch.words, batch.lengths, None)
    logits = logits_of(embedded).detach()
    if kind == "ivat":
        table = expert.embedding.table().detach()
        directions = word_directions(table, batch.words, nearest_words(table, torch.arange(1, 25), 4))
        return word_perturbation(logits_of, embedded, logits, directions, epsilon)
    noise = torch.zeros_like(embedded)
    for place, row in enumerate(rows):
        inside = len(DOCUMENTS[row]) - 1
        noise[place, :inside] = torch.randn(inside, D, generator=torch.Generator().manual_seed(row))
    return virtual_perturbation(logits_of, embedded, logits, noise, 0.5, epsilon)


def push_of(kind: str, rows: Sequence[int], more_padding: int, epsilon: float) -> Tensor:
    if kind == "adv":
        return adversarial_push(expert_of(), rows, more_padding, epsilon)
    return unlabeled_perturbation(kind, rows, more_padding, epsilon)


@pytest.mark.parametrize("epsilon", [0.3, 5.0])
@pytest.mark.parametrize("kind", ["adv", "vat", "ivat"])
def test_every_document_is_pushed_by_epsilon_and_padding_not_at_all(kind: str, epsilon: float) -> None:
    perturbation = push_of(kind, range(4), 3, epsilon)
    for row, document in enumerate(DOCUMENTS):
        squares = sum(value * value for vector in perturbation[row].tolist() for value in vector)
        assert math.sqrt(squares) == pytest.approx(epsilon, rel=1e-4)
        assert perturbation[row, : len(document)].abs().sum(1).gt(0).all()  # also the end of sequence
        assert perturbation[row, len(document) :].tolist() == [[0.0] * D] * (10 - len(document))


@pytest.mark.parametrize("kind", ["adv", "vat", "ivat"])
def test_a_push_is_the_documents_own_whatever_else_is_in_the_batch(kind: str) -> None:
    alone = {row: push_of(kind, [row], 0, 2.0)[0] for row in range(4)}
    for rows, more_padding in SURROUNDINGS:
        perturbation = push_of(kind, rows, more_padding, 2.0)
        for place, row in enumerate(rows):
            torch.testing.assert_close(
                perturbation[place, : len(DOCUMENTS[row])],
                alone[row],
                rtol=0.0,
                atol=2e-4,
                msg=f"{kind} {rows}",
            )


def test_the_norm_of_adv_counts_dropped_elements_too_and_holds_with_dropout() -> None:
    perturbation = adversarial_push(expert_of(dropout=0.5), range(4), 2, 1.5)
    assert perturbation.square().sum(dim=(1, 2)).sqrt().tolist() == pytest.approx([1.5] * 4, rel=1e-4)
    assert perturbation[1, 2:].abs().max() == 0.0


@pytest.mark.parametrize("scale", [1.0, 1e-10, 1e-25, 1e-37, 1e30])
def test_gradients_far_below_the_root_of_the_smallest_float_still_have_a_direction(scale: float) -> None:
    """Squares of 1e-25 are 0 in float32: the direction must be that of the same gradient times 1e25."""
    direction = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    found = scaled(direction * scale, 5.0)
    exact = direction.double()
    for row in range(3):
        norm = math.sqrt(sum(value**2 for value in exact[row].flatten().tolist()))
        torch.testing.assert_close(found[row].double(), 5.0 * exact[row] / norm, rtol=1e-5, atol=1e-6)


def test_no_gradient_is_no_push() -> None:
    direction = torch.zeros(2, 3, 4)
    direction[1, 2, 0] = -3.0
    found = scaled(direction, 5.0)
    assert found[0].tolist() == [[0.0] * 4] * 3
    assert found[1].flatten().tolist() == [0.0] * 8 + [-5.0] + [0.0] * 3


def test_a_document_that_changes_nothing_keeps_its_first_step_and_nothing_is_nan() -> None:
    """The expert looks at the second document alone; the first is pushed by epsilon all the same."""
    embedded, noise = torch.randn(2, 3, D), torch.randn(2, 3, D)
    looks = torch.tensor([0.0, 1.0])[:, None]

    def logits_of(e: Tensor) -> Tensor:
        return looks * e[:, :, :3].sum(1) + torch.tensor([1.0, 2.0, 3.0])

    logits = logits_of(embedded)
    perturbation = virtual_perturbation(logits_of, embedded, logits, noise, 0.1, 5.0)
    torch.testing.assert_close(perturbation[0], scaled(noise, 5.0)[0])
    assert perturbation[1, :, 3:].abs().max() == 0.0
    directions = word_directions(torch.randn(5, D), torch.ones(2, 3).long(), torch.tensor([[2, 3]] * 5))
    found = word_perturbation(logits_of, embedded, logits, directions, 5.0)
    step = directions.mean(2)
    torch.testing.assert_close(found[0], scaled(step / step.norm(dim=-1, keepdim=True), 5.0)[0])
    for perturbed in (perturbation, found):
        torch.testing.assert_close(perturbed.flatten(1).norm(dim=1), torch.full((2,), 5.0))


# VAT's direction, where the answer is known: logits = A e make KL(p || q) = 1/2 d' H d + O(d^3) with the
# Fisher metric H = A' (diag(p) - p p') A, whatever e is. One power iteration is d -> H d.


def fisher(A: Tensor, logits: Tensor) -> Tensor:
    """H (T D, T D) of one document with these logits (Y,), by loops over pairs of classes."""
    p = torch.softmax(logits, 0)
    H = torch.zeros(A.shape[1], A.shape[1], dtype=A.dtype)
    for y in range(len(p)):
        for other in range(len(p)):
            cross = (p[y] if y == other else 0.0) - p[y] * p[other]
            H += cross * torch.outer(A[y], A[other])
    return H


def cosine(a: Tensor, b: Tensor) -> float:
    """Of directions without a sign."""
    return abs(float((a * b).sum() / (a.norm() * b.norm())))


def test_vat_finds_the_direction_that_changes_the_answer_most() -> None:
    B, T, size = 3, 2, 3
    A = torch.randn(4, T * size, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    A[0] *= 3.0  # one direction stands out
    random = torch.Generator().manual_seed(2)
    embedded = 0.1 * torch.randn(B, T, size, generator=random, dtype=torch.double)
    noise = torch.randn(B, T, size, generator=random, dtype=torch.double)

    def logits_of(e: Tensor) -> Tensor:
        return e.flatten(1) @ A.T

    logits = logits_of(embedded)
    matrices = [fisher(A, logits[row]) for row in range(B)]
    top = [torch.linalg.eigh(H).eigenvectors[:, -1] for H in matrices]
    perturbation = noise
    likeness = [[cosine(noise[row].flatten(), top[row]) for row in range(B)]]
    for _ in range(8):
        before, perturbation = (
            perturbation,
            virtual_perturbation(logits_of, embedded, logits, perturbation, 1e-4, 2.0),
        )
        for row in range(B):  # each round is one exact power iteration
            stepped = matrices[row] @ before[row].flatten()
            torch.testing.assert_close(
                perturbation[row].flatten(), 2.0 * stepped / stepped.norm(), rtol=0.0, atol=1e-3
            )
        likeness.append([cosine(perturbation[row].flatten(), top[row]) for row in range(B)])
    for row in range(B):
        assert likeness[1][row] > likeness[0][row]
        assert likeness[-1][row] > 0.99999
        strongest = divergence(logits, logits_of(embedded + 0.01 * perturbation))[row]
        weaker = divergence(logits, logits_of(embedded + 0.01 * scaled(noise, 2.0)))[row]
        assert strongest > weaker


def test_the_divergence_is_the_sum_over_classes_of_p_log_p_over_q() -> None:
    logits, others = torch.randn(2, 3).double(), torch.randn(2, 3).double()
    for row, found in enumerate(divergence(logits, others).tolist()):
        p, q = (torch.softmax(z[row], 0).tolist() for z in (logits, others))
        assert found == pytest.approx(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    confident = torch.tensor([[300.0, 0.0]])
    assert divergence(confident, torch.tensor([[0.0, 0.0]])).item() == pytest.approx(math.log(2.0))
    assert divergence(torch.tensor([[0.0, 0.0]]), confident).item() == pytest.approx(150.0 - math.log(2.0))


def test_ivat_pushes_every_word_only_along_the_ways_to_its_neighbors() -> None:
    expert, batch = expert_of().double(), batch_of(range(4), 2)
    table = expert.embedding.table().detach()
    neighbors = nearest_words(table, torch.arange(1, 20), 3)
    directions = word_directions(table, batch.words, neighbors)
    embedded = expert.embed(batch.words, batch.lengths, None)

    def logits_of(e: Tensor) -> Tensor:
        return expert.classify(e, batch.lengths, None)

    perturbation = word_perturbation(logits_of, embedded, logits_of(embedded), directions, 3.0)
    for row, document in enumerate(DOCUMENTS):
        for t, word in enumerate(document):
            ways = np.stack([(table[n] - table[word]).numpy() for n in neighbors[word]])
            wanted = perturbation[row, t].numpy()
            coefficients = np.linalg.lstsq(ways.T, wanted, rcond=None)[0]
            assert np.abs(ways.T @ coefficients - wanted).max() < 1e-12
            assert np.abs(wanted).max() > 1e-6  # K = 3 < D = 6: the span restricts it


def test_ivat_with_one_neighbor_pushes_along_it_by_its_slope() -> None:
    """logits = (w . sum of e, 0): the gradient is the same for all words, and d_t (g . d_t) is known."""
    w = torch.tensor([3.0, 1.0], dtype=torch.double)
    directions = torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.6, 0.8]], dtype=torch.double)[None, :, None]

    def logits_of(e: Tensor) -> Tensor:
        return torch.stack([e.sum(1) @ w.to(e.dtype), e.new_zeros(1)], dim=1)

    slopes = directions[0, :, 0] @ w  # 3, -1, 2.6
    expected = scaled((slopes[:, None] * directions[0, :, 0])[None], 2.0)
    embedded = torch.zeros(1, 3, 2, dtype=torch.double)
    for kind, off in ((torch.double, 1e-12), (torch.float, 1e-6)):
        logits = logits_of(embedded.to(kind)) - torch.tensor([4.0, 0.0], dtype=kind)
        found = word_perturbation(logits_of, embedded.to(kind), logits, directions.to(kind), 2.0)
        torch.testing.assert_close(found.double(), expected, rtol=0.0, atol=off)


def test_ivat_without_any_neighbor_pushes_nothing() -> None:
    embedded = torch.randn(2, 3, D)
    found = word_perturbation(
        lambda e: e.sum(1)[:, :2], embedded, torch.zeros(2, 2), torch.zeros(2, 3, 0, D), 5.0
    )
    assert found.tolist() == torch.zeros(2, 3, D).tolist()


def test_directions_are_unit_vectors_to_the_neighbors_and_zero_on_padding() -> None:
    table = torch.tensor([[0.0, 0.0], [1.0, 1.0], [4.0, 5.0], [1.0, -1.0]])
    neighbors = torch.tensor([[2, 3], [2, 3], [1, 3], [1, 2]])
    found = word_directions(table, torch.tensor([[1, 2, 0]]), neighbors)
    expected = [[0.6, 0.8], [0.0, -1.0]], [[-0.6, -0.8], [-3 / math.sqrt(45), -6 / math.sqrt(45)]]
    assert found[0, :2].numpy() == pytest.approx(np.array(expected), rel=1e-6)
    assert found[0, 2].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_word_that_lies_on_its_neighbors_or_midway_between_them_is_no_trouble() -> None:
    """Its ways are zero, or cancel out: still no NaN, and the other words are pushed as ever."""
    table = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [2.0, 2.0], [0.0, 3.0], [4.0, 1.0]])
    neighbors = torch.tensor([[1, 2], [2, 2], [1, 1], [4, 5], [1, 5], [1, 4]])
    words = torch.tensor([[1, 3, 4], [1, 2, 1]])
    directions = word_directions(table, words, neighbors)
    assert directions[0, 0].abs().max() == 0.0
    assert directions[0, 1].sum(0).abs().max() == 0.0

    def logits_of(e: Tensor) -> Tensor:
        return e.sum(1) * torch.tensor([1.0, -2.0])

    embedded = table[words]
    perturbation = word_perturbation(
        logits_of, embedded, logits_of(embedded) + torch.tensor([0.5, 0.0]), directions, 3.0
    )
    assert perturbation[0].norm().item() == pytest.approx(3.0)
    assert perturbation[0, 0].tolist() == [0.0, 0.0]
    assert perturbation[0, 2].abs().max() > 0.0
    assert perturbation[1].tolist() == [[0.0, 0.0]] * 3


def brute_force(table: list[list[float]], word: int, candidates: list[int], count: int) -> list[int]:
    def cos(a: list[float], b: list[float]) -> float:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))

    others = [c for c in candidates if c not in (word, 0)]
    return sorted(others, key=lambda c: -cos(table[word], table[c]))[:count]


@pytest.mark.parametrize("count", [1, 4])
def test_neighbors_are_the_nearest_candidates_by_cosine(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mein.experts.perturb.NEIGHBOR_ROWS", 16)  # several rounds, the last one short
    table = torch.randn(50, 5, generator=torch.Generator().manual_seed(3), dtype=torch.double)
    table *= torch.linspace(0.1, 9.0, 50)[:, None]  # lengths must not count
    table[0] = 0.0
    candidates = [0, 1, 3, 4, 8, 9, 15, 16, 17, 31, 32, 40, 49]
    found = nearest_words(table, torch.tensor(candidates), count)
    assert found.shape == (50, count)
    for word in range(1, 50):
        assert found[word].tolist() == brute_force(table.tolist(), word, candidates, count)
    assert not (found == torch.arange(50)[:, None]).any()
    assert set(found.flatten().tolist()) <= set(candidates) - {0}


def test_there_are_no_more_neighbors_than_candidates_but_oneself() -> None:
    found = nearest_words(torch.randn(6, 3), torch.tensor([0, 2, 4, 5]), 10)
    assert found.shape == (6, 2)
    assert sorted(found[4].tolist()) == [2, 5]


def test_the_usual_norm_is_a_fiftieth_of_the_mean_documents() -> None:
    """Norms sqrt(9 + 16) = 5 and sqrt(4 * 36) = 12: the mean is 8.5, a fiftieth 0.17."""
    embedded = torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[6.0, 6.0], [-6.0, 6.0]]])
    assert usual_norm(embedded) == pytest.approx(0.17)


def test_the_norm_is_the_one_that_is_set_or_else_suits_the_documents() -> None:
    expert = expert_of(dropout=0.9)
    words = ragged(DOCUMENTS)
    assert perturbation_norm(expert, words, PerturbationConfig(epsilon=0.7)) == 0.7
    table = expert.embedding.table().detach()
    norms = [math.sqrt(sum(float(table[w].square().sum()) for w in document)) for document in DOCUMENTS]
    expected = sum(norms) / 4 / 50
    assert perturbation_norm(expert, words, PerturbationConfig()) == pytest.approx(expected, rel=1e-5)
    assert perturbation_norm(expert, words, PerturbationConfig(), 3.0) == pytest.approx(
        3 * expected, rel=1e-5
    )
