"""Who teaches the imitators: the expert as in the paper, or expert and lexicon as closed gates start."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.special import softmax

from mein.config import PRESETS, load_config
from mein.errors import RunError
from mein.mixture.gates import open_gates
from mein.mixture.inference import expert_logits
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN, load_lexicon
from mein.model.artefacts import TEACHER
from mein.model.loading import Classifiers, FinishedRun, read_config
from mein.report.card import card
from mein.report.record import read_finished
from mein.run import algorithm as running
from mein.run import steps, teacher
from mein.run.documents import read_labeled
from mein.run.pipeline import train_and_evaluate
from mein.run.prepare import prepare
from mein.run.teacher import Teacher, load_teacher
from mein.runtime.files import sha256_of
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from mein.text.ragged import ragged
from paper.cells import MAIN_RUN
from tests.support import tiny
from tests.support.shell import mein, refuses, write_csv
from tests.support.stepping import content

CPU = torch.device("cpu")
WITH_LEXICON: dict[str, Any] = {"mixture__method": "ours", "imitator_training__reads_labeled": True}


class Printed(Quiet):
    """Keeps the lines that are printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def with_lexicon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose imitators learned from expert and lexicon."""
    path = tmp_path_factory.mktemp("with_lexicon") / "run"
    tiny.run(path, **WITH_LEXICON)
    return path


def probs_in(at: Path) -> np.ndarray:
    """The teacher's soft labels of all documents of a store."""
    store = Store.open(at)
    return np.concatenate([store.column(EXPERT_COLUMN, shard) for shard in range(store.shard_count)])


def test_a_teacher_mixes_expert_and_lexicon_by_hand() -> None:
    """z = (2, 0), the lexicon adds (0, 4), tau is 2: softmax of (1, 2)."""
    z, pieces = np.array([[2.0, 0.0]], np.float32), ragged([[1]])
    expert = torch.nn.Identity()
    alone = Teacher(expert)  # type: ignore[arg-type]
    np.testing.assert_allclose(alone.probs(z, pieces), [[0.880797, 0.119203]], atol=1e-6)
    both = Teacher(expert, lambda pieces: np.array([[0.0, 4.0]]), 2.0)  # type: ignore[arg-type]
    found = both.probs(z, pieces)
    np.testing.assert_allclose(found, [[0.268941, 0.731059]], atol=1e-6)
    assert found.dtype == np.float32


def test_imitators_learn_what_closed_gates_would_predict_before_their_tuning(with_lexicon: Path) -> None:
    """The gate is fitted on dev, by the lexicon of train, and all text has its word by it."""
    folder = RunFolder(with_lexicon)
    expert = tiny.networks_of(
        Classifiers(folder, read_config(folder), CPU, knows_dev=False).load("expert")
    ).expert
    lexicon, facts = load_lexicon(folder / LEXICON_OF_TRAIN), folder.read_json(TEACHER)
    dev = Store.open(folder / "encoded/dev")
    ids = read_labeled(tiny.config(**WITH_LEXICON), tiny.corpus()).dev_ids
    z, words = expert_logits(expert, dev.words()), lexicon.log_probs(dev.pieces())
    gates, tau = open_gates(z, words[None], ids)
    assert (facts["gate"], facts["tau"]) == pytest.approx((gates[0], tau))
    assert facts["gate"] != 0.0
    for part in ("unlabeled", "held_out", "train"):
        store = Store.open(folder / "encoded" / part)
        z = expert_logits(expert, store.words()).astype(np.float64)
        wanted = softmax((z + facts["gate"] * lexicon.log_probs(store.pieces())) / facts["tau"], axis=1)
        np.testing.assert_allclose(probs_in(with_lexicon / "encoded" / part), wanted, atol=1e-6)


