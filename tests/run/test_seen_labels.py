"""A classifier that was fitted on the same labels is no judge of them: it is found, and no gate is fitted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline

from mein import MeinClassifier
from mein.evaluation.rendering import lines_of
from mein.mixture.inference import expert_logits
from mein.mixture.second_level import scale_of
from mein.model.loading import load_model
from mein.report.page import page
from mein.report.record import read_finished
from mein.run.evaluate import read_verdict
from mein.run.seen_labels import have_seen
from mein.runtime.run_folder import RunFolder
from mein.store.store import Store
from tests.support import tiny

pytestmark = pytest.mark.usefixtures("unsynced")

TEXTS = tiny.TEXTS
LABELS = TEXTS.labeled_labels
SETTINGS = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}
SENTENCE = r"^The soft labels were made with these labels: on dev they are hardly ever wrong, but unsure of"
NOTHING = (
    "The soft labels have seen these labels, so no error was measured: give test documents. "
    "The effect of the unlabeled text is unknown."
)


def pipeline(C: float = 1.0) -> Pipeline:
    return make_pipeline(TfidfVectorizer(), LogisticRegression(C=C))


def fit(teacher: Any, path: Path, **settings: Any) -> MeinClassifier:
    model = MeinClassifier(
        preset="small",
        settings=SETTINGS | settings,
        device="cpu",
        compares=True,
        run_dir=path,
        soft_labels=teacher,
    )
    return model.fit(TEXTS.labeled_texts, LABELS, unlabeled=TEXTS.unlabeled_texts)


@pytest.mark.parametrize("method", ["no-lexicon", "ours", "paper"])
def test_the_recipe_that_leaked_measures_nothing(tmp_path: Path, method: str) -> None:
    """It printed 0.0% -> 0.0% error: a pipeline that was fitted on the labels, as soft_labels."""
    teacher = pipeline(10).fit(TEXTS.labeled_texts, LABELS)
    with pytest.warns(UserWarning, match=SENTENCE) as found:
        model = fit(teacher.predict_proba, tmp_path / "run", **{"mixture.method": method})
    assert len(found) == 1
    assert model.verdict_ == NOTHING
    text = page([read_finished(tmp_path / "run")])
    assert text.count("The soft labels have seen these labels") >= 2
    assert "No gate is fitted" in text
    assert "This model</span>" not in text  # the tile with its error
    verdict = read_verdict(RunFolder(tmp_path / "run"))
    assert lines_of(verdict) == ["Not compared with a baseline.", *NOTHING.replace(". ", ".\n").split("\n")]


def test_its_gates_are_neutral(tmp_path: Path) -> None:
    """All imitators together have the teacher's scale on unlabeled text, and the mean of both predicts."""
    with pytest.warns(UserWarning, match=SENTENCE):
        fit(pipeline(10).fit(TEXTS.labeled_texts, LABELS).predict_proba, tmp_path / "run")
    model = load_model(tmp_path / "run", soft_labels=len)
    store = Store.open(tmp_path / "run/encoded/held_out")
    z = expert_logits(tiny.networks_of(model).expert, store.words(0))
    alpha = model.networks.alpha(store.pieces(0))
    scales = [gate * scale_of(one) for gate, one in zip(model.gates, alpha, strict=True)]
    assert scales == pytest.approx([scale_of(z) / 2] * 2, rel=1e-4)
    assert model.temperature == 2.0


def test_a_teacher_of_other_labels_is_believed(tmp_path: Path) -> None:
    """Warnings are errors here."""
    teacher = pipeline(10).fit(TEXTS.test_texts, TEXTS.test_labels)
    model = fit(teacher.predict_proba, tmp_path / "run")
    assert model.verdict_ is not None
    assert "% error" in model.verdict_


def log_p(teacher: Pipeline, texts: list[str]) -> np.ndarray:
    p: np.ndarray = teacher.predict_proba(texts)
    found: np.ndarray = np.log(np.maximum(p, 1e-6))
    return found


@pytest.mark.parametrize(
    ("last", "count"),
    [
        *((LogisticRegression(C=C), count) for C in (1.0, 100.0, 1e4) for count in (20, 80)),
        *((MultinomialNB(alpha=alpha), 80) for alpha in (1.0, 0.01)),
    ],
)
def test_pipelines_that_were_fitted_on_the_labels_are_found(last: Any, count: int) -> None:
    """And those that were fitted on others are not."""
    texts, labels = TEXTS.labeled_texts[-count:], LABELS[-count:]
    ids = np.array([sorted(set(LABELS)).index(label) for label in labels])
    found = []
    for documents in (TEXTS.labeled_texts, LABELS), (TEXTS.test_texts, TEXTS.test_labels):
        teacher = make_pipeline(TfidfVectorizer(), clone(last)).fit(*documents)
        found.append(have_seen(log_p(teacher, texts), ids, log_p(teacher, TEXTS.unlabeled_texts)))
    assert found == [True, False]


def test_an_accurate_teacher_is_believed() -> None:
    """As sure of labeled texts as of others: probabilities that are calibrated, and labels without any."""
    draws = np.random.default_rng(0)
    for sure in (20.0, 60.0):  # 5% and 2% error
        p = draws.beta(sure, 1.0, size=2200)
        rows = np.log(np.stack([p, 1 - p], axis=1).clip(1e-6))
        labels = (draws.random(200) > p[:200]).astype(int)
        assert not have_seen(rows[:200], labels, rows[200:])
    p = draws.uniform(0.7, 0.9, size=2200)  # too little sure: 1% error
    rows = np.log(np.stack([p, 1 - p], axis=1))
    assert not have_seen(rows[:200], (np.arange(200) < 2).astype(int), rows[200:])
    hard = np.log(np.tile([0.9, 0.1], (2200, 1)))
    assert not have_seen(hard[:200], np.zeros(200, int), hard[200:])
    assert not have_seen(hard[:0], np.zeros(0, int), hard)
