"""Where the method has nothing to add it is the plain expert, bit for bit, and reports this."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mein.evaluation.systems import EXPERT, TFIDF
from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.imitators.config import ImitatorsConfig
from mein.imitators.reference import Imitators, average_windows
from mein.mixture.gates import FreeGates, SigmoidGates
from mein.mixture.mixture import mix, supervised_loss
from mein.model.loading import load_model
from mein.model.model import mixed_logits
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.text.batches import pack_pieces
from mein.text.ragged import ragged
from mein.training.config import Supervision
from mein.training.loop import Runtime
from mein.training.objectives import Plain
from mein.training.stages import LabeledPart, fine_tune, train_expert
from tests.support import tiny

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gates_of_zero_leave_the_expert_bit_for_bit(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(50, 3, generator=generator, dtype=dtype) * 1e3
    alpha = torch.log_softmax(torch.randn(4, 50, 3, generator=generator, dtype=dtype) * 30, dim=-1)
    assert torch.equal(mix(z, alpha, torch.zeros(4, dtype=dtype)), z)
    assert torch.equal(mix(z, alpha[:0], torch.zeros(0, dtype=dtype)), z)
    assert np.array_equal(mixed_logits(z.numpy(), alpha.numpy(), np.zeros(4)), z.double().numpy())
    assert np.array_equal(mixed_logits(z.numpy(), alpha.numpy(), np.zeros(0)), z.double().numpy())


def test_sigmoid_gates_with_lam_at_minus_infinity_are_zero() -> None:
    gates = SigmoidGates(3)
    with torch.no_grad():
        gates.lam.fill_(-torch.inf)
    assert gates().tolist() == [0.0, 0.0, 0.0]


def parts() -> tuple[LabeledPart, LabeledPart]:
    draw = np.random.default_rng(0)
    words = ragged([[*draw.integers(2, 9, draw.integers(0, 8)), 1] for _ in range(40)])
    labels = draw.integers(0, 2, 40)
    alpha = np.log(draw.dirichlet([1.0, 1.0], (2, 40))).astype(np.float32)
    part = LabeledPart(words, labels, np.ones(40, np.float32), alpha)
    return part, part


def small_expert() -> LSTMExpert:
    torch.manual_seed(0)
    return LSTMExpert(ExpertConfig(embedding_dim=4, hidden_dim=5, mlp_dim=4), 9, 2)


def without_alpha(part: LabeledPart) -> LabeledPart:
    return replace(part, alpha=part.alpha[:0])


def test_stage_3_with_closed_gates_is_stage_1(tmp_path: Path) -> None:
    """Sigmoid gates held at -inf, no gates at all, and the first line: the same weights, bit for bit."""
    train_part, dev_part = parts()
    config, weights = Supervision(epochs=3, batch_documents=8), []
    for name in ("closed", "none", "first line"):
        runtime = Runtime(RunFolder(tmp_path / name), Quiet(), 1e9)
        runtime.folder.path.mkdir()
        expert = small_expert()
        if name == "closed":
            shut = SigmoidGates(2)
            torch.nn.init.constant_(shut.lam, -torch.inf)
            shut.lam.requires_grad_(False)
            fine_tune("expert", expert, shut, train_part, dev_part, config, Plain(), runtime, seed=0)
        elif name == "none":
            few = [without_alpha(p) for p in (train_part, dev_part)]
            fine_tune("expert", expert, FreeGates(0), few[0], few[1], config, Plain(), runtime, seed=0)
        else:
            few = [without_alpha(p) for p in (train_part, dev_part)]
            train_expert(expert, few[0], few[1], config, Plain(), runtime, seed=0)
        weights.append(expert.state_dict())
    assert not torch.equal(weights[0]["output.bias"], small_expert().output.bias)
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name])
        assert torch.equal(tensor, weights[2][name])


@pytest.mark.parametrize("unlabeled", [[], ["a single document"], tiny.TEXTS.test_texts], ids=len)
def test_without_unlabeled_text_the_result_is_the_plain_expert(tmp_path: Path, unlabeled: list[str]) -> None:
    """None at all; one, which cannot be both trained and evaluated on; only documents of the test set."""
    rows = tiny.run(tmp_path / "run", tiny.corpus(unlabeled=unlabeled))
    assert [row.name for row in rows] == [TFIDF, EXPERT]
    expert, expert_facts = load_tensors(tmp_path / "run" / "expert-of-all.safetensors")
    mixture, mixture_facts = load_tensors(tmp_path / "run" / "mixture.safetensors")
    assert all(torch.equal(expert[name], mixture[name]) for name in expert)
    assert expert_facts | {"epochs": 0} == mixture_facts
    model = load_model(tmp_path / "run", "cpu")
    assert (model.gates.tolist(), model.windows) == ([], ())


def test_two_unlabeled_documents_are_enough_to_run(tmp_path: Path) -> None:
    rows = tiny.run(tmp_path / "run", tiny.corpus(unlabeled=["one good film", "a bad one"]))
    assert len(rows) == 6
    assert len(load_model(tmp_path / "run", "cpu").gates) == 2


@pytest.mark.parametrize("window", [0, 1, 4])
def test_one_imitator_over_a_text_of_one_piece_gives_log_p_11(window: int) -> None:
    torch.manual_seed(0)
    config = ImitatorsConfig(windows=(window,), embedding_dim=3, channels=4)
    imitators = Imitators(config, 9, 2).double()
    batch = pack_pieces(ragged([[5]]), imitators.gap, CPU)
    log_probs = imitators(batch.pieces)
    alpha = average_windows(log_probs, batch.document, batch.lengths)
    assert torch.equal(alpha[0, 0], log_probs[0, window])  # the one position between two gaps


def test_a_document_without_pieces_has_no_evidence() -> None:
    torch.manual_seed(0)
    imitators = Imitators(ImitatorsConfig(windows=(1, 2), embedding_dim=3, channels=4), 9, 4)
    batch = pack_pieces(ragged([[], [3, 4], []]), imitators.gap, CPU)
    alpha = average_windows(imitators(batch.pieces), batch.document, batch.lengths)
    assert torch.allclose(alpha[:, [0, 2]].exp(), torch.tensor(0.25))
    assert not torch.allclose(alpha[:, 1].exp(), torch.tensor(0.25))


def test_a_batch_whose_weights_are_all_zero_teaches_nothing() -> None:
    logits = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = supervised_loss(logits, torch.tensor([0, 1, 1]), torch.zeros(3))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0.0
    assert torch.equal(gradient, torch.zeros(3, 2))
