"""A text alone and the same text among others, padded or packed, give the same z, alpha, z' and loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.imitators.config import ImitatorsConfig
from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.mixture.inference import expert_logits, imitator_alpha
from mein.mixture.mixture import mix, supervised_loss
from mein.text.batches import pack_pieces, pad_words
from mein.text.ragged import ragged

CPU = torch.device("cpu")
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-6}
CLASSES, VOCABULARY = 3, 12
TEXTS = [[], [5], [3, 4], [7, 7, 2], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 3, 2], [9], []]
"""Also texts that are empty, of one piece, and shorter than the widest window, which sees 9."""


def expert_of(dtype: torch.dtype) -> LSTMExpert:
    torch.manual_seed(1)
    return LSTMExpert(ExpertConfig(embedding_dim=4, hidden_dim=6, mlp_dim=5), VOCABULARY, CLASSES).to(dtype)


def imitators_of(dtype: torch.dtype) -> Imitators:
    torch.manual_seed(2)
    config = ImitatorsConfig(windows=(0, 1, 4), embedding_dim=4, channels=5)
    return Imitators(config, VOCABULARY, CLASSES).to(dtype)


def logits_of(expert: LSTMExpert, texts: list[list[int]]) -> Tensor:
    batch = pad_words(ragged([[*text, 1] for text in texts]), CPU)  # 1: end of sequence
    z: Tensor = expert(batch.words, batch.lengths)
    return z


def evidence_of(imitators: Imitators, texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """alpha (I, B, Y), and the imitation loss of the batch times B: a sum over documents."""
    batch = pack_pieces(ragged(texts), imitators.gap, CPU)
    log_probs = imitators(batch.pieces)
    loss = imitation_loss(targets_of(texts, log_probs.dtype), log_probs, batch.document)
    return average_windows(log_probs, batch.document, batch.lengths), loss * len(texts)


def targets_of(texts: list[list[int]], dtype: torch.dtype) -> Tensor:
    """An expert's word on each text, whatever it is: it depends on the text alone."""
    return torch.softmax(torch.tensor([[len(t), sum(t) % 5, 1.0] for t in texts], dtype=dtype), dim=1)


def labels_of(texts: list[list[int]]) -> Tensor:
    return torch.tensor([sum(text) % CLASSES for text in texts])


def assert_alone_as_together(texts: list[list[int]], dtype: torch.dtype) -> None:
    expert, imitators = expert_of(dtype), imitators_of(dtype)
    close = CLOSE[dtype]
    z, (alpha, imitation) = logits_of(expert, texts), evidence_of(imitators, texts)
    gates = torch.tensor([0.5, 2.0, 3.0], dtype=dtype)
    mixed, ones = mix(z, alpha, gates), torch.ones(len(texts), dtype=dtype)
    supervised = supervised_loss(mixed, labels_of(texts), ones) * len(texts)
    supervised_sum, imitation_sum = 0.0, 0.0
    for row, text in enumerate(texts):
        z_alone, (alpha_alone, imitation_alone) = logits_of(expert, [text]), evidence_of(imitators, [text])
        mixed_alone = mix(z_alone, alpha_alone, gates)
        torch.testing.assert_close(z[row : row + 1], z_alone, rtol=close, atol=close)
        torch.testing.assert_close(alpha[:, row : row + 1], alpha_alone, rtol=close, atol=close)
        torch.testing.assert_close(mixed[row : row + 1], mixed_alone, rtol=close, atol=10 * close)
        supervised_sum += supervised_loss(mixed_alone, labels_of([text]), ones[:1]).item()
        imitation_sum += imitation_alone.item()
    assert supervised.item() == pytest.approx(supervised_sum, rel=10 * close, abs=10 * close)
    assert imitation.item() == pytest.approx(imitation_sum, rel=10 * close, abs=10 * close)


@pytest.mark.parametrize("dtype", CLOSE)
def test_texts_alone_and_together(dtype: torch.dtype) -> None:
    assert_alone_as_together(TEXTS, dtype)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(1, VOCABULARY - 1), max_size=14), min_size=1, max_size=6))
def test_any_texts_alone_and_together(texts: list[list[int]]) -> None:
    assert_alone_as_together(texts, torch.float64)


def test_gradients_do_not_know_the_padding_either() -> None:
    """The gradient of a batch is the sum of those of its texts, for every parameter."""
    expert, imitators = expert_of(torch.float64), imitators_of(torch.float64)

    parameters = [*expert.parameters(), *imitators.parameters()]

    def gradients(texts: list[list[int]]) -> tuple[Tensor, ...]:
        alpha, imitation = evidence_of(imitators, texts)
        loss = logits_of(expert, texts).square().sum() + alpha.square().sum() + imitation
        return torch.autograd.grad(loss, parameters)

    together, alone = gradients(TEXTS), [gradients([text]) for text in TEXTS]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(whole, torch.stack(parts).sum(0), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("tokens", [1, 5, 20, 10**6])
def test_batches_of_any_size_give_the_same_logits_and_alpha(
    monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """The same over many batches, in the documents' order, as one by one."""
    draw = np.random.default_rng(0)
    texts = [draw.integers(1, VOCABULARY, draw.integers(0, 15)).tolist() for _ in range(30)]
    expert, imitators = expert_of(torch.float32), imitators_of(torch.float32)
    words, pieces = ragged([[*text, 1] for text in texts]), ragged(texts)
    monkeypatch.setattr("mein.runtime.device.BATCH_TOKENS", tokens)
    z, alpha = expert_logits(expert, words), imitator_alpha(imitators, pieces, CLASSES)
    with torch.no_grad():
        for row, text in enumerate(texts):
            np.testing.assert_allclose(z[row], logits_of(expert, [text])[0], atol=1e-6)
            np.testing.assert_allclose(alpha[:, row], evidence_of(imitators, [text])[0][:, 0], atol=1e-6)
