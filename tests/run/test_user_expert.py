"""A classifier from Python as the expert: clones are fitted in folds, and what is saved loads again."""

import pickle
import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from mein import MeinClassifier
from mein.data.corpus import Corpus
from mein.errors import ConfigError, InputError, MeinError, RunError
from mein.evaluation.comparison import Row
from mein.evaluation.systems import EXPERT, MIXTURE
from mein.mixture.second_level import scale_of
from mein.model.artefacts import ESTIMATOR
from mein.model.loading import load_model
from mein.run import algorithm, folds
from mein.run.documents import FOLDS
from mein.run.folds import COMPONENTS
from mein.run.linear_fits import ViewFits
from mein.run.pipeline import train_and_evaluate
from mein.run.user_fits import UserClassifier
from mein.runtime.progress import Quiet, Reporter
from mein.runtime.tensors import load_tensors
from mein.store.store import Store
from tests.run.test_folds import Lines
from tests.run.test_folds import corpus as corpus_of
from tests.support import tiny
from tests.support.dying import ALWAYS, Death, Dying, assert_same_folder
from tests.support.shell import refuses, write_csv

pytestmark = pytest.mark.usefixtures("unsynced")

TEXTS = tiny.TEXTS
LABELS = TEXTS.labeled_labels
CLASSES = sorted(set(LABELS))
SETTINGS = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}


def pipeline(C: float = 1.0) -> Pipeline:
    return make_pipeline(TfidfVectorizer(), LogisticRegression(C=C))


def run(
    path: Path, expert: Any, documents: Corpus, reporter: Reporter | None = None, **others: Any
) -> dict[str, Row]:
    resume = others.pop("resume", False)
    config = tiny.config(**{"expert__kind": "user", "mixture__method": "ours"} | others)
    reporter = Quiet() if reporter is None else reporter
    rows = train_and_evaluate(config, documents, path, reporter, resume=resume, expert=UserClassifier(expert))
    return {row.name: row for row in rows}


def components(path: Path) -> dict[str, np.ndarray]:
    return {
        name: tensor.numpy() for name, tensor in load_tensors(path / f"{COMPONENTS}.safetensors")[0].items()
    }


def classifier(expert: Any, **others: Any) -> MeinClassifier:
    return MeinClassifier(preset="small", settings=SETTINGS, device="cpu", expert=expert, **others)


def fit(expert: Any, **others: Any) -> MeinClassifier:
    texts = {"unlabeled": TEXTS.unlabeled_texts} | others
    return classifier(expert).fit(TEXTS.labeled_texts, LABELS, **texts)


def by_hand(fold: np.ndarray, learn: Callable[[list[str], list[Any], np.ndarray], Any]) -> np.ndarray:
    """log p (n, Y) of each labeled document by what learned from the other folds."""
    wanted = np.zeros((len(fold), 2))
    for k in range(FOLDS):
        rest, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        model = learn([TEXTS.labeled_texts[i] for i in rest], [LABELS[i] for i in rest], rest)
        wanted[held] = np.log(model.predict_proba([TEXTS.labeled_texts[i] for i in held]))
    return wanted


def test_its_logits_are_those_of_clones_that_learned_from_the_other_folds(tmp_path: Path) -> None:
    run(tmp_path / "run", pipeline(), replace(corpus_of(), unlabeled=None))
    known = components(tmp_path / "run")
    wanted = by_hand(known["fold"], lambda texts, labels, rows: pipeline().fit(texts, labels))
    assert_allclose(known["views"][0], wanted, atol=1e-5)
    own = pipeline().fit(TEXTS.labeled_texts, LABELS)
    predicted = load_in_memory(tmp_path / "run", own)(TEXTS.test_texts)
    p = own.predict_proba(TEXTS.test_texts)
    temperature = np.diff(np.log(p))[:, 0] / np.diff(predicted)[:, 0]
    assert_allclose(temperature, temperature[0], rtol=1e-3)  # its own probabilities, but for the temperature


def load_in_memory(path: Path, own: Any) -> Callable[[Sequence[str]], np.ndarray]:
    return load_model(path, soft_labels=own.predict_proba).log_probs


