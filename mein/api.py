"""MeinClassifier, the Python door: scikit-learn's conventions, for texts."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mein.config import Config, load_config
from mein.data.corpus import Corpus, Source, source_of_lists
from mein.data.readers import ColumnsConfig, read_documents
from mein.data.writers import open_writer
from mein.errors import InputError
from mein.evaluation.table import headline
from mein.explain import Explanation, explain
from mein.judge import train_and_judge
from mein.model import load_model
from mein.progress import Silence, Terminal

Unlabeled = str | Path | Iterable[str]
SPOOL_DOCUMENTS = 1_000


class MeinClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A mixture of an expert, which learns from labels, and imitators, which learn from raw text.

    >>> model = MeinClassifier().fit(texts, labels, unlabeled=more_texts)  # doctest: +SKIP
    >>> model.predict("the battery died after a week")  # doctest: +SKIP
    'negative'

    Parameters
    ----------
    preset : "small", "full", "paper" or None
        Sizes and schedules; None takes "small" without a GPU and "full" with one.
    settings : mapping or None
        Any setting of the configuration by its dotted name: {"imitators.windows": [1, 2]}.
    class_weight : "balanced" or None
        Whether rare classes weigh as much as common ones.
    compares : bool
        Whether fit also trains the controls and keeps the comparison on dev in `verdict_`.
    run_dir : path or None
        Where fit leaves its run folder; None works in a temporary one.
    device : "auto", "cpu", "cuda" ...
    verbose : bool
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : the labels, sorted
    gates_ : the weight of each window's imitator, empty where there was no unlabelled text
    verdict_ : one sentence, with `compares`
    """

    def __init__(
        self,
        *,
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
        class_weight: str | None = None,
        compares: bool = False,
        run_dir: str | Path | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.preset = preset
        self.settings = settings
        self.class_weight = class_weight
        self.compares = compares
        self.run_dir = run_dir
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Iterable[str],
        y: Iterable[Any],
        sample_weight: Sequence[float] | np.ndarray | None = None,
        unlabeled: Unlabeled | None = None,
    ) -> Self:
        """Learn from texts X with labels y and from `unlabeled` texts: an iterable, a path or a glob.

        A label of None, or of -1 among integers, marks an unlabelled text, as in scikit-learn.
        """
        texts, labels = as_texts(X), _as_list(y)
        if len(texts) != len(labels):
            raise InputError(
                f"X holds {len(texts)} texts but y holds {len(labels)} labels: give one for each."
            )
        weights = _as_weights(sample_weight, len(texts))
        is_labeled = np.array([not _is_unlabeled(label) for label in labels], dtype=bool)
        kept = np.flatnonzero(is_labeled)
        with tempfile.TemporaryDirectory(prefix="mein-") as temporary:
            corpus = Corpus(
                labeled=source_of_lists([texts[i] for i in kept], [labels[i] for i in kept]),
                unlabeled=_all_unlabeled(
                    [texts[i] for i in np.flatnonzero(~is_labeled)], unlabeled, temporary
                ),
                names={"labeled": "y"},
                sample_weight=None if weights is None else weights[kept],
            )
            path = Path(temporary) / "run" if self.run_dir is None else Path(self.run_dir)
            reporter = Terminal(Console(stderr=True)) if self.verbose else Silence()
            rows = train_and_judge(self._config(), corpus, path, reporter, controls=self.compares)
            self._adopt(path)
        if self.compares:
            self.verdict_ = headline(rows)
        return self

    def predict(self, X: str | Iterable[str]) -> Any:
        """The label of each text; for one text, its label."""
        ids = self._log_probs(X).argmax(axis=1)
        return self.classes_[ids[0]] if isinstance(X, str) else self.classes_[ids]

    def predict_proba(self, X: str | Iterable[str]) -> np.ndarray:
        """p(y | X) (n, Y), columns as in `classes_`; for one text (Y,)."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: str | Iterable[str]) -> np.ndarray:
        """log p(y | X) (n, Y), columns as in `classes_`; for one text (Y,)."""
        log_probs = self._log_probs(X)
        return np.asarray(log_probs[0]) if isinstance(X, str) else log_probs

    def decision_function(self, X: Iterable[str]) -> np.ndarray:
        """The log-odds of the second class (n,) where there are two, else log p(y | X) (n, Y)."""
        log_probs = self._log_probs(X)
        return log_probs[:, 1] - log_probs[:, 0] if log_probs.shape[1] == 2 else log_probs

    def explain(self, text: str) -> Explanation:
        """Which fragments spoke for which label, in parts that add up to the log-odds."""
        check_is_fitted(self)
        return explain(self.model_, text)

    def save(self, path: str | Path) -> None:
        """Write a run folder: safetensors, JSON and text, no pickle."""
        check_is_fitted(self)
        self.model_.save(Path(path))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """The classifier that `save`, or `mein train`, left in a folder."""
        model = cls(device=device)
        model._adopt(Path(path))
        return model

    def _config(self) -> Config:
        settings = dict(self.settings) if self.settings is not None else {}
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        settings |= {"seed": int(seed), "runtime.device": self.device, "runtime.workers": 1}
        if self.class_weight is not None:
            settings["class_weight"] = self.class_weight
        return load_config(self.preset, overrides=settings)

    def _adopt(self, path: Path) -> None:
        self.model_ = load_model(path, self.device)
        self.classes_ = _as_classes(self.model_.labels.classes)
        self.gates_ = self.model_.gates

    def _log_probs(self, X: str | Iterable[str]) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.log_probs([X] if isinstance(X, str) else as_texts(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def as_texts(X: Iterable[str]) -> list[str]:
    """The texts of a list, array, Series, Arrow array or generator; anything else is refused."""
    if isinstance(X, str | bytes):
        raise InputError(f"X is the single text {str(X)[:40]!r}: give a list of texts.")
    texts = _as_list(X)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"X holds {text!r:.60} of type {type(text).__name__} at position {position}: "
                "give one text for each document."
            )
    return texts


def _as_list(values: Iterable[Any]) -> list[Any]:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values.to_pylist())
    shape = getattr(values, "shape", ())  # arrays, Series and frames of every library have one
    if len(shape) > 1:
        raise InputError(f"A table of shape {tuple(shape)} was given: give one column of it.")
    return list(values)


def _is_unlabeled(label: Any) -> bool:
    """None, or the integer -1. A NaN is a mistake, and Labels says so."""
    is_integer = isinstance(label, int | np.integer) and not isinstance(label, bool)
    return label is None or bool(is_integer and label == -1)


def _as_weights(sample_weight: Sequence[float] | np.ndarray | None, texts: int) -> np.ndarray | None:
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (texts,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError(
            f"sample_weight of shape {weights.shape} does not fit: give {texts} finite weights "
            "of 0 or more, one for each text."
        )
    return weights


def _as_classes(classes: Sequence[Any]) -> np.ndarray:
    """Labels as numpy holds them; labels of several types stay the objects that they are."""
    is_mixed = len({type(label) for label in classes}) > 1
    return np.array(classes, dtype=object) if is_mixed else np.array(classes)


def _all_unlabeled(texts: list[str], unlabeled: Unlabeled | None, temporary: str) -> Source | None:
    """The texts without a label in y, and those of `unlabeled`, as one stream that can be read again."""
    sources = [source_of_lists(texts)] if texts else []
    if isinstance(unlabeled, str | Path):
        sources.append(lambda: read_documents(unlabeled, ColumnsConfig(), labeled=False))
    elif isinstance(unlabeled, Sequence | np.ndarray):
        sources.append(source_of_lists(as_texts(unlabeled)))
    elif unlabeled is not None:
        sources.append(_spooled(unlabeled, Path(temporary) / "unlabeled.parquet"))
    if not sources:
        return None
    return lambda: chain.from_iterable(source() for source in sources)


def _spooled(texts: Iterable[str], path: Path) -> Source:
    """A stream that can be read once, written to disk a little at a time, so that it can be read again."""
    with open_writer(path) as writer:
        for chunk in _chunks(texts):
            writer.write(pa.table({"text": pa.array(as_texts(chunk), pa.large_string())}))
    return lambda: read_documents(path, ColumnsConfig(text="text"), labeled=False)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(texts)
    while chunk := list(islice(iterator, SPOOL_DOCUMENTS)):
        yield chunk
