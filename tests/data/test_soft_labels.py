"""Somebody else's classifier as the expert: its probabilities in a file, or a function that gives them."""

import csv
import json
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mein import MeinClassifier
from mein.data.columns import ColumnsConfig
from mein.data.soft_labels import SoftLabelTable
from mein.errors import ConfigError, InputError, MeinError
from mein.evaluation.systems import EXPERT, TFIDF
from mein.model.build import SoftLabelReader
from mein.model.loading import load_model
from mein.predict.predict import Wanted, predict_file
from mein.report.card import card
from mein.report.page import page
from mein.report.record import read_finished
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.training.loop import Stage, train
from tests.support import tiny
from tests.support.shell import SIZES, mein, refuses, write_csv

TEXTS = tiny.TEXTS
TRAIN, DEV = TEXTS.labeled_texts[:60], TEXTS.labeled_texts[60:]
TRAIN_LABELS, DEV_LABELS = TEXTS.labeled_labels[:60], TEXTS.labeled_labels[60:]
CLASSES = ["negative", "positive"]
ALL = [*TRAIN, *DEV, *TEXTS.unlabeled_texts, *TEXTS.test_texts]
NEW = [f"{text} and more" for text in TEXTS.test_texts[:9]]

linear = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10)).fit(TRAIN, TRAIN_LABELS)


def teacher_probs(texts: Sequence[str]) -> np.ndarray:
    """What TF-IDF and a logistic regression, which know 60 labels, predict for texts."""
    probabilities: np.ndarray = linear.predict_proba(texts)
    return probabilities


def error(probabilities: np.ndarray, labels: Sequence[str]) -> float:
    wanted = [CLASSES.index(label) for label in labels]
    return 100.0 * float((probabilities.argmax(axis=1) != wanted).mean())


Rows = list[dict[str, Any]]


def rows_of(texts: Sequence[str]) -> Rows:
    """A teacher's file, row by row, with lists."""
    return [
        {"text": text, "probabilities": row.tolist()}
        for text, row in zip(texts, teacher_probs(texts), strict=True)
    ]


def by_name(rows: Rows) -> Rows:
    """The same with named classes, in another order."""
    named = [{"positive": row["probabilities"][1], "negative": row["probabilities"][0]} for row in rows]
    return [row | {"probabilities": found} for row, found in zip(rows, named, strict=True)]


