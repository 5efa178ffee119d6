"""Artefacts belong to their run: what is exchanged, renamed, lost or changed is refused in one sentence."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mein.data.corpus import source_of_lists
from mein.errors import InputError, RunError
from mein.evaluation.metrics import METRICS, Scores
from mein.model.artefacts import read_done
from mein.model.loading import load_model
from mein.report.record import read_finished
from mein.run.pipeline import train_and_evaluate
from mein.runtime.run_folder import RunFolder
from tests.support import tiny
from tests.support.dying import Death, Dying
from tests.support.shell import mein

TEXTS = tiny.TEXTS.test_texts[:5]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two finished runs of the same sizes: the seeds differ."""
    home = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("a", "b")):
        tiny.run(home / name, seed=seed, mixture__method="ours")
    return home / "a", home / "b"


@pytest.fixture
def copy(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the first run, to be damaged."""
    shutil.copytree(runs[0], tmp_path / "run")
    return tmp_path / "run"


def required(path: Path) -> list[str]:
    return list(read_done(RunFolder(path)).required)


def evaluated(path: Path, tmp_path: Path) -> tuple[int, str]:
    """What `mein evaluate` of the run gives: its exit code, and its one sentence."""
    source = tmp_path / "test.jsonl"
    rows = zip(tiny.TEXTS.test_texts, tiny.TEXTS.test_labels, strict=True)
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    source.write_text("\n".join(lines), encoding="utf-8")
    answer = mein("evaluate", path, source)
    return answer.code, answer.err


def test_every_artefact_is_required(runs: tuple[Path, Path]) -> None:
    found = set(required(runs[0]))
    tensors = {f"{name}.safetensors" for name in ("expert", "imitators", "mixture", "closed", "random")}
    assert tensors | {"lexicon.safetensors", "lexicon-of-train.safetensors"} <= found
    assert {"config.json", "labels.json", "vocabularies.json", "words.txt", "pieces.model"} <= found
    assert set(read_done(RunFolder(runs[0])).listed) == {
        "metrics.jsonl",
        "predictions.parquet",
        "highlights.json",
        "prepared.json",
        "test.json",
    }


def test_an_artefact_of_another_run_is_refused(runs: tuple[Path, Path], copy: Path, tmp_path: Path) -> None:
    for name in required(copy):
        if (runs[0] / name).read_bytes() == (runs[1] / name).read_bytes():
            continue
        shutil.copy(runs[1] / name, copy / name)
        with pytest.raises(RunError, match=f"{name} .*restore"):
            load_model(copy, "cpu")
        assert evaluated(copy, tmp_path)[0] == 2
        shutil.copy(runs[0] / name, copy / name)
    load_model(copy, "cpu")


@pytest.mark.parametrize("name", ["expert", "closed", "random"])
def test_another_system_in_the_place_of_the_mixture_is_refused(copy: Path, name: str) -> None:
    shutil.copy(copy / f"{name}.safetensors", copy / "mixture.safetensors")
    with pytest.raises(RunError, match=rf"damaged, or is a copy of '{name}\.safetensors'"):
        load_model(copy, "cpu")


def test_a_missing_artefact_is_refused(copy: Path, tmp_path: Path) -> None:
    for name in required(copy):
        (copy / name).rename(tmp_path / "kept")
        with pytest.raises(RunError, match=f"{name}.* is missing"):
            load_model(copy, "cpu")
        code, sentence = evaluated(copy, tmp_path)
        assert code == 2
        assert "Traceback" not in sentence
        (tmp_path / "kept").rename(copy / name)


def test_another_table_of_measurements_is_refused_by_what_reads_it(
    runs: tuple[Path, Path], copy: Path
) -> None:
    for name in ("metrics.jsonl", "predictions.parquet", "highlights.json"):
        shutil.copy(runs[1] / name, copy / name)
        with pytest.raises(RunError, match=name):
            read_finished(copy)
        assert load_model(copy, "cpu").log_probs(TEXTS).shape == (5, 2)  # answers do not depend on it
        shutil.copy(runs[0] / name, copy / name)


def test_a_run_of_the_first_format_is_refused_in_one_sentence(copy: Path) -> None:
    digests = dict.fromkeys(("config.json", "labels.json", "vocabularies.json"), "0" * 64)
    (copy / "done").write_text(json.dumps({"mein": 1, "sha256": digests}), encoding="utf-8")
    with pytest.raises(RunError, match=r"has format 1, this mein reads 3: train again"):
        load_model(copy, "cpu")


def resumed(path: Path) -> None:
    tiny.run(path, resume=True, mixture__method="ours")


@pytest.mark.parametrize("name", ["expert", "imitators", "lexicon", "closed", "mixture"])
def test_an_artefact_of_another_run_is_refused_when_resuming(
    runs: tuple[Path, Path], copy: Path, name: str
) -> None:
    (copy / "done").unlink()
    shutil.copy(runs[1] / f"{name}.safetensors", copy)
    with pytest.raises(RunError, match=rf"{name}\.safetensors is damaged, or belongs to another run"):
        resumed(copy)
    assert not (copy / "done").exists()


def test_a_lost_artefact_of_an_unfinished_run_is_made_again(copy: Path) -> None:
    before = tiny.artefacts(copy)
    for name in ("done", "imitators.safetensors", "closed.safetensors", "mixture.safetensors"):
        (copy / name).unlink()
    resumed(copy)
    assert tiny.artefacts(copy) == before


@pytest.mark.parametrize(
    "name", ["closed.safetensors", "expert.safetensors", "prepared.json", "test.json", "predictions.parquet"]
)
def test_a_finished_run_that_lost_a_file_is_not_changed_by_resuming(copy: Path, name: str) -> None:
    (copy / name).unlink()
    before = tiny.artefacts(copy), (copy / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=f"{name} is missing: restore it from a copy of the run"):
        resumed(copy)
    assert before == (tiny.artefacts(copy), (copy / "metrics.jsonl").read_bytes())


def test_other_words_of_a_language_model_are_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"expert__kind": "lm-lstm", "pretraining__epochs": 1}
    path = tmp_path / "run"
    tiny.run(path, **settings)
    words = (path / "words.txt").read_text(encoding="utf-8").splitlines()
    (path / "words.txt").write_text("\n".join([words[0], *reversed(words[1:]), ""]), encoding="utf-8")
    for is_done in (True, False):
        with pytest.raises(RunError, match=r"words\.txt is damaged, or belongs to another run"):
            tiny.run(tmp_path / "other", expert__language_model=str(path), **settings)
        if is_done:
            (path / "done").unlink()


def test_test_documents_that_change_while_training_are_refused(tmp_path: Path) -> None:
    files, corpus = iter((tiny.TEXTS.test_texts, tiny.TEXTS.test_texts[::-1])), tiny.corpus()
    labels = tiny.TEXTS.test_labels
    changing = replace(corpus, test=lambda: source_of_lists(next(files), labels)())
    with pytest.raises(InputError, match="the documents have changed since the run began"):
        tiny.run(tmp_path / "run", changing)
    assert not (tmp_path / "run/done").exists()


def test_a_run_of_before_a_metric_is_still_read() -> None:
    line = {"error": 5.0, "macro_f1": 0.9, "documents": 20}
    scores = Scores.from_dict(line)
    assert scores.to_dict() == line
    assert scores.text(METRICS["log_loss"]) == ""


@pytest.mark.parametrize(
    ("task", "name", "settings"),
    [
        ("expert 1/", "expert.checkpoint.safetensors", {}),
        ("imitators 1/", "imitators.checkpoint.safetensors", {}),
        ("mixture 1/", "mixture.checkpoint.safetensors", {}),
        ("expert 1/", "vectors.safetensors", {"expert__kind": "average"}),
    ],
)
def test_what_another_stopped_run_left_is_refused(
    tmp_path: Path, task: str, name: str, settings: dict[str, Any]
) -> None:
    """Two runs of the same sizes, stopped at the same moment; one file of the second in the first."""
    for seed in (0, 1):
        config = tiny.config(seed=seed, runtime__checkpoint_seconds=0, **settings)
        with pytest.raises(Death):
            train_and_evaluate(config, tiny.corpus(), tmp_path / str(seed), Dying(task, 2))
    shutil.copy(tmp_path / "1" / name, tmp_path / "0")
    with pytest.raises(RunError, match=rf"{name} belongs to another (run|network)"):
        tiny.run(tmp_path / "0", resume=True, seed=0, **settings)
    (tmp_path / "0" / name).unlink()
    tiny.run(tmp_path / "0", resume=True, seed=0, **settings)
    tiny.run(tmp_path / "2", seed=0, **settings)
    assert tiny.artefacts(tmp_path / "0") == tiny.artefacts(tmp_path / "2")
