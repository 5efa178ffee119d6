"""Documents a second from text to probabilities: mixture, expert, imitators, and a linear model."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from mein.bench.encode import rates, spread
from mein.bench.hardware import hardware
from mein.errors import InputError
from mein.evaluation.baseline import INVERSE_REGULARISATION, MAX_FEATURES
from mein.labeller import Labeller
from mein.model import Model

LINEAR = "tf-idf + logistic regression"
TRAINING_DOCUMENTS = 1_000  # that the linear model learns from, with the mixture's labels
CHUNK = 16_384

Ask = Callable[[list[str]], object]


def bench_predict(model: Model, texts: Sequence[str], threads: int, repeats: int = 5) -> dict[str, Any]:
    """Time each on the same documents, in turns; `ratio` is the linear model's rate over each one's.

    The documents are in memory: reading and writing files is not counted. Chunks are as large as those of
    `mein predict`. A ratio is the median over pairs of runs that followed each other.
    """
    if not texts:
        raise InputError("There is no text to measure; give a file with at least one document.")
    torch.set_num_threads(threads)
    seconds = _in_turns(_systems(model, list(texts)), list(texts), repeats)
    megabytes = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
    pairs = {name: zip(taken, seconds[LINEAR], strict=True) for name, taken in seconds.items()}
    return {
        "documents": len(texts),
        "megabytes": megabytes,
        "threads": threads,
        "repeats": repeats,
        "hardware": hardware(),
        "systems": {name: rates(taken, len(texts), megabytes) for name, taken in seconds.items()},
        "ratio": {name: spread([ours / linear for ours, linear in both]) for name, both in pairs.items()},
    }


def _systems(model: Model, texts: list[str]) -> dict[str, Ask]:
    mixture = Labeller(model)
    systems: dict[str, Ask] = {
        "mixture": mixture.log_probs,
        "expert": lambda chunk: model.expert_logits(model.encode(chunk)),
    }
    if len(model.gates):
        systems["imitators"] = Labeller(model, imitators_only=True).log_probs
    learned_from = texts[:TRAINING_DOCUMENTS]
    return {**systems, LINEAR: linear_model(learned_from, mixture.log_probs(learned_from).argmax(axis=1))}


def linear_model(texts: list[str], labels: np.ndarray) -> Ask:
    """TF-IDF with logistic regression, as the baseline has it; what it learns does not change its speed."""
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2),
        sublinear_tf=True,
        token_pattern=r"\w+",
        max_features=MAX_FEATURES,
        dtype=np.float32,
    )
    features = vectorizer.fit_transform(texts)
    if len(np.unique(labels)) < 2:
        labels = np.arange(len(texts)) % 2
    model = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=1000).fit(features, labels)
    return lambda chunk: model.predict_proba(vectorizer.transform(chunk))


def _in_turns(systems: dict[str, Ask], texts: list[str], repeats: int) -> dict[str, list[float]]:
    """The seconds of each run of each, run in turns, so that a busy machine is busy for all."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for ask in systems.values():
        ask(texts[:CHUNK])  # what is made once is made before
    for _ in range(repeats):
        for name, ask in systems.items():
            gc.collect()
            started = time.perf_counter()
            for start in range(0, len(texts), CHUNK):
                ask(texts[start : start + CHUNK])
            seconds[name].append(time.perf_counter() - started)
    return seconds
