"""LSTMs in half precision: the same numbers, and gradients that do not vanish however small they are."""

import copy

import pytest
import torch
from torch import Tensor, nn

from mein.experts.gpu_lstm import power_of_two, read_in_range
from mein.experts.language_model import LanguageModel
from mein.training.language_model import mean_loss

DOCUMENTS, WORDS, D, H = 3, 12, 8, 16


def new_lstm() -> tuple[nn.LSTM, Tensor]:
    torch.manual_seed(0)
    return nn.LSTM(D, H, batch_first=True), torch.randn(DOCUMENTS, WORDS, D)


def gradients(lstm: nn.LSTM, embedded: Tensor, weight: Tensor, is_fast: bool) -> list[Tensor]:
    """Of a weighted sum of the outputs, with respect to the embeddings and every parameter."""
    embedded = embedded.clone().requires_grad_()
    lstm.zero_grad()
    with torch.autocast(embedded.device.type, torch.bfloat16, enabled=is_fast):
        outputs, _ = read_in_range(lstm, embedded)
    assert outputs.dtype == embedded.dtype
    (outputs * weight).sum().backward()  # type: ignore[no-untyped-call]
    found = [embedded.grad, *(parameter.grad for parameter in lstm.parameters())]
    return [one for one in found if one is not None]


def error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-12, 1e9])
def test_gradients_of_any_size_are_those_of_float32(size: float) -> None:
    lstm, embedded = new_lstm()
    weight = size * torch.randn(DOCUMENTS, WORDS, H)
    pairs = zip(*(gradients(lstm, embedded, weight, is_fast) for is_fast in (True, False)), strict=True)
    assert max(error(found, truth) for found, truth in pairs) < 5e-3


def test_a_document_of_little_weight_keeps_its_direction() -> None:
    """As adversarial training needs it: a confident document's gradient is thousands of times smaller."""
    lstm, embedded = new_lstm()
    weight = torch.randn(DOCUMENTS, WORDS, H) * torch.tensor([1e-3, 1e-5, 1e-7])[:, None, None]
    found, truth = (gradients(lstm, embedded, weight, is_fast)[0] for is_fast in (True, False))
    assert nn.functional.cosine_similarity(found.flatten(1), truth.flatten(1)).min() > 0.999


def test_no_gradient_stays_none_and_not_a_number_is_passed_on() -> None:
    lstm, embedded = new_lstm()
    assert all((one == 0).all() for one in gradients(lstm, embedded, torch.zeros(()), is_fast=True))
    assert gradients(lstm, embedded, torch.tensor(torch.nan), is_fast=True)[0].isnan().any()


def test_two_readings_before_the_way_back_do_not_meet() -> None:
    lstm, embedded = new_lstm()
    once = gradients(lstm, embedded, torch.ones(()), is_fast=True)
    read = embedded.clone().requires_grad_()
    lstm.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        first, second = (read_in_range(lstm, read)[0] for _ in range(2))
    (first + second).sum().backward()  # type: ignore[no-untyped-call]
    twice = [read.grad, *(parameter.grad for parameter in lstm.parameters())]
    for one, both in zip(once, twice, strict=True):
        assert both is not None
        torch.testing.assert_close(both, 2 * one, rtol=1e-5, atol=0.0)


def test_the_twin_follows_the_weights_and_shows_in_none_of_them() -> None:
    lstm, embedded = new_lstm()
    names = set(lstm.state_dict())
    gradients(lstm, embedded, torch.ones(()), is_fast=True)
    assert set(lstm.state_dict()) == names
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(0.5)
    with torch.autocast("cpu", torch.bfloat16):
        found, (h, _) = read_in_range(lstm, embedded)
    truth, (last, _) = copy.deepcopy(lstm)(embedded)
    torch.testing.assert_close(found, truth, rtol=0.0, atol=2e-3)
    torch.testing.assert_close(h.float(), last, rtol=0.0, atol=2e-3)


def test_what_is_not_trained_gets_no_gradient_and_what_is_picked_gets_its_own() -> None:
    lstm, embedded = new_lstm()
    lstm.weight_hh_l0.requires_grad_(False)
    found = []
    for is_fast in (True, False):
        lstm.zero_grad()
        read = embedded.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_fast):
            last, _ = read_in_range(lstm, read, pick=lambda states: states[:, -1])
        assert last.shape == (DOCUMENTS, H)
        last.square().sum().backward()  # type: ignore[no-untyped-call]
        assert lstm.weight_hh_l0.grad is None
        found.append([read.grad, lstm.weight_ih_l0.grad, lstm.bias_hh_l0.grad])
    assert max(error(*pair) for pair in zip(*found, strict=True)) < 5e-3


def test_without_autocast_nothing_is_rounded() -> None:
    lstm, embedded = new_lstm()
    torch.testing.assert_close(read_in_range(lstm, embedded)[0], lstm(embedded)[0], rtol=0.0, atol=0.0)


def test_powers_of_two() -> None:
    numbers = torch.tensor([1.0, 1.99, 1e30, torch.inf, 0.0])
    assert power_of_two(numbers).log2().tolist() == [0, 0, 99, 100, -100]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_readers_learn_the_same_bits() -> None:
    assert all(torch.equal(*pair) for pair in zip(learned(20), learned(5), strict=True))


def learned(captured_words: int) -> list[Tensor]:
    """A language model's parameters after three steps over 20 words; with another number none is captured."""
    torch.manual_seed(0)
    model = LanguageModel(64, 128, 500, None, is_bidirectional=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rows, state = torch.randint(1, 500, (16, 21), device="cuda"), model.reader(0).start(16)
    with model.reader(0).capturing(16, captured_words):
        assert set(model.reader(0).captures[0].runs) == {(16, captured_words, True)}
        for step in range(3):  # a graph that runs again must see that weights and states have changed
            optimizer.zero_grad()
            dropout = torch.Generator("cuda").manual_seed(step)
            loss, state = mean_loss(model, 0, rows, state, 0.3, dropout, None)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return [*model.parameters(), state]