def write(path: Path, rows: Rows) -> Path:
    """A parquet with lists, a JSONL with whatever there is, or a csv with JSON in its cells."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows[0])
            writer.writerows(
                [value if isinstance(value, str) else json.dumps(value) for value in row.values()]
                for row in rows
            )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("teacher")


@pytest.fixture(scope="module")
def words(folder: Path) -> list[str]:
    """The words that name the files of the corpus."""
    train = write_csv(folder / "train.csv", TRAIN, TRAIN_LABELS)
    dev = write_csv(folder / "dev.csv", DEV, DEV_LABELS)
    raw = write_csv(folder / "raw.csv", [*TEXTS.unlabeled_texts, *TEXTS.test_texts[:3]])
    test = write_csv(folder / "test.csv", TEXTS.test_texts, TEXTS.test_labels)
    return ["--labeled", *map(str, (train, "--dev", dev, "--unlabeled", raw, "--test", test))]


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    """The probabilities of every document."""
    return write(folder / "teacher.parquet", rows_of(ALL))


@pytest.fixture(scope="module")
def run(folder: Path, words: list[str], table: Path) -> Path:
    answer = mein("train", *words, "--soft-labels", table, "--out", folder / "run", *SIZES)
    assert answer.code == 0, answer
    assert "Stage 1" not in answer.out
    assert "Stage 2" in answer.out
    return folder / "run"


# A file.


def test_the_expert_is_the_teacher(run: Path) -> None:
    verdict = {line.get("system"): line for line in RunFolder(run).metrics("verdict")}
    assert verdict["expert"]["error"] == pytest.approx(
        error(teacher_probs(TEXTS.test_texts), TEXTS.test_labels)
    )
    assert RunFolder(run).metrics("expert") == []
    tensors, _ = load_tensors(run / "expert.safetensors")
    assert {name: tensor.item() for name, tensor in tensors.items()} == {"log_tau": 0.0}


def test_page_and_card_do_not_claim_that_it_learned_from_the_labels(run: Path) -> None:
    finished = read_finished(run)
    shown, model_card = page([finished]), card(finished)
    assert "labels only" not in shown.replace("a baseline: labels only", "")
    assert "trained on labels only" not in shown
    assert ") came with its probabilities for every document; **imitators**" in model_card


def test_the_mixture_is_no_worse_on_dev_than_the_teacher(
    tmp_path: Path, words: list[str], table: Path
) -> None:
    """Also where imitators have learned enough to do harm."""
    longer = ["--set", "imitator_training.epochs=8", "--set", "imitator_training.learning_rate=0.03"]
    assert mein("train", *words, "--soft-labels", table, "--out", tmp_path / "run", *SIZES, *longer).code == 0
    model = load_model(tmp_path / "run", "cpu")
    assert (np.abs(model.gates) > 1).all()
    assert error(model.log_probs(DEV), DEV_LABELS) <= error(teacher_probs(DEV), DEV_LABELS)


def test_probabilities_are_those_of_the_equation(run: Path) -> None:
    """p(y | X) ~ exp((log p_teacher / tau + sum_i g_i alpha_i) / temperature)."""
    model = load_model(run, "cpu")
    tau = np.exp(load_tensors(run / "mixture.safetensors")[0]["log_tau"].item())
    alpha = model.alpha(model.encode(DEV)).astype(np.float64)
    logits = (np.log(teacher_probs(DEV)) / tau + np.tensordot(model.gates, alpha, axes=1)) / model.temperature
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert_allclose(np.exp(model.log_probs(DEV)), wanted, atol=1e-5)


def test_imitators_learn_from_the_teacher_and_stage_3_tunes_gates_and_temperature_alone(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: dict[str, set[str]] = {}

    def recorded(stage: Stage, *others: Any) -> Any:
        trained[stage.name] = set(stage.parameters)
        return train(stage, *others)

    monkeypatch.setattr("mein.training.stages.train", recorded)
    tiny.run(tmp_path / "run", expert__kind="given", expert__model=str(table))
    assert all(not name.startswith("expert") for name in trained.pop("imitators"))
    assert trained == {
        "closed": {"expert.log_tau"},
        "random": {"expert.log_tau", "gates.lam"},
        "mixture": {"expert.log_tau", "gates.lam"},
    }


def test_the_temperature_learns(tmp_path: Path, table: Path) -> None:
    settings: dict[str, Any] = {"fine_tuning__learning_rate": 0.1, "fine_tuning__patience": None}
    tiny.run(tmp_path / "run", expert__kind="given", expert__model=str(table), **settings)
    log_taus = [
        load_tensors(tmp_path / f"run/{name}.safetensors")[0]["log_tau"].item()
        for name in ("expert", "closed")
    ]
    assert log_taus[0] == 0.0
    assert abs(log_taus[1]) > 0.05


@pytest.mark.parametrize("name", ["named.jsonl", "lists.jsonl", "named.csv", "lists.csv", "named.parquet"])
def test_every_format_gives_the_same(
    tmp_path: Path, words: list[str], run: Path, table: Path, name: str
) -> None:
    rows = rows_of(ALL)
    soft_labels = write(tmp_path / name, by_name(rows) if name.startswith("named") else rows)
    assert mein("train", *words, "--soft-labels", soft_labels, "--out", tmp_path / "run", *SIZES).code == 0
    for artefact in ("imitators.safetensors", "mixture.safetensors", "predictions.parquet"):
        assert (tmp_path / "run" / artefact).read_bytes() == (run / artefact).read_bytes()


def test_a_setting_names_the_file_as_well(tmp_path: Path, words: list[str], run: Path, table: Path) -> None:
    settings = ["--set", "expert.kind=given", "--set", f"expert.model={table}"]
    assert mein("train", *words, *settings, "--out", tmp_path / "run", *SIZES).code == 0
    assert tiny.artefacts(tmp_path / "run") == tiny.artefacts(run)


# Files that cannot be used are refused before anything is trained.


def spoiled(probabilities: Any) -> Callable[[Rows], Rows]:
    """Give the third row other probabilities."""
    return lambda rows: [*rows[:2], rows[2] | {"probabilities": probabilities}, *rows[3:]]


def without(text: str) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if row["text"] != text]


def silent(text: str) -> str:
    return (
        rf"The soft labels in .* have no row for the text {re.escape(repr(text[:60]))}: "
        r"add one, or give a file that has it with --soft-labels\."
    )


SUM = "give probabilities of 0 or more that sum to 1."
BOTH = "give one probability for each of negative, positive."
WRONG: dict[str, tuple[str, Callable[[Rows], Rows], str]] = {
    "train": ("t.parquet", without(TRAIN[7]), silent(TRAIN[7])),
    "dev": ("t.parquet", without(DEV[7]), silent(DEV[7])),
    "unlabeled": ("t.jsonl", without(TEXTS.unlabeled_texts[-1]), silent(TEXTS.unlabeled_texts[-1])),
    "test": (
        "t.csv",
        without(TEXTS.test_texts[-1]),
        r"The soft labels in .*t\.csv have no row for document 40 of .*test\.csv: add one, or .*",
    ),
    "sum": ("t.parquet", spoiled([0.7, 0.7]), rf".*t\.parquet row 3 gives \[0\.7, 0\.7\]: {SUM}"),
    "negative": ("t.csv", spoiled([-0.5, 1.5]), rf".*t\.csv row 3 gives \[-0\.5, 1\.5\]: {SUM}"),
    "NaN": ("t.parquet", spoiled([float("nan"), 1.0]), rf".* row 3 gives \[nan, 1\.0\]: {SUM}"),
    "NaN in JSON": ("t.csv", spoiled([0.5, float("nan")]), rf".* row 3 gives \[0\.5, nan\]: {SUM}"),
    "null": ("t.jsonl", spoiled([None, 1.0]), rf".* row 3 gives \[nan, 1\.0\]: {SUM}"),
    "no list": ("t.parquet", spoiled(None), f".* row 3 gives None: {BOTH}"),
    "class": (
        "t.jsonl",
        lambda rows: spoiled({"postive": 1.0})(by_name(rows)),
        r".*t\.jsonl row 3 names the class 'postive', which the labels lack: name them negative, positive\.",
    ),
    "half a class": (
        "t.jsonl",
        lambda rows: spoiled({"positive": 0.8})(by_name(rows)),
        rf".* row 3 gives \[0\.0, 0\.8\]: {SUM}",
    ),
    "length": ("t.jsonl", spoiled([0.2, 0.3, 0.5]), rf".* row 3 gives \[0\.2, 0\.3, 0\.5\]: {BOTH}"),
    "one number": (
        "t.csv",
        lambda rows: [row | {"probabilities": row["probabilities"][1]} for row in rows],
        rf".*t\.csv row 1 gives 0\.\d+: {BOTH}",
    ),
    "no JSON": (
        "t.csv",
        spoiled("half and half"),
        r".*t\.csv row 3 gives 'half and half': write a JSON list or object of numbers\.",
    ),
    "words": (
        "t.csv",
        spoiled(["a", "b"]),
        r".*t\.csv gives something that is not a table of numbers: could not convert string to float: 'a'\.",
    ),
    "contradiction": (
        "t.jsonl",
        lambda rows: [*rows, {"text": rows[2]["text"], "probabilities": rows[2]["probabilities"][::-1]}],
        r".*t\.jsonl contradicts itself in row \d+, whose text an earlier row has: keep one\.",
    ),
    "column": (
        "t.parquet",
        lambda rows: [{"text": row["text"], "p": row["probabilities"]} for row in rows],
        r".*t\.parquet has no column 'probabilities' or 'label' among text, p: add one\.",
    ),
    "text": (
        "t.parquet",
        lambda rows: [{"a": 1, "b": 2, "probabilities": row["probabilities"]} for row in rows],
        r".*t\.parquet has no column that looks like the text among 'a', 'b'; set columns\.text to its n.*",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, words: list[str], wrong: str) -> None:
    name, change, sentence = WRONG[wrong]
    path, out = write(tmp_path / name, change(rows_of(ALL))), tmp_path / "run"
    command = ["train", *words, "--soft-labels", path, "--out", out, *SIZES]
    refuses(sentence, *command)
    assert not out.exists()


def test_a_resumed_run_must_have_the_same_teacher(tmp_path: Path, words: list[str]) -> None:
    path, out = write(tmp_path / "t.jsonl", rows_of(ALL)), tmp_path / "run"
    command = ["train", *words, "--soft-labels", path, "--out", out, *SIZES]
    assert mein(*command).code == 0
    (out / "done").unlink()
    turned = [row | {"probabilities": row["probabilities"][::-1]} for row in rows_of(ALL)]
    write(path, turned)
    refuses(r".* holds another run: its soft_labels is '.*', not '.*'; .*", *command, "--resume")


def test_a_refused_file_can_be_fixed(tmp_path: Path, words: list[str], run: Path) -> None:
    path = write(tmp_path / "t.parquet", rows_of(ALL[:-1]))
    command = ["train", *words, "--soft-labels", path, "--out", tmp_path / "run", *SIZES]
    refuses(r".* have no row for document 40 of .*test\.csv: .*", *command)
    write(path, rows_of(ALL))
    assert mein(*command).code == 0
    assert (tmp_path / "run/predictions.parquet").read_bytes() == (run / "predictions.parquet").read_bytes()


def test_a_missing_teacher_is_refused(tmp_path: Path, words: list[str]) -> None:
    sentence = (
        r"expert\.kind is 'given' but no soft labels are: use --soft-labels FILE, or soft_labels= in Python\."
    )
    refuses(sentence, "train", *words, "--set", "expert.kind=given", "--out", tmp_path / "run", *SIZES)
    sentence = r".*nowhere\.csv.*"
    given = ["--soft-labels", tmp_path / "nowhere.csv"]
    refuses(sentence, "train", *words, *given, "--out", tmp_path / "run", *SIZES)


# Prediction.


@pytest.fixture(scope="module")
def others(folder: Path) -> tuple[Path, Path]:
    """Documents outside the run, and the teacher's probabilities for them."""
    return write_csv(folder / "new.csv", NEW), write(folder / "new.parquet", rows_of(NEW))


