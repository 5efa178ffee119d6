"""The linear expert at every door: in the shell and in Python."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from mein import MeinClassifier
from tests.support import tiny
from tests.support.shell import TINY, mein, write_corpus

pytestmark = pytest.mark.usefixtures("unsynced")

LINEAR = [*TINY, "--set", "expert.kind=linear", "--set", "mixture.method=ours"]
TEXTS = tiny.TEXTS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; the files that it learned from are beside it."""
    folder = tmp_path_factory.mktemp("linear")
    answer = mein("train", *write_corpus(folder), "--out", folder / "run", *LINEAR)
    assert answer.code == 0, answer
    return folder / "run"


def test_predict_has_a_label_for_each_document(run: Path, tmp_path: Path) -> None:
    assert mein("predict", run, run.parent / "test.csv", "--out", tmp_path / "out.csv").code == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    model = MeinClassifier.load(run, "cpu")
    assert len(rows) == len(TEXTS.test_texts)
    predicted = [str(label) for label in model.predict(TEXTS.test_texts)]
    assert any([row[name] for row in rows] == predicted for name in rows[0])


def test_evaluate_agrees_with_the_table_of_the_run(run: Path) -> None:
    answer = mein("evaluate", run, run.parent / "test.csv", "--json")
    assert answer.code == 0, answer
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    errors = {line["system"]: line["error"] for line in map(json.loads, lines) if "system" in line}
    assert f"{errors['mixture']:.1f}"[:4] in answer.out or str(errors["mixture"]) in answer.out


@pytest.mark.parametrize("text", [TEXTS.test_texts[0], "zzz 龍", "lovely"])
def test_explain_has_parts_that_make_up_the_whole(run: Path, text: str) -> None:
    answer = mein("explain", run, text)
    assert answer.code == 0, answer
    assert mein("explain", run, text, "--json").code == 0


def test_a_report_is_written(run: Path) -> None:
    assert mein("report", run, "--out", run.parent / "report.html").code == 0
    assert (run.parent / "report.html").stat().st_size > 10_000


def test_two_seeds_are_two_runs(run: Path) -> None:
    answer = mein("train", *write_corpus(run.parent), "--out", run.parent / "two", "--seeds", 2, *LINEAR)
    assert answer.code == 0, answer
    assert len(list((run.parent / "two").glob("*/done"))) == 2


def test_without_test_documents_the_shell_shows_all_labeled_ones(run: Path, tmp_path: Path) -> None:
    words = write_corpus(tmp_path)[:4]
    answer = mein("train", *words, "--out", tmp_path / "run", *LINEAR)
    assert answer.code == 0, answer
    assert f"{len(TEXTS.labeled_texts)} " in answer.out


def test_a_classifier_is_cloned_fitted_and_shared(tmp_path: Path) -> None:
    settings = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}
    settings |= {"expert.kind": "linear", "mixture.method": "ours"}
    first = MeinClassifier(preset="small", settings=settings, device="cpu", class_weight="balanced")
    weights = np.linspace(0.5, 2.0, len(TEXTS.labeled_texts))
    answers = []
    for model in (first, clone(first)):
        model.fit(
            TEXTS.labeled_texts,
            TEXTS.labeled_labels,
            unlabeled=TEXTS.unlabeled_texts,
            sample_weight=weights,
        )
        answers.append(model.predict_proba(TEXTS.test_texts))
    assert_array_equal(answers[0], answers[1])
    assert model.score(TEXTS.test_texts, TEXTS.test_labels) > 0.6
    model.save_pretrained(tmp_path / "shared")
    shared = MeinClassifier.from_pretrained(str(tmp_path / "shared"), device="cpu")
    assert_allclose(shared.predict_proba(TEXTS.test_texts), answers[0], atol=1e-6)
    assert model.explain(TEXTS.test_texts[0]) is not None
