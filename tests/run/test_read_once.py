"""Read once: one pass over labeled and test documents before training, two over raw text, one load each."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mein.data.corpus import DocumentStream
from mein.run.algorithm import train
from mein.run.evaluate import evaluate
from mein.run.prepare import prepare
from mein.runtime import tensors
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from tests.support import tiny


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
        run = prepare(tiny.config(mixture__has_lexicon=True), corpus, folder, Quiet())
        assert passes == {"labeled": 1, "test": 1, "unlabeled": 2}
        train(run)
        assert passes == {"labeled": 1, "test": 1, "unlabeled": 2}
        assert not loads  # what was just learned is in memory
        evaluate(run)
    assert passes == {"labeled": 1, "test": 2, "unlabeled": 2}  # the test documents themselves, at the end
    systems = ("expert", "closed", "random", "imitators", "lexicon")
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
