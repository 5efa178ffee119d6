"""How much memory stage 2 takes, beside the number of documents: a fresh process for each size."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mein.bench.memory import SHARD_DOCUMENTS, generated, peak_memory
from mein.imitators.reference import Imitators, ImitatorsConfig
from mein.progress import Silence
from mein.seeds import numpy_generator
from mein.text.encoder import learn_vocabularies
from mein.text.pieces import PiecesConfig
from mein.text.store import Store
from mein.text.words import WordsConfig
from mein.text.writing import write_store
from mein.training.folder import RunFolder
from mein.training.loop import Runtime
from mein.training.scores import EXPERT_COLUMN
from mein.training.stages import ImitationConfig, train_imitators

CLASSES = 2
PIECES = 2_000  # in the vocabulary, the same for every size: the network is not what is measured
HELD_OUT_DOCUMENTS = 2_000
TINY = ImitatorsConfig(windows=(1,), embedding_dim=8, channels=8)


def bench_imitation(document_counts: Sequence[int]) -> list[dict[str, Any]]:
    """Peak memory of one epoch of stage 2 with a tiny network, at each size."""
    found = []
    for documents in document_counts:
        with tempfile.TemporaryDirectory() as folder:
            peak_memory(_command("write_generated", str(documents), folder))
            found.append({"documents": documents, **peak_memory(_command("imitate", folder))})
    return found


def write_generated(documents: str, folder: str) -> None:
    """Before what is measured: stores of generated text with a made-up word of the expert on each."""
    learned_from = generated(20_000)
    encoder, _ = learn_vocabularies(learned_from, WordsConfig(), PiecesConfig(vocabulary_size=PIECES))
    for part, count in (("unlabeled", int(documents)), ("held_out", HELD_OUT_DOCUMENTS)):
        path = Path(folder) / part
        store = write_store(path, encoder, generated(count), shard_documents=SHARD_DOCUMENTS, workers=1)
        for shard, length in enumerate(store.shard_lengths):
            p = numpy_generator(0, part, shard).random(length, dtype=np.float32)
            store.write_column(EXPERT_COLUMN, shard, np.stack([p, 1 - p], axis=1))


def imitate(folder: str) -> None:
    """What is measured: one epoch over the stores."""
    run = RunFolder(Path(folder) / "run")
    unlabeled, held_out = (Store.open(Path(folder) / part) for part in ("unlabeled", "held_out"))
    with run.held():
        train_imitators(
            Imitators(TINY, PIECES, CLASSES),
            unlabeled,
            held_out,
            ImitationConfig(epochs=1),
            Runtime(run, Silence(), checkpoint_seconds=30.0),
            seed=0,
        )


def _command(function: str, *arguments: str) -> list[str]:
    code = f"import sys; from mein.bench.imitation import {function}; {function}(*sys.argv[1:])"
    return [sys.executable, "-c", code, *arguments]
