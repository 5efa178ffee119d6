"""Gates open for evidence that is true, stay shut for noise, and never cost anything on dev."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from mein.evaluation.metrics import apply_temperature, evaluate, fit_temperature
from mein.evaluation.systems import EXPERT, MIXTURE
from mein.mixture import gates as gates_module
from mein.mixture.config import MixtureConfig
from mein.mixture.gates import (
    GATES,
    SMALLEST_SCALE,
    FreeGates,
    SigmoidGates,
    _scales,
    fit_gates,
    is_worse,
    open_gates,
    shrunk,
)
from mein.model.loading import Classifiers
from mein.run import state as workspace
from mein.run.documents import read_labeled
from mein.run.evaluate import encoded, log_probs_of_all
from mein.run.pipeline import train_and_evaluate
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from tests.support import tiny


def evidence(
    n: int, seed: int, truth: float, shrinkage: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z of pure noise (n, 2), alpha (3, n, 2) with so much truth in it, and labels (n,)."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, n)
    signs = np.stack([1 - 2 * labels, 2 * labels - 1], axis=1)  # (n, 2)
    z = draw.standard_normal((n, 2))
    alpha = draw.standard_normal((3, n, 2)) + truth * signs
    return z.astype(np.float32), log_softmax(shrinkage * alpha, axis=-1).astype(np.float32), labels


def error(z: np.ndarray, alpha: np.ndarray, gates: np.ndarray, labels: np.ndarray) -> float:
    mixed = z + np.einsum("i,iny->ny", gates, alpha)
    return float(100 * (mixed.argmax(1) != labels).mean())


@pytest.mark.parametrize("shrinkage", [1.0, 0.05])
def test_gates_open_where_alpha_knows_and_the_expert_does_not(shrinkage: float) -> None:
    """A fainter alpha needs larger gates: their product with alpha must outweigh the expert's noise."""
    for seed in range(3):
        z, alpha, labels = evidence(200, seed, truth=1.0, shrinkage=shrinkage)
        gates, _ = fit_gates(z, alpha, labels)
        assert gates.mean() * shrinkage > 0.5
        fresh = evidence(2_000, 99 + seed, truth=1.0, shrinkage=shrinkage)
        assert error(fresh[0], fresh[1], gates, fresh[2]) < 8.0
        assert error(fresh[0], fresh[1], np.zeros(3), fresh[2]) > 45.0


def test_evidence_of_a_smaller_scale_gets_larger_gates() -> None:
    """The evidence of a component decides, not its unit."""
    z, alpha, labels = evidence(100, 0, truth=0.5)
    plain, tau = fit_gates(z, alpha, labels)
    scaled, same_tau = fit_gates(z, alpha * np.array([1.0, 0.05, 1.0])[:, None, None], labels)
    assert scaled == pytest.approx(plain * [1.0, 20.0, 1.0], rel=1e-3)
    assert same_tau == pytest.approx(tau, rel=1e-3)
    silent, _ = fit_gates(z, alpha * np.array([1.0, 0.0, 1.0])[:, None, None], labels)
    assert silent[1] == 0.0


def test_the_scale_is_the_deviation_between_documents_by_hand() -> None:
    """Log-odds of 3 and 1 are 1.5 and 0.5 for either label, 1 in the mean: the deviation is 0.5."""
    alpha = np.array([[[0.0, 3.0], [0.0, 1.0]]])
    assert _scales(alpha, np.ones(2)) == pytest.approx([0.5])
    assert _scales(alpha + np.array([5.0, 0.0]), np.ones(2)) == pytest.approx([0.5])  # a leaning to a label
    assert _scales(alpha, np.array([1.0, 0.0])).tolist() == [SMALLEST_SCALE]  # of one document: none
    weighed, copied = _scales(alpha, np.array([3.0, 1.0])), _scales(alpha[:, [0, 0, 0, 1]], np.ones(4))
    assert weighed == pytest.approx(copied)


def test_a_component_of_small_scale_is_not_amplified() -> None:
    """30 documents of one label, 20 of the other, and a component with a constant bias of 0.001."""
    alpha = np.tile(np.array([0.001, 0.0]), (1, 50, 1))
    gates, _ = fit_gates(np.zeros((50, 2)), alpha, np.repeat([1, 0], [30, 20]))
    assert abs(gates[0] * 0.001) < 0.05  # log(30 / 20) is 0.4