@pytest.mark.parametrize("name", ["factory", "pipeline"])
def test_the_last_step_learns_from_sample_weights(tmp_path: Path, name: str) -> None:
    weights = np.tile([1.0, 4.0], 40)

    def learn(texts: list[str], labels: list[Any], rows: np.ndarray) -> Any:
        own = weights[rows]
        return pipeline().fit(texts, labels, logisticregression__sample_weight=own)

    def factory(texts: list[str], labels: list[Any], sample_weight: np.ndarray) -> Any:
        return pipeline().fit(texts, labels, logisticregression__sample_weight=sample_weight).predict_proba

    documents = replace(corpus_of(sample_weight=weights.astype(np.float32)), unlabeled=None)
    run(tmp_path / "run", factory if name == "factory" else pipeline(), documents)
    known = components(tmp_path / "run")
    assert_allclose(known["views"][0], by_hand(known["fold"], learn), atol=1e-4)


def test_a_fit_without_sample_weight_is_named(tmp_path: Path) -> None:
    lines, weights = Lines(), np.tile([1.0, 4.0], 40).astype(np.float32)
    expert = make_pipeline(TfidfVectorizer(), KNeighborsClassifier())
    run(tmp_path / "run", expert, replace(corpus_of(sample_weight=weights), unlabeled=None), lines)
    assert "The fit of Pipeline takes no sample_weight: all labeled texts count alike." in lines.lines


def test_the_labels_of_a_fold_reach_no_component_of_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, for the expert, the lexicon, and imitators that learned from the fold's own clone."""
    monkeypatch.setattr(ViewFits, "weights_of_views", lambda fits, without=None: np.ones(1))
    monkeypatch.setattr(folds, "weights_of_teacher", lambda run, without: (0.5, 1.0))
    monkeypatch.setattr(algorithm, "weights_of_teacher", lambda run: (0.5, 1.0))
    fold = np.arange(len(LABELS)) % FOLDS
    monkeypatch.setattr("mein.run.user_fits.numbered_folds", lambda labeled, seed: fold)
    monkeypatch.setattr(folds, "numbered_folds", lambda labeled, seed: fold)
    turned = [CLASSES[0] if k == 2 else label for k, label in zip(fold, LABELS, strict=True)]
    found = []
    for name, labels in (("before", LABELS), ("after", turned)):
        run(tmp_path / name, pipeline(), corpus_of(labels))
        found.append(components(tmp_path / name))
    before, after = found
    for name in ("views", "lexicon", "alpha"):
        assert_array_equal(before[name][..., fold == 2, :], after[name][..., fold == 2, :])
        for k in (0, 1, 3, 4):
            assert (before[name][..., fold == k, :] != after[name][..., fold == k, :]).any()


def test_nothing_is_learned_from_labels_that_mean_nothing(tmp_path: Path) -> None:
    """The leak test, with a classifier that knows all its labels by heart."""
    errors = []
    for seed in range(4):
        labels = random.Random(seed).sample(LABELS, len(LABELS))
        rows = run(
            tmp_path / str(seed), pipeline(1e4), corpus_of(labels), imitator_training__learning_rate=0.05
        )
        errors.append([row.scores.values["error"] for row in rows.values()])
    assert np.mean(errors, axis=0).min() > 40.0


def test_predictions_are_of_the_clone_that_learned_from_all_labels() -> None:
    """And the expert that was given stays unfitted."""
    expert = pipeline()
    model = fit(expert, unlabeled=None)
    own = clone(expert).fit(TEXTS.labeled_texts, LABELS)
    assert_array_equal(model.predict(TEXTS.test_texts), own.predict(TEXTS.test_texts))
    assert model.expert_ is not None
    assert_allclose(model.expert_(TEXTS.test_texts), own.predict_proba(TEXTS.test_texts), atol=1e-6)
    assert not hasattr(expert[-1], "classes_")
    assert model.model_.config.expert.kind == "user"


