"""What a GPU computes in bf16 is what the equations give in float64, but for rounding."""

import numpy as np
import pytest
import torch

from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.experts.perturb import scaled, virtual_perturbation
from mein.mixture.inference import expert_logits
from mein.text.batches import pad_words
from mein.text.ragged import Ragged, ragged
from mein.training.objectives import Adversarial, LabeledBatch, Objective, Plain, Randomness, Virtual

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
VOCABULARY, CLASSES = 200, 2
CPU, GPU = torch.device("cpu"), torch.device("cuda")
WORDS = ragged(
    [[*np.random.default_rng(n).integers(2, VOCABULARY, 5 + 3 * n).tolist(), 1] for n in range(24)]
)
NEIGHBORS = (torch.arange(VOCABULARY)[:, None] + torch.tensor([2, 5, 7])) % (VOCABULARY - 1) + 1


def expert_on(device: torch.device, dtype: torch.dtype) -> LSTMExpert:
    """The same weights on any device; no dropout, whose masks are those of a device."""
    torch.manual_seed(0)
    counts = torch.arange(VOCABULARY, 0, -1, dtype=torch.double)
    config = ExpertConfig(embedding_dim=64, hidden_dim=128, mlp_dim=30)
    expert = LSTMExpert(config, VOCABULARY, CLASSES, counts).to(device, dtype)
    expert.dropout = 0.0
    return expert


def draw(step: int) -> tuple[Ragged, np.ndarray]:
    return WORDS, np.zeros((0, len(WORDS), CLASSES), np.float32)


def loss_and_gradient(training: str, device: torch.device, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    expert = expert_on(device, dtype)
    labels = torch.arange(len(WORDS), device=device) % CLASSES
    weights, alpha = (torch.ones(*shape, device=device, dtype=dtype) for shape in ((24,), (0, 24, CLASSES)))
    objectives: dict[str, Objective] = {
        "plain": Plain(),
        "adv": Adversarial(1.0),
        "ivat": Virtual(draw, 1.0, neighbors=NEIGHBORS.to(device)),
    }
    labeled = LabeledBatch(pad_words(WORDS, device), alpha, labels, weights)
    gates = torch.zeros(0, device=device, dtype=dtype)
    loss = objectives[training].loss(expert, gates, labeled, Randomness(0, "expert", 3))
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.double().cpu().ravel() for p in expert.parameters() if p.grad is not None]
    return loss.item(), torch.cat(gradients)


@pytest.mark.parametrize("training", ["plain", "adv", "ivat"])
def test_loss_and_gradients_are_those_of_the_cpu(training: str) -> None:
    truth, true_gradient = loss_and_gradient(training, CPU, torch.float64)
    found, gradient = loss_and_gradient(training, GPU, torch.float32)
    assert found == pytest.approx(truth, rel=2e-2)
    assert (gradient - true_gradient).norm() / true_gradient.norm() < 5e-2


def test_a_push_has_its_norm() -> None:
    """Also where the networks compute in bf16, and for every document of the batch."""
    expert = expert_on(GPU, torch.float32)
    batch = pad_words(WORDS, GPU)
    embedded = expert.embed(batch.words, batch.lengths, None).detach()

    def logits_of(perturbed: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return expert.classify(perturbed, batch.lengths, None).float()

    noise = torch.randn_like(embedded)
    pushes = [
        scaled(noise, 5.0),
        virtual_perturbation(logits_of, embedded, logits_of(embedded), noise, 0.1, 5.0),
    ]
    for perturbation in pushes:
        norms = perturbation.flatten(1).norm(dim=1)
        torch.testing.assert_close(norms, torch.full_like(norms, 5.0), rtol=1e-4, atol=0)


def test_labeling_agrees() -> None:
    truth = expert_logits(expert_on(CPU, torch.float32), WORDS)
    found = expert_logits(expert_on(GPU, torch.float32), WORDS)
    np.testing.assert_allclose(found, truth, atol=5e-2)
