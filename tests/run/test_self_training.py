"""Self-training rounds: an expert learns the labels and a finished run's predictions for unlabeled text."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from mein.data.corpus import source_of_lists
from mein.errors import ConfigError, InputError
from mein.evaluation.comparison import compare, verdict_of
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE, PREVIOUS_RUN, TFIDF
from mein.mixture.mixture import supervised_loss
from mein.model.loading import Classifiers, load_model, read_config
from mein.report.card import card
from mein.report.page import page as shown
from mein.report.record import read_finished
from mein.run import algorithm as training
from mein.run import warm_start
from mein.run.pipeline import train_and_evaluate
from mein.run.warm_start import SELF_TRAINING, stage_1
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.training.stages import LabeledPart, train_expert
from tests.support import tiny
from tests.support.shell import TINY, mein, refuses, write_csv

RAW = tiny.TEXTS.unlabeled_texts  # what is left of it without the three test texts
LEXICON: dict[str, Any] = {"mixture__method": "ours"}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose lexicon knows the labels of dev too."""
    path = tmp_path_factory.mktemp("teacher") / "run"
    tiny.run(path, **LEXICON)
    return path


def probs_of(teacher: Path, texts: list[str], name: str = "mixture") -> np.ndarray:
    """p(y | X) by a run that has never seen dev's labels."""
    folder = RunFolder(teacher)
    model = Classifiers(folder, read_config(folder), torch.device("cpu"), knows_dev=False).load(name)
    probs: np.ndarray = np.exp(model.log_probs(texts))
    return probs


@pytest.fixture
def learned_parts(monkeypatch: pytest.MonkeyPatch) -> list[LabeledPart]:
    """What experts were taught from."""
    parts: list[LabeledPart] = []
    plain = train_expert

    def watched(expert: Any, train_part: LabeledPart, *others: Any) -> Any:
        parts.append(train_part)
        return plain(expert, train_part, *others)

    monkeypatch.setattr(training, "train_expert", watched)
    monkeypatch.setattr(warm_start, "PART_DOCUMENTS", 50)  # three files of predictions
    return parts


