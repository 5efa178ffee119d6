"""What a user would pick instead of mein: linear models over TF-IDF, over sentence embeddings, and SetFit.

Every system gets a cell and returns probabilities of its test documents. All labels teach; a regularization
is chosen by cross-validation on them.
"""

import hashlib
import importlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from filelock import FileLock
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import SelfTrainingClassifier

from benchmarks.draws import Cell
from mein.errors import InputError, MissingExtra
from mein.evaluation.baseline import STEPS, logistic_regression, tfidf_features
from mein.runtime.files import atomic_path

SURE = 0.75  # the probability from which self-training believes a label of its own
MOST_RAW = 20_000  # documents that self-training reads
MOST_TOKENS = 256  # of a document that an encoder reads
BATCH = 32


@dataclass(frozen=True)
class Answer:
    """A system's probabilities of the test documents, and the seconds from labels to probabilities."""

    classes: NDArray[np.str_]
    probabilities: NDArray[np.floating]
    """(documents, classes)"""
    seconds: float


@dataclass(frozen=True)
class Resources:
    """What a system may use beside its cell."""

    encoder: Path | None
    """A folder with a Hugging Face encoder, where one is used."""
    embeddings: Path
    """Folder of embeddings that were computed before."""
    folder: Path
    """Folder of the cell, with labeled.csv, raw.csv, and test.csv."""
    options: tuple[str, ...] = ()
    """Further words of `mein train`."""


def tfidf(cell: Cell, resources: Resources) -> Answer:
    """TF-IDF with logistic regression."""
    start = time.perf_counter()
    texts, y, tests = _columns(cell)
    X, T = tfidf_features(texts, tests)
    return _answer(X, y, T, start)


def self_training(cell: Cell, resources: Resources) -> Answer:
    """The same, which also learns labels of its own on unlabeled text that it is sure of."""
    start = time.perf_counter()
    texts, y, tests = _columns(cell)
    X, T, R = tfidf_features(texts, tests, cell.raw[:MOST_RAW])
    classes, ids = np.unique(y, return_inverse=True)
    plain = logistic_regression(X, ids, None, len(classes)).strength
    learner = LogisticRegression(C=1.0 if plain is None else plain, max_iter=STEPS)
    student = SelfTrainingClassifier(learner, threshold=SURE)
    labels = np.r_[ids, np.full(R.shape[0], -1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        student.fit(sp.vstack([X, R]).tocsr(), labels)
    return Answer(classes, student.predict_proba(T), time.perf_counter() - start)


def encoder(cell: Cell, resources: Resources) -> Answer:
    """Sentence embeddings with logistic regression."""
    start = time.perf_counter()
    texts, y, tests = _columns(cell)
    (E, F), waited = _embedded((texts, tests), resources)
    return _answer(E, y, F, start - waited)


def tfidf_and_encoder(cell: Cell, resources: Resources) -> Answer:
    """Both kinds of features side by side."""
    start = time.perf_counter()
    texts, y, tests = _columns(cell)
    (E, F), waited = _embedded((texts, tests), resources)
    X, T = tfidf_features(texts, tests)
    return _answer(sp.hstack([X, E]).tocsr(), y, sp.hstack([T, F]).tocsr(), start - waited)


def setfit(cell: Cell, resources: Resources) -> Answer:
    """SetFit: the encoder fine-tuned on pairs of labeled texts, then logistic regression."""
    library, datasets = _setfit_library()
    start = time.perf_counter()
    texts, y, tests = _columns(cell)
    classes, labels = np.unique(y, return_inverse=True)
    model = library.SetFitModel.from_pretrained(str(_encoder_of(resources)))
    rows = datasets.Dataset.from_dict({"text": texts, "label": labels.tolist()})
    arguments = library.TrainingArguments(batch_size=16, num_epochs=1, seed=0)
    library.Trainer(model=model, args=arguments, train_dataset=rows).train()
    found = np.asarray(model.predict_proba(tests, as_numpy=True), dtype=np.float64)
    return Answer(classes[np.asarray(model.model_head.classes_)], found, time.perf_counter() - start)


def _setfit_library() -> tuple[Any, Any]:
    try:
        return importlib.import_module("setfit"), importlib.import_module("datasets")
    except ImportError as problem:
        raise MissingExtra(
            f"SetFit needs the package setfit ({problem}): pip install setfit, or leave it out of --only."
        ) from problem


def _columns(cell: Cell) -> tuple[list[str], NDArray[np.str_], list[str]]:
    """Labeled texts, their labels, and test texts."""
    labels = np.array([document.label for document in cell.labeled])
    return [d.text for d in cell.labeled], labels, [d.text for d in cell.test]


def _answer(X: Any, y: NDArray[np.str_], tests: Any, start: float) -> Answer:
    """Logistic regression as the product's baselines are."""
    classes, ids = np.unique(y, return_inverse=True)
    log_probs = logistic_regression(X, ids, None, len(classes)).log_probs(tests)
    return Answer(classes, np.exp(log_probs), time.perf_counter() - start)


def _encoder_of(resources: Resources) -> Path:
    if resources.encoder is None:
        raise InputError("This system needs an encoder: name its folder by --encoder.")
    return resources.encoder


def _embedded(
    columns: Sequence[Sequence[str]], resources: Resources
) -> tuple[list[NDArray[np.float32]], float]:
    """The embeddings of each list of texts, and the seconds that earlier runs spent on them."""
    found = [_kept(texts, _encoder_of(resources), resources.embeddings) for texts in columns]
    return [vectors for vectors, _ in found], sum(seconds for _, seconds in found)


def _kept(texts: Sequence[str], folder: Path, cache: Path) -> tuple[NDArray[np.float32], float]:
    """Embeddings from the cache with their seconds, or new ones with 0: test documents are in all draws."""
    key = json.dumps([str(folder.resolve()), *texts]).encode("utf-8")
    path = cache / f"{hashlib.sha256(key).hexdigest()}.npz"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):  # several runs may want the same
        if path.exists():
            with np.load(path) as kept:
                return kept["vectors"], float(kept["seconds"])
        start = time.perf_counter()
        vectors = embed(texts, folder)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, vectors=vectors, seconds=np.float64(time.perf_counter() - start))
    return vectors, 0.0


