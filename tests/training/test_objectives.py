"""What training minimizes: each objective's gradient is that of plain loops, and draws repeat by step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from mein.experts.base import Expert
from mein.experts.config import ExpertConfig, PerturbationConfig
from mein.experts.lstm import LSTMExpert
from mein.experts.transformer import GivenExpert
from mein.mixture.gates import GATES, Gates, SigmoidGates
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import derive_seed
from mein.store.store import Store
from mein.text.batches import WordBatch, pad_words
from mein.text.ragged import Ragged, ragged
from mein.training.config import Optimization
from mein.training.loop import Runtime, Stage, train
from mein.training.objectives import (
    OBJECTIVES,
    Adversarial,
    Draw,
    Ingredients,
    LabeledBatch,
    Objective,
    Plain,
    Randomness,
    UnlabeledBatches,
    Virtual,
    empty_neighbors,
    neighbors_of_epochs,
    perturbation_norm,
)

CPU = torch.device("cpu")
VOCABULARY, CLASSES, D, DROPOUT = 12, 3, 4, 0.4
LABELED = [[3, 7, 2, 9, 1], [4, 1], [11, 6, 1]]
LABELS, WEIGHTS = [2, 0, 1], [1.0, 3.0, 0.5]
UNLABELED = [[5, 5, 8, 1], [10, 3, 9, 6, 7, 2, 1]]
NEIGHBORS = torch.tensor([[(word + k) % 11 + 1 for k in (2, 5, 7)] for word in range(VOCABULARY)])
COUNTS = torch.tensor([0, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1, 1], dtype=torch.double)
EPSILON, XI, SEED, STEP = 1.3, 0.2, 11, 4


def setting(gates: str, is_normalized: bool) -> tuple[LSTMExpert, Gates]:
    torch.manual_seed(7)
    config = ExpertConfig(embedding_dim=D, hidden_dim=5, mlp_dim=6)
    expert = LSTMExpert(config, VOCABULARY, CLASSES, COUNTS if is_normalized else None).double()
    expert.dropout = DROPOUT
    mixture = GATES[gates](2).double()
    with torch.no_grad():
        mixture.lam.copy_(torch.tensor([0.7, -0.4]))
        expert.output.weight.mul_(2.0)
    return expert, mixture


def alpha_of(documents: int) -> np.ndarray:
    return np.random.default_rng(documents).standard_normal((2, documents, CLASSES))


def draw(step: int) -> tuple[Ragged, np.ndarray]:
    assert step == STEP
    return ragged(UNLABELED), alpha_of(2)


def objective_of(training: str, warm_up_steps: int = 0) -> Objective:
    made: dict[str, Objective] = {
        "plain": Plain(),
        "adv": Adversarial(EPSILON, warm_up_steps),
        "vat": Virtual(draw, EPSILON, xi=XI),
        "ivat": Virtual(draw, EPSILON, xi=XI, neighbors=NEIGHBORS),
    }
    return made[training]


def virtual_of(training: str) -> Virtual:
    objective = objective_of(training)
    assert isinstance(objective, Virtual)
    return objective


def labeled_batch() -> LabeledBatch:
    weights = torch.tensor(WEIGHTS, dtype=torch.double)
    alpha = torch.from_numpy(alpha_of(3))
    return LabeledBatch(pad_words(ragged(LABELED), CPU), alpha, torch.tensor(LABELS), weights)


def gradients_of(expert: LSTMExpert, gates: Gates, objective: Objective) -> tuple[float, dict[str, Tensor]]:
    """The loss, and the gradient of every parameter, as training gets them."""
    named = {**dict(expert.named_parameters()), "lam": gates.lam}
    loss = objective.loss(expert, gates(), labeled_batch(), Randomness(SEED, "tuned", STEP))
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), {name: p.grad for name, p in named.items() if p.grad is not None}


def of_norm(direction: Tensor, norm: float) -> Tensor:
    return direction * (norm / math.sqrt(sum(x * x for x in direction.flatten().tolist())))


class Plainly:
    """The same losses without any of the package's own networks: a document, a word, a gate at a time."""

    def __init__(self, expert: LSTMExpert, gates: Gates, is_normalized: bool) -> None:
        self.w = dict(expert.named_parameters())
        self.lam = gates.lam
        self.gates = [torch.sigmoid(lam) if isinstance(gates, SigmoidGates) else lam for lam in gates.lam]
        self.is_normalized = is_normalized

    def table(self) -> list[Tensor]:
        E = self.w["embedding.weight"]
        if not self.is_normalized:
            return [torch.zeros(D, dtype=torch.double), *E[1:]]
        share = COUNTS / COUNTS.sum()
        mean = sum((share[v] * E[v] for v in range(VOCABULARY)), torch.zeros(D, dtype=torch.double))
        spread = sum(
            (share[v] * (E[v] - mean) ** 2 for v in range(VOCABULARY)), torch.zeros(D, dtype=torch.double)
        )
        return [torch.zeros(D, dtype=torch.double), *((row - mean) / (spread + 1e-6) ** 0.5 for row in E[1:])]

    def embed(self, documents: list[list[int]], stream: str) -> list[Tensor]:
        """Each document (T, D), dropped out by the mask that its batch got."""
        longest = max(map(len, documents))
        random = Generator().manual_seed(derive_seed(SEED, stream, "tuned", STEP))
        shape = (len(documents), longest, D)
        mask = torch.empty(shape, dtype=torch.double).bernoulli_(1 - DROPOUT, generator=random)
        table = self.table()
        return [
            torch.stack([table[word] * mask[row, t] / (1 - DROPOUT) for t, word in enumerate(document)])
            for row, document in enumerate(documents)
        ]

    def logits(self, embedded: Tensor, alpha: Tensor) -> Tensor:
        """z' (Y,) of one document (T, D) with alpha (I, Y)."""
        w = self.w
        h = c = torch.zeros(5, dtype=torch.double)
        for e in embedded:
            pre = w["lstm.weight_ih_l0"] @ e + w["lstm.bias_ih_l0"]
            pre = pre + w["lstm.weight_hh_l0"] @ h + w["lstm.bias_hh_l0"]
            i, f, g, o = pre[:5], pre[5:10], pre[10:15], pre[15:]
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        s = torch.relu(w["hidden.weight"] @ h + w["hidden.bias"])
        z = w["output.weight"] @ s + w["output.bias"]
        for gate, evidence in zip(self.gates, alpha, strict=True):
            z = z + gate * evidence
        return z

    def supervised(self, epsilon: float | None) -> Tensor:
        """L_s, and with an epsilon L_s of the perturbed documents too."""
        alpha = torch.from_numpy(alpha_of(3))
        total = torch.zeros((), dtype=torch.double)
        for row, e in enumerate(self.embed(LABELED, "dropout")):
            nll = -torch.log_softmax(self.logits(e, alpha[:, row]), 0)[LABELS[row]]
            total = total + WEIGHTS[row] / len(WEIGHTS) * nll
            if epsilon is not None:
                (g,) = torch.autograd.grad(nll, e, retain_graph=True)
                r = of_norm(g, epsilon)
                perturbed = -torch.log_softmax(self.logits(e + r, alpha[:, row]), 0)[LABELS[row]]
                total = total + WEIGHTS[row] / len(WEIGHTS) * perturbed
        return total

    def virtual(self, neighbors: Tensor | None, p_is_constant: bool = True) -> Tensor:
        """The mean over unlabeled documents of KL(p || q)."""
        alpha = torch.from_numpy(alpha_of(2))
        random = Generator().manual_seed(derive_seed(SEED, "noise", "tuned", STEP))
        noise = torch.empty(2, 7, D, dtype=torch.double).normal_(generator=random)
        total = torch.zeros((), dtype=torch.double)
        for row, e in enumerate(self.embed(UNLABELED, "unlabelled dropout")):
            p = torch.softmax(self.logits(e, alpha[:, row]), 0)
            if neighbors is None:
                r = self.power_step(e, p.detach(), alpha[:, row], noise[row])
            else:
                r = self.word_step(e, p.detach(), alpha[:, row], UNLABELED[row], neighbors)
            q = self.logits(e + r, alpha[:, row])
            total = total + self.kl(p.detach() if p_is_constant else p, q) / len(UNLABELED)
        return total

    def kl(self, p: Tensor, logits: Tensor) -> Tensor:
        q = torch.softmax(logits, 0)
        terms = [p[y] * (p[y].log() - q[y].log()) for y in range(CLASSES)]
        return terms[0] + terms[1] + terms[2]

    def power_step(self, e: Tensor, p: Tensor, alpha: Tensor, noise: Tensor) -> Tensor:
        d = noise[: len(e)].clone()
        d[-1] = 0.0  # the end of sequence gets no noise, but may be pushed
        d = of_norm(d, XI).requires_grad_()
        (g,) = torch.autograd.grad(self.kl(p, self.logits(e.detach() + d, alpha)), d)
        return of_norm(g, EPSILON)

    def word_step(
        self, e: Tensor, p: Tensor, alpha: Tensor, document: list[int], neighbors: Tensor
    ) -> Tensor:
        table = [row.detach() for row in self.table()]
        ways = []
        for word in document:
            vectors = [table[int(n)] - table[word] for n in neighbors[word]]
            ways.append(torch.stack([v / v.norm() if v.norm() > 0 else v for v in vectors]))
        sums = [way.sum(0) for way in ways]
        step = torch.stack([s / s.norm() for s in sums])
        a = torch.zeros(len(document), 3, dtype=torch.double, requires_grad=True)  # beyond the first step
        moved = torch.stack([coefficients @ way for coefficients, way in zip(a, ways, strict=True)])
        (g,) = torch.autograd.grad(self.kl(p, self.logits(e.detach() + step + moved, alpha)), a)
        r = torch.stack([g[t] @ way for t, way in enumerate(ways)])
        return of_norm(r, EPSILON)

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        named = {**self.w, "lam": self.lam}
        return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def plain_loss(training: str, plainly: Plainly) -> Tensor:
    loss = plainly.supervised(EPSILON if training == "adv" else None)
    if training in ("vat", "ivat"):
        loss = loss + plainly.virtual(NEIGHBORS if training == "ivat" else None)
    return loss


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-8, atol=1e-12, msg=name)
        assert gradient.abs().max() > 1e-6, name