def test_predict_asks_the_file_of_the_run_or_another(
    tmp_path: Path, run: Path, folder: Path, others: tuple[Path, Path]
) -> None:
    out = tmp_path / "out.parquet"
    assert mein("predict", run, folder / "test.csv", "--out", out).code == 0
    documents, soft_labels = others
    refuses(silent(NEW[0]), "predict", run, documents, "--out", tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()
    assert mein("predict", run, documents, "--soft-labels", soft_labels, "--out", out).code == 0
    log_probs = load_model(run, "cpu", teacher_probs).log_probs(NEW)
    assert pq.read_table(out)["label"].to_pylist() == [CLASSES[i] for i in log_probs.argmax(axis=1)]
    assert_allclose(pq.read_table(out)["probability"].to_numpy(), np.exp(log_probs.max(axis=1)), atol=1e-6)


def test_imitators_alone_need_no_teacher(
    tmp_path: Path, words: list[str], others: tuple[Path, Path], run: Path
) -> None:
    """Even where its file is gone."""
    soft_labels, out = write(tmp_path / "t.parquet", rows_of(ALL)), tmp_path / "out.parquet"
    assert mein("train", *words, "--soft-labels", soft_labels, "--out", tmp_path / "run", *SIZES).code == 0
    soft_labels.unlink()
    assert mein("predict", tmp_path / "run", others[0], "--imitators-only", "--out", out).code == 0
    wanted = load_model(run, "cpu").imitator_log_probs(NEW)
    assert_allclose(pq.read_table(out)["probability"].to_numpy(), np.exp(wanted.max(axis=1)), atol=1e-6)


def test_evaluate_and_explain_ask_it_too(run: Path, folder: Path, others: tuple[Path, Path]) -> None:
    rows = json.loads(mein("evaluate", run, folder / "test.csv", "--json").out)["systems"]
    assert rows[0]["error"] == pytest.approx(error(teacher_probs(TEXTS.test_texts), TEXTS.test_labels))
    labels = [str(label) for label in linear.predict(NEW)]
    documents = write_csv(folder / "labeled.csv", NEW, labels)
    rows = json.loads(mein("evaluate", run, documents, "--soft-labels", others[1], "--json").out)["systems"]
    assert rows[0]["error"] == 0.0
    refuses(silent(NEW[0]), "explain", run, NEW[0])
    explained = json.loads(mein("explain", run, NEW[0], "--soft-labels", others[1], "--json").out)
    assert explained["log_odds"] == pytest.approx(
        explained["expert"] + sum(explained["imitators"].values()), abs=1e-5
    )


def test_a_wrong_file_for_prediction_is_refused(tmp_path: Path, run: Path, others: tuple[Path, Path]) -> None:
    wrong = write(tmp_path / "t.jsonl", spoiled([0.7, 0.7])(rows_of(NEW)))
    given = ["--soft-labels", wrong, "--out", tmp_path / "out.csv"]
    refuses(rf".*t\.jsonl row 3 gives \[0\.7, 0\.7\]: {SUM}", "predict", run, others[0], *given)


def test_soft_labels_of_another_teacher_are_not_kept_when_resuming(
    tmp_path: Path, run: Path, others: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of one table beside those of the next made an output of two teachers."""
    monkeypatch.setattr("mein.predict.predict.CHUNK_ROWS", 4)
    turned = [row | {"probabilities": row["probabilities"][::-1]} for row in rows_of(NEW)]
    new, out = write(tmp_path / "turned.parquet", turned), tmp_path / "out.csv"
    old, columns = tmp_path / "old.parquet", ColumnsConfig()

    def stop_early(wanted: Wanted) -> None:
        write(old, rows_of(NEW))
        model = load_model(run, "cpu", SoftLabelTable(str(old), columns, CLASSES))
        with pytest.raises(KeyboardInterrupt):
            predict_file(model, str(others[0]), out, wanted, Stopped())
        assert len(list(tmp_path.glob("*.parts/*.arrow"))) == 1

    stop_early(Wanted())
    write(old, turned)  # under its old name too
    command = ("predict", run, others[0], "--out", out)
    sentence = r".*out\.csv\.parts belongs to another prediction \(soft_labels differs\): repeat .*"
    for table in (new, old):
        refuses(sentence, *command, "--soft-labels", table, "--resume")
    write(old, rows_of(NEW))
    assert mein(*command, "--soft-labels", old, "--resume").code == 0
    stop_early(Wanted(imitators_only=True))
    assert mein(*command, "--imitators-only", "--resume").code == 0


def test_the_file_of_the_run_is_known_by_its_content(tmp_path: Path) -> None:
    path, named = tmp_path / "t.parquet", {"expert__kind": "given"}
    config = tiny.config(**named, expert__model=str(path))
    digests = []
    for texts in (NEW, NEW[::-1], NEW[1:]):
        write(path, rows_of(texts))
        digests.append(SoftLabelReader(config, CLASSES, None).digest())
    assert digests[0] == digests[1] != digests[2]
    assert SoftLabelReader(tiny.config(**named), CLASSES, teacher_probs).digest() is None


class Stopped(Quiet):
    """A reporter that interrupts after the first chunk."""

    def advance(self, documents: int, note: str = "") -> None:
        raise KeyboardInterrupt


# A function.


class Asked:
    """A teacher that remembers what it was asked; it takes lists of texts, and none that are empty."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        assert len(texts) > 0
        self.calls.append(list(texts))
        found: list[list[float]] = teacher_probs(texts).tolist()
        return found

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]


SETTINGS = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}


