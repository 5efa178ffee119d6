"""Few labels: all of them teach, in folds, and nothing that judges a document has seen its label."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax

from mein import MeinClassifier
from mein.data.corpus import Corpus, source_of_lists
from mein.errors import InputError
from mein.evaluation.comparison import Row
from mein.evaluation.systems import CLOSED_GATES, EXPERT, IMITATORS_ONLY, MIXTURE, RANDOM_IMITATORS, TFIDF
from mein.mixture import lexicon
from mein.model.artefacts import leave as leave_artefact
from mein.model.loading import load_model
from mein.run import algorithm, folds, linear_fits, prepare
from mein.run.documents import FOLDS
from mein.run.folds import COMPONENTS
from mein.run.linear_fits import ViewFits, match_of
from mein.run.pipeline import train_and_evaluate
from mein.runtime.progress import Quiet
from mein.runtime.tensors import load_tensors
from mein.text import indexer
from mein.training import linear
from tests.support import tiny
from tests.support.dying import ALWAYS, Death, Dying, assert_same_folder

pytestmark = pytest.mark.usefixtures("unsynced")

TEXTS = tiny.TEXTS
LABELS = TEXTS.labeled_labels
SYSTEMS = [TFIDF, EXPERT, CLOSED_GATES, RANDOM_IMITATORS, IMITATORS_ONLY, MIXTURE]


def corpus(labels: list[Any] = LABELS, *, has_test: bool = False, **others: Any) -> Corpus:
    found = tiny.corpus(replace(TEXTS, labeled_labels=labels))
    return replace(found if has_test else replace(found, test=None), **others)


def run(path: Path, documents: Corpus, **overrides: Any) -> dict[str, Row]:
    rows = tiny.run(path, documents, **{"expert__kind": "linear"} | overrides)
    return {row.name: row for row in rows}


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_the_labels_of_a_fold_reach_no_component_of_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, class_weight: str | None
) -> None:
    """To the bit, for expert, imitators and lexicon; classes are balanced by the labels of other folds.

    One C, one weight for each view, one of a teacher's lexicon: these are chosen by predictions of the other
    folds, whose fits have seen the labels of this one.
    """
    monkeypatch.setattr(linear, "STRENGTHS", (1.0,))
    monkeypatch.setattr(ViewFits, "weights_of_views", lambda fits, without=None: np.ones(len(fits.views)))
    monkeypatch.setattr(folds, "weights_of_teacher", lambda run, without: (0.5, 1.0))
    monkeypatch.setattr(algorithm, "weights_of_teacher", lambda run: (0.5, 1.0))
    fold = np.arange(len(LABELS)) % FOLDS
    monkeypatch.setattr(folds, "fold_numbers", lambda run: fold)
    names = sorted(set(LABELS))
    turned = [names[0] if k == 2 else label for k, label in zip(fold, LABELS, strict=True)]
    known = []
    for name, labels in (("before", LABELS), ("after", turned)):
        run(tmp_path / name, corpus(labels), mixture__method="ours", class_weight=class_weight)
        known.append(load_tensors(tmp_path / name / f"{COMPONENTS}.safetensors")[0])
    before, after = ({name: tensor.numpy() for name, tensor in some.items()} for some in known)
    for name in ("views", "lexicon", "alpha"):
        assert_array_equal(before[name][..., fold == 2, :], after[name][..., fold == 2, :])
        for k in (0, 1, 3, 4):
            assert (before[name][..., fold == k, :] != after[name][..., fold == k, :]).any()


def test_logits_of_all_labels_are_scaled_like_those_of_folds() -> None:
    """Of three fits the first two have half and a quarter of the last one's scale."""
    z = np.random.default_rng(0).normal(size=(50, 3))
    assert match_of(np.stack([0.5 * z, 0.25 * z + 7, z])) == pytest.approx(0.375)
    assert match_of(z[None]) == match_of(np.zeros((3, 0, 2))) == 1.0


def test_nothing_is_learned_from_labels_that_mean_nothing(tmp_path: Path) -> None:
    """The leak test: the mean error over draws is near chance for every system of the table."""
    errors = []
    for seed in range(4):
        labels = random.Random(seed).sample(LABELS, len(LABELS))
        rows = run(tmp_path / str(seed), corpus(labels), imitator_training__learning_rate=0.05)
        assert list(rows) == SYSTEMS
        errors.append([rows[name].scores.values["error"] for name in SYSTEMS])
    assert np.mean(errors, axis=0).min() > 40.0


def test_without_test_documents_the_table_has_all_labeled_ones(tmp_path: Path) -> None:
    rows = run(tmp_path / "run", corpus())
    assert {row.scores.documents for row in rows.values()} == {len(LABELS)}
    assert rows[EXPERT].scores.values["error"] < 40.0


