"""MeinClassifier, the Python API: scikit-learn's conventions, for texts."""

import shutil
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mein import sharing
from mein.config import Config, load_config
from mein.data.corpus import UnlabeledText, as_list, as_texts, as_weights, corpus_of_lists
from mein.data.soft_labels import SoftLabelSource
from mein.errors import ConfigError, InputError, RunError
from mein.evaluation.rendering import sentence_of
from mein.explain import Explanation, explain
from mein.model.loading import load_model
from mein.run.evaluate import read_verdict
from mein.run.pipeline import train_and_evaluate
from mein.run.prepare import seen_labels_notes
from mein.run.user_fits import UserClassifier
from mein.runtime.device import choose_device
from mein.runtime.files import absolute, expanded
from mein.runtime.progress import Quiet, Terminal
from mein.runtime.run_folder import RunFolder

OWN_PARAMETERS = {"seed": "random_state", "runtime.device": "device"}
USER = "user"  # the kind of expert that `expert` is


class MeinClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A mixture of an expert, which learns from labels, and imitators, which learn from unlabeled text.

    >>> model = MeinClassifier().fit(texts, labels, unlabeled=more_texts)  # doctest: +SKIP
    >>> model.predict("the battery died after a week")  # doctest: +SKIP
    'negative'

    Parameters
    ----------
    preset : "small", "full", "paper", "transformer", ... or None
        Sizes and schedules; None: "small" without a GPU and "full" with one.
    settings : mapping or None
        Any setting of the configuration by its dotted name: {"imitators.windows": [1, 2]}.
    encoder : str, path or None
        A Hugging Face encoder as the expert: a folder, a hub name, or "auto": all-MiniLM-L6-v2 at a fixed
        commit. Frozen, except with "transformer".
    expert : classifier, function or None
        A classifier over texts in place of the built-in expert: an unfitted scikit-learn classifier or
        pipeline with predict_proba, or a function fit(texts, labels, sample_weight) -> predict_proba, columns
        in the order of the sorted labels. It is fitted in folds, and on all labels.
    class_weight : "balanced", mapping or None
        "balanced" gives rare classes the same total weight as common ones; {label: weight} sets each.
    compares : bool
        Whether fit also trains the controls and keeps the comparison in `verdict_`: on dev, or out of fold.
    run_dir : path or None
        Where fit writes its run folder; None: a temporary one.
    soft_labels : function, path or None
        A teacher in place of the expert that has not learned from these labels: texts -> probabilities
        (n, Y), columns in the order of the sorted labels, or labels; or a table with a column `probabilities`
        or `label`. `predict` asks it for every text.
    from_run : path or None
        A self-training round: the expert also learns this finished run's predictions for `unlabeled`.
    device : "auto", "cpu", "cuda", ...
    verbose : bool
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : the labels, sorted
    gates_ : the gate of each window's imitator, empty without unlabeled text
    verdict_ : one sentence with `compares`, otherwise None
    expert_ : with `expert`, the clone's predict_proba, or that of the factory, learned from all labels
    """

    def __init__(
        self,
        *,
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
        encoder: str | Path | None = None,
        expert: Any = None,
        class_weight: str | Mapping[Any, float] | None = None,
        compares: bool = False,
        run_dir: str | Path | None = None,
        soft_labels: SoftLabelSource | None = None,
        from_run: str | Path | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.preset = preset
        self.settings = settings
        self.encoder = encoder
        self.expert = expert
        self.class_weight = class_weight
        self.compares = compares
        self.run_dir = run_dir
        self.soft_labels = soft_labels
        self.from_run = from_run
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Iterable[str],
        y: Iterable[Any],
        sample_weight: Iterable[float] | None = None,
        unlabeled: UnlabeledText | None = None,
    ) -> Self:
        """Learn from texts X with labels y and from `unlabeled` texts: an iterable, a path or a glob.

        A label of None, or the number -1, marks an unlabeled text, as in scikit-learn.
        """
        if y is None:
            raise InputError("y is None, but MeinClassifier requires y to be passed: give labels.")
        texts, labels = as_texts(X), as_list(y, "y")
        if len(texts) != len(labels):
            raise InputError(
                f"X holds {len(texts)} texts but y holds {len(labels)} labels: give one for each."
            )
        config = self._config()
        expert = None if self.expert is None else UserClassifier(self.expert)
        reporter = Terminal(Console(stderr=True)) if self.verbose else Quiet()
        with tempfile.TemporaryDirectory(prefix="mein-") as temporary:
            by_class = self.class_weight if isinstance(self.class_weight, Mapping) else None
            weights = as_weights(sample_weight, by_class, labels)
            if isinstance(unlabeled, str | Path):
                unlabeled = expanded(unlabeled)
            corpus = corpus_of_lists(texts, labels, weights, unlabeled, config.columns, Path(temporary))
            path = Path(temporary) / "run" if self.run_dir is None else expanded(Path(self.run_dir))
            if (path / "config.json").exists():
                raise RunError(f"{path} already holds a run: give another run_dir, or load it with `load`.")
            controls = None if self.compares else ()
            teacher = self.soft_labels if callable(self.soft_labels) else None  # a table is in the settings
            train_and_evaluate(
                config, corpus, path, reporter, controls=controls, soft_labels=teacher, expert=expert
            )
            for note in seen_labels_notes(RunFolder(path)):
                warnings.warn(note, UserWarning, stacklevel=2)
            if expert is not None:
                self.expert_ = teacher = expert.last
            self.verdict_ = sentence_of(read_verdict(RunFolder(path))) if self.compares else None
            self._adopt(path, teacher)
            if self.run_dir is None and self.model_.hub is not None:  # a temporary folder's, soon gone
                self.model_.keep_hub(partial(shutil.copytree, self.model_.hub))
        return self

    def predict(self, X: str | Iterable[str]) -> Any:
        """The label of each text; for one text, its label."""
        ids = self._log_probs(X).argmax(axis=1)
        return self.model_.labels.classes[ids[0]] if isinstance(X, str) else self.classes_[ids]

    def predict_proba(self, X: str | Iterable[str]) -> np.ndarray:
        """p(y | X) (n, Y), columns as in `classes_`; for one text (Y,)."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: str | Iterable[str]) -> np.ndarray:
        """log p(y | X) (n, Y), columns as in `classes_`; for one text (Y,)."""
        log_probs = self._log_probs(X)
        return np.asarray(log_probs[0]) if isinstance(X, str) else log_probs

    def decision_function(self, X: str | Iterable[str]) -> Any:
        """The log-odds of the second class (n,) if there are two, otherwise log p(y | X) (n, Y)."""
        log_probs = self._log_probs(X)
        scores = log_probs[:, 1] - log_probs[:, 0] if log_probs.shape[1] == 2 else log_probs
        return scores[0] if isinstance(X, str) else scores

    def explain(self, text: str, label: Any = None, against: Any = None) -> Explanation:
        """Which fragments account for a prediction, in parts that add up to the log-odds.

        `label` defaults to the most probable one, `against` to the most probable of the others.
        """
        check_is_fitted(self)
        if not isinstance(text, str):
            raise InputError(f"The text to explain is {text!r:.40}: give a single text.")
        return explain(self.model_, text, label, against)

    def save(self, path: str | Path) -> None:
        """Write a run folder: safetensors, JSON and text, no pickle."""
        check_is_fitted(self)
        self.model_.save(expanded(Path(path)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder to share: what `from_pretrained` needs, a model card, and no document."""
        check_is_fitted(self)
        sharing.save_pretrained(self._source(), expanded(Path(folder)))

    def push_to_hub(self, repo_id: str, *, private: bool = True, token: str | None = None) -> str:
        """Upload the same to the Hugging Face hub; returns the address."""
        check_is_fitted(self)
        return sharing.push_to_hub(self._source(), repo_id, private=private, token=token)

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        device: str = "auto",
        soft_labels: SoftLabelSource | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
    ) -> Self:
        """The classifier in a folder, or in a repository of the Hugging Face hub, which may be private."""
        return cls.load(
            sharing.from_pretrained(path_or_id, revision=revision, token=token), device, soft_labels
        )

    def _source(self) -> Any:
        """The run folder, whose card has figures, or the model in memory."""
        return self.model_ if self.run_dir is None else expanded(Path(self.run_dir))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", soft_labels: SoftLabelSource | None = None) -> Self:
        """The classifier in a folder of `save` or `mein train`, with its settings.

        A `soft_labels` function is not in the folder: give it again. A table of new texts may be given.
        """
        classifier = cls(device=device, soft_labels=soft_labels)
        if isinstance(soft_labels, str | Path):
            soft_labels = expanded(soft_labels)
        classifier._adopt(expanded(Path(path)), soft_labels)
        config = classifier.model_.config
        classifier.settings = config.model_dump(mode="json", exclude={"seed", "runtime", "class_weight"})
        classifier.class_weight, classifier.random_state = config.class_weight, config.seed
        return classifier

    def _config(self) -> Config:
        given = {} if self.settings is None else self.settings
        if not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
            raise ConfigError(f"settings is {given!r:.60}: give a mapping from names of settings to values.")
        for setting, parameter in OWN_PARAMETERS.items():
            if setting in given:
                raise ConfigError(f"Setting {setting} is a parameter here: use {parameter}= instead.")
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        settings = {"runtime.workers": 1, **given, "seed": int(seed), "runtime.device": self.device}
        if isinstance(self.soft_labels, str | Path):
            settings |= {"expert.kind": "given", "expert.model": absolute(expanded(self.soft_labels))}
        elif callable(self.soft_labels):
            settings.setdefault("expert.kind", "given")
        elif self.soft_labels is not None:
            raise ConfigError(
                f"soft_labels is {self.soft_labels!r:.60}, no function and no path: give one from texts "
                "to probabilities, such as a pipeline's predict_proba, or a table."
            )
        if self.expert is not None:
            if self.encoder is not None:
                raise ConfigError(
                    "expert= and encoder= are given: drop one of both; what an encoder computes can be a "
                    "step of a pipeline, for an expert reads the texts themselves."
                )
            if self.soft_labels is not None or settings.get("expert.kind", USER) != USER:
                other = "soft_labels" if self.soft_labels is not None else "the setting expert.kind"
                raise ConfigError(f"expert= and {other} are given: drop one of both.")
            settings["expert.kind"] = USER
        if self.from_run is not None:
            settings["expert.from_run"] = str(expanded(Path(self.from_run)).resolve())
        if self.class_weight is not None and not isinstance(self.class_weight, Mapping):
            settings["class_weight"] = self.class_weight
        encoder = None if self.encoder is None else str(self.encoder)
        return load_config(self.preset, overrides=settings, encoder=encoder)

    def _adopt(self, path: Path, soft_labels: SoftLabelSource | None) -> None:
        self.model_ = load_model(path, self.device, soft_labels)
        self.classes_ = _as_classes(self.model_.labels.classes)
        self.gates_ = self.model_.gates

    def _log_probs(self, X: str | Iterable[str]) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.log_probs([X] if isinstance(X, str) else as_texts(X))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; the networks go to the device of this machine."""
        super().__setstate__(state)
        if "model_" in state:
            self.model_.to(choose_device(self.device))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _as_classes(classes: Sequence[Any]) -> np.ndarray:
    """Labels as an array; those that numpy would change stay objects.

    It changes labels of several types, integers of more than 63 bits, and strings that end in NUL.
    """
    kinds = {type(label) for label in classes}
    is_large = kinds == {int} and min(classes) >= 0 and 2**63 <= max(classes) < 2**64
    array = np.array(classes, np.uint64 if is_large else None)
    is_kept = len(kinds) == 1 and array.dtype.kind != "f" and array.tolist() == list(classes)
    return array if is_kept else np.array(classes, dtype=object)
