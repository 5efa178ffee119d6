"""A corpus and a configuration so small that a complete run takes a second."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mein.config import Config, load_config
from mein.data.corpus import Corpus, source_of_lists
from mein.data.demo import DemoCorpus, demo_corpus
from mein.evaluation.comparison import Row
from mein.mixture.inference import TorchNetworks
from mein.model.model import Model
from mein.run.pipeline import train_and_evaluate
from mein.runtime.progress import Quiet

SETTINGS: dict[str, Any] = {
    "pieces.vocabulary_size": 200,
    "expert.embedding_dim": 6,
    "expert.hidden_dim": 5,
    "expert.mlp_dim": 4,
    "imitators.windows": [1, 2],
    "imitators.embedding_dim": 4,
    "imitators.channels": 3,
    "expert_training.epochs": 2,
    "expert_training.batch_documents": 16,
    "imitator_training.epochs": 2,
    "imitator_training.batch_documents": 32,
    "fine_tuning.epochs": 2,
    "fine_tuning.batch_documents": 16,
    "mixture.method": "no-lexicon",
    "runtime.device": "cpu",
    "runtime.workers": 1,
}
TEXTS = demo_corpus(seed=3, labeled=80, unlabeled=120, test=40)


def config(**overrides: Any) -> Config:
    """The smallest configuration; overrides by dotted name, with `__` for the dot."""
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_config("small", overrides={"expert.kind": "lstm"} | SETTINGS | named)


def corpus(
    texts: DemoCorpus = TEXTS,
    *,
    unlabeled: Sequence[str] | None = None,
    test_labels: Sequence[Any] | None = None,
    **others: Any,
) -> Corpus:
    """The embedded corpus, small, with 3 test texts among the unlabeled; parts can be replaced."""
    all_unlabeled = [*texts.unlabeled_texts, *texts.test_texts[:3]]
    return Corpus(
        labeled=source_of_lists(texts.labeled_texts, texts.labeled_labels),
        unlabeled=source_of_lists(all_unlabeled if unlabeled is None else unlabeled),
        test=source_of_lists(texts.test_texts, texts.test_labels if test_labels is None else test_labels),
        **others,
    )


def run(path: Path, documents: Corpus | None = None, *, resume: bool = False, **overrides: Any) -> list[Row]:
    """Train and evaluate in `path`."""
    data = corpus() if documents is None else documents
    return train_and_evaluate(config(**overrides), data, path, Quiet(), resume=resume)


def networks_of(model: Model) -> TorchNetworks:
    """The networks of a model, as torch has them."""
    assert isinstance(model.networks, TorchNetworks)
    return model.networks


TIMED = ("metrics.jsonl", "provenance.json")


def artefacts(path: Path) -> dict[str, bytes]:
    """Every file of a run folder by name, without what holds timings, and the lock."""
    files = (file for file in path.rglob("*") if file.is_file())
    found = {
        str(file.relative_to(path)): file.read_bytes()
        for file in files
        if file.name not in (*TIMED, ".lock", "report.html", "README.md")
    }
    for name in [name for name in found if Path(name).name == "done"]:  # less digests of files with timings
        done = json.loads(found[name])
        for timed in TIMED:
            done.get("listed", {}).pop(timed, None)
        found[name] = json.dumps(done).encode("utf-8")
    return found


def timeless_metrics(path: Path) -> list[dict[str, Any]]:
    """Every line of the metrics, without what a clock measured."""
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