def classifier(soft_labels: Any, **settings: Any) -> MeinClassifier:
    return MeinClassifier(preset="small", settings=SETTINGS | settings, device="cpu", soft_labels=soft_labels)


def fit(soft_labels: Any, unlabeled: Sequence[str] | None = TEXTS.unlabeled_texts) -> MeinClassifier:
    return classifier(soft_labels).fit(TEXTS.labeled_texts, TEXTS.labeled_labels, unlabeled=unlabeled)


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


@pytest.fixture(scope="module")
def fitted(asked: Asked) -> MeinClassifier:
    return fit(asked)


def test_a_function_is_asked_in_batches_once_for_each_document(asked: Asked, fitted: MeinClassifier) -> None:
    """And for dev again, where the finished folder is evaluated."""
    during_fit = asked.calls[:5]
    dev = during_fit[-1]
    assert len(dev) == 20
    assert set(dev) <= set(TEXTS.labeled_texts)
    read = [text for call in during_fit for text in call]
    assert sorted(read) == sorted([*TEXTS.labeled_texts, *TEXTS.unlabeled_texts, *dev])


def test_predict_asks_the_function(asked: Asked, fitted: MeinClassifier) -> None:
    asked.calls.clear()
    answers = fitted.predict_proba(NEW)
    assert asked.calls == [NEW]
    model = fitted.model_
    assert_allclose(answers, np.exp(model.log_probs(NEW)))
    assert model.config.expert.kind == "given"
    assert fitted.predict([]).shape == (0,)
    assert fitted.predict_proba([]).shape == (0, 2)