def test_with_dev_documents_the_table_has_those(tmp_path: Path) -> None:
    dev = source_of_lists(TEXTS.test_texts, TEXTS.test_labels)
    rows = run(tmp_path / "run", corpus(dev=dev))
    assert {row.scores.documents for row in rows.values()} == {len(TEXTS.test_texts)}


def test_dev_documents_choose_nothing(tmp_path: Path) -> None:
    """All labels teach, and weigh, in folds."""
    answers = []
    for name, labels in (("one", TEXTS.test_labels), ("other", TEXTS.test_labels[::-1])):
        run(tmp_path / name, corpus(dev=source_of_lists(TEXTS.test_texts, labels)))
        answers.append(load_model(tmp_path / name).log_probs(TEXTS.test_texts))
    assert_array_equal(answers[0], answers[1])


@pytest.mark.parametrize("has_test", [True, False])
def test_without_unlabeled_text_it_is_the_linear_expert(tmp_path: Path, has_test: bool) -> None:
    rows = run(tmp_path / "run", replace(corpus(has_test=has_test), unlabeled=None))
    assert list(rows) == [TFIDF, EXPERT]
    assert np.isfinite(load_model(tmp_path / "run").log_probs(TEXTS.test_texts)).all()


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("has_unlabeled", [True, False])
def test_whole_weights_are_repeated_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, class_weight: str | None, has_unlabeled: bool
) -> None:
    """From the fits of folds to the answers, given the same words, idf and so on, which count documents.

    So does the lexicon, which by default leaves out what is in one document.
    """
    weights = np.r_[np.full(30, 3), np.full(20, 2), np.ones(30, int)]
    rows = np.repeat(np.arange(80), weights)
    repeated = source_of_lists([TEXTS.labeled_texts[row] for row in rows], [LABELS[row] for row in rows])
    monkeypatch.setattr(lexicon, "LEAST_DOCUMENTS", 1)
    settings = {"class_weight": class_weight, "mixture__method": "ours"}
    both = corpus() if has_unlabeled else replace(corpus(), unlabeled=None)
    keep_text(monkeypatch)
    run(tmp_path / "plain", both, **settings)
    found = []
    for name, documents in {
        "weighed": replace(both, sample_weight=weights.astype(np.float32)),
        "repeated": replace(both, labeled=repeated),
    }.items():
        run(tmp_path / name, documents, **settings)
        known = load_tensors(tmp_path / name / f"{COMPONENTS}.safetensors")[0]
        answers = load_model(tmp_path / name).log_probs(TEXTS.test_texts)
        found.append(({key: tensor.numpy() for key, tensor in known.items()}, answers))
    (one, ours), (other, theirs) = found
    assert_array_equal(one["fold"][rows], other["fold"])
    for part in ("views", "lexicon", "alpha"):
        assert_allclose(one[part][..., rows, :], other[part], atol=2e-3)
    assert_allclose(ours, theirs, atol=2e-3)
    plain = load_model(tmp_path / "plain").log_probs(TEXTS.test_texts)
    assert np.abs(plain - theirs).mean() > 0.05


