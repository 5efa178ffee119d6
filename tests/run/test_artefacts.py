"""Artefacts belong to their run: what is exchanged, renamed, lost or changed is refused in one sentence."""

import json
import shutil
from pathlib import Path

import pytest

from mein.errors import RunError
from mein.model.artefacts import read_done
from mein.model.loading import load_model
from mein.report.record import read_finished
from mein.runtime.run_folder import RunFolder
from tests.support import tiny
from tests.support.shell import mein

TEXTS = tiny.TEXTS.test_texts[:5]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two finished runs of the same sizes: the seeds differ."""
    home = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("a", "b")):
        tiny.run(home / name, seed=seed, mixture__has_lexicon=True)
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
    with pytest.raises(RunError, match=r"has format 1, this mein reads 2: train again"):
        load_model(copy, "cpu")
