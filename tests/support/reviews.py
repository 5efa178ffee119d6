"""The smallest classifier that learns, and a corpus for it: a fit takes a quarter of a second."""

import random
from typing import Any

from mein import MeinClassifier

SETTINGS: dict[str, Any] = {
    "expert.kind": "average",
    "expert.embedding_dim": 8,
    "expert.hidden_dim": 8,
    "imitators.embedding_dim": 8,
    "imitators.channels": 8,
    "imitators.windows": [1, 2],
    "mixture.method": "paper",  # about a half, where free ones may close on few labels
    "pieces.vocabulary_size": 200,
    "expert_training.epochs": 10,
    "expert_training.learning_rate": 0.03,
    "expert_training.batch_documents": 8,
    "imitator_training.epochs": 2,
    "imitator_training.learning_rate": 0.03,
    "imitator_training.batch_documents": 16,
    "fine_tuning.epochs": 1,
}
OPINIONS = {
    "negative": ["dreadful", "a bore", "never fun", "not worth it"],
    "positive": ["lovely", "a delight", "never dull", "well worth it"],
    "so so": ["fair enough", "passable", "nothing new", "worth a look"],
}
NEUTRAL = ["the film", "we saw it", "on a monday", "with friends", "it was", "the plot", "and then"]


def corpus(documents: int, seed: int, classes: int = 2) -> tuple[list[str], list[str]]:
    """Short reviews, of each class by turns, and their labels."""
    chance = random.Random(seed)
    labels = [list(OPINIONS)[place % classes] for place in range(documents)]
    texts = []
    for label in labels:
        parts = [*chance.sample(NEUTRAL, chance.randint(1, 4)), *chance.sample(OPINIONS[label], 2)]
        texts.append(" ".join(chance.sample(parts, len(parts))) + ".")
    return texts, labels


TEXTS, LABELS = corpus(60, seed=0)
RAW, _ = corpus(120, seed=1)
NEW, NEW_LABELS = corpus(40, seed=2)
THREE_TEXTS, THREE_LABELS = corpus(60, seed=3, classes=3)


def tiny(**parameters: Any) -> MeinClassifier:
    """A classifier that has not seen anything yet."""
    settings = SETTINGS | parameters.pop("settings", {})
    return MeinClassifier(settings=settings, device="cpu", **{"random_state": 2, **parameters})