def keep_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all runs have the words, the pieces and the features of texts that the first one learns."""
    original, features = indexer.learn_vocabularies, linear_fits.learned_features
    kept: dict[str, Any] = {}

    def learn_vocabularies(texts: Any, *settings: Any) -> Any:
        chunks = list(texts)
        if "indexer" not in kept:
            kept["indexer"] = original(chunks, *settings)[0]
        return kept["indexer"], sum(map(len, chunks))

    def learned_features(run: Any) -> Any:
        if "features" not in kept:
            kept["features"] = features(run)
        return kept["features"]

    monkeypatch.setattr(prepare, "learn_vocabularies", learn_vocabularies)
    monkeypatch.setattr(linear_fits, "learned_features", learned_features)


def test_other_weights_are_scaled_and_those_of_0_are_left_out(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 80)
    weights[::4] = 0.0
    answers = []
    for name, scale in (("one", 1.0), ("ten", 10.0)):
        run(tmp_path / name, corpus(sample_weight=(scale * weights).astype(np.float32)))
        answers.append(load_model(tmp_path / name).log_probs(TEXTS.test_texts))
    assert_allclose(answers[0], answers[1], atol=1e-3)


def test_a_class_that_weighs_nothing_keeps_its_prior(tmp_path: Path) -> None:
    """80 documents, 20 of them of weight 0, the only ones of a class."""
    labels = ["none" if i % 4 == 0 else label for i, label in enumerate(LABELS)]
    weights = np.array([label != "none" for label in labels], np.float32)
    run(tmp_path / "run", replace(corpus(labels, sample_weight=weights), unlabeled=None))
    model = load_model(tmp_path / "run")
    y = model.labels.classes.index("none")
    known = load_tensors(tmp_path / "run" / f"{COMPONENTS}.safetensors")[0]
    p = np.exp(log_softmax(known["views"].numpy(), axis=2))[:, known["fold"].numpy() >= 0, y]
    assert_allclose(p, 1 / (48 + 3), rtol=1e-4)  # of documents of weight 1, and one more of each class
    assert np.exp(model.log_probs(["zzz yyy"]))[0, y] == pytest.approx(1 / (60 + 3), rel=0.25)
    assert np.exp(model.log_probs(TEXTS.test_texts))[:, y].min() > 1e-4


class Lines(Quiet):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


def test_classes_of_one_text_are_named_and_in_no_fold(tmp_path: Path) -> None:
    labels = ["one", "other", *LABELS[2:]]
    reporter = Lines()
    documents = replace(corpus(labels), unlabeled=None)
    train_and_evaluate(tiny.config(expert__kind="linear"), documents, tmp_path / "run", reporter)
    said = "'one', 'other': one text each, which teaches but is in no fold; add some to weigh them."
    assert [line for line in reporter.lines if "in no fold" in line] == [said]
    fold = load_tensors(tmp_path / "run" / f"{COMPONENTS}.safetensors")[0]["fold"].numpy()
    assert_array_equal(np.flatnonzero(fold < 0), [0, 1])
    p = np.exp(load_model(tmp_path / "run").log_probs(TEXTS.labeled_texts[:2]))
    assert (p.argmax(1) == [labels_of(documents).index(name) for name in ("one", "other")]).all()


def labels_of(documents: Corpus) -> list[Any]:
    return sorted(set(documents.labeled_documents[1]))


def test_equal_texts_are_in_one_fold(tmp_path: Path) -> None:
    """Whatever their case, spaces and punctuation, and their labels; other symbols make another text."""
    texts = [*TEXTS.labeled_texts[:60], *(f"  {text.upper()}!" for text in TEXTS.labeled_texts[:20])]
    texts += [f"{text} +" for text in TEXTS.labeled_texts[:20]]
    documents = replace(corpus(), labeled=source_of_lists(texts, [*LABELS[:60], *LABELS[1:21], *LABELS[:20]]))
    run(tmp_path / "run", replace(documents, unlabeled=None))
    fold = load_tensors(tmp_path / "run" / f"{COMPONENTS}.safetensors")[0]["fold"].numpy()
    assert (fold >= 0).all()
    assert_array_equal(fold[60:80], fold[:20])
    assert (fold[80:] != fold[:20]).any()


def test_folds_follow_texts_and_not_rows(tmp_path: Path) -> None:
    order = random.Random(0).sample(range(len(LABELS)), len(LABELS))
    texts = [TEXTS.labeled_texts[row] for row in order]
    run(tmp_path / "one", corpus())
    shuffled = source_of_lists(texts, [LABELS[row] for row in order])
    run(tmp_path / "other", replace(corpus(), labeled=shuffled))
    fold, other = (
        load_tensors(tmp_path / name / f"{COMPONENTS}.safetensors")[0]["fold"].numpy()
        for name in ("one", "other")
    )
    assert_array_equal(fold[order], other)


SETTINGS: dict[str, Any] = {
    "expert__kind": "linear",
    "mixture__method": "ours",
    "runtime__checkpoint_seconds": ALWAYS,
}
DEATHS = {
    "in a fold": lambda: Dying("imitators-fold-3", 2),
    "before a fold": lambda: Dying("Fold 4", 1),
    "while features are learned": lambda: Dying("Features are", 1),
    "at the last line": lambda: Dying("Stage 3", 1),
}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unbroken") / "run"
    run(path, corpus(has_test=True), mixture__method="ours", runtime__checkpoint_seconds=ALWAYS)
    return path


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, unbroken: Path, death: str) -> None:
    die_in(DEATHS[death](), tmp_path / "run")
    tiny.run(tmp_path / "run", corpus(has_test=True), resume=True, **SETTINGS)
    assert_same_folder(tmp_path / "run", unbroken)


def die_in(reporter: Dying, path: Path) -> None:
    with pytest.raises(Death):
        train_and_evaluate(tiny.config(**SETTINGS), corpus(has_test=True), path, reporter)


def test_a_run_killed_behind_the_last_fold_leaves_nothing_of_folds(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the logits are kept, and what they are of is not yet dropped."""
    original = leave_artefact

    def leave(folder: Any, name: str, learn: Callable[[], Any]) -> bool:
        is_new = original(folder, name, learn)
        if name == COMPONENTS:
            raise Death
        return is_new

    with monkeypatch.context() as patch:
        patch.setattr(folds, "leave", leave)
        with pytest.raises(Death):
            tiny.run(tmp_path / "run", corpus(has_test=True), **SETTINGS)
    tiny.run(tmp_path / "run", corpus(has_test=True), resume=True, **SETTINGS)
    assert_same_folder(tmp_path / "run", unbroken)
    kinds = ("imitators-fold-*", "fits*", "encoded/fold-*")
    assert not [path for kind in kinds for path in (tmp_path / "run").glob(kind)]