def test_labels_may_be_probabilities() -> None:
    logits = torch.tensor([[0.0, 1.0], [2.0, -1.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    ids = torch.tensor([1, 0])
    certain = torch.eye(2, dtype=torch.float64)[ids]
    assert supervised_loss(logits, certain, weights) == supervised_loss(logits, ids, weights)
    probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    log_p = logits.log_softmax(-1).tolist()
    by_hand = -(0.25 * log_p[0][0] + 0.75 * log_p[0][1]) - 3 * (0.5 * log_p[1][0] + 0.5 * log_p[1][1])
    assert float(supervised_loss(logits, probs, weights)) == pytest.approx(by_hand / 2)


def test_it_learns_the_labels_and_its_teacher_s_predictions(
    teacher: Path, tmp_path: Path, learned_parts: list[LabeledPart]
) -> None:
    tiny.run(tmp_path / "plain")
    tiny.run(tmp_path / "round", expert__from_run=str(teacher))
    plain, taught = learned_parts
    n = len(plain)
    assert len(taught) == n + len(RAW)  # no test document is among the raw text
    assert_array_equal(taught.labels[:n], np.eye(2)[plain.labels])
    assert_array_equal(taught.weights, np.concatenate([plain.weights, np.ones(len(RAW))]))
    assert taught.alpha.shape == (0, n + len(RAW), 2)
    assert_allclose(taught.labels[n:], probs_of(teacher, RAW), atol=1e-6)
    assert (
        np.abs(taught.labels[n:] - np.exp(load_model(teacher).log_probs(RAW))).max() > 1e-3
    )  # who knows dev
    words = load_model(tmp_path / "round").encode(RAW).words
    assert taught.words.to_lists() == plain.words.to_lists() + words.to_lists()


def test_it_comes_to_agree_with_its_teacher(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mein.training.config.SELF_TRAINING_EPOCHS", 12)
    longer: dict[str, Any] = {"expert_training__epochs": 12, "expert_training__learning_rate": 0.01}
    tiny.run(tmp_path / "plain", **longer)
    tiny.run(tmp_path / "round", expert__from_run=str(teacher), **longer)
    wanted = probs_of(teacher, RAW)
    apart = {
        name: np.abs(probs_of(tmp_path / name, RAW, "expert") - wanted).mean() for name in ("plain", "round")
    }
    assert apart["round"] < 0.8 * apart["plain"]


def test_it_uses_no_more_documents_than_it_may(
    teacher: Path, tmp_path: Path, learned_parts: list[LabeledPart], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mein.run.warm_start.SELF_TRAINING_DOCUMENTS", 50)
    tiny.run(tmp_path / "run", expert__from_run=str(teacher))
    n = len(learned_parts[0]) - 50
    probs = probs_of(teacher, RAW)
    rows = [int(np.abs(probs - row).sum(axis=1).argmin()) for row in learned_parts[0].labels[n:]]
    assert_allclose(learned_parts[0].labels[n:], probs[rows], atol=1e-6)
    assert rows == sorted(rows)
    assert rows != list(range(50))  # drawn from all, not the first


def test_a_teacher_may_read_other_words(
    teacher: Path, tmp_path: Path, learned_parts: list[LabeledPart]
) -> None:
    tiny.run(tmp_path / "run", expert__from_run=str(teacher), words__max_words=40)
    n = len(learned_parts[0]) - len(RAW)
    assert learned_parts[0].words.to_lists()[n:] == load_model(tmp_path / "run").encode(RAW).words.to_lists()
    assert load_model(teacher).encode(RAW).words.to_lists() != learned_parts[0].words.to_lists()[n:]
    assert_allclose(learned_parts[0].labels[n:], probs_of(teacher, RAW), atol=1e-6)


@pytest.mark.parametrize(("wanted", "taken"), [(3, 3), (40, 5)])
def test_its_epochs_are_at_most_five(wanted: int, taken: int) -> None:
    settings: dict[str, Any] = {"expert_training__epochs": wanted}
    assert stage_1(tiny.config(**settings, expert__from_run="runs/teacher")).epochs == taken
    assert stage_1(tiny.config(**settings)).epochs == wanted  # who has no teacher


@pytest.mark.parametrize("training", ["adv", "vat"])
def test_perturbed_experts_are_taught_too(teacher: Path, tmp_path: Path, training: str) -> None:
    rows = tiny.run(tmp_path / "run", expert__from_run=str(teacher), expert__training=training)
    assert EXPERT in [row.name for row in rows]


def test_predictions_from_before_a_kill_are_not_computed_again(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "PART_DOCUMENTS", 50)
    tiny.run(tmp_path / "whole", expert__from_run=str(teacher))
    asked: list[int] = []
    plain = warm_start._predicted

    def predicted(run: Any, model: Any, texts: list[str]) -> Any:
        if asked == [50]:
            asked.clear()
            raise KeyboardInterrupt
        asked.append(len(texts))
        return plain(run, model, texts)

    monkeypatch.setattr(warm_start, "_predicted", predicted)
    with pytest.raises(KeyboardInterrupt):
        tiny.run(tmp_path / "killed", expert__from_run=str(teacher))
    asked.append(0)
    tiny.run(tmp_path / "killed", expert__from_run=str(teacher), resume=True)
    assert asked == [0, 50, 20]  # of 120
    assert tiny.artefacts(tmp_path / "killed") == tiny.artefacts(tmp_path / "whole")


def test_raw_text_that_has_changed_is_refused(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "training_part", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tiny.run(tmp_path / "run", expert__from_run=str(teacher))
    monkeypatch.undo()
    monkeypatch.setattr(warm_start, "PART_DOCUMENTS", 50)
    less = replace(tiny.corpus(), unlabeled=source_of_lists(RAW[1:]))
    with pytest.raises(InputError, match=r"has 119 documents where 120 were encoded: restore it"):
        tiny.run(tmp_path / "run", less, expert__from_run=str(teacher), resume=True)
    tiny.run(tmp_path / "run", expert__from_run=str(teacher), resume=True)
    tiny.run(tmp_path / "undisturbed", expert__from_run=str(teacher))
    assert tiny.artefacts(tmp_path / "run") == tiny.artefacts(tmp_path / "undisturbed")


def test_another_teacher_is_another_run(teacher: Path, tmp_path: Path) -> None:
    shutil.copytree(teacher, tmp_path / "teacher")
    tiny.run(tmp_path / "run", expert__from_run=str(tmp_path / "teacher"))
    tiny.run(tmp_path / "other", expert_training__epochs=1, **LEXICON)
    shutil.rmtree(tmp_path / "teacher")
    shutil.move(tmp_path / "other", tmp_path / "teacher")
    with pytest.raises(Exception, match="from_run"):
        tiny.run(tmp_path / "run", expert__from_run=str(tmp_path / "teacher"), resume=True)


def test_its_verdict_is_about_the_previous_run(teacher: Path, tmp_path: Path) -> None:
    rows = {row.name: row for row in tiny.run(tmp_path / "run", expert__from_run=str(teacher))}
    assert list(rows)[:3] == [TFIDF, PREVIOUS_RUN, EXPERT]
    theirs = RunFolder(teacher).metrics("verdict")
    wanted = next(line["error"] for line in theirs if line.get("system") == MIXTURE)
    assert rows[PREVIOUS_RUN].scores.error == wanted  # with the lexicon that predicts, which knows dev
    lines = RunFolder(tmp_path / "run").metrics("verdict")
    sentence = next(line["headline"] for line in lines if "headline" in line)
    assert re.fullmatch(r".* This self-training round .* the previous run, \d+\.\d% \(p .*\)\.", sentence)
    page = shown([read_finished(tmp_path / "run")])
    assert "<dt>Self-training</dt><dd>This self-training round " in page
    assert f"self-training from {teacher}" in page
    assert "trained on labels only" not in page
    second = read_finished(tmp_path / "run")
    assert "labels and from what an earlier run predicted for unlabeled text; **im" in card(second)
    average = replace(
        second, config=second.config | {"expert": second.config["expert"] | {"kind": "average"}}
    )
    assert (
        "what an earlier run predicted for unlabeled text and, by itself, from unlabeled text; **im"
        in card(average)
    )


def test_what_is_asked_of_dev_never_learned_its_labels(teacher: Path, tmp_path: Path) -> None:
    untested = replace(tiny.corpus(), test=None)
    tiny.run(tmp_path / "first", untested, **LEXICON)
    rows = tiny.run(tmp_path / "run", untested, expert__from_run=str(tmp_path / "first"))
    own = RunFolder(tmp_path / "first").metrics("verdict")
    wanted = next(line for line in own if line.get("system") == MIXTURE)
    found = next(row for row in rows if row.name == PREVIOUS_RUN)
    assert found.scores["log_loss"] == pytest.approx(wanted["log_loss"])


@pytest.mark.parametrize(("errs", "verdict"), [(40, "helped"), (12, "unclear"), (0, "hurt")])
def test_a_self_training_round_must_beat_the_previous_run(errs: int, verdict: str) -> None:
    ids = np.zeros(100, np.int64)

    def wrong(documents: int) -> np.ndarray:
        return np.log(np.where(np.arange(100)[:, None] < documents, [[0.1, 0.9]], [[0.9, 0.1]]))

    systems = {PREVIOUS_RUN: wrong(errs), EXPERT: wrong(60), CLOSED_GATES: wrong(60), MIXTURE: wrong(10)}
    assert verdict_of(compare(ids, systems, seed=0), "self-training").outcome == verdict


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labeled and raw text, and a run made from them."""
    folder, texts = tmp_path_factory.mktemp("files"), tiny.TEXTS
    write_csv(folder / "labeled.csv", texts.labeled_texts, texts.labeled_labels)
    write_csv(folder / "other.csv", texts.labeled_texts[::-1], texts.labeled_labels[::-1])
    renamed = ["good" if label == "positive" else "bad" for label in texts.labeled_labels]
    write_csv(folder / "renamed.csv", texts.labeled_texts, renamed)
    write_csv(folder / "raw.csv", RAW)
    assert mein(*command(folder, "first")).code == 0
    return folder


def command(folder: Path, out: str, labeled: str = "labeled.csv") -> list[object]:
    """mein train, in a folder with files."""
    words = ["train", "--preset", "small", *TINY, "--labeled", folder / labeled, "--out", folder / out]
    return [*words, "--unlabeled", folder / "raw.csv"]


def test_the_shell_trains_one(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    answer = mein(*command(files, "second"), "--from-run", "first")
    assert answer.code == 0, answer.err
    assert f"{files / 'first'} predicts 120 unlabeled documents" in answer.out
    assert read_config(RunFolder(files / "second")).expert.from_run == str(files / "first")
    assert len(list((files / "second" / SELF_TRAINING).iterdir())) == 1


def test_the_shell_compares_one_with_the_previous_run_while_there_is_one(files: Path, tmp_path: Path) -> None:
    texts = tiny.TEXTS
    test = write_csv(tmp_path / "test.csv", texts.test_texts, texts.test_labels)
    shutil.copytree(files / "first", tmp_path / "first")
    made = mein(*command(files, "round"), "--from-run", tmp_path / "first")
    assert made.code == 0, made.err
    assert re.search(r"\nprevious run +\d", mein("evaluate", files / "round", test).out)
    shutil.rmtree(tmp_path / "first")
    answer = mein("evaluate", files / "round", test)
    assert answer.code == 0, answer.err
    assert not re.search(r"\nprevious run +\d", answer.out)
    assert "round was not compared with the previous run" in " ".join(answer.out.split())
    shutil.copytree(files / "round", tmp_path / "first")  # another run in the teacher's place
    answer = mein("evaluate", files / "round", test)
    assert not re.search(r"\nprevious run +\d", answer.out)
    assert "previous run is no longer there" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("words", "labeled", "sentence"),
    [
        (
            ["--from-run", "."],
            "labeled.csv",
            r".* is not a run of mein: config\.json is missing; give the folder that .* wrote\.",
        ),
        (
            ["--from-run", "first", "--seed", 1],
            "labeled.csv",
            r"The run in .*first has other labels than this one, or other weights or another split of them: "
            r"give both the same --labeled, --dev, --seed, dev_fraction and weights\.",
        ),
        (
            ["--from-run", "first"],
            "other.csv",
            r".*first has other labels than this one, .*",
        ),
        (
            ["--from-run", "first"],
            "renamed.csv",
            r"The run in .*first has the classes .*, this one \['bad', 'good'\]: give both the .*",
        ),
        (
            ["--from-run", "first", "--seeds", 2],
            "labeled.csv",
            r".* has other labels than this one, .*",
        ),
        (
            ["--from-run", "first", "--set", "expert.kind=given"],
            "labeled.csv",
            r"Given probabilities cannot learn from another run: set expert\.kind to average, or .*",
        ),
    ],
)
def test_a_wrong_teacher_is_refused(
    files: Path, words: list[object], labeled: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    refuses(sentence, *command(files, "refused", labeled), *words)
    assert not (files / "refused" / "config.json").exists()


def test_a_damaged_teacher_is_refused(files: Path, tmp_path: Path) -> None:
    shutil.copytree(files / "first", tmp_path / "first")
    labels = tmp_path / "first/labels.json"
    labels.write_text(labels.read_text(encoding="utf-8") + " ", encoding="utf-8")
    words = [*command(files, "refused"), "--from-run", tmp_path / "first"]
    refuses(r".*labels\.json is damaged, or belongs to another run: .*", *words)


def test_given_probabilities_cannot_be_a_teacher(tmp_path: Path) -> None:
    def given_probs(texts: Sequence[str]) -> np.ndarray:
        return np.full((len(texts), 2), 0.5)

    train_and_evaluate(
        tiny.config(expert__kind="given"), tiny.corpus(), tmp_path / "given", Quiet(), soft_labels=given_probs
    )
    with pytest.raises(ConfigError, match=r"The run in .*given was trained with given probabilities, which"):
        tiny.run(tmp_path / "run", expert__from_run=str(tmp_path / "given"))


def test_self_training_without_raw_text_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    words = command(files, "refused")[:-2]
    refuses(r"Self-training needs unlabeled text .*: give --unlabeled FILE\.", *words, "--from-run", "first")
    assert not (files / "refused" / "config.json").exists()
