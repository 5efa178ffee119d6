"""Small runs of every kind, for one process or for several: what torchrun starts in tests of ranks."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from mein.data.corpus import Corpus
from mein.run.pipeline import train_and_evaluate
from mein.runtime import ranks
from mein.runtime.progress import Quiet
from mein.training.parallel import sum_gradients
from tests.support import tiny
from tests.support.hub_models import build

SHORT = {
    "expert_training__epochs": 1,
    "imitator_training__epochs": 1,
    "fine_tuning__epochs": 1,
    "pretraining__epochs": 1,
    "pretraining__lanes": 5,
    "pretraining__segment": 20,
    "perturbation__unlabeled_documents": 7,
    "runtime__checkpoint_seconds": 0,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"class_weight": "balanced", "expert__mlp_dropout": 0.3},
    "adv": {"expert__training": "adv", "imitators__windows": [1, 1, 2]},
    "vat": {"expert__training": "vat", "imitators__windows": [2], "mixture__method": "ours"},
    "lexicon_teacher": {"mixture__method": "ours", "imitator_training__reads_labeled": True},
    "ivat": {"expert__training": "ivat", "expert__mlp_dropout": 0.3},
    "lm": {"expert__kind": "lm-lstm", "imitator_training__reads_labeled": False},
    "elmo": {"expert__kind": "elmo-lstm"},
    "average": {"expert__kind": "average"},
    "transformer": {
        "expert__kind": "transformer",
        "expert__frozen_layers": 1,
        "expert_training__learning_rate": 1e-4,
    },
    "frozen": {"expert__kind": "frozen"},
    "linear": {"expert__kind": "linear", "mixture__method": "ours"},
}
"""No two share their batches in the same way: by documents, windows, lanes, or with nothing for some."""


def train_all(out: Path, *names: str) -> None:
    """A run of each kind, in a folder of its name; the last epoch is always taken."""
    for name in names or KINDS:
        path = out / name
        model = {"expert__model": str(bert(out))} if name in ("transformer", "frozen") else {}
        config = tiny.config(**SHORT | KINDS[name] | model)
        with patch("mein.training.loop._is_better", return_value=True):
            train_and_evaluate(config, corpus(), path, Quiet(), resume=path.exists(), has_baseline=False)


def bert(out: Path) -> Path:
    """A model of transformers; without dropout, which the library draws for each process anew."""
    with ranks.first_goes_ahead():
        if not (out / "bert").exists():
            build("Bert", out / "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return out / "bert"


def corpus() -> Corpus:
    """The smallest corpus, with labels of which one is rare, so that documents differ in weight."""
    labels = ["positive" if number % 4 == 0 else "negative" for number in range(80)]
    return tiny.corpus(replace(tiny.TEXTS, labeled_labels=labels))


def check_sums() -> None:
    """Every rank knows what each other's gradients are, and what their sum must be."""
    shapes = {"dense": (3, 2), "table": (50, 4), "kernel": (2, 3, 4), "some": (3,)}
    shapes |= {"nobody": (6, 2), "still": (5, 2)}
    of_ranks = [_made_up(rank, shapes) for rank in range(ranks.world())]
    parameters = {name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    for name, parameter in parameters.items():
        own = of_ranks[ranks.rank()][name]
        parameter.grad = None if own is None else own.clone()
    loss = sum_gradients(list(parameters.values()), torch.tensor(1.0 + ranks.rank()))
    assert loss.item() == ranks.world() * (ranks.world() + 1) / 2
    assert parameters["nobody"].grad is None
    for name in ("dense", "table", "kernel", "some", "still"):
        wanted = sum(found for one in of_ranks if (found := one[name]) is not None)
        torch.testing.assert_close(parameters[name].grad, wanted, equal_nan=True)


def _made_up(rank: int, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor | None]:
    random = torch.Generator().manual_seed(rank)
    found: dict[str, Tensor | None] = {n: torch.randn(s, generator=random) for n, s in shapes.items()}
    table = torch.zeros(shapes["table"])
    table[rank : rank + 2] = 1.5  # shares a row with the next rank
    table[40, 1] = torch.nan if rank == 0 else 0.0
    found |= {"table": table, "nobody": None, "some": found["some"] if rank == 1 else None}
    return found | {"still": torch.zeros(shapes["still"])}


if __name__ == "__main__":
    ranks.join()
    check_sums()
    train_all(Path(sys.argv[1]), *sys.argv[2:])
    ranks.leave()