@pytest.mark.parametrize("is_normalized", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("gates", ["ours", "paper"])
@pytest.mark.parametrize("training", ["plain", "adv", "vat", "ivat"])
def test_gradients_equal_those_of_loops_over_documents_and_words(
    training: str, gates: Literal["ours", "paper"], is_normalized: bool
) -> None:
    expert, mixture = setting(gates, is_normalized)
    plainly = Plainly(expert, mixture, is_normalized)
    expected = plain_loss(training, plainly)
    loss, found = gradients_of(expert, mixture, objective_of(training))
    assert loss == pytest.approx(expected.item(), rel=1e-10)
    assert_same(found, plainly.gradients(expected))
    assert found["embedding.weight"][0].abs().max() == 0.0  # padding


@pytest.mark.parametrize("mlp_dropout", [0.0, 0.5])
def test_without_a_push_nothing_diverges(mlp_dropout: float) -> None:
    """p and q meet the same masks, also that of the last hidden layer."""
    expert, gates = setting("ours", is_normalized=False)
    expert.mlp_dropout, expert.drops_out_inside = mlp_dropout, mlp_dropout > 0
    losses = []
    for objective in (replace(virtual_of("vat"), epsilon=1e-9), objective_of("plain")):
        randomness = Randomness(SEED, "tuned", STEP)
        losses.append(objective.loss(expert, gates(), labeled_batch(), randomness).item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


def test_an_expert_with_a_dropped_out_mlp_declares_it() -> None:
    sizes = {"embedding_dim": 2, "hidden_dim": 3, "mlp_dim": 4}
    experts = [LSTMExpert(ExpertConfig.model_validate(sizes | {"mlp_dropout": r}), 9, 2) for r in (0.0, 0.5)]
    assert [expert.drops_out_inside for expert in experts] == [False, True]


def test_each_word_of_a_document_loses_elements_of_its_own() -> None:
    sizes = {"embedding_dim": 40, "hidden_dim": 3, "mlp_dim": 4}
    expert = LSTMExpert(ExpertConfig.model_validate(sizes), 9, 2)
    words, lengths = torch.full((2, 5), 3), torch.tensor([5, 5])
    dropped = expert.embed(words, lengths, torch.Generator().manual_seed(0))
    is_kept = dropped != 0.0  # (B, T, D)
    assert not bool((is_kept[:, 0] == is_kept[:, 1]).all())
    assert not bool((is_kept[0] == is_kept[1]).all())
    assert 0.3 < is_kept.double().mean().item() < 0.7
    whole = expert.embed(words, lengths, None)
    torch.testing.assert_close(dropped[is_kept], 2.0 * whole[is_kept])


def test_the_norm_of_a_push_does_not_count_padding() -> None:
    """Also where the embedding of padding is not zero, as in some transformers."""
    expert = LSTMExpert(ExpertConfig(embedding_dim=4, hidden_dim=5, mlp_dim=4), 9, 2)
    with torch.no_grad():
        expert.embedding.weight[0] = 100.0
    words = ragged([[2, 3, 1], [4, 5, 6, 7, 8, 1]])
    norms = [expert.embedding.weight[row].square().sum().sqrt().item() for row in words.to_lists()]
    assert perturbation_norm(expert, words, PerturbationConfig()) == pytest.approx(sum(norms) / 2 / 50)


def test_each_training_that_can_be_set_has_an_objective() -> None:
    """Made of its own ingredients: the norm that suits it, neighbors and unlabeled text if it wants them."""
    assert list(OBJECTIVES) == list(get_args(ExpertConfig.model_fields["training"].annotation))
    expert, _ = setting("ours", False)
    words, opened = ragged(LABELED), []

    def unlabeled() -> Draw:
        opened.append(training)
        return draw

    config = PerturbationConfig(unlabeled_documents=5)
    epsilon = perturbation_norm(expert, words, config)
    for training in OBJECTIVES:
        found = OBJECTIVES[training](Ingredients(expert, words, config, 7, unlabeled))
        if training == "plain":
            assert found == Plain()
        elif training == "adv":
            assert found == Adversarial(epsilon, 7)
        else:
            assert isinstance(found, Virtual)
            assert (found.draw, found.xi, found.unlabeled_documents) == (draw, 0.1, 5)
            assert found.epsilon == epsilon * (3 if training == "ivat" else 1)
            assert (found.neighbors is not None) == (training == "ivat")
    assert opened == ["vat", "ivat"]


def test_the_norm_of_adv_warms_up_to_exactly_epsilon() -> None:
    objective = Adversarial(3.0, warm_up_steps=4)
    norms = [objective.norm(step) for step in (0, 1, 3, 4, 5, 10**9)]
    assert norms == pytest.approx([0.6, 1.2, 2.4, 3.0, 3.0, 3.0])
    assert objective.norm(4) == objective.norm(5) == 3.0
    assert Adversarial(3.0).norm(0) == 3.0


def test_an_unfinished_warm_up_pushes_less() -> None:
    """At step 4 of 9: 5 tenths of epsilon."""
    expert, mixture = setting("ours", True)
    plainly = Plainly(expert, mixture, True)
    expected = plainly.supervised(0.5 * EPSILON)
    loss, found = gradients_of(expert, mixture, objective_of("adv", warm_up_steps=9))
    assert loss == pytest.approx(expected.item(), rel=1e-10)
    assert_same(found, plainly.gradients(expected))


@pytest.mark.parametrize("training", ["vat", "ivat"])
def test_p_is_a_constant_and_it_would_show_if_it_were_not(training: str) -> None:
    expert, mixture = setting("ours", True)
    plainly = Plainly(expert, mixture, True)
    neighbors = NEIGHBORS if training == "ivat" else None
    through_p = plainly.supervised(None) + plainly.virtual(neighbors, p_is_constant=False)
    loss, found = gradients_of(expert, mixture, objective_of(training))
    assert loss == pytest.approx(through_p.item(), rel=1e-10)  # the loss alone does not show it
    differing = plainly.gradients(through_p)
    assert max(float((found[name] - differing[name]).abs().max()) for name in found) > 1e-2


@pytest.mark.parametrize("training", ["plain", "adv", "vat", "ivat"])
def test_a_step_repeats_and_the_next_one_differs(training: str) -> None:
    expert, mixture = setting("ours", False)
    objective = objective_of(training)
    if isinstance(objective, Virtual):
        objective = replace(objective, draw=lambda step: draw(STEP))

    def loss_of(seed: int, stage: str, step: int) -> float:
        labeled = labeled_batch()
        return objective.loss(expert, mixture(), labeled, Randomness(seed, stage, step)).item()

    first = loss_of(1, "expert", 0)
    assert loss_of(1, "expert", 0) == first
    others = [loss_of(1, "expert", 1), loss_of(1, "tuned", 0), loss_of(2, "expert", 0)]
    assert len({first, *others}) == 4


class DropsOutInside(Expert):
    """Like a transformer: dropped out in `classify`, by numbers that start at the generator's seed."""

    classes = CLASSES
    drops_out_inside = True

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D)
        self.output = nn.Linear(D, CLASSES)

    def embed(self, words: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        embedded: Tensor = self.embedding(words)
        return embedded

    def classify(self, embedded: Tensor, lengths: Tensor, dropout: Generator | None) -> Tensor:
        assert dropout is not None
        random = Generator().manual_seed(dropout.initial_seed())
        mask = torch.empty(embedded.shape).bernoulli_(0.5, generator=random)
        is_word = torch.arange(embedded.shape[1]) < lengths[:, None]
        z: Tensor = self.output((embedded * mask * is_word[..., None]).sum(1))
        return z


@pytest.mark.parametrize("training", ["adv", "vat"])
def test_clean_and_perturbed_documents_are_dropped_out_alike_also_inside_the_expert(training: str) -> None:
    """Without a push to speak of nothing changes: adv counts L_s twice, and vat's divergence is zero."""
    torch.manual_seed(3)
    expert = DropsOutInside()
    batch = pad_words(ragged(LABELED), CPU)
    labeled = LabeledBatch(batch, torch.zeros(0, 3, CLASSES), torch.tensor(LABELS), torch.tensor(WEIGHTS))
    objective: Objective = Adversarial(1e-9)
    if training == "vat":
        objective = Virtual(lambda step: (ragged(UNLABELED), np.zeros((0, 2, CLASSES))), 1e-9, xi=XI)
    randomness = Randomness(SEED, "tuned", STEP)
    plain = Plain().loss(expert, torch.zeros(0), labeled, randomness).item()
    found = objective.loss(expert, torch.zeros(0), labeled, randomness).item()
    assert found == pytest.approx(2 * plain if training == "adv" else plain, rel=1e-5)


def test_a_teacher_learns_its_temperature_by_hand() -> None:
    """dL/dlog tau = -sum_y (p_y - [y is right]) z_y, with z = log p / tau."""
    soft_labels = GivenExpert(2)
    with torch.no_grad():
        soft_labels.log_tau.fill_(math.log(2.0))
    given = [[0.9, 0.1], [0.3, 0.7]]
    batch = WordBatch(torch.tensor(given).log(), torch.tensor([2, 2]))
    labeled = LabeledBatch(batch, torch.zeros(0, 2, 2), torch.tensor([1, 1]), torch.tensor([1.0, 3.0]))
    Plain().loss(soft_labels, torch.zeros(0), labeled, Randomness(0, "s", 0)).backward()  # type: ignore[no-untyped-call]
    expected = 0.0
    for weight, probs in zip((0.5, 1.5), given, strict=True):
        z = [math.log(p) / 2 for p in probs]
        q = [math.exp(x) / sum(map(math.exp, z)) for x in z]
        expected -= weight * (q[0] * z[0] + (q[1] - 1.0) * z[1])
    assert soft_labels.log_tau.grad is not None
    assert soft_labels.log_tau.grad.item() == pytest.approx(expected, rel=1e-5)


def test_neighbors_are_found_anew_each_epoch_among_the_words_of_the_labeled_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mein.training.objectives.NEIGHBORS", 3)
    expert, _ = setting("ours", True)
    words = ragged([[3, 7, 1], [4, 1, 9]])
    room = empty_neighbors(expert, words)
    find, carried = neighbors_of_epochs(expert, words, room)
    assert find is not None
    assert carried["neighbors"] is room
    for epoch in range(2):
        find(epoch)
        table = expert.embedding.table().detach()
        for word in range(1, VOCABULARY):
            others = [c for c in (1, 3, 4, 7, 9) if c != word]
            likeness = {c: torch.cosine_similarity(table[word], table[c], dim=0).item() for c in others}
            assert room[word].tolist() == sorted(others, key=lambda c: -likeness[c])[:3]
        before = room.clone()
        with torch.no_grad():
            expert.embedding.weight.normal_(generator=Generator().manual_seed(epoch))
    find(2)
    assert not torch.equal(room, before)
    monkeypatch.setattr("mein.training.objectives.NEIGHBORS", 50)
    assert empty_neighbors(expert, words).shape == (VOCABULARY, 4)
    assert neighbors_of_epochs(expert, words, None) == (None, {})


@pytest.mark.parametrize("kill", [2, 3, 4])
def test_a_killed_ivat_goes_on_with_the_neighbors_of_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    """Three steps an epoch, long ones, so that neighbors change: those of the epoch's start must stay."""
    monkeypatch.setattr("mein.training.objectives.NEIGHBORS", 2)

    def live(path: Path, last: int, scores: Iterator[int]) -> tuple[list[Tensor], list[Tensor]]:
        path.mkdir(exist_ok=True)
        expert, gates = setting("ours", True)
        words = ragged(LABELED)
        room = empty_neighbors(expert, words)
        objective = replace(virtual_of("ivat"), draw=lambda step: draw(STEP), neighbors=room)
        begin, carried = neighbors_of_epochs(expert, words, objective.neighbors)
        used: list[Tensor] = []

        def loss(rows: np.ndarray, step: int) -> Tensor:
            if step == last:
                raise KeyboardInterrupt
            used.append(room.clone())
            return objective.loss(expert, gates(), labeled_batch(), Randomness(SEED, "s", step))

        def plan(epoch: int) -> Iterator[np.ndarray]:
            yield from (np.array([row]) for row in range(3))

        stage = Stage(
            "s",
            dict(expert.named_parameters()),
            3,
            plan,
            lambda rows: rows,
            loss,
            lambda: {"score": float(next(scores))},
            begin=begin,
            carried=carried,
        )
        config = Optimization(epochs=2, learning_rate=0.4)
        try:
            train(stage, config, Runtime(RunFolder(path), Quiet(), 0.0))
        except KeyboardInterrupt:
            return [], used
        return [p.detach() for p in expert.parameters()], used

    falling = iter(range(9, 0, -1))  # each epoch is the best
    whole, neighbors = live(tmp_path / "whole", 99, iter(range(9, 0, -1)))
    _, before = live(tmp_path / "parts", kill, falling)
    resumed, after = live(tmp_path / "parts", 99, falling)
    assert [room.tolist() for room in before + after] == [room.tolist() for room in neighbors]
    assert all(torch.equal(a, b) for a, b in zip(resumed, whole, strict=True))
    first, second = neighbors[:3], neighbors[3:]
    assert all(torch.equal(room, first[0]) for room in first)
    assert all(torch.equal(room, second[0]) for room in second)
    assert not torch.equal(first[0], second[0])


# Documents without labels, for each step.


class Shelf:
    """Stands in for a store: documents whose words all are their number, and whose one piece does."""

    def __init__(self, shards: Sequence[Sequence[int]], first: int = 0) -> None:
        self.shard_lengths = tuple(map(len, shards))
        self.shard_count = len(shards)
        starts = first + np.concatenate([[0], np.cumsum(self.shard_lengths)])
        self.shards = [
            ragged([[int(start) + row] * length for row, length in enumerate(lengths)])
            for start, lengths in zip(starts[:-1], shards, strict=True)
        ]

    def words(self, shard: int) -> Ragged:
        return self.shards[shard]

    def pieces(self, shard: int) -> Ragged:
        return ragged([row[:1] for row in self.shards[shard].to_lists()])


def batches_of(shelves: Sequence[Shelf], documents: int, seed: int = 0) -> UnlabeledBatches:
    return UnlabeledBatches([cast(Store, shelf) for shelf in shelves], documents, seed)


def numbers(words: Ragged, pieces: Ragged) -> list[int]:
    """Which documents these are; words and pieces must be of the same ones."""
    found = [row[0] for row in words.to_lists()]
    assert [row[0] for row in pieces.to_lists()] == found
    assert words.offsets[0] == pieces.offsets[0] == 0
    return found


def test_a_step_draws_the_same_documents_whatever_was_drawn_before() -> None:
    shelf = Shelf([[1 + n % 7 for n in range(40)], [2 + n % 5 for n in range(25)]])
    batches = batches_of([shelf], 6)
    first = [numbers(*batches(step)) for step in range(12)]
    assert [numbers(*batches_of([shelf], 6)(step)) for step in reversed(range(12))] == first[::-1]
    assert len({tuple(rows) for rows in first}) == 12
    assert [numbers(*batches_of([shelf], 6, seed=1)(step)) for step in range(12)] != first


def test_every_document_is_drawn_sooner_or_later_and_each_once_in_a_batch() -> None:
    lengths = [1 + (7 * n) % 11 for n in range(60)]
    shelves = [Shelf([lengths[:20], lengths[20:30]]), Shelf([lengths[30:]], first=30)]
    batches = batches_of(shelves, 5)
    drawn = [numbers(*batches(step)) for step in range(600)]
    assert all(len(set(rows)) == 5 for rows in drawn)
    assert {row for rows in drawn for row in rows} == set(range(60))


def test_a_shard_is_drawn_from_as_often_as_it_has_documents() -> None:
    """10 of 100 documents: 60 of 600 steps expected, with a deviation of sqrt(600 * 0.1 * 0.9) = 7.3."""
    batches = batches_of([Shelf([[3] * 90, [3] * 10])], 5)
    small = sum(numbers(*batches(step))[0] >= 90 for step in range(600))
    assert 60 - 4 * 7.3 < small < 60 + 4 * 7.3


def test_documents_of_a_batch_are_of_like_length() -> None:
    """Out of 16 batches of lengths 1 .. 64, all different: 4 that follow one another."""
    batches = batches_of([Shelf([(np.random.default_rng(0).permutation(64) + 1).tolist()])], 4)
    starts = set()
    for step in range(200):
        words, _ = batches(step)
        assert np.diff(words.lengths).tolist() == [1, 1, 1]
        starts.add(int(words.lengths[0]))
    assert starts == set(range(1, 64, 4))


@pytest.mark.parametrize(("documents", "batch"), [(100, 64), (200, 8), (90, 64)])
def test_documents_of_every_length_are_drawn_equally_often(documents: int, batch: int) -> None:
    batches, steps = batches_of([Shelf([list(range(1, documents + 1))])], batch), 3_000
    times = np.bincount([row for step in range(steps) for row in numbers(*batches(step))])
    share = batch / documents
    deviation = np.sqrt(share * (1 - share) / steps)
    assert np.abs(times / steps - share).max() < 5 * deviation


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_store_smaller_than_a_batch_gives_all_it_has(size: int) -> None:
    batches = batches_of([Shelf([[size - n for n in range(size)]])], 5)
    for step in range(5):
        assert numbers(*batches(step)) == list(range(size))[::-1]
