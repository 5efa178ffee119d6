"""A classifier from Python as the expert: fitted, kept in a run folder by skops, and what reads with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from mein.data.labels import Label
from mein.data.soft_labels import LEAST_PROBABILITY, SoftLabels, checked
from mein.errors import ConfigError, InputError, MissingExtra, RunError, shown
from mein.evaluation.prior import with_absent_classes
from mein.model.artefacts import ESTIMATOR
from mein.runtime.files import atomic_path, sha256_of
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import Ragged

MISSING = (
    "The expert of this run is a classifier from Python, which is not in its folder: load the run with "
    "soft_labels=model.expert_, or give its probabilities for each text with --soft-labels FILE."
)
Factory: TypeAlias = Callable[[list[str], list[Label], np.ndarray], SoftLabels]


@dataclass(frozen=True)
class FittedEstimator:
    """p(y | X) (n, Y) by a fitted estimator; classes that it has not seen have their share in training."""

    estimator: Any
    classes: tuple[Label, ...]
    prior: np.ndarray
    """(Y,)."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        place = {str(label): y for y, label in enumerate(self.classes)}
        seen = np.array([place[str(label)] for label in np.asarray(self.estimator.classes_).tolist()])
        given = checked(self.estimator.predict_proba(list(texts)), len(texts), len(seen), "The expert")
        p = np.zeros((len(texts), len(self.classes)))
        p[:, seen] = given
        absent = np.setdiff1d(np.arange(len(self.classes)), seen)
        if len(absent):
            p = np.exp(with_absent_classes(np.log(np.maximum(p, 1e-300)), np.log(self.prior), absent))
            p /= p.sum(axis=1, keepdims=True)
        return p


@dataclass(frozen=True)
class Constant:
    """The same p (Y,) of each text: what is fitted where no more than one class teaches."""

    p: np.ndarray

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return np.tile(self.p, (len(texts), 1))


class UserReader:
    """log p of each text by some classifiers, Y numbers of each, one after another."""

    is_slow, is_beside_words = True, False

    def __init__(self, classes: int, predict: Sequence[SoftLabels], digest: str = "") -> None:
        self.classes, self.predict, self.digest = classes, tuple(predict), digest

    @property
    def fingerprint(self) -> str:
        """Of the file that the classifier was loaded from."""
        return f"user {self.digest}".strip()

    @property
    def size(self) -> int:
        """Y for each classifier."""
        return self.classes * len(self.predict)

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """A row for each text."""
        if not self.predict:
            raise ConfigError(MISSING)
        p = np.zeros((0, self.size))
        if len(texts):  # many classifiers fail on an empty list
            of = [checked(one(texts), len(texts), self.classes, "The expert") for one in self.predict]
            p = np.concatenate(of, axis=1)
        log_p = np.log(np.maximum(p, LEAST_PROBABILITY)).astype(np.float32)
        return Ragged(log_p.ravel(), np.arange(len(texts) + 1, dtype=np.int64) * self.size)

    def save(self, folder: Path) -> str | None:
        """Keep the first classifier in a folder, without pickle; why that is impossible."""
        first = self.predict[0] if self.predict else None
        expert = first.estimator if isinstance(first, FittedEstimator) else first
        reason = why_not_kept(expert)
        if reason is None and not (folder / ESTIMATOR).exists():
            content = _skops().dumps(expert)
            with atomic_path(folder / ESTIMATOR) as temporary:
                temporary.write_bytes(content)
        return reason


def user_reader(folder: RunFolder, classes: Sequence[Label], given: SoftLabels | None) -> UserReader:
    """What reads with the classifier that was given, or with the one that is kept in a run folder."""
    path, digest = folder / ESTIMATOR, ""
    if given is None and path.exists():
        prior = np.array(folder.read_json("labels.json")["prior"], np.float64)
        given, digest = FittedEstimator(_load(path), tuple(classes), prior), sha256_of(path)
    return UserReader(len(classes), () if given is None else (given,), digest)


