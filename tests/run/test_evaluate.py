"""The verdict: the table shows what the saved classifier does, calibrated on dev only."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax

from mein.data.corpus import source_of_lists
from mein.evaluation.comparison import Row, verdict_of
from mein.evaluation.metrics import evaluate, fit_temperature
from mein.evaluation.rendering import sentence_of
from mein.evaluation.systems import CLOSED_GATES, EXPERT, IMITATORS_ONLY, MIXTURE, RANDOM_IMITATORS, TFIDF
from mein.mixture.gates import fit_gates
from mein.model.loading import Classifiers, load_model
from mein.model.model import mixed_logits
from mein.run.documents import read_labeled
from mein.run.evaluate import credited as credited_in
from mein.run.evaluate import read_correct, read_verdict
from mein.runtime.device import choose_device
from mein.runtime.run_folder import RunFolder
from tests.support import tiny

TEXTS = [*tiny.TEXTS.test_texts, "", "...", "   "]  # the last have no word, or only a sign
LABELS = [*tiny.TEXTS.test_labels, "positive", "negative", "negative"]
Evaluated = tuple[Path, list[Row]]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    path = tmp_path_factory.mktemp("evaluated") / "run"
    corpus = replace(tiny.corpus(), test=source_of_lists(TEXTS, LABELS))
    return path, tiny.run(path, corpus, dev_fraction=0.4)


def predictions(path: Path, system: str) -> np.ndarray:
    return np.stack(pq.read_table(path / "predictions.parquet")[system].to_numpy())


def test_every_system_is_in_the_table_in_its_order(evaluated: Evaluated) -> None:
    names = [TFIDF, EXPERT, CLOSED_GATES, RANDOM_IMITATORS, IMITATORS_ONLY, MIXTURE]
    assert [row.name for row in evaluated[1]] == names
    assert pq.read_table(evaluated[0] / "predictions.parquet").column_names == ["label", *names]


def test_the_predictions_are_those_of_the_saved_classifiers(evaluated: Evaluated) -> None:
    path, _ = evaluated
    folder, config = RunFolder(path), tiny.config(dev_fraction=0.4)
    mixture = load_model(path, "cpu")
    expected = {MIXTURE: mixture.log_probs(TEXTS), IMITATORS_ONLY: mixture.imitator_log_probs(TEXTS)}
    for name, system in (("expert", EXPERT), ("closed", CLOSED_GATES)):
        expected[system] = Classifiers(folder, config, choose_device("cpu")).load(name).log_probs(TEXTS)
    for system, log_probs in expected.items():
        np.testing.assert_allclose(predictions(path, system), log_probs, rtol=1e-6, atol=1e-6)


def test_the_table_scores_the_predictions_against_the_test_labels(evaluated: Evaluated) -> None:
    path, rows = evaluated
    table = pq.read_table(path / "predictions.parquet")
    ids = table["label"].to_numpy()
    assert ids.tolist() == [int(label == "positive") for label in LABELS]
    for row in rows:
        log_probs = predictions(path, row.name).astype(np.float64)
        np.testing.assert_allclose(np.exp(log_probs).sum(1), 1.0, rtol=1e-5)
        wrong = np.mean(log_probs.argmax(1) != ids)
        assert row.scores.error == pytest.approx(100 * wrong)
        assert row.scores["log_loss"] == pytest.approx(-log_probs[np.arange(len(ids)), ids].mean(), rel=1e-5)
        assert row.scores["macro_f1"] == pytest.approx(evaluate(log_probs, ids)["macro_f1"])
        assert np.mean(~read_correct(path)[row.name]) == pytest.approx(wrong)


def test_the_metrics_hold_the_verdict_once(evaluated: Evaluated) -> None:
    path, rows = evaluated
    lines = RunFolder(path).metrics("verdict")
    assert [line.get("system") for line in lines] == [*(row.name for row in rows), None]
    assert [line["error"] for line in lines[:-1]] == [row.scores.error for row in rows]
    assert {line["part"] for line in lines[:-1]} == {"test"}
    assert read_verdict(RunFolder(path)) == verdict_of(rows)
    assert lines[-1]["headline"] == sentence_of(verdict_of(rows))


@pytest.mark.parametrize(
    ("kind", "training", "credited"),
    [
        ("lstm", "plain", "unlabeled text"),
        ("lstm", "adv", "unlabeled text"),
        ("lstm", "vat", "imitators"),
        ("lstm", "ivat", "imitators"),
        ("lm-lstm", "plain", "imitators"),
        ("elmo-lstm", "adv", "imitators"),
        ("average", "plain", "imitators"),
        ("given", "plain", "unlabeled text"),
    ],
)
def test_raw_text_that_the_expert_has_read_itself_is_no_credit(
    evaluated: Evaluated, kind: str, training: str, credited: str
) -> None:
    config = tiny.config(expert__kind=kind, expert__training=training, expert__model="given.parquet")
    assert credited_in(config) == credited


@pytest.mark.parametrize("name", ["expert", "closed", "mixture"])
def test_the_temperature_is_the_one_that_fits_dev(evaluated: Evaluated, name: str) -> None:
    path, config = evaluated[0], tiny.config(dev_fraction=0.4)
    labeled = read_labeled(config, tiny.corpus())
    classifiers = Classifiers(RunFolder(path), config, choose_device("cpu"), knows_dev=False)
    model = classifiers.load(name)
    documents = model.encode(labeled.dev_texts)
    logits = mixed_logits(model.expert_logits(documents), model.alpha(documents), model.gates)
    tau = 1.0
    if name == "mixture":  # whose gates were fitted with one, about which it is sought
        expert = classifiers.load("expert")
        _, tau = fit_gates(expert.expert_logits(documents), model.alpha(documents), labeled.dev_ids)
    assert model.temperature == pytest.approx(fit_temperature(logits, labeled.dev_ids, tau), rel=1e-3)
    test = model.encode(TEXTS)
    z = mixed_logits(model.expert_logits(test), model.alpha(test), model.gates) / model.temperature
    filled = ~test.is_empty
    np.testing.assert_allclose(np.exp(model.log_probs(TEXTS))[filled], softmax(z, axis=1)[filled], rtol=1e-6)


def test_documents_without_known_words_get_the_class_shares_of_training(evaluated: Evaluated) -> None:
    path, _ = evaluated
    labeled = read_labeled(tiny.config(dev_fraction=0.4), tiny.corpus())
    shares = np.bincount(labeled.train_ids) / len(labeled.train_ids)
    for system in (EXPERT, CLOSED_GATES, RANDOM_IMITATORS, IMITATORS_ONLY, MIXTURE):
        np.testing.assert_allclose(np.exp(predictions(path, system))[[-3, -1]], [shares] * 2, rtol=1e-5)
    assert load_model(path, "cpu").encode(TEXTS).is_empty.tolist() == [False] * 40 + [True, False, True]


def test_without_test_documents_dev_is_evaluated_and_the_metrics_show_it(tmp_path: Path) -> None:
    rows = tiny.run(tmp_path / "run", replace(tiny.corpus(), test=None))
    assert rows[0].scores.documents == 20
    assert {line.get("part") for line in RunFolder(tmp_path / "run").metrics("verdict")[:-1]} == {"dev"}
