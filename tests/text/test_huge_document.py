"""One document of a million pieces: the loss and gradients of the equations, without rows for all of it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mein.imitators import windows
from mein.imitators.projected import projected_loss
from mein.text.batches import PieceBatch
from tests.imitators.test_projected import build, worst_error

PIECES = 1_000_000


@pytest.mark.parametrize(("cast", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_a_document_of_a_million_pieces_agrees_with_the_equations(
    monkeypatch: pytest.MonkeyPatch, cast: torch.dtype, bound: float
) -> None:
    values = 1 + np.minimum(np.random.default_rng(0).zipf(1.3, size=PIECES), 98)
    imitators = build((0, 2), pieces=100, embedding_dim=3, channels=5)
    segment_bytes = cast.itemsize * 5 * PIECES // 3  # so that windows reach from one segment into the next
    kept, add_by_piece = [], windows._add_by_piece

    def spy(dP: Tensor, do: Tensor, segment: Any) -> None:
        kept.append(len(do))
        add_by_piece(dP, do, segment)

    def loss(batch: PieceBatch, p: Tensor) -> Tensor:
        return projected_loss(imitators, batch.pieces, batch.document, p, segment_bytes=segment_bytes)

    monkeypatch.setattr(windows, "_add_by_piece", spy)
    assert worst_error(imitators, [[], values.tolist(), [7]], loss, cast) < bound
    assert len(kept) == 2 * 4
    assert max(kept) <= PIECES // 3 + 4 * imitators.gap
