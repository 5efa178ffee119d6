"""Projecting each distinct piece once changes nothing: loss and gradients are those of the equations.

The truth is `reference.py` in float64. An error is the norm of a difference over the norm of the truth.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mein.imitators import windows
from mein.imitators.config import ImitatorsConfig
from mein.imitators.projected import Precision, Tabulated, projected_log_probs, projected_loss, stream_of
from mein.imitators.reference import EMBEDDING_SPREAD, Imitators, average_windows, imitation_loss
from mein.imitators.windows import Stream, read_stream
from mein.text.batches import PieceBatch, pack_pieces
from mein.text.ragged import Ragged

CPU = torch.device("cpu")
DOCUMENTS = [[3, 1, 4, 1, 5, 9, 2, 6], [], [5], [3, 5], [8] * 12, [9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4]]


def build(
    windows: Sequence[int] = (1, 2, 3, 4), classes: int = 2, pieces: int = 11, **sizes: Any
) -> Imitators:
    """Imitators in float64, the same each time, with embeddings of a trained network's size."""
    config = ImitatorsConfig(windows=tuple(windows), **{"embedding_dim": 5, "channels": 12} | sizes)
    torch.manual_seed(0)
    imitators = Imitators(config, pieces, classes).double()
    imitators.embedding.weight.detach().div_(EMBEDDING_SPREAD)
    return imitators


def pack(documents: Sequence[Sequence[int]], gap: int) -> PieceBatch:
    values = np.array([x for document in documents for x in document], dtype=np.int64)
    return pack_pieces(Ragged(values, np.cumsum([0, *map(len, documents)])), gap, CPU)


def targets_of(documents: int, classes: int) -> Tensor:
    """A made-up word of the expert on each document (B, Y)."""
    return torch.rand(documents, classes, dtype=torch.float64).mul(5).softmax(1)