def test_columns_are_in_the_order_of_the_sorted_labels(fitted: MeinClassifier) -> None:
    assert fitted.classes_.tolist() == CLASSES
    accuracy = np.mean(fitted.predict(TRAIN) == TRAIN_LABELS)
    assert accuracy > 0.95


def test_without_unlabeled_text_it_is_the_teacher_itself() -> None:
    model = fit(teacher_probs, unlabeled=None)
    assert_array_equal(model.predict(TEXTS.test_texts), linear.predict(TEXTS.test_texts))
    assert len(model.gates_) == 0


def test_a_saved_classifier_needs_its_function_to_predict(tmp_path: Path, fitted: MeinClassifier) -> None:
    answers = fitted.predict_proba(NEW)
    fitted.save(tmp_path / "saved")
    assert_array_equal(
        MeinClassifier.load(tmp_path / "saved", "cpu", teacher_probs).predict_proba(NEW), answers
    )
    alone = MeinClassifier.load(tmp_path / "saved", "cpu")
    assert_array_equal(alone.classes_, fitted.classes_)
    with pytest.raises(
        ConfigError, match=r"^expert\.kind is 'given' but no soft labels are: use --soft-labels FI"
    ):
        alone.predict(NEW)
    documents = write_csv(tmp_path / "new.csv", NEW)
    out = ["--out", tmp_path / "out.csv"]
    refuses(
        r"expert\.kind is 'given' but no soft labels are: .*", "predict", tmp_path / "saved", documents, *out
    )
    assert mein("predict", tmp_path / "saved", documents, *out, "--imitators-only").code == 0
    soft_labels = write(tmp_path / "new.parquet", rows_of(NEW))
    assert mein("predict", tmp_path / "saved", documents, *out, "--soft-labels", soft_labels).code == 0


