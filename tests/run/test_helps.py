"""The point of it all: unlabeled text lowers the error where its n-grams show what the labels cannot."""

import random
from pathlib import Path

import pytest

from mein.config import load_config
from mein.data.corpus import Corpus, source_of_lists
from mein.evaluation.comparison import Row
from mein.run.pipeline import train_and_evaluate
from mein.runtime.progress import Quiet

LABELED, RAW, TEST, OPINIONS, FILLERS = 160, 3_000, 300, 40, 40
SETTINGS = {
    "expert.embedding_dim": 24,
    "expert.hidden_dim": 16,
    "imitators.windows": [1, 2],
    "imitators.embedding_dim": 24,
    "imitators.channels": 16,
    "expert_training.epochs": 20,
    "expert_training.learning_rate": 5e-3,
    "expert_training.batch_documents": 16,
    "imitator_training.epochs": 6,
    "imitator_training.learning_rate": 1e-2,
    "imitator_training.batch_documents": 24,
    "fine_tuning.epochs": 2,
    "runtime.device": "cpu",
    "runtime.workers": 1,
}


def document(draw: random.Random, has_plain_word: bool) -> tuple[str, str]:
    """Filler words around an opinion; some documents also contain a plain opinion.

    An opinion is a pair of words whose order determines the label: each pair is about once among the
    labels, but often in the raw text, where the plain word beside it teaches what it means.
    """
    label = draw.choice(["bad", "good"])
    i = draw.randrange(OPINIONS)
    pair = [f"left{i}", f"right{i}"] if label == "good" else [f"right{i}", f"left{i}"]
    words = [f"filler{draw.randrange(FILLERS)}" for _ in range(6)]
    words[2:4] = pair
    if has_plain_word:
        words.append("great" if label == "good" else "awful")
    return " ".join(words), label


def documents(draw: random.Random, count: int) -> tuple[list[str], list[str]]:
    pairs = [document(draw, has_plain_word=draw.random() < 0.5) for _ in range(count)]
    return [text for text, _ in pairs], [label for _, label in pairs]


def table(path: Path, kind: str, seed: int, raw: int) -> list[Row]:
    """The table of a run with such an expert and so much raw text; labels and test documents are the same."""
    draw = random.Random(seed)
    labeled, test = documents(draw, LABELED), documents(draw, TEST)
    corpus = Corpus(
        labeled=source_of_lists(*labeled),
        test=source_of_lists(*test),
        unlabeled=source_of_lists(documents(draw, raw)[0]) if raw else None,
    )
    config = load_config("small", overrides=SETTINGS | {"seed": seed, "expert.kind": kind})
    return train_and_evaluate(config, corpus, path, Quiet(), controls=())


def error(path: Path, kind: str, seed: int, raw: int) -> float:
    return table(path, kind, seed, raw)[-1].scores.error


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["average", "lstm"])
def test_with_unlabeled_text_the_error_is_lower(tmp_path: Path, kind: str, seed: int) -> None:
    with_text, without = (error(tmp_path / str(raw), kind, seed, raw) for raw in (RAW, 0))
    assert without > 15.0  # half the documents have no plain opinion
    assert with_text < 0.7 * without
