"""Every door gives the same probabilities, to 1e-6, whatever documents share a batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from mein import MeinClassifier
from mein.data.demo import demo_corpus
from mein.predict.predict import Predictor, Wanted, predict_file
from tests.support.reviews import RAW, tiny
from tests.support.shell import mein, write_csv

EXACT = 1e-6
DEMO = demo_corpus(seed=4, labeled=120, unlabeled=300, test=150)
TEXTS = [*DEMO.test_texts, "", "lovely", " ".join(DEMO.test_texts[:20]), "日本語 ☃", *RAW[:30]]


@pytest.fixture(scope="module")
def classifier() -> MeinClassifier:
    """Gates as large as free ones can become, so that a rounding of alpha would be seen."""
    settings = {"mixture.method": "ours", "expert.hidden_dim": 40, "imitators.channels": 40}
    fitted = tiny(settings=settings).fit(
        DEMO.labeled_texts, DEMO.labeled_labels, unlabeled=DEMO.unlabeled_texts
    )
    fitted.model_ = replace(fitted.model_, gates=np.array([-2_650.0, 2_650.0]), temperature=90.0)
    return fitted


@pytest.fixture(scope="module")
def alone(classifier: MeinClassifier) -> np.ndarray:
    """The prediction of each text by itself."""
    return np.stack([classifier.predict_proba(text) for text in TEXTS])


def test_one_by_one_is_as_all_together(classifier: MeinClassifier, alone: np.ndarray) -> None:
    assert alone.std(axis=0).min() > 0.01  # they differ, so that agreeing means something
    assert_allclose(classifier.predict_proba(TEXTS), alone, rtol=0, atol=EXACT)
    assert_allclose(np.exp(classifier.model_.log_probs(TEXTS)), alone, rtol=0, atol=EXACT)


@pytest.mark.parametrize("size", [2, 7, 64])
def test_company_does_not_matter(classifier: MeinClassifier, alone: np.ndarray, size: int) -> None:
    order = np.random.default_rng(size).permutation(len(TEXTS))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        found = classifier.predict_proba([TEXTS[row] for row in rows])
        assert_allclose(found, alone[rows], rtol=0, atol=EXACT)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_files_hold_the_same(
    classifier: MeinClassifier,
    alone: np.ndarray,
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mein.predict.predict.CHUNK_ROWS", 50)
    monkeypatch.setattr("mein.data.tables.CHUNK_ROWS", 20)
    source, out = write_csv(tmp_path / "in.csv", TEXTS), tmp_path / f"out{ending}"
    predict_file(classifier.model_, str(source), out, Wanted(all_probabilities=True))
    predict_file(classifier.model_, str(out), tmp_path / "again.parquet")  # any format is read back
    found = pq.read_table(tmp_path / "again.parquet")
    columns = [np.array(found[f"p_{label}"].to_pylist(), float) for label in classifier.classes_]
    assert_allclose(np.stack(columns, axis=1), alone, rtol=0, atol=EXACT)
    assert_allclose(found["predicted_probability"].to_numpy(), alone.max(axis=1), rtol=0, atol=EXACT)


def test_the_shell_predicts_the_same(classifier: MeinClassifier, alone: np.ndarray, tmp_path: Path) -> None:
    classifier.save(tmp_path / "run")
    source, out = write_csv(tmp_path / "in.csv", TEXTS), tmp_path / "out.parquet"
    answer = mein("predict", tmp_path / "run", source, "--out", out, "--all-probabilities")
    assert answer.code == 0, answer
    found = pq.read_table(out)
    columns = [found[f"p_{label}"].to_numpy() for label in classifier.classes_]
    assert_allclose(np.stack(columns, axis=1), alone, rtol=0, atol=EXACT)


def test_explaining_and_imitators_alone_agree_too(classifier: MeinClassifier, alone: np.ndarray) -> None:
    for text, expected in zip(TEXTS[:20], alone, strict=False):
        assert_allclose(classifier.explain(text).probabilities, expected, rtol=0, atol=EXACT)
    together = Predictor(classifier.model_, imitators_only=True).log_probs(TEXTS)
    single = [classifier.model_.imitator_log_probs([text])[0] for text in TEXTS]
    assert_allclose(np.exp(together), np.exp(single), rtol=0, atol=EXACT)


def test_the_server_predicts_the_same(classifier: MeinClassifier, alone: np.ndarray) -> None:
    """One text, many texts, and an explanation, which is what the page shows."""
    pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
    from fastapi.testclient import TestClient

    from mein.serve.app import make_app

    names = [str(label) for label in classifier.classes_]
    with TestClient(make_app(classifier.model_)) as client:
        many = client.post("/predict", json={"text": TEXTS}).json()["predictions"]
        found = [[one["probabilities"][name] for name in names] for one in many]
        assert_allclose(found, alone, rtol=0, atol=EXACT)
        for row in (0, 3, 150):
            (single,) = client.post("/predict", json={"text": TEXTS[row]}).json()["predictions"]
            shown = client.post("/explain", json={"text": TEXTS[row]}).json()
            for answer in (single, shown):
                assert_allclose(
                    [answer["probabilities"][name] for name in names], alone[row], rtol=0, atol=EXACT
                )
