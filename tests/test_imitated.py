"""What imitators are asked in stage 2: the fast loss and its gradients are those of the plain equations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mein.imitators.projected import stream_of
from mein.imitators.reference import Imitators, ImitatorsConfig, document_loss, imitation_loss
from mein.run import learned_expert, learned_imitators
from mein.text.batches import PieceBatch, pack_pieces
from mein.text.ragged import ragged
from mein.text.store import EXPERT_COLUMN
from mein.training.imitated import Imitated
from mein.training.shares import Share
from mein.training.stages import imitation_stage, suited
from tests.test_stages import begin, weights

DOCUMENTS = [[3, 1, 4, 1, 5, 9, 2, 6], [], [5], [8] * 12, [9, 7, 9, 3]]


def build(windows: Sequence[int], classes: int) -> Imitators:
    torch.manual_seed(0)
    sizes = ImitatorsConfig(windows=tuple(windows), embedding_dim=5, channels=12)
    imitators = Imitators(sizes, 11, classes).double()
    for table in imitators.embeddings.parameters():
        table.detach().mul_(10.0)
    return imitators


def imitated(imitators: Imitators, classes: int) -> Imitated:
    batch = pack_pieces(ragged(DOCUMENTS), imitators.gap, torch.device("cpu"))
    torch.manual_seed(1)
    p = torch.rand(len(DOCUMENTS), classes, dtype=torch.float64).mul(5).softmax(1)
    whole = Share(np.arange(len(DOCUMENTS)), len(DOCUMENTS), counts=True)
    return Imitated(batch, p, stream_of(imitators, batch.pieces, classes), whole)


def gradients(imitators: Imitators, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(imitators.parameters())))


def plain_loss(imitators: Imitators, batch: PieceBatch, p: Tensor, together: float) -> Tensor:
    log_probs = imitators(batch.pieces)
    of_windows = imitation_loss(p, log_probs, batch.document)
    return of_windows + together * document_loss(p, log_probs, batch.document, batch.lengths)


def test_what_windows_say_together_by_hand() -> None:
    """Two windows, documents of 2 and 1 pieces: J KL(p || q) with q from sums of log p_ij, by loops."""
    first = [[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]]
    second = [[0.7, 0.3], [0.8, 0.2], [0.5, 0.5], [0.3, 0.7]]
    log_p = torch.log(torch.tensor([first, second], dtype=torch.float64))
    document, lengths = torch.tensor([0, 0, 2, 1]), torch.tensor([2, 1])
    p = [[0.75, 0.25], [0.1, 0.9]]
    expected = 0.0
    for row, positions in enumerate([[0, 1], [3]]):
        s = [sum(log_p[i, j, y].item() for i in (0, 1) for j in positions) / len(positions) for y in (0, 1)]
        total = np.logaddexp(s[0], s[1])
        expected -= len(positions) * sum(p[row][y] * (s[y] - total) for y in (0, 1)) / 2
    found = document_loss(torch.tensor(p, dtype=torch.float64), log_p, document, lengths)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("together", [0.0, 1.0, 3.5])
@pytest.mark.parametrize("windows", [(1,), (0, 2, 1)])
def test_loss_and_gradients_are_those_of_the_equations(
    windows: Sequence[int], together: float, classes: int
) -> None:
    imitators = build(windows, classes)
    given = imitated(imitators, classes)
    truth = plain_loss(imitators, given.batch, given.expert_probs, together)
    found = given.loss(imitators, len(windows), together)
    assert found.item() == pytest.approx(truth.item(), rel=1e-10)
    for one, other in zip(gradients(imitators, found), gradients(imitators, truth), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_share_of_a_batch_has_its_part_of_the_loss() -> None:
    imitators = build((1, 2), 2)
    given = imitated(imitators, 2)
    half = Imitated(given.batch, given.expert_probs, given.stream, Share(np.arange(5), 10, counts=True))
    none = Imitated(given.batch, given.expert_probs, given.stream, Share(np.arange(5), 10, counts=False))
    whole = given.loss(imitators, 2, 1.0)
    assert half.loss(imitators, 2, 1.0).item() == pytest.approx(whole.item() / 2)
    assert none.loss(imitators, 2, 1.0).item() == 0.0
    assert all((g == 0).all() for g in gradients(imitators, none.loss(imitators, 2, 1.0)))


def test_imitators_read_labelled_text_where_they_should(tmp_path: Path) -> None:
    """Stage 2 then goes through it too, whole, however few of the others are drawn."""
    settings = {"imitator_training__documents": 7, "imitator_training__reads_labeled": True}
    run = begin(tmp_path / "run", **settings)
    imitators = learned_imitators(run, learned_expert(run))
    train, unlabeled, held_out = (run.store(part) for part in ("train", "unlabeled", "held_out"))
    assert train.has_column(EXPERT_COLUMN)
    config = suited(run.config.imitator_training, unlabeled)
    stage = imitation_stage(imitators, unlabeled, held_out, config, 0, train)
    rows = np.concatenate(list(stage.plan(0)))
    assert stage.documents == len(rows) == len(np.unique(rows)) == 7 + len(train)
    assert (rows >= len(unlabeled)).sum() == len(train)
    plain = begin(tmp_path / "plain", **settings | {"imitator_training__reads_labeled": False})
    others = learned_imitators(plain, learned_expert(plain))
    assert not plain.store("train").has_column(EXPERT_COLUMN)
    assert not torch.equal(weights(imitators)["outputs.0.weight"], weights(others)["outputs.0.weight"])