def embed(texts: Sequence[str], folder: Path) -> NDArray[np.float32]:
    """Mean-pooled last states of length one, texts of similar length together: (texts, dimensions)."""
    import torch

    from mein.hub.networks import longest_input

    tokenizer, model = _loaded(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.eval().to(device)
    order = np.argsort([len(text) for text in texts])
    found = np.zeros((len(texts), model.config.hidden_size), np.float32)
    most = min(MOST_TOKENS, longest_input(model, tokenizer.model_max_length) or MOST_TOKENS)
    cut = {"padding": True, "truncation": True, "max_length": most}
    with torch.no_grad():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = tokenizer([texts[row] for row in rows], **cut, return_tensors="pt").to(device)
            hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
            found[rows] = ((hidden * mask).sum(1) / mask.sum(1)).cpu().numpy()
    unit: NDArray[np.float32] = normalize(found)
    return unit


def _loaded(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the network of a folder; one sentence where it holds no encoder."""
    from mein.hub.networks import LOADING_PROBLEMS, LOCAL, reason, transformers_quietly

    with transformers_quietly() as transformers:
        try:
            return (
                transformers.AutoTokenizer.from_pretrained(folder, **LOCAL),
                transformers.AutoModel.from_pretrained(folder, dtype="float32", **LOCAL),
            )
        except LOADING_PROBLEMS as problem:
            raise InputError(f"{folder} is no encoder ({reason(problem)}): set --encoder.") from problem


PEERS: dict[str, Callable[[Cell, Resources], Answer]] = {
    "tf-idf": tfidf,
    "self-training": self_training,
    "minilm": encoder,
    "tf-idf + minilm": tfidf_and_encoder,
    "setfit": setfit,
}
