"""The kernels for two classes give the equations' loss and gradients, all windows of a table at once.

Without a GPU they run in Triton's interpreter, and without Triton not at all.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mein.imitators import projected
from mein.imitators.reference import Imitators, imitation_loss
from mein.imitators.windows import read_stream
from tests.imitators.test_projected import build, differentiate, error, pack, targets_of, worst_of

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported
fused = pytest.importorskip("mein.imitators.fused", reason="needs triton")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)  # Triton's own


@pytest.fixture(autouse=True, scope="module")
def unwritten_memory_is_not_a_number() -> Iterator[None]:
    """So that whoever reads it is found out; on a GPU torch would refuse other operators too."""
    torch.use_deterministic_algorithms(DEVICE.type == "cpu")
    yield
    torch.use_deterministic_algorithms(False)


Found = tuple[Tensor, dict[str, Tensor]]


def loss_and_gradients(
    imitators: Imitators, documents: Sequence[Sequence[int]], chunk: int, dtype: torch.dtype = torch.float32
) -> tuple[Found, Found]:
    """By the kernels, and by the equations in float64."""
    batch, p = pack(documents, imitators.gap), targets_of(len(documents), 2)
    truth = differentiate(imitators, lambda: imitation_loss(p, imitators(batch.pieces), batch.document))
    imitators.float().to(DEVICE)
    vocabulary = imitators.embedding.num_embeddings
    stream = read_stream(batch.pieces.to(DEVICE), vocabulary, imitators.gap, chunk=chunk)
    with torch.no_grad():
        given = (imitators, stream, batch.document.to(DEVICE), p.float().to(DEVICE), dtype)
        loss, gradients = projected._fused_gradients(*given)
    return (loss, {name: gradients[p] for name, p in imitators.named_parameters()}), truth


def worst(found: Found, truth: Found) -> float:
    assert set(found[1]) == set(truth[1])
    return worst_of(
        [error(found[0], truth[0]), *(error(found[1][name], truth[1][name]) for name in truth[1])]
    )


def skewed_documents(pieces: int, size: int, cuts: Sequence[int]) -> list[list[int]]:
    """Some pieces hundreds of times, some once."""
    values = np.minimum(np.random.default_rng(0).zipf(1.3, size=size), pieces - 1)
    return [part.tolist() for part in np.split(values, cuts)]


@pytest.mark.parametrize("windows", [(0,), (1,), (1, 2, 3, 4), (0, 2)])
def test_all_windows_agree_with_the_equations(windows: tuple[int, ...]) -> None:
    imitators = build(windows, pieces=12, embedding_dim=7, channels=37)
    found, truth = loss_and_gradients(imitators, skewed_documents(12, 24, [0, 1, 3, 15]), chunk=3)
    assert worst(found, truth) < 1e-5
    tables = [gradient for name, gradient in found[1].items() if "embedding" in name]
    assert all((gradient[0] == 0).all() for gradient in tables), "padding must not move"
    assert all(gradient.is_contiguous() for gradient in found[1].values())  # as Adam wants them


@settings(deadline=None, max_examples=6)
@given(
    documents=st.lists(st.lists(st.integers(1, 10), max_size=6), min_size=1, max_size=3).filter(any),
    windows=st.lists(st.integers(0, 3), min_size=1, max_size=2),
    channels=st.integers(1, 9),
    slope=st.sampled_from([0.0, 0.2, 1.0]),
    chunk=st.integers(1, 5),
)
def test_any_documents_agree_with_the_equations(
    documents: list[list[int]], windows: list[int], channels: int, slope: float, chunk: int
) -> None:
    imitators = build(windows, channels=channels)
    imitators.leaky_slope = slope
    found, truth = loss_and_gradients(imitators, documents, chunk)
    assert worst(found, truth) < 2e-4  # some gradients are sums of a few terms that nearly cancel


def test_many_channels_are_summed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "CHANNELS", 32)
    imitators = build((1, 0), pieces=12, channels=75)
    found, truth = loss_and_gradients(imitators, skewed_documents(12, 24, [10]), chunk=3)
    assert worst(found, truth) < 1e-5


def test_rows_in_bfloat16_are_close() -> None:
    imitators = build((1, 2), pieces=12, embedding_dim=16, channels=32)
    found, truth = loss_and_gradients(imitators, skewed_documents(12, 24, [10]), 4, torch.bfloat16)
    assert 1e-5 < worst(found, truth) < 4e-2


def test_two_runs_give_the_same_bits() -> None:
    found = []
    for _ in range(2):
        imitators = build((1, 0), pieces=12, channels=32)
        torch.manual_seed(1)
        found.append(loss_and_gradients(imitators, skewed_documents(12, 24, [10]), chunk=4)[0])
    assert torch.equal(found[0][0], found[1][0])
    assert all(torch.equal(found[0][1][name], found[1][1][name]) for name in found[0][1])