def classifier() -> MeinClassifier:
    mine = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}
    return MeinClassifier(preset="small", settings={"expert.kind": "linear"} | mine, device="cpu")


ODD: dict[str, tuple[list[str], list[str]]] = {
    "four labels": (TEXTS.labeled_texts[:4], ["a", "b", "a", "b"]),
    "two labels": (TEXTS.labeled_texts[:2], ["a", "b"]),
    "the same text for two classes": (TEXTS.labeled_texts[:2] * 2, ["a", "b", "c", "d"]),
    "a text of two classes": ([TEXTS.labeled_texts[0], *TEXTS.labeled_texts[:2]], ["a", "b", "b"]),
    "classes with fewer labels than folds": (TEXTS.labeled_texts[:30], [*["a", "b"] * 10, *"ccddeefffg"]),
    "a class with one document": (TEXTS.labeled_texts[:21], [*["a", "b"] * 10, "c"]),
    "all texts equal": (["a text"] * 20, ["a", "b"] * 10),
    "equal texts for each class": (["one text"] * 10 + ["another"] * 10, ["a"] * 10 + ["b"] * 10),
    "many classes": (TEXTS.labeled_texts[:80] * 4, [f"class {i % 150}" for i in range(320)]),
    "imbalanced": (TEXTS.labeled_texts[:80], ["rare" if i % 20 == 0 else "usual" for i in range(80)]),
    "no spaces": ([f"这部电影{'很好看' if i % 2 else '太难看'}了{i}" for i in range(40)], ["b", "a"] * 20),
    "texts of signs": (["?!" * (i + 1) for i in range(20)], ["b", "a"] * 10),
    "some texts empty": (["", " ", *TEXTS.labeled_texts[:18]], ["a", "b"] * 10),
}


REFUSED = {
    "two labels": "y holds one text of each class, which leaves none to evaluate on: add other",
    "the same text for two classes": "y holds one text of each class, which leaves none to evaluate on: a",
    "all texts equal": "y holds one text of each class, which leaves none to evaluate on: add other",
    "equal texts for each class": "y holds one text of each class, which leaves none to evaluate on: add",
}


@pytest.mark.parametrize("has_unlabeled", [True, False])
@pytest.mark.parametrize("odd", ODD)
def test_odd_data_work_or_are_refused_in_a_sentence(odd: str, has_unlabeled: bool) -> None:
    texts, labels = ODD[odd]
    model, raw = classifier(), TEXTS.unlabeled_texts[:60] if has_unlabeled else None
    if odd in REFUSED:
        with pytest.raises(InputError, match=f"^{REFUSED[odd]}"):
            model.fit(texts, labels, unlabeled=raw)
        return
    model.fit(texts, labels, unlabeled=raw)
    new = ["", "zzz yyy 龍", *TEXTS.test_texts[:3], "word " * 3000]
    p = model.predict_proba(new)
    assert np.isfinite(p).all()
    assert p.sum(1) == pytest.approx(1.0)
    assert set(model.predict(new)) <= set(labels)


@pytest.mark.parametrize("has_unlabeled", [True, False])
@pytest.mark.parametrize("odd", ["all texts equal", "equal texts for each class"])
def test_with_test_documents_equal_texts_teach(tmp_path: Path, odd: str, has_unlabeled: bool) -> None:
    texts, labels = ODD[odd]
    test = source_of_lists([*texts[:1], "other"], labels[:2] if labels[0] != labels[1] else ["a", "b"])
    documents = replace(corpus(), labeled=source_of_lists(texts, labels), test=test)
    rows = run(tmp_path / "run", documents if has_unlabeled else replace(documents, unlabeled=None))
    assert np.isfinite(rows[EXPERT].scores.values["log_loss"])


def test_without_known_words_the_answer_is_the_expert_s_bias() -> None:
    labels = ["rare" if i % 20 == 0 else "usual" for i in range(80)]
    p = classifier().fit(TEXTS.labeled_texts, labels).predict_proba(["zzz yyy", "龍 龍"])
    assert_array_equal(p[0], p[1])
    assert p[0, 1] > 0.7
