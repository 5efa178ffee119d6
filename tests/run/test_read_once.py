"""Read once: one pass over labeled and test documents before training, two over raw text, one load each."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mein.data.corpus import DocumentStream
from mein.data.readers import read_documents
from mein.hub import networks as hub_networks
from mein.run.algorithm import train
from mein.run.evaluate import evaluate
from mein.run.prepare import prepare
from mein.runtime import tensors
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from tests.support import tiny
from tests.support.hub_models import build
from tests.support.shell import TINY, mein, write_csv


class Passes(Counter[str]):
    """How often each part of a corpus was read."""

    def counting(self, part: str, source: DocumentStream | None) -> DocumentStream | None:
        """The same source, counted."""
        if source is None:
            return None

        def read() -> Any:
            self[part] += 1
            yield from source()

        return read


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the content of each file of tensors was read."""
    found: Counter[str] = Counter()
    load = tensors.load_tensors

    def counted(path: Path) -> Any:
        found[path.name] += 1
        return load(path)

    for module in (
        "mein.model.artefacts",
        "mein.model.loading",
        "mein.mixture.lexicon",
        "mein.run.warm_start",
    ):
        monkeypatch.setattr(f"{module}.load_tensors", counted)
    return found


def test_a_run_reads_each_input_and_each_artefact_once(tmp_path: Path, loads: Counter[str]) -> None:
    passes, corpus = Passes(), tiny.corpus()
    counted: dict[str, Any] = {
        part: passes.counting(part, getattr(corpus, part)) for part in ("labeled", "unlabeled", "test")
    }
    corpus = replace(corpus, **counted)
    folder = RunFolder(tmp_path / "run")
    with folder.held():
        run = prepare(tiny.config(mixture__method="ours"), corpus, folder, Quiet())
        assert passes == {"labeled": 1, "test": 1, "unlabeled": 2}
        train(run)
        assert passes == {"labeled": 1, "test": 1, "unlabeled": 2}
        assert not loads  # what was just learned is in memory
        evaluate(run)
    assert passes == {"labeled": 1, "test": 2, "unlabeled": 2}  # the test documents themselves, at the end
    systems = ("expert-of-all", "closed", "random", "imitators", "lexicon")
    assert {loads[f"{name}.safetensors"] for name in systems} == {1}
    assert max(loads.values()) == 1, loads


def test_a_finished_run_is_neither_trained_nor_evaluated_again(tmp_path: Path, loads: Counter[str]) -> None:
    rows = tiny.run(tmp_path / "run")
    passes, corpus = Passes(), tiny.corpus()
    corpus = replace(corpus, test=passes.counting("test", corpus.test))
    loads.clear()
    before = tiny.artefacts(tmp_path / "run"), (tmp_path / "run/metrics.jsonl").read_bytes()
    assert tiny.run(tmp_path / "run", corpus, resume=True) == rows
    assert passes["test"] == 1  # to be the same documents as before
    assert not loads
    assert before == (tiny.artefacts(tmp_path / "run"), (tmp_path / "run/metrics.jsonl").read_bytes())


def test_a_hugging_face_encoder_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    opened, load = list[Path](), hub_networks.load_encoder

    def counted(folder: Path) -> Any:
        opened.append(folder)
        return load(folder)

    monkeypatch.setattr("mein.hub.readers.load_encoder", counted)
    encoder = build("Bert", tmp_path / "bert", classes=2)
    tiny.run(tmp_path / "run", expert__kind="frozen", expert__model=str(encoder))
    assert opened == [tmp_path / "run/hub"]


def test_mein_train_reads_each_file_as_often_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted is where a file's last row is reached: guesses of columns look at the first rows only."""
    texts, complete = tiny.TEXTS, Counter[str]()
    files = {
        "labeled": write_csv(tmp_path / "labeled.csv", texts.labeled_texts, texts.labeled_labels),
        "unlabeled": write_csv(tmp_path / "unlabeled.csv", texts.unlabeled_texts),
        "test": write_csv(tmp_path / "test.csv", texts.test_texts, texts.test_labels),
    }

    def counted(source: str, *others: Any, **options: Any) -> Any:
        yield from read_documents(source, *others, **options)
        complete[Path(source).stem] += 1

    monkeypatch.setattr("mein.data.corpus.read_documents", counted)
    words = [word for part, path in files.items() for word in (f"--{part}", path)]
    assert mein("train", *words, "--out", tmp_path / "run", *TINY).code == 0
    assert complete == {"labeled": 1, "unlabeled": 2, "test": 2}