def test_python_takes_the_file_that_the_shell_takes(tmp_path: Path, fitted: MeinClassifier) -> None:
    table, others = (write(tmp_path / f"{n}.parquet", rows_of(texts)) for n, texts in enumerate((ALL, NEW)))
    classifier = fit(str(table))
    texts = TEXTS.test_texts
    assert_allclose(classifier.predict_proba(texts), fitted.predict_proba(texts), atol=1e-5)
    assert classifier.model_.config.expert.model == str(table)
    classifier.save(tmp_path / "saved")
    with pytest.raises(InputError, match="have no row for the text"):
        classifier.predict(NEW)
    loaded = MeinClassifier.load(tmp_path / "saved", "cpu", others)
    assert_allclose(loaded.predict_proba(NEW), fitted.predict_proba(NEW), atol=1e-5)


def test_a_pickled_classifier_takes_its_function_along() -> None:
    model = fit(teacher_probs)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
    assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))


def test_a_sure_teacher_silences_nobody_for_good() -> None:
    model = fit(lambda texts: np.eye(2)[teacher_probs(texts).argmax(axis=1)])
    assert np.isfinite(model.predict_log_proba(NEW)).all()


FUNCTIONS: dict[str, tuple[Callable[[Sequence[str]], Any], str]] = {
    "one column": (
        lambda texts: teacher_probs(texts)[:, 1],
        r"The teacher gives probabilities of shape \(60,\) for 60 texts and 2 classes: give one row for each",
    ),
    "three columns": (
        lambda texts: np.full((len(texts), 3), 1 / 3),
        r"The teacher gives probabilities of shape \(60, 3\) for 60 texts and 2 classes",
    ),
    "a row too few": (
        lambda texts: teacher_probs(texts)[1:],
        r"The teacher gives probabilities of shape \(59, 2\) for 60 texts and 2 classes",
    ),
    "logits": (
        lambda texts: np.log(teacher_probs(texts)),
        r"The teacher row 1 gives \[-\d.*\]: give probabilities of 0 or more that sum to 1\.",
    ),
    "NaN": (
        lambda texts: teacher_probs(texts) * np.nan,
        r"The teacher row 1 gives \[nan, nan\]: give probabilities of 0 or more that sum to 1\.",
    ),
    "labels": (
        lambda texts: ["good", *linear.predict(texts)[1:]],
        r"The teacher row 1 gives the label 'good', which the labels lack: give one of negative, positive\.",
    ),
    "ragged": (
        lambda texts: [[1.0], *teacher_probs(texts)[1:].tolist()],
        r"The teacher gives something that is not a table of numbers: setting an array element",
    ),
    "nothing": (lambda texts: None, r"The teacher gives .*"),
}


