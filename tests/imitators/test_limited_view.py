"""The paper's central idea: an imitator sees 2c + 1 pieces of one document, and nothing else."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mein.imitators.config import ImitatorsConfig
from mein.imitators.reference import Imitators
from mein.text.batches import pack_pieces
from mein.text.ragged import Ragged

WINDOWS = (1, 2, 4)


def stream(documents: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    values = np.array([x for document in documents for x in document], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, documents)])
    batch = pack_pieces(Ragged(values, offsets), max(WINDOWS), torch.device("cpu"))
    return batch.pieces, batch.document


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 8), max_size=15), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_a_changed_piece_changes_only_windows_that_hold_it(documents, random) -> None:  # type: ignore[no-untyped-def]
    if not any(documents):
        return
    torch.manual_seed(0)
    imitators = Imitators(ImitatorsConfig(windows=WINDOWS, embedding_dim=3, channels=4), 10, 2)
    row = random.choice([r for r, text in enumerate(documents) if text])
    t = random.randrange(len(documents[row]))
    changed = [list(text) for text in documents]
    changed[row][t] = 9  # a piece that occurs nowhere else
    pieces, document = stream(documents)
    before, after = imitators(pieces), imitators(stream(changed)[0])
    first = int((document == row).nonzero()[0])
    for i, c in enumerate(WINDOWS):
        differs = (before[i] != after[i]).any(dim=1)
        for s in range(len(pieces)):
            if document[s] == len(documents):
                continue  # a gap: asked nothing
            sees = bool(document[s] == row) and abs(s - first - t) <= c
            assert bool(differs[s]) == sees