def test_with_unlabeled_text_there_are_imitators_and_all_systems(tmp_path: Path) -> None:
    rows = run(tmp_path / "run", pipeline(), corpus_of(has_test=True))
    assert {EXPERT, MIXTURE} <= set(rows)
    documents = Store.open(tmp_path / "run/encoded/unlabeled").words()
    assert set(documents.lengths) == {6 * 2}  # five folds and the last, two classes
    rows_of_held = Store.open(tmp_path / "run/encoded/held_out").words().values.reshape(-1, 6, 2)
    last, *others = [scale_of(rows_of_held[:, clone]) for clone in range(6)]
    assert components(tmp_path / "run")["match"][0] == pytest.approx(np.mean(others) / last, rel=1e-4)
    assert np.mean(others) < 0.99 * last
    assert rows[EXPERT].scores.values["error"] < 40.0


def test_a_class_that_weighs_nothing_keeps_its_prior(tmp_path: Path) -> None:
    """No clone knows it: 20 of 80 documents, all of weight 0."""
    labels = ["none" if i % 4 == 0 else label for i, label in enumerate(LABELS)]
    weights = np.array([label != "none" for label in labels], np.float32)
    run(tmp_path / "run", pipeline(), replace(corpus_of(labels, sample_weight=weights), unlabeled=None))
    y = sorted(set(labels)).index("none")
    p = np.exp(components(tmp_path / "run")["views"][0])
    assert p.shape == (80, 3)
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert p[:, y] == pytest.approx(np.full(80, 1 / 61), rel=1e-3)


FACTORY = pipeline()


def factory(texts: list[str], labels: list[Any], sample_weight: np.ndarray) -> Any:
    assert len(texts) == len(labels) == len(sample_weight)
    return clone(FACTORY).fit(texts, labels).predict_proba


def test_a_factory_does_what_a_pipeline_does() -> None:
    one, other = fit(pipeline()), fit(factory)
    assert_allclose(one.predict_proba(TEXTS.test_texts), other.predict_proba(TEXTS.test_texts), atol=1e-6)
    again = pickle.loads(pickle.dumps(other))  # noqa: S301 - our own
    assert_array_equal(again.predict_proba(TEXTS.test_texts), other.predict_proba(TEXTS.test_texts))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "fitted": (
        lambda: pipeline().fit(TEXTS.labeled_texts, LABELS),
        r"^expert is Pipeline\(.*, which is fitted already: give an unfitted one, such as sklearn\.base\."
        r"clone of it, or, if it learned from other labels than these, soft_labels=expert\.predict_proba\.$",
    ),
    "no probabilities": (
        lambda: make_pipeline(TfidfVectorizer(), LinearSVC()),
        r"^expert is Pipeline\(.*, which has no predict_proba: give a classifier that has, such as Calib",
    ),
    "a class": (lambda: LogisticRegression, r"^expert is <class .*>, a class: give an instance, such as Log"),
    "a name": (lambda: "logistic", r"^expert is 'logistic', neither a classifier nor a function: give an un"),
    "no text": (
        LogisticRegression,
        r"^expert is LogisticRegression\(\), which cannot be fitted on the labeled texts \(ValueError: .*\):",
    ),
    "no function": (
        lambda: lambda texts, labels, sample_weight: None,
        r"^The factory given as expert returned None: return a function from texts to probabilities",
    ),
    "wrong columns": (
        lambda: lambda texts, labels, sample_weight: lambda texts: np.ones((len(texts), 3)) / 3,
        r"^The expert gives probabilities of shape \(60, 3\) for 60 texts and 2 classes: give one row for e",
    ),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_is_no_unfitted_classifier_over_texts_is_refused(wrong: str) -> None:
    expert, sentence = REFUSED[wrong]
    documents = TEXTS.labeled_texts[:60], LABELS[:60]
    with pytest.raises(MeinError, match=sentence) as caught:
        classifier(expert()).fit(*documents)
    assert isinstance(caught.value, ConfigError | InputError)
    assert "\n" not in str(caught.value)


def test_another_expert_beside_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^expert= and encoder= are given: drop one of both; what an encod"
    ):
        classifier(pipeline(), encoder="auto").fit(TEXTS.labeled_texts, LABELS)
    sentence = r"^expert= and soft_labels are given: drop one of both\.$"
    with pytest.raises(ConfigError, match=sentence):
        classifier(pipeline(), soft_labels=len).fit(TEXTS.labeled_texts, LABELS)
    with pytest.raises(ConfigError, match=r"^expert= and the setting expert\.kind are given: drop one of b"):
        MeinClassifier(expert=pipeline(), settings={"expert.kind": "lstm"}).fit(TEXTS.labeled_texts, LABELS)
    labeled = write_csv(tmp_path / "labeled.csv", TEXTS.labeled_texts, LABELS)
    refuses(
        r"expert\.kind is 'user', which takes a classifier from Python: give MeinClassifier\(expert=\.\.\.\) "
        r"one, or set expert\.kind to linear\.",
        *["train", "--labeled", labeled, "--out", tmp_path / "run", "--set", "expert.kind=user"],
    )