def test_gates_that_would_harm_are_opened_less_and_without_their_tau() -> None:
    """An expert with few but confident errors: log loss ignores it beside a mediocre component."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 200)
    right = np.where(draw.random(200) < 0.9, 1.0, -8.0)
    z = right[:, None] * np.stack([1 - 2 * labels, 2 * labels - 1], axis=1)
    component = draw.standard_normal((1, 200, 2)) + 0.3 * np.stack([1 - 2 * labels, 2 * labels - 1], axis=1)
    fitted, far = fit_gates(z, component, labels)
    gates, tau = open_gates(z, component, labels)
    assert far > 1.0
    assert tau == 1.0
    assert abs(gates[0]) < abs(fitted[0])
    assert is_worse(z + fitted * component[0], z, labels)
    assert not is_worse(z + gates * component[0], z, labels)


def test_a_mixture_that_errs_nowhere_on_dev_is_calibrated_all_the_same() -> None:
    """Its gates are as large as they may be, and so are its logits: tau is their scale."""
    z, alpha, labels = evidence(75, 4, truth=0.8)
    gates, tau = fit_gates(z, alpha, labels)
    mixed = z + np.einsum("i,iny->ny", gates, alpha)
    assert (mixed.argmax(1) == labels).all()
    assert tau > 100.0
    fresh = evidence(4_000, 101, truth=0.8)
    far = fresh[0] + np.einsum("i,iny->ny", gates, fresh[1])
    careless, careful = (
        evaluate(apply_temperature(far, fit_temperature(mixed, labels, usual)), fresh[2])["log_loss"]
        for usual in (1.0, tau)
    )
    assert careful < 0.1 * careless


def test_a_run_expects_its_temperature_near_the_tau_of_its_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = []

    def watched(logits: np.ndarray, labels: np.ndarray, usual: float, weights: np.ndarray) -> float:
        expected.append(usual)
        return fit_temperature(logits, labels, usual, weights)

    monkeypatch.setattr(
        gates_module, "open_gates", lambda z, alpha, labels, weights: (np.zeros(len(alpha)), 7.0)
    )
    monkeypatch.setattr(workspace, "fit_temperature", watched)
    train_and_evaluate(tiny.config(), tiny.corpus(), tmp_path / "run", Quiet(), controls=())
    assert expected == [1.0, 1.0, 7.0]  # the expert's, the imitators' alone, the mixture's


def test_gates_stay_nearly_shut_where_alpha_is_noise_and_the_expert_knows() -> None:
    for seed in range(3):
        z, alpha, labels = evidence(500, seed, truth=0.0)
        z[np.arange(500), labels] += 4.0
        assert np.abs(fit_gates(z, alpha, labels)[0]).max() < 0.35
        fresh = evidence(2_000, 99 + seed, truth=0.0)
        fresh[0][np.arange(2_000), fresh[2]] += 4.0
        gates, _ = fit_gates(z, alpha, labels)
        assert error(fresh[0], fresh[1], gates, fresh[2]) < error(*fresh[:2], np.zeros(3), fresh[2]) + 0.5


def test_gates_are_finite_and_the_same_for_the_same_data() -> None:
    z, alpha, labels = evidence(50, 0, truth=0.3)
    gates, _ = fit_gates(z, alpha, labels)
    assert gates.shape == (3,)
    assert np.isfinite(gates).all()
    assert np.array_equal(gates, fit_gates(z, alpha, labels)[0])


def log_loss_of(z: np.ndarray, alpha: np.ndarray, gates: np.ndarray, labels: np.ndarray) -> float:
    """At the best temperature of a fine grid."""
    mixed = z + np.einsum("i,iny->ny", gates, alpha)
    mixed, rows = mixed / mixed.std(), np.arange(len(labels))
    return min(float(-log_softmax(mixed / t, axis=1)[rows, labels].mean()) for t in np.geomspace(0.1, 3, 35))


def test_more_labels_bring_the_gates_nearer_to_the_best_ones() -> None:
    """The best ones by trying many: three equal windows deserve equal gates, of one size."""
    far = evidence(5_000, 7, truth=0.7)
    best = min(log_loss_of(*far[:2], np.full(3, g), far[2]) for g in np.geomspace(0.1, 100, 20))
    excess = []
    for n in (20, 200, 2_000):
        regret = [
            log_loss_of(*far[:2], fit_gates(*evidence(n, seed, truth=0.7))[0], far[2]) - best
            for seed in range(3)
        ]
        excess.append(float(np.mean(regret)))
    assert excess[0] > excess[2]
    assert excess[1] < 0.03
    assert excess[2] < 0.003


def test_free_gates_start_as_fitted_and_are_lambda_itself() -> None:
    z, alpha, labels = evidence(200, 3, truth=0.9)
    free, weights = FreeGates(len(alpha)), np.ones(200)
    fitted, expected = open_gates(z, alpha, labels, weights)
    assert free.start(z, alpha, labels, weights) == expected > 1.0
    assert np.abs(fitted).max() > 0.3
    assert free().tolist() == free.lam.tolist() == pytest.approx(fitted.tolist(), rel=1e-5)
    assert FreeGates(0).start(z, alpha[:0], labels, weights) == 1.0


def test_sigmoid_gates_start_at_a_half_whatever_dev_is_like() -> None:
    z, alpha, labels = evidence(200, 3, truth=0.9)
    sigmoid = SigmoidGates(len(alpha))
    assert sigmoid.start(z, alpha, labels, np.ones(200)) == 1.0
    assert sigmoid().tolist() == [0.5] * len(alpha)


def test_only_free_gates_give_tuning_up_where_dev_is_worse() -> None:
    right, labels, weights = np.repeat([[1.0, 0.0]], 30, axis=0), np.zeros(30), np.ones(30)
    assert not FreeGates(1).accepts(-right, right, labels, weights)
    assert FreeGates(1).accepts(right, -right, labels, weights)
    assert SigmoidGates(1).accepts(-right, right, labels, weights)


def test_every_method_has_gates_and_a_lexicon_has_some_that_are_fitted() -> None:
    assert list(GATES) == list(get_args(MixtureConfig.model_fields["method"].annotation))
    with_lexicon = [
        method for method in GATES if MixtureConfig.model_validate({"method": method}).has_lexicon
    ]
    assert with_lexicon == ["ours"]
    assert GATES["ours"].is_fitted


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", [method for method, gates in GATES.items() if gates.is_fitted])
def test_the_mixture_is_not_worse_on_dev_than_its_expert_beyond_chance(
    tmp_path: Path, seed: int, kind: str
) -> None:
    config = tiny.config(seed=seed, mixture__method=kind, fine_tuning__learning_rate=0.3)
    corpus, folder = tiny.corpus(), RunFolder(tmp_path / "run")
    train_and_evaluate(config, corpus, folder.path, Quiet(), controls=())
    labeled = read_labeled(config, corpus)
    classifiers = Classifiers(folder, config, torch.device("cpu"), knows_dev=False)
    dev = encoded(classifiers.mixture, "dev", labeled.dev_texts)
    systems = log_probs_of_all(classifiers, "dev", dev)
    assert not is_worse(systems[MIXTURE], systems[EXPERT], labeled.dev_ids)


def test_gates_are_learned_from_gradients_too() -> None:
    gates = SigmoidGates(2)
    gates().sum().backward()
    assert gates.lam.grad is not None
    assert torch.allclose(gates.lam.grad, torch.tensor(0.25))  # the slope of the sigmoid at 0


def test_gates_are_shrunk_until_dev_is_not_worse_beyond_chance() -> None:
    """By hand: alpha is right on 4 documents, where z is wrong by 1, and wrong on the others, where z is
    right by 3, twelve times, and by 5, six times. Gate 8 turns all 22: 14 errors more, above twice the root
    of 22. 4 turns 16: 8 errors more, just twice the root of 16."""
    margins, labels = np.repeat([1.0, 3.0, 5.0], [4, 12, 6]), np.repeat([1, 0, 0], [4, 12, 6])
    z = np.stack([margins, np.zeros(22)], axis=1).astype(np.float32)
    alpha = np.tile(np.array([0.0, 1.0], np.float32), (1, 22, 1))
    assert shrunk(z, alpha, labels, np.array([8.0])).tolist() == [4.0]
    assert shrunk(z, alpha, labels, np.array([2.0])).tolist() == [2.0]
    assert shrunk(z, alpha, np.zeros(22), np.array([8.0])).tolist() == [2.0]  # turns four: chance
    assert shrunk(z, alpha * 1e6, np.zeros(22), np.array([8.0])).tolist() == [0.0]


def test_a_document_that_stays_wrong_is_no_excuse_for_others() -> None:
    """Of 30 documents 5 become wrong, 20 go from one wrong label to another; twice the root of 5 is less."""
    labels = np.zeros(30, np.int64)
    then, now = np.repeat([0, 1], [10, 20]), np.repeat([1, 0, 2], [5, 5, 20])
    one_hot = np.eye(3)
    assert is_worse(one_hot[now], one_hot[then], labels)
    assert not is_worse(one_hot[then], one_hot[now], labels)
