"""Sharing: a folder with what prediction needs and no document in it; from a run, from memory, by the hub."""

import json
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mein.errors import MissingExtra, RunError
from mein.model.loading import load_model
from mein.sharing import SHARED_FILES, from_pretrained, push_to_hub, save_pretrained
from tests.support import tiny

PRIVATE = (
    "predictions.parquet",
    "highlights.json",
    "metrics.jsonl",
    "encoded",
    "report.html",
    "provenance.json",
)
TEXTS = tiny.TEXTS.test_texts[:8]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sharing") / "run"
    names = {"labeled": "/home/me/private.csv", "test": "the test documents"}
    tiny.run(path, tiny.corpus(names=names), mixture__method="ours")
    (path / "report.html").write_text("quotes documents", encoding="utf-8")
    return path


class Hub:
    """A hub of one folder: what was uploaded can be downloaded."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.private: bool | None = None

    def snapshot_download(self, repo_id: str, *, allow_patterns: list[str], **_: Any) -> str:
        target = self.home / "cache" / repo_id
        _copy(self.home / repo_id, target, allow_patterns)
        return str(target)

    def HfApi(self, token: str | None) -> "Hub":  # noqa: N802 - the library's name
        return self

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any:
        self.private = private
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, folder_path: Path, repo_id: str, allow_patterns: list[str], **_: Any) -> None:
        _copy(folder_path, self.home / repo_id, allow_patterns)


def _copy(source: Path, target: Path, patterns: list[str]) -> None:
    for file in sorted(source.rglob("*")):
        name = str(file.relative_to(source))
        if file.is_file() and any(fnmatch(name, pattern) for pattern in patterns):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    library = pytest.importorskip("huggingface_hub")
    found = Hub(tmp_path / "hub")
    monkeypatch.setattr(library, "snapshot_download", found.snapshot_download)
    monkeypatch.setattr(library, "HfApi", found.HfApi)
    return found


def test_a_shared_run_predicts_as_before_and_holds_no_document(run: Path, tmp_path: Path) -> None:
    save_pretrained(run, tmp_path / "shared")
    found = load_model(from_pretrained(tmp_path / "shared"), "cpu").log_probs(TEXTS)
    np.testing.assert_array_equal(found, load_model(run, "cpu").log_probs(TEXTS))
    names = {file.name for file in (tmp_path / "shared").iterdir()} - {".lock"}
    assert names == {name for name in SHARED_FILES if "/" not in name} - {"expert.skops"}
    assert not names & set(PRIVATE)
    config = (tmp_path / "shared" / "config.json").read_text(encoding="utf-8")
    assert "/home/me" not in config
    assert "data" not in json.loads(config)
    card = (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")
    assert "On 40 test documents" in card


def test_a_classifier_in_memory_is_shared_too(run: Path, tmp_path: Path) -> None:
    model = load_model(run, "cpu")
    save_pretrained(model, tmp_path / "shared")
    found = load_model(from_pretrained(str(tmp_path / "shared")), "cpu").log_probs(TEXTS)
    np.testing.assert_array_equal(found, model.log_probs(TEXTS))
    assert (tmp_path / "shared" / "README.md").exists()


def test_a_card_that_somebody_wrote_is_kept(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "README.md").write_text("my words\n", encoding="utf-8")
    save_pretrained(copy, tmp_path / "shared")
    assert (tmp_path / "shared" / "README.md").read_text(encoding="utf-8") == "my words\n"


def test_the_hub_gets_and_gives_our_files_only(run: Path, hub: Hub) -> None:
    push_to_hub(run, "me/reviews")
    assert hub.private
    (hub.home / "me/reviews" / "evil.pkl").write_bytes(b"code")
    (hub.home / "me/reviews" / "hub").mkdir()
    (hub.home / "me/reviews" / "hub" / "modeling.py").write_bytes(b"code")
    path = from_pretrained("me/reviews")
    assert not list(path.rglob("*.pkl")) + list(path.rglob("*.py")) + list(path.rglob(".lock"))
    np.testing.assert_array_equal(
        load_model(path, "cpu").log_probs(TEXTS), load_model(run, "cpu").log_probs(TEXTS)
    )


def test_a_folder_that_is_not_ours_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no folder"):
        from_pretrained(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"There is no folder '\./nowhere'"):
        from_pretrained("./nowhere")
    with pytest.raises(RunError, match=r"no classifier of mein, config.json is missing"):
        from_pretrained(tmp_path)
    with pytest.raises(RunError, match="already holds a run"):
        save_pretrained(run, run)
    half = shutil.copytree(run, tmp_path / "half")
    (half / "done").unlink()
    with pytest.raises(RunError, match="is not finished"):
        save_pretrained(half, tmp_path / "shared")
    changed = shutil.copytree(run, tmp_path / "changed")
    (changed / "labels.json").write_text(
        '{"mein": 3, "classes": [1, 2], "prior": [0.5, 0.5]}', encoding="utf-8"
    )
    with pytest.raises(RunError, match=r"labels.json is damaged"):
        save_pretrained(changed, tmp_path / "shared")


def test_a_hub_out_of_reach_is_one_sentence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub")
    nobody = "http://127.0.0.1:9"  # the port of `discard`, where nobody listens
    api, download = library.HfApi, library.snapshot_download
    monkeypatch.setattr(library, "HfApi", lambda token: api(endpoint=nobody, token="none"))
    monkeypatch.setattr(
        library, "snapshot_download", lambda name, **given: download(name, endpoint=nobody, **given)
    )
    for act in (lambda: push_to_hub(run, "me/reviews"), lambda: from_pretrained("me/reviews")):
        with pytest.raises(RunError, match=r"the hub cannot be reached or refuses .*: go online"):
            act()
    with pytest.raises(RunError, match="is no name on the hub"):
        from_pretrained("me/re views")


def test_without_the_extra_one_sentence_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[hub\]'"):
        from_pretrained("me/reviews")
