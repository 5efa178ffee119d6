"""Every kind of expert for few labels, at every command that takes a run."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mein import MeinClassifier
from mein.explain import explain
from mein.model.loading import load_model
from mein.sharing import save_pretrained
from tests.support import hub_models, serving, tiny
from tests.support.shell import mein, refuses, write_csv

pytestmark = pytest.mark.usefixtures("unsynced")

TEXTS = tiny.TEXTS
NEW = TEXTS.test_texts[:6]
SETTINGS = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}


def fit(path: Path, **expert: Any) -> Path:
    settings = SETTINGS | {"mixture.method": "ours"} | expert.pop("settings", {})
    model = MeinClassifier(
        preset="small", settings=settings, device="cpu", run_dir=path, compares=True, **expert
    )
    model.fit(TEXTS.labeled_texts, TEXTS.labeled_labels, unlabeled=TEXTS.unlabeled_texts)
    return path


def linear(folder: Path) -> Path:
    return fit(folder / "run", settings={"expert.kind": "linear"})


def frozen(folder: Path) -> Path:
    pytest.importorskip("transformers")
    return fit(folder / "run", encoder=hub_models.build("Bert", folder / "hub", classes=None))


def user(folder: Path) -> Path:
    pytest.importorskip("skops")
    return fit(folder / "run", expert=make_pipeline(TfidfVectorizer(), LogisticRegression()))


EXPERTS: dict[str, Callable[[Path], Path]] = {"linear": linear, "frozen": frozen, "user": user}


@pytest.fixture(scope="module", params=EXPERTS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return EXPERTS[request.param](tmp_path_factory.mktemp(request.param))


def probabilities(run: Path) -> np.ndarray:
    found: np.ndarray = np.exp(load_model(run, "cpu").log_probs(NEW))
    return found


def test_predict(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    answer = mein("predict", run, write_csv(tmp_path / "new.csv", NEW), "--out", out, "--all-probabilities")
    assert answer.code == 0, answer
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = [[float(row[f"p_{name}"]) for name in ("negative", "positive")] for row in rows]
    assert_allclose(found, probabilities(run), atol=1e-4)


def test_evaluate(run: Path, tmp_path: Path) -> None:
    """The mixture's error is that of its predictions."""
    documents = write_csv(tmp_path / "test.csv", TEXTS.test_texts, TEXTS.test_labels)
    answer = mein("evaluate", run, documents, "--json")
    assert answer.code == 0, answer
    rows = {row["system"]: row for row in json.loads(answer.out)["systems"]}
    predicted = MeinClassifier.load(run, "cpu").predict(TEXTS.test_texts)
    wrong = np.mean(predicted != np.array(TEXTS.test_labels))
    assert rows["mixture"]["error"] == pytest.approx(100 * wrong)


def test_explain(run: Path) -> None:
    """Parts add up to the log-odds; another's classifier is one part, of which no fragment accounts."""
    answer = mein("explain", run, NEW[0], "--json")
    assert answer.code == 0, answer
    found = explain(load_model(run, "cpu"), NEW[0])
    parts = found.expert + found.lexicon + sum(found.imitators.values())
    assert parts == pytest.approx(found.log_odds, abs=1e-4)
    kind = load_model(run, "cpu").config.expert.kind
    if kind == "user":
        assert found.rest["expert"] == found.expert
        assert "expert" not in found.shares.of
    else:
        assert "expert" in found.shares.of


def test_report(run: Path, tmp_path: Path) -> None:
    assert mein("report", run, "--out", tmp_path / "report.html").code == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_share(run: Path, tmp_path: Path) -> None:
    MeinClassifier.load(run, "cpu").save_pretrained(tmp_path / "memory")
    save_pretrained(run, tmp_path / "folder")
    for name in ("memory", "folder"):
        shared = MeinClassifier.from_pretrained(tmp_path / name, "cpu")
        assert_allclose(shared.predict_proba(NEW), probabilities(run), atol=1e-6)


def test_serve(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    server = serving.start(run, tmp_path / "log")
    try:
        reply = server.ask("/predict", {"text": NEW})
        found = [row["probability"] for row in reply.json["predictions"]]
    finally:
        server.stop()
    assert_allclose(found, probabilities(run).max(axis=1), atol=1e-4)


def test_a_run_without_its_classifier_takes_a_table(tmp_path: Path) -> None:
    """As one with given probabilities does: here of a factory, which is never saved."""

    def factory(texts: list[str], labels: list[Any], sample_weight: np.ndarray) -> Any:
        return make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels).predict_proba

    run = fit(tmp_path / "run", expert=factory)
    documents = write_csv(tmp_path / "new.csv", NEW)
    command = ["predict", run, documents, "--out", tmp_path / "out.csv"]
    refuses(r"The expert of this run is a classifier from Python, which is not in its folder: .*", *command)
    p = factory(TEXTS.labeled_texts, TEXTS.labeled_labels, np.ones(80))(NEW)
    rows = [{"text": text, "probabilities": row.tolist()} for text, row in zip(NEW, p, strict=True)]
    table = tmp_path / "soft.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert mein(*command, "--soft-labels", table).code == 0
    assert mein("explain", run, NEW[0], "--soft-labels", table).code == 0