def refuse_no_classifier(expert: Any) -> None:
    """Refuse what is neither a scikit-learn classifier that was not fitted, nor a factory."""
    name = f"expert is {_in_one_line(expert)}"
    if isinstance(expert, type):
        raise ConfigError(f"{name}, a class: give an instance, such as {expert.__name__}().")
    if not is_estimator(expert):
        if callable(expert):
            return
        raise ConfigError(
            f"{name}, neither a classifier nor a function: give an unfitted scikit-learn classifier over "
            "texts, or a function fit(texts, labels, sample_weight) that returns predict_proba."
        )
    if not hasattr(expert, "predict_proba"):
        raise ConfigError(
            f"{name}, which has no predict_proba: give a classifier that has, "
            "such as CalibratedClassifierCV around it."
        )
    if _is_fitted(expert):
        raise ConfigError(
            f"{name}, which is fitted already: give an unfitted one, such as sklearn.base.clone of it, or, "
            "if it learned from other labels than these, soft_labels=expert.predict_proba."
        )


def _in_one_line(value: Any) -> str:
    """A value as a sentence shows it; pipelines have several lines."""
    return " ".join(shown(value).split())


def is_estimator(expert: Any) -> bool:
    """Whether it is a scikit-learn estimator, and not a factory."""
    return hasattr(expert, "fit")


def _is_fitted(expert: Any) -> bool:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(expert)
    except NotFittedError:
        return False
    return True


def fitted(
    expert: Any,
    texts: list[str],
    ids: np.ndarray,
    weights: np.ndarray,
    classes: tuple[Label, ...],
    prior: np.ndarray,
) -> SoftLabels:
    """What a clone of an estimator, or a factory, learns from texts with labels (n,) and weights (n,).

    Only texts of a weight above 0 are given. Where all weights are 1 an estimator gets none.
    """
    from sklearn.base import clone

    teaches = np.flatnonzero(weights > 0)
    texts, labels = [texts[row] for row in teaches], [classes[y] for y in ids[teaches]]
    weights = weights[teaches].astype(np.float64)
    if len(np.unique(ids[teaches])) < 2:
        return Constant(prior / prior.sum())
    if not is_estimator(expert):
        with _explained(expert):
            predict = expert(texts, labels, weights)
        if not callable(predict):
            raise ConfigError(
                f"The factory given as expert returned {_in_one_line(predict)}: return a function "
                "from texts to probabilities, columns in the order of the sorted labels."
            )
        found: SoftLabels = predict
        return found
    name = weights_name(expert)
    extra = {} if name is None or (weights == 1).all() else {name: weights}
    with _explained(expert):
        return FittedEstimator(clone(expert).fit(texts, labels, **extra), classes, prior)


@contextmanager
def _explained(expert: Any) -> Iterator[None]:
    """One sentence for whatever a classifier that is not ours fails with."""
    try:
        yield
    except Exception as problem:
        reason = f"{type(problem).__name__}: {problem}".replace("\n", " ")
        raise InputError(
            f"expert is {_in_one_line(expert)}, which cannot be fitted on the labeled texts ({reason}): "
            "fit it on them by itself first."
        ) from problem


def weights_name(expert: Any) -> str | None:
    """The argument by which the fit of an estimator, or of the last step of a pipeline, takes weights."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

    if isinstance(expert, Pipeline):
        step, last = expert.steps[-1]
        inside = weights_name(last)
        return None if inside is None else f"{step}__{inside}"
    return "sample_weight" if has_fit_parameter(expert, "sample_weight") else None


def why_not_kept(expert: Any) -> str | None:
    """Why a run folder cannot keep an estimator or a factory; nothing where it can."""
    if not is_estimator(expert):
        return "a function is not saved"
    try:
        skops = _skops()
    except MissingExtra as problem:
        return str(problem)
    try:
        types = skops.get_untrusted_types(data=skops.dumps(expert))
    except Exception as problem:  # skops raises many kinds for what it has no format for
        return f"skops cannot save it ({type(problem).__name__}: {problem})".replace("\n", " ")
    return f"skops does not trust {', '.join(types)}" if types else None


def _load(path: Path) -> Any:
    skops = _skops()
    try:
        return skops.load(path, trusted=[])
    except Exception as problem:  # of a file that is damaged, or of other versions of these packages
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise RunError(
            f"{path} cannot be loaded ({reason}): restore it from a copy of the run, or load the run with "
            "soft_labels=, the fitted classifier's predict_proba."
        ) from problem


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as problem:
        raise MissingExtra(
            f"A classifier from Python is saved by the package skops ({problem}): pip install '.[skops]'"
        ) from problem
    return skops.io