def test_imitators_do_not_know_the_labels_of_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the gate and tau: with other labels on dev the soft labels are the same."""
    monkeypatch.setattr(teacher, "open_gates", lambda z, alpha, labels, weights: (np.array([3.0]), 2.0))
    for name, flips in {"true": False, "flipped": True}.items():
        folder = RunFolder(tmp_path / name)
        with folder.held():
            run = prepare(tiny.config(**WITH_LEXICON), tiny.corpus(), folder, Quiet())
            expert = running.learned_expert(run)
            if flips:
                run.labeled.dev_ids[:] = 1 - run.labeled.dev_ids
            running.learned_imitators(run, expert)
            run.learn_lexicons()
    true, flipped = (probs_in(tmp_path / name / "encoded/unlabeled") for name in ("true", "flipped"))
    assert np.array_equal(true, flipped)
    others = [load_lexicon(tmp_path / name / LEXICON).weights for name in ("true", "flipped")]
    assert not np.array_equal(others[0], others[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"mixture__method": "no-lexicon"},
        {"imitator_training__reads_labeled": False},
        {"mixture__method": "paper"},
    ],
)
def test_without_a_lexicon_that_is_used_the_teacher_is_the_expert(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    tiny.run(tmp_path / "run", **WITH_LEXICON | settings)
    folder = RunFolder(tmp_path / "run")
    assert not (folder / TEACHER).exists()
    expert = tiny.networks_of(
        Classifiers(folder, read_config(folder), CPU, knows_dev=False).load("expert")
    ).expert
    z = expert_logits(expert, Store.open(folder / "encoded/unlabeled").words())
    np.testing.assert_allclose(probs_in(folder / "encoded/unlabeled"), softmax(z, axis=1), atol=1e-6)


def test_the_terminal_names_the_teacher(tmp_path: Path) -> None:
    who: dict[str, dict[str, Any]] = {"the expert": {}, "expert and lexicon": WITH_LEXICON}
    for name, settings in who.items():
        printed = Printed()
        config = tiny.config(**settings)
        train_and_evaluate(config, tiny.corpus(), tmp_path / name, printed, controls=(), has_baseline=False)
        assert [line for line in printed.lines if line.startswith("Stage 2")] == [
            f"Stage 2: the imitators learn from {name}"
        ]


def test_a_run_that_stopped_after_its_teacher_ends_with_the_same_bytes(
    with_lexicon: Path, tmp_path: Path
) -> None:
    """Also where only the teacher was lost: it is fitted again, to the bit."""
    for lost in ((), (TEACHER,), (TEACHER, LEXICON_OF_TRAIN)):
        path = tmp_path / f"run {len(lost)}"
        shutil.copytree(with_lexicon, path)
        for name in ("done", "imitators.safetensors", "mixture.safetensors", "closed.safetensors", *lost):
            (path / name).unlink()
        for file in [*path.glob("encoded/*/*.expert.parquet"), *path.glob("encoded/*/labels.json")]:
            file.unlink()
        tiny.run(path, resume=True, **WITH_LEXICON)
        assert tiny.artefacts(path) == tiny.artefacts(with_lexicon)


def test_mein_label_runs_the_same_teacher(with_lexicon: Path, tmp_path: Path) -> None:
    """In this process and in others, to the bit; and no other labels are taken for its own."""
    raw, at = write_csv(tmp_path / "raw.csv", tiny.TEXTS.unlabeled_texts), {}
    for name, workers in {"one": 1, "two": 2}.items():
        at[name] = tmp_path / name
        with patch.object(steps, "SHARD_DOCUMENTS", 25):  # of several shards, or one process takes all
            assert mein("store", "encode", "--like", with_lexicon, "--text", raw, "--out", at[name]).code == 0
        assert mein("store", "label", at[name], "--by", with_lexicon, "--workers", workers).code == 0
    assert content(at["one"]) == content(at["two"])
    store, folder = Store.open(at["one"]), RunFolder(with_lexicon)
    assert store.shard_count > 2
    assert store.labeled_by == {sha256_of(with_lexicon / TEACHER)}
    of_run = load_teacher(folder, read_config(folder), CPU)
    z = expert_logits(of_run.expert, store.words())
    np.testing.assert_allclose(probs_in(at["one"]), of_run.probs(z, store.pieces()), atol=1e-6)
    tiny.run(tmp_path / "other", **WITH_LEXICON | {"imitator_training__reads_labeled": False})
    refuses(
        r".*one holds the soft labels of another run than .*other: label with .*",
        *("store", "label", at["one"], "--by", tmp_path / "other"),
    )


def test_a_run_on_a_store_has_the_teacher_of_the_run_that_it_is_like(
    with_lexicon: Path, tmp_path: Path
) -> None:
    """So that it takes the store's labels for its own teacher's, which also labels the labeled text."""
    write = {"train": (tiny.TEXTS.labeled_texts, tiny.TEXTS.labeled_labels)}
    write["test"] = (tiny.TEXTS.test_texts, tiny.TEXTS.test_labels)
    files = {name: write_csv(tmp_path / f"{name}.csv", *parts) for name, parts in write.items()}
    words = ("--labeled", files["train"], "--test", files["test"], "--out", tmp_path / "out")
    answer = mein("store", "train", with_lexicon / "encoded/unlabeled", "--like", with_lexicon, *words)
    assert answer.code == 0, answer
    assert (tmp_path / "out" / TEACHER).samefile(with_lexicon / TEACHER)
    np.testing.assert_array_equal(
        probs_in(tmp_path / "out/encoded/train"), probs_in(with_lexicon / "encoded/train")
    )


def test_a_teacher_that_is_lost_is_named(with_lexicon: Path, tmp_path: Path) -> None:
    shutil.copytree(with_lexicon, tmp_path / "run")
    (tmp_path / "run" / TEACHER).unlink()
    store = tmp_path / "store"
    shutil.copytree(with_lexicon / "encoded/unlabeled", store)
    for file in [*store.glob("*.expert.parquet"), store / "labels.json"]:
        file.unlink()
    with pytest.raises(RunError, match=r"teacher\.json is missing: restore it from a copy of the run"):
        steps.label(FinishedRun.open(tmp_path / "run"), str(store), Quiet(), workers=1)


def test_a_damaged_teacher_is_refused(with_lexicon: Path, tmp_path: Path) -> None:
    shutil.copytree(with_lexicon, tmp_path / "run")
    facts = json.loads((with_lexicon / TEACHER).read_text(encoding="utf-8"))
    del facts["gate"]
    (tmp_path / "run" / TEACHER).write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(RunError, match=r"teacher\.json is damaged, or belongs to another run"):
        load_teacher(RunFolder(tmp_path / "run"), read_config(RunFolder(with_lexicon)), CPU)
    shutil.copy(with_lexicon / TEACHER, tmp_path / "run" / TEACHER)
    shutil.copy(with_lexicon / LEXICON, tmp_path / "run" / LEXICON_OF_TRAIN)
    with pytest.raises(RunError, match=r"lexicon-of-train\.safetensors is damaged, or is"):
        load_teacher(RunFolder(tmp_path / "run"), read_config(RunFolder(with_lexicon)), CPU)


def test_a_store_that_another_teacher_labeled_is_reported(with_lexicon: Path, tmp_path: Path) -> None:
    """Imitators of the expert only, on a store that expert and lexicon labeled."""
    train = write_csv(tmp_path / "train.csv", tiny.TEXTS.labeled_texts, tiny.TEXTS.labeled_labels)
    words = ("--labeled", train, "--set", "imitator_training.reads_labeled=false", "--out", tmp_path / "out")
    answer = mein("store", "train", with_lexicon / "encoded/unlabeled", "--like", with_lexicon, *words)
    assert answer.code == 0, answer
    assert "the imitators learn from another teacher" in answer.out + answer.err
    assert not (tmp_path / "out" / TEACHER).exists()


def test_given_probabilities_are_the_teacher_without_the_lexicon() -> None:
    config = tiny.config(**WITH_LEXICON)
    assert teacher.teaches_with_lexicon(config)
    assert not teacher.teaches_with_lexicon(tiny.config(**WITH_LEXICON | {"expert__kind": "given"}))


def test_an_lstm_of_few_labels_has_such_a_teacher_and_no_row_of_the_paper() -> None:
    assert teacher.teaches_with_lexicon(load_config("small", overrides={"expert.kind": "lstm"}))
    # with a transformer it gained nothing (log/); with a linear expert both are weighted out of fold
    assert {name for name in PRESETS if teacher.teaches_with_lexicon(load_config(name))} == {
        "small",
        "frozen",
    }
    assert MAIN_RUN["mixture.method"] == "no-lexicon"


def test_the_card_names_the_teacher(with_lexicon: Path) -> None:
    assert "on unlabeled text to predict the output of expert and lexicon;" in card(
        read_finished(with_lexicon)
    )


def test_documents_of_dev_count_as_they_weigh(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).choice([0.01, 1.0], size=80).astype(np.float32)
    corpus, folder = tiny.corpus(sample_weight=weights), RunFolder(tmp_path / "run")
    with folder.held():
        run = prepare(tiny.config(**WITH_LEXICON), corpus, folder, Quiet())
        expert = running.learned_expert(run)
        teacher.learned_teacher(run, expert)
    assert len(np.unique(run.labeled.dev_weights)) == 2
    words = load_lexicon(folder / LEXICON_OF_TRAIN).log_probs(run.store("dev").pieces())
    given = (run.dev_logits(expert), words[None], run.labeled.dev_ids)
    (weighed, _), (alike, _) = open_gates(*given, run.labeled.dev_weights), open_gates(*given)
    assert folder.read_json(TEACHER)["gate"] == pytest.approx(weighed[0])
    assert weighed[0] != pytest.approx(alike[0], rel=0.01)