def differentiate(imitators: Imitators, loss: Callable[[], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """A loss and the gradient of every parameter."""
    imitators.zero_grad(set_to_none=True)
    value = loss()
    value.backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad.clone() for name, p in imitators.named_parameters() if p.grad is not None}
    assert set(found) == {name for name, _ in imitators.named_parameters()}
    return value.detach(), found


def error(found: Tensor, truth: Tensor) -> float:
    found, truth = found.double().cpu(), truth.double().cpu()
    return float((found - truth).norm() / truth.norm().clamp_min(1e-30))


def worst_of(errors: Sequence[float]) -> float:
    """The largest; subtle: Python's own max passes over what is not a number."""
    return float(np.max(errors))


def worst_error(
    imitators: Imitators,
    documents: Sequence[Sequence[int]],
    loss: Callable[[PieceBatch, Tensor], Tensor],
    cast: torch.dtype = torch.float64,
) -> float:
    """Of the loss and every gradient, against the equations; `loss` sees the imitators in type `cast`."""
    batch, p = pack(documents, imitators.gap), targets_of(len(documents), imitators.offset.shape[1])
    truth = differentiate(imitators, lambda: imitation_loss(p, imitators(batch.pieces), batch.document))
    imitators.to(cast)
    found = differentiate(imitators, lambda: loss(batch, p.to(cast)))
    assert all((g[0] == 0).all() for name, g in found[1].items() if "embedding" in name), (
        "padding must not move"
    )
    return worst_of(
        [error(found[0], truth[0]), *(error(found[1][name], truth[1][name]) for name in truth[1])]
    )


@settings(deadline=None, max_examples=60)
@given(
    documents=st.lists(st.lists(st.integers(1, 10), max_size=25), min_size=1, max_size=5).filter(any),
    windows=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    classes=st.integers(2, 5),
    channels=st.integers(1, 9),
    slope=st.sampled_from([0.0, 0.2, 1.0]),
    positions=st.integers(1, 60),
)
def test_loss_and_gradients_are_those_of_the_equations(
    documents: list[list[int]],
    windows: list[int],
    classes: int,
    channels: int,
    slope: float,
    positions: int,
) -> None:
    imitators = build(windows, classes, channels=channels)
    imitators.leaky_slope = slope
    segment_bytes = 8 * channels * positions  # the stream in segments of so many positions

    def loss(batch: PieceBatch, p: Tensor) -> Tensor:
        return projected_loss(imitators, batch.pieces, batch.document, p, segment_bytes=segment_bytes)

    assert worst_error(imitators, documents, loss) < 1e-12


@pytest.mark.parametrize("classes", [2, 3, 300])
@pytest.mark.parametrize(("distinct", "bound"), [(1, 1e-4), (400, 1e-5), (2_000, 1e-5)])
def test_float32_is_close_for_repeated_and_for_distinct_pieces(
    classes: int, distinct: int, bound: float
) -> None:
    pieces = 1 + np.random.default_rng(0).integers(distinct, size=1_500)
    if distinct == 2_000:
        pieces = 1 + np.arange(1_500)  # none occurs twice
    imitators = build(classes=classes, pieces=2_001, embedding_dim=24, channels=40)
    documents = [part.tolist() for part in np.split(pieces, [3, 700, 701])]

    def loss(batch: PieceBatch, p: Tensor) -> Tensor:
        return projected_loss(imitators, batch.pieces, batch.document, p)

    # With one piece a thousand equal terms nearly cancel: there the plain modules err by 3e-5.
    assert worst_error(imitators, documents, loss, torch.float32) < bound


@pytest.mark.parametrize("windows", [(0,), (4, 1, 1), (2, 0)])
def test_log_probs_and_their_gradients_are_those_of_the_equations(windows: tuple[int, ...]) -> None:
    imitators = build(windows, 3)
    batch = pack(DOCUMENTS, imitators.gap)
    torch.testing.assert_close(projected_log_probs(imitators, batch.pieces), imitators(batch.pieces))

    def loss(batch: PieceBatch, p: Tensor) -> Tensor:
        return imitation_loss(p, projected_log_probs(imitators, batch.pieces), batch.document)

    assert worst_error(imitators, DOCUMENTS, loss) < 1e-12


def test_without_gradients_the_loss_is_the_same() -> None:
    imitators, p = build(), targets_of(len(DOCUMENTS), 2)
    batch = pack(DOCUMENTS, imitators.gap)
    with torch.no_grad():
        silent = projected_loss(imitators, batch.pieces, batch.document, p)
    assert not silent.requires_grad
    torch.testing.assert_close(silent, projected_loss(imitators, batch.pieces, batch.document, p).detach())


def test_a_scaled_loss_has_scaled_gradients() -> None:
    imitators = build()
    batch, p = pack(DOCUMENTS, imitators.gap), targets_of(len(DOCUMENTS), 2)
    _, once = differentiate(imitators, lambda: projected_loss(imitators, batch.pieces, batch.document, p))
    _, thrice = differentiate(
        imitators, lambda: 3 * projected_loss(imitators, batch.pieces, batch.document, p)
    )
    for name, gradient in once.items():
        torch.testing.assert_close(thrice[name], 3 * gradient)


@pytest.mark.parametrize("segment_bytes", [2**29, 40 * 12 * 8])
def test_a_stream_read_ahead_changes_nothing(segment_bytes: int) -> None:
    imitators = build()
    batch, p = pack(DOCUMENTS, imitators.gap), targets_of(len(DOCUMENTS), 2)
    stream = stream_of(imitators, batch.pieces, 2, segment_bytes=segment_bytes)
    assert len(stream.segments) == (1 if segment_bytes == 2**29 else 2)

    def loss(read: Stream | None) -> Tensor:
        given = (imitators, batch.pieces, batch.document, p)
        return projected_loss(*given, segment_bytes=segment_bytes, stream=read)

    now, ahead = (differentiate(imitators, partial(loss, read)) for read in (None, stream))
    assert torch.equal(now[0], ahead[0])
    assert all(torch.equal(now[1][name], ahead[1][name]) for name in now[1])


def test_two_runs_give_the_same_bits() -> None:
    imitators = build(channels=40).float()
    batch, p = pack(DOCUMENTS * 40, imitators.gap), targets_of(len(DOCUMENTS) * 40, 2).float()

    def loss() -> Tensor:
        return projected_loss(imitators, batch.pieces, batch.document, p)

    first, second = (differentiate(imitators, loss)[1] for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_bits_do_not_depend_on_threads_where_rows_are_summed() -> None:
    imitators = build(channels=40).float()
    batch = pack(DOCUMENTS * 40, imitators.gap)
    segment = read_stream(batch.pieces, 11, imitators.gap).segments[0]
    do, found, threads = torch.randn(len(batch.pieces) + 16, 40), [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(torch.zeros(10, 9, 40))
        windows._add_by_piece(found[-1], do, segment)
    torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    imitators = build()
    batch = pack(DOCUMENTS, imitators.gap)
    whole = projected_log_probs(imitators, batch.pieces)
    monkeypatch.setattr(windows, "TILE_BYTES", 5 * 12 * 8)  # five positions
    torch.testing.assert_close(projected_log_probs(imitators, batch.pieces), whole)

    def loss(batch: PieceBatch, p: Tensor) -> Tensor:
        return projected_loss(imitators, batch.pieces, batch.document, p)

    assert worst_error(imitators, DOCUMENTS, loss) < 1e-12


def test_no_more_than_a_segment_of_gradient_rows_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    imitators = build()
    batch, p = pack(DOCUMENTS * 50, imitators.gap), targets_of(len(DOCUMENTS) * 50, 2)
    kept = []
    add_by_piece = windows._add_by_piece

    def spy(dP: Tensor, do: Tensor, segment: Any) -> None:
        kept.append(len(do))
        add_by_piece(dP, do, segment)

    monkeypatch.setattr(windows, "_add_by_piece", spy)
    projected_loss(imitators, batch.pieces, batch.document, p, segment_bytes=100 * 12 * 8)
    assert max(kept) == 100 + 4 * imitators.gap < len(batch.pieces)


def test_an_empty_stream_costs_nothing() -> None:
    imitators, nothing = build((0,)), torch.zeros(0, dtype=torch.int64)
    p = targets_of(2, 2)
    loss, gradients = differentiate(imitators, lambda: projected_loss(imitators, nothing, nothing, p))
    assert loss == 0.0
    assert all((gradient == 0).all() for gradient in gradients.values())
    assert projected_log_probs(imitators, nothing).shape == (1, 0, 2)
    assert Tabulated(imitators).log_probs(nothing).shape == (1, 0, 2)


def test_tables_give_the_alpha_of_the_equations() -> None:
    imitators = build((0, 3, 1), 3)
    batch = pack(DOCUMENTS, imitators.gap)
    truth = average_windows(imitators(batch.pieces), batch.document, batch.lengths).detach()
    found = Tabulated(imitators.float()).alpha(batch.pieces, batch.document, batch.lengths)
    torch.testing.assert_close(found.double(), truth, rtol=0, atol=1e-5)


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(0, 3), st.integers(1, 50), st.integers(1, 5))
def test_every_position_is_sorted_into_the_chunks_of_its_piece(
    pieces: list[int], gap: int, longest: int, size: int
) -> None:
    stream = read_stream(torch.tensor(pieces, dtype=torch.int64), 9, gap, longest, chunk=size)
    padded = [0] * gap + pieces + [0] * gap
    assert stream.ids[stream.rows].tolist() == padded
    assert sum(segment.size for segment in stream.segments) == len(pieces)
    for segment in stream.segments:
        seen = padded[segment.begin : segment.begin + segment.size + 2 * gap]
        found: list[tuple[int, int]] = []
        for chunk, u in enumerate(segment.chunks.row.tolist()):
            start = int(segment.starts[u]) + (chunk - int(segment.chunks.start[u])) * size
            stop = min(start + size, int(segment.starts[u + 1]))
            assert start < stop
            found += [(int(stream.ids[u]), t) for t in segment.order[start:stop].tolist()]
        assert found == sorted((piece, t) for t, piece in enumerate(seen))
        counts = segment.chunks.start.diff()
        assert segment.chunks.uneven.tolist() == [u for u, n in enumerate(counts.tolist()) if n != 1]


CASES: dict[str, dict[str, Any]] = {
    "powers of two": {"windows": (1, 2, 3, 4), "embedding_dim": 32, "channels": 64},
    "odd sizes": {"windows": (0, 2, 2, 5), "embedding_dim": 7, "channels": 75},
    "wide": {"windows": (1,), "embedding_dim": 16, "channels": 1_100},
    "classes": {"windows": (1, 4), "classes": 55, "embedding_dim": 16, "channels": 24},
}


def many_documents() -> list[list[int]]:
    """Some pieces hundreds of times, some once; empty documents, and one of a single piece."""
    rng = np.random.default_rng(0)
    values = np.minimum(rng.zipf(1.3, size=3_000), 999)
    return [part.tolist() for part in np.split(values, [0, 1, 3, 40, 41, 500, 2_000])]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("precision", "bound"), [("bf16", 4e-2), ("float32", 1e-4)])
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_agrees_and_gives_the_same_bits(case: str, precision: Precision, bound: float) -> None:
    imitators = build(pieces=1_000, **CASES[case])
    documents = [document[:400] for document in many_documents()]

    def loss(batch: PieceBatch, p: Tensor) -> Tensor:
        pieces, document = batch.pieces.cuda(), batch.document.cuda()
        return projected_loss(imitators.cuda(), pieces, document, p.cuda(), precision)

    assert worst_error(imitators, documents, loss, torch.float32) < bound
    batch, p = pack(documents, imitators.gap), targets_of(len(documents), imitators.offset.shape[1]).float()
    first, second = (differentiate(imitators, lambda: loss(batch, p))[1] for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_tabulates_alpha() -> None:
    imitators = build(pieces=1_000, **CASES["powers of two"])
    batch = pack(many_documents(), imitators.gap)
    truth = average_windows(imitators(batch.pieces), batch.document, batch.lengths).detach()
    given = [tensor.cuda() for tensor in (batch.pieces, batch.document, batch.lengths)]
    found, again = (Tabulated(imitators.float().cuda()).alpha(*given) for _ in range(2))
    assert torch.equal(found, again)
    torch.testing.assert_close(found.double().cpu(), truth, rtol=0, atol=1e-5)
