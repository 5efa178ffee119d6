"""The baselines of a run: TF-IDF, and the features of a frozen encoder, with all labels or out of fold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from mein.data.corpus import source_of_lists
from mein.evaluation.systems import ENCODER, EXPERT, TFIDF
from mein.model.loading import load_model
from mein.run.evaluate import read_verdict
from mein.run.folds import COMPONENTS
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.text.ragged import parted
from tests.support import tiny
from tests.support.hub_models import build
from tests.support.shell import mein, write_csv

pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
pytestmark = pytest.mark.usefixtures("unsynced")
TEXTS = tiny.TEXTS
GRID = (0.3, 1.0, 3.0, 10.0, 30.0)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build("Bert", tmp_path_factory.mktemp("models") / "bert", classes=2))


def features(path: Path, texts: list[str]) -> np.ndarray:
    """What the encoder of a finished run gives, without the words behind it."""
    model = load_model(path, "cpu")
    assert model.indexer.reader is not None
    size = model.indexer.reader.size
    assert size is not None
    return parted(model.encode(texts).words, size)[0]


def ids(labels: list[str]) -> np.ndarray:
    return np.array([label == "positive" for label in labels], np.int64)


def predicted(path: Path, system: str) -> np.ndarray:
    log_probs = np.stack(pq.read_table(path / "predictions.parquet")[system].to_numpy())
    return np.exp(np.asarray(log_probs, np.float64))


@pytest.mark.parametrize("has_dev", [False, True])
def test_an_encoder_has_a_baseline_of_its_own_that_learns_from_all_labels(
    tmp_path: Path, encoder: str, has_dev: bool
) -> None:
    corpus, texts, labels = tiny.corpus(), TEXTS.labeled_texts, TEXTS.labeled_labels
    if has_dev:
        corpus = replace(
            corpus,
            labeled=source_of_lists(texts[:60], labels[:60]),
            dev=source_of_lists(texts[60:], labels[60:]),
        )
    path = tmp_path / "run"
    rows = tiny.run(path, corpus, expert__kind="frozen", expert__model=encoder)
    assert [row.name for row in rows][:3] == [TFIDF, ENCODER, EXPERT]
    search = GridSearchCV(
        LogisticRegression(max_iter=2000), {"C": GRID}, cv=StratifiedKFold(5, shuffle=True, random_state=0)
    ).fit(features(path, texts), ids(labels))
    expected = search.predict_proba(features(path, TEXTS.test_texts))
    assert_allclose(predicted(path, ENCODER), expected, atol=1e-4)
    verdict = read_verdict(RunFolder(path))
    assert verdict.baseline == min(rows[:2], key=lambda row: row.scores.error)


def test_out_of_fold_the_baselines_have_not_seen_the_label(tmp_path: Path, encoder: str) -> None:
    path = tmp_path / "run"
    corpus = replace(tiny.corpus(), test=None)
    rows = tiny.run(path, corpus, expert__kind="frozen", expert__model=encoder)
    assert [row.name for row in rows][:3] == [TFIDF, ENCODER, EXPERT]
    fold = load_tensors(path / f"{COMPONENTS}.safetensors")[0]["fold"].numpy()
    x, y = features(path, TEXTS.labeled_texts), ids(TEXTS.labeled_labels)
    found = predicted(path, ENCODER)
    for k in range(5):
        rest, held = fold != k, fold == k
        of_grid = [
            LogisticRegression(C=C, max_iter=2000).fit(x[rest], y[rest]).predict_proba(x[held]) for C in GRID
        ]
        distances = [np.abs(found[held[fold >= 0]] - one).max() for one in of_grid]
        assert min(distances) < 1e-4
    verdict = read_verdict(RunFolder(path))
    assert (verdict.part, verdict.is_approximate) == ("labeled", True)


def test_only_a_frozen_encoder_has_one(tmp_path: Path) -> None:
    assert ENCODER not in [row.name for row in tiny.run(tmp_path / "run", expert__kind="linear")]


def test_a_finished_run_is_evaluated_without_baselines(tmp_path: Path, encoder: str) -> None:
    """It has no training texts."""
    path = tmp_path / "run"
    tiny.run(path, expert__kind="frozen", expert__model=encoder)
    test = write_csv(tmp_path / "test.csv", TEXTS.test_texts, TEXTS.test_labels)
    answer = mein("evaluate", path, test)
    assert answer.code == 0, answer.err
    assert "logistic regression" not in answer.out
    assert "% error. The imitators " in answer.out