@pytest.mark.parametrize("wrong", FUNCTIONS)
def test_a_function_that_gives_something_else_is_refused(wrong: str) -> None:
    function, sentence = FUNCTIONS[wrong]
    with pytest.raises(InputError, match=sentence) as caught:
        fit(function)
    assert "\n" not in str(caught.value)


def test_a_teacher_for_another_expert_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"Soft labels were given, but expert\.kind is 'lstm': set it to given"
    ):
        classifier(teacher_probs, **{"expert.kind": "lstm"}).fit(TRAIN, TRAIN_LABELS)
    with pytest.raises(MeinError, match=r"^expert\.kind is 'given' but no soft labels are"):
        classifier(None, **{"expert.kind": "given"}).fit(TRAIN, TRAIN_LABELS)


def test_a_file_serves_in_python_too(table: Path) -> None:
    settings = {"expert.kind": "given", "expert.model": str(table)}
    model = classifier(None, **settings).fit(TRAIN, TRAIN_LABELS)
    assert_array_equal(model.predict(TEXTS.test_texts), linear.predict(TEXTS.test_texts))
    with pytest.raises(InputError, match=silent(NEW[0])):
        model.predict(NEW)


def test_without_unlabeled_text_the_table_of_a_run_has_two_rows(tmp_path: Path, table: Path) -> None:
    documents = replace(tiny.corpus(), unlabeled=None)
    rows = tiny.run(tmp_path / "run", documents, expert__kind="given", expert__model=str(table))
    assert [row.name for row in rows] == [TFIDF, EXPERT]


# Labels instead of probabilities.


def test_labels_of_a_function_become_probabilities() -> None:
    """0.9 for the label, the rest for the others."""
    reader = SoftLabelReader(
        tiny.config(expert__kind="given"), CLASSES, lambda texts: ["positive", "negative"]
    )
    assert_allclose(np.exp(reader(["a", "b"]).values), [0.1, 0.9, 0.9, 0.1], rtol=1e-5)
    numbers = SoftLabelReader(tiny.config(expert__kind="given"), [1, 2, 3], lambda texts: np.array([3, 1]))
    assert_allclose(np.exp(numbers(["a", "b"]).values), [0.05, 0.05, 0.9, 0.9, 0.05, 0.05], rtol=1e-5)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_labels_in_a_table_become_the_same(tmp_path: Path, ending: str) -> None:
    rows = [{"text": text, "label": str(linear.predict([text])[0])} for text in NEW]
    table = SoftLabelTable(str(write(tmp_path / f"t.{ending}", rows)), ColumnsConfig(), CLASSES)
    ids = linear.predict_proba(NEW).argmax(axis=1)
    assert_allclose(table(NEW), np.where(np.eye(2)[ids], 0.9, 0.1), rtol=1e-6)


def test_a_table_with_another_label_is_refused(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "positive"}, {"text": "b", "label": "neutral"}]
    sentence = (
        r"t\.jsonl row 2 gives the label 'neutral', which the labels lack: give one of negative, positive"
    )
    with pytest.raises(InputError, match=sentence):
        SoftLabelTable(str(write(tmp_path / "t.jsonl", rows)), ColumnsConfig(), CLASSES)


def test_a_classifier_learns_from_labels_of_others() -> None:
    model = fit(linear.predict)
    assert np.mean(model.predict(TEXTS.test_texts) == linear.predict(TEXTS.test_texts)) > 0.7