# Saving.


def test_a_saved_classifier_loads_without_pickle(tmp_path: Path) -> None:
    pytest.importorskip("skops")
    model = fit(make_pipeline(TfidfVectorizer(), MultinomialNB()))
    model.save(tmp_path / "saved")
    loaded = MeinClassifier.load(tmp_path / "saved", "cpu")
    assert_array_equal(loaded.predict_proba(TEXTS.test_texts), model.predict_proba(TEXTS.test_texts))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / ESTIMATOR).exists()
    loaded.save_pretrained(tmp_path / "shared")
    shared = MeinClassifier.from_pretrained(tmp_path / "shared", "cpu")
    assert_array_equal(shared.predict_proba(TEXTS.test_texts), model.predict_proba(TEXTS.test_texts))
    content = (tmp_path / "saved" / ESTIMATOR).read_bytes()
    (tmp_path / "saved" / ESTIMATOR).write_bytes(content[:-10])
    with pytest.raises(RunError, match=r"expert\.skops is damaged, or belongs to another run: restore it"):
        MeinClassifier.load(tmp_path / "saved", "cpu")


UNSAVED: dict[str, tuple[Any, str]] = {
    "a factory": (factory, r"factory is not saved: a function is not saved\. The classifier predicts in th"),
    "a type that is not trusted": (
        make_pipeline(TfidfVectorizer(), RandomForestClassifier(5, random_state=0)),
        r"Pipeline is not saved: skops does not trust sklearn\.tree\._tree\.Tree\. The classifier predi",
    ),
    "a function inside": (
        make_pipeline(TfidfVectorizer(analyzer=str.split), LogisticRegression()),
        r"Pipeline is not saved: skops .*\. The classifier predicts in this process only\.",
    ),
}


@pytest.mark.parametrize("case", UNSAVED)
def test_what_cannot_be_saved_is_named_before_training_and_works_in_memory(tmp_path: Path, case: str) -> None:
    pytest.importorskip("skops")
    expert, sentence = UNSAVED[case]
    lines = Lines()
    run(tmp_path / "run", expert, replace(corpus_of(), unlabeled=None), lines)
    said = next(i for i, line in enumerate(lines.lines) if "is not saved" in line)
    assert said < lines.lines.index("Learning the vocabularies ...")
    assert re.match(sentence, lines.lines[said])
    model = fit(expert)
    model.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / ESTIMATOR).exists()
    alone = MeinClassifier.load(tmp_path / "saved", "cpu")
    with pytest.raises(
        ConfigError,
        match=r"^The expert of this run is a classifier from Python, which is not in its folder: ",
    ):
        alone.predict(TEXTS.test_texts)
    loaded = MeinClassifier.load(tmp_path / "saved", "cpu", soft_labels=model.expert_)
    assert_array_equal(loaded.predict_proba(TEXTS.test_texts), model.predict_proba(TEXTS.test_texts))


def test_without_skops_it_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skops.io", None)
    lines = Lines()
    run(tmp_path / "run", pipeline(), replace(corpus_of(), unlabeled=None), lines)
    said = next(line for line in lines.lines if "is not saved" in line)
    assert said.startswith("Pipeline is not saved: A classifier from Python is saved by the package skops (")
    assert "pip install '.[skops]'" in said


def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"runtime__checkpoint_seconds": ALWAYS}
    run(tmp_path / "unbroken", factory, corpus_of(has_test=True), **settings)
    with pytest.raises(Death):
        run(tmp_path / "run", factory, corpus_of(has_test=True), Dying("imitators-fold-3", 2), **settings)
    run(tmp_path / "run", factory, corpus_of(has_test=True), resume=True, **settings)
    assert_same_folder(tmp_path / "run", tmp_path / "unbroken")
