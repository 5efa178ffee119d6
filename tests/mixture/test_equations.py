"""Each equation of the paper equals plain Python loops in float64, and one is worked by hand."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.imitators.config import ImitatorsConfig
from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.mixture.gates import SigmoidGates
from mein.mixture.mixture import mix, supervised_loss
from mein.text.batches import pack_pieces
from mein.text.ragged import Ragged

DOCUMENTS = [[3, 1, 4, 1, 5], [2], [6, 2, 6]]  # pieces; vocabulary of 7
CLASSES = 3


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def softmax(xs: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in xs)
    return [math.exp(x) / total for x in xs]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@pytest.fixture
def expert() -> LSTMExpert:
    torch.manual_seed(1)
    return LSTMExpert(ExpertConfig(embedding_dim=2, hidden_dim=3, mlp_dim=4), 7, CLASSES).double()


@pytest.fixture
def imitators() -> Imitators:
    torch.manual_seed(2)
    config = ImitatorsConfig(windows=(1, 2), embedding_dim=2, channels=3)
    return Imitators(config, 7, CLASSES).double()


def packed(documents: list[list[int]], gap: int) -> tuple[Tensor, Tensor, Tensor]:
    values = np.array([x for document in documents for x in document], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, documents)])
    batch = pack_pieces(Ragged(values, offsets), gap, torch.device("cpu"))
    return batch.pieces, batch.document, batch.lengths


def loop_lstm_logits(expert: LSTMExpert, words: list[int]) -> list[float]:
    """Equation 1 by scalar arithmetic: h_t = LSTM(E x_t, h_{t-1}), s = ReLU(W_h h_T + b_h)."""
    w = {name: p.detach().tolist() for name, p in expert.named_parameters()}
    H = 3
    h, c = [0.0] * H, [0.0] * H
    for x in words:
        embedded = w["embedding.weight"][x]
        pre = [
            dot(w["lstm.weight_ih_l0"][k], embedded)
            + w["lstm.bias_ih_l0"][k]
            + dot(w["lstm.weight_hh_l0"][k], h)
            + w["lstm.bias_hh_l0"][k]
            for k in range(4 * H)
        ]
        i, f = [sigmoid(v) for v in pre[:H]], [sigmoid(v) for v in pre[H : 2 * H]]
        g, o = [math.tanh(v) for v in pre[2 * H : 3 * H]], [sigmoid(v) for v in pre[3 * H :]]
        c = [f[k] * c[k] + i[k] * g[k] for k in range(H)]
        h = [o[k] * math.tanh(c[k]) for k in range(H)]
    rows = zip(w["hidden.weight"], w["hidden.bias"], strict=True)
    s = [max(0.0, dot(row, h) + bias) for row, bias in rows]
    rows = zip(w["output.weight"], w["output.bias"], strict=True)
    return [dot(row, s) + bias for row, bias in rows]


def loop_window_probs(imitators: Imitators, i: int, pieces: list[int], j: int) -> list[float]:
    """Equation 8 by scalar arithmetic: the fragment x_{j-c} .. x_{j+c}, zeros beyond the text."""
    c = imitators.windows[i]
    w = {name: p.detach().tolist() for name, p in imitators.named_parameters()}
    table = w["embedding.weight"]
    kernel, bias = w[f"convolutions.{i}.weight"], w[f"convolutions.{i}.bias"]  # (N, D, 2c + 1), (N,)
    o = []
    for n in range(len(kernel)):
        total = bias[n]
        for k in range(-c, c + 1):
            if 0 <= j + k < len(pieces):
                for d in range(len(table[0])):
                    total += kernel[n][d][k + c] * table[pieces[j + k]][d]
        o.append(total if total > 0 else imitators.leaky_slope * total)
    rows = zip(w[f"outputs.{i}.weight"], w[f"outputs.{i}.bias"], strict=True)
    return softmax([dot(row, o) + b for row, b in rows])


def test_equations_1_and_2_the_expert(expert: LSTMExpert) -> None:
    words = torch.tensor([[3, 5, 2, 1], [6, 1, 0, 0]])
    z = expert(words, torch.tensor([4, 2]))
    for row, document in enumerate([[3, 5, 2, 1], [6, 1]]):
        expected = loop_lstm_logits(expert, document)
        assert z[row].tolist() == pytest.approx(expected, rel=1e-12)
        p = torch.softmax(z[row], 0).tolist()
        assert p == pytest.approx(softmax(expected), rel=1e-12)


def test_equation_8_every_window(imitators: Imitators) -> None:
    pieces, document, _ = packed(DOCUMENTS, imitators.gap)
    found = imitators(pieces).exp()
    for i in range(2):
        for row, text in enumerate(DOCUMENTS):
            at = found[i, document == row]
            for j in range(len(text)):
                expected = loop_window_probs(imitators, i, text, j)
                assert at[j].tolist() == pytest.approx(expected, rel=1e-10)


def test_equation_7_the_average_over_real_positions(imitators: Imitators) -> None:
    pieces, document, lengths = packed(DOCUMENTS, imitators.gap)
    alpha = average_windows(imitators(pieces), document, lengths)
    for i in range(2):
        for row, text in enumerate(DOCUMENTS):
            probs = [loop_window_probs(imitators, i, text, j) for j in range(len(text))]
            expected = [math.log(sum(p[y] for p in probs) / len(text)) for y in range(CLASSES)]
            assert alpha[i, row].tolist() == pytest.approx(expected, rel=1e-10)


def test_equation_7_by_hand() -> None:
    """Two positions, p = (1/4, 3/4) and (3/4, 1/4): their mean is (1/2, 1/2), alpha = log 1/2.

    One position, p = (1/10, 9/10): alpha is log p itself.
    """
    log_probs = torch.tensor([[[0.25, 0.75], [0.75, 0.25], [0.1, 0.9]]], dtype=torch.double).log()
    alpha = average_windows(log_probs, torch.tensor([0, 0, 1]), torch.tensor([2, 1]))
    expected = [[math.log(0.5), math.log(0.5)], [math.log(0.1), math.log(0.9)]]
    assert alpha[0].numpy() == pytest.approx(np.array(expected), rel=1e-12)


def test_equation_7_stays_finite_far_below_the_smallest_float() -> None:
    """exp(-2000) is 0 in any float: only log space keeps log((e^-2000 + e^-2001) / 2)."""
    log_probs = torch.tensor([[[-2000.0, 0.0], [-2001.0, 0.0]]], dtype=torch.double)
    alpha = average_windows(log_probs, torch.tensor([0, 0]), torch.tensor([2]))
    expected = -2000.0 + math.log((1.0 + math.exp(-1.0)) / 2.0)
    assert alpha[0, 0, 0].item() == pytest.approx(expected, rel=1e-12)


def test_equations_5_and_6_the_mixture() -> None:
    torch.manual_seed(3)
    z, alpha = torch.randn(2, CLASSES).double(), torch.randn(4, 2, CLASSES).double()
    gates = SigmoidGates(4).double()
    with torch.no_grad():
        gates.lam.copy_(torch.tensor([-1.0, 0.0, 0.5, 2.0]))
    found = mix(z, alpha, gates())
    for row in range(2):
        for y in range(CLASSES):
            expected = z[row, y].item()
            for i, lam in enumerate([-1.0, 0.0, 0.5, 2.0]):
                expected += sigmoid(lam) * alpha[i, row, y].item()
            assert found[row, y].item() == pytest.approx(expected, rel=1e-7)


def test_equations_4_and_13_the_supervised_loss() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], dtype=torch.double)
    labels, weights = torch.tensor([1, 0]), torch.tensor([1.0, 1.0], dtype=torch.double)
    losses = [-math.log(softmax(logits[r].tolist())[y]) for r, y in enumerate([1, 0])]
    assert supervised_loss(logits, labels, weights).item() == pytest.approx(sum(losses) / 2)
    alone = supervised_loss(logits[:1], labels[:1], torch.tensor([0.25], dtype=torch.double))
    assert alone.item() == pytest.approx(losses[0] / 4)  # a light document is light, whoever is beside it
    weighted = supervised_loss(logits, labels, torch.tensor([3.0, 1.0], dtype=torch.double))
    assert weighted.item() == pytest.approx((3 * losses[0] + losses[1]) / 2)


def test_equations_11_and_12_the_imitation_loss(imitators: Imitators) -> None:
    """The sum over imitators and positions of KL(p || p_ij), mean over documents, less a constant."""
    pieces, document, _ = packed(DOCUMENTS, imitators.gap)
    p = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]
    kl, entropy = 0.0, 0.0
    for row, text in enumerate(DOCUMENTS):
        for i in range(2):
            for j in range(len(text)):
                q = loop_window_probs(imitators, i, text, j)
                kl += sum(a * math.log(a / b) for a, b in zip(p[row], q, strict=True))
                entropy -= sum(a * math.log(a) for a in p[row])
    found = imitation_loss(torch.tensor(p, dtype=torch.double), imitators(pieces), document)
    assert found.item() == pytest.approx((kl + entropy) / len(DOCUMENTS), rel=1e-10)
