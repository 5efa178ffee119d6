"""The run folder of somebody else: one sentence, whatever it holds, and never NaN; digests are right here."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mein.errors import RunError
from mein.model.artefacts import seal
from mein.report.card import write_card
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors, save_tensors
from mein.store.files import MANIFEST
from mein.store.store import Store
from tests.fuzz.trying import Case, attempt, limited
from tests.support import tiny
from tests.support.shell import refuses, write_csv

OTHER_RUN = r"{path}/{name} is damaged, or belongs to another run: restore it from a copy of its own run\."
UNFIT = r"{path}/{name} does not fit config\.json and the vocabularies beside it: the folder mixes .*\."
CHANGED = r"{path}/{name} is damaged or was changed by another program: restore it from a copy\."


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    tiny.run(path, mixture__method="ours")
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy to change, used within a limit of time and memory."""
    with limited():
        yield Path(shutil.copytree(finished, tmp_path / "run"))


def refuses_to_predict(sentence: str, run: Path, name: str) -> None:
    new = write_csv(run.parent / "new.csv", ["a good film"])
    refuses(sentence.format(path=run, name=name), "predict", run, new, "--out", run.parent / "out.csv")


def refuses_to_report(sentence: str, run: Path, name: str) -> None:
    refuses(sentence.format(path=run, name=name), "report", run)


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    seal(RunFolder(path.parent))


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], Any]) -> None:
    tensors, facts = load_tensors(path)
    change(tensors, facts)
    save_tensors(path, tensors, facts)
    seal(RunFolder(path.parent))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("config.json", r"{path}/{name} is missing: restore it from a copy of the run\."),
        ("done", r"{path}/{name} is damaged: restore it from a copy\."),
        ("mixture.safetensors", r"{path}/{name} is missing: restore it from a copy of the run\."),
        ("words.txt", r"{path}/{name} is missing: restore it from a copy of the run\."),
    ],
)
def test_a_fifo_in_the_place_of_a_file_is_refused(run: Path, name: str, sentence: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    refuses_to_predict(sentence, run, name)
    refuses_to_report(sentence, run, name) if name != "words.txt" else None


def test_a_fifo_is_refused_while_a_run_is_not_finished(run: Path) -> None:
    (run / "done").unlink()
    for name in ("mixture.safetensors", "config.json"):
        (run / name).unlink()
        os.mkfifo(run / name)
        with pytest.raises(Exception, match=r"(config\.json|mixture\.safetensors) is (damaged|missing)"):
            tiny.run(run, mixture__method="ours", resume=True)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("gates", [float("nan"), 1.0]),
        ("gates", [[1.0, 1.0]]),
        ("gates", ["a", "b"]),
        ("gates", [1.0]),
        ("temperature", 0.0),
        ("temperature", float("nan")),
        ("temperature", None),
        ("lexicon_weight", float("inf")),
    ],
)
def test_gates_and_temperatures_that_are_no_numbers_are_refused(run: Path, fact: str, value: Any) -> None:
    change_tensors(run / "mixture.safetensors", lambda tensors, facts: facts.update({fact: value}))
    refuses_to_predict(OTHER_RUN, run, "mixture.safetensors")


@pytest.mark.parametrize("name", ["mixture.safetensors", "imitators.safetensors"])
def test_weights_that_are_not_finite_are_refused(run: Path, name: str) -> None:
    change_tensors(run / name, lambda tensors, _: min(tensors.items())[1].fill_(torch.nan))
    refuses_to_predict(
        r"{path}/{name} holds numbers that are not finite, in '.*': restore it .*\.", run, name
    )


def test_finite_weights_that_give_nan_are_refused(run: Path) -> None:
    def enlarge(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        tensors["output.weight"].fill_(3e38)

    change_tensors(run / "mixture.safetensors", enlarge)
    change_tensors(run / "mixture.safetensors", lambda tensors, _: tensors["output.bias"].fill_(3e38))
    change_tensors(run / "mixture.safetensors", lambda tensors, _: tensors["hidden.bias"].fill_(3e38))
    sentence = (
        r"The classifier gives NaN, not probabilities, since its weights are too large: restore the run .*\."
    )
    refuses_to_predict(sentence, run, "")
    refuses(sentence, "explain", run, "a good film")


@pytest.mark.parametrize(
    ("section", "setting", "name"),
    [
        ("expert", "hidden_dim", "mixture"),
        ("imitators", "channels", "imitators"),
    ],
)
def test_sizes_are_compared_with_the_weights_before_they_take_memory(
    run: Path, section: str, setting: str, name: str
) -> None:
    change_json(run / "config.json", lambda content: content["config"][section].update({setting: 65_536}))
    refuses_to_predict(UNFIT, run, f"{name}.safetensors")


def test_deep_json_is_refused(run: Path) -> None:
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    change_tensors(run / "imitators.safetensors", lambda _, facts: facts.update(deep=deep))
    (run / "config.json").write_text("[" * 100_000, encoding="utf-8")
    seal(RunFolder(run))
    refuses_to_predict(r"{path}/{name} is damaged: restore it from a copy\.", run, "config.json")
    (run / "done").write_text('{"mein":' * 100_000, encoding="utf-8")
    refuses_to_predict(r"{path}/{name} is damaged: restore it from a copy\.", run, "done")


def test_very_many_classes_are_refused(run: Path) -> None:
    count = 100_000
    many = {"classes": list(range(count)), "prior": [1 / count] * count}
    change_json(run / "labels.json", lambda content: content.update(many))
    refuses_to_predict(UNFIT, run, "mixture.safetensors")
    refuses_to_report(OTHER_RUN, run, "predictions.parquet")


@pytest.mark.parametrize(
    "labels",
    [
        {"classes": ["a", "a"]},
        {"classes": [1, "1"]},
        {"classes": [0.5, 1.5]},
        {"classes": ["a"], "prior": [1.0]},
        {"prior": [float("nan"), 1.0]},
        {"prior": [2.0, -1.0]},
        {"prior": "ab"},
    ],
)
def test_labels_that_are_no_classes_are_refused(run: Path, labels: dict[str, Any]) -> None:
    change_json(run / "labels.json", lambda content: content.update(labels))
    refuses_to_predict(OTHER_RUN, run, "labels.json")
    if "prior" in labels and "classes" not in labels:
        refuses_to_report(
            r"{path} is damaged \(ValueError\(.*\)\): restore it from a copy\.", run, "labels.json"
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", torch.zeros(3, 7)),
        ("entries", torch.zeros(3)),
        ("bias", torch.tensor([torch.nan, 0.0])),
        ("informativeness", torch.zeros(1, dtype=torch.float64)),
    ],
)
def test_a_lexicon_whose_arrays_do_not_fit_is_refused(run: Path, name: str, value: torch.Tensor) -> None:
    change_tensors(run / "lexicon.safetensors", lambda tensors, _: tensors.update({name: value}))
    refuses_to_predict(r"{path}/{name} is damaged, its arrays do not fit: .*\.", run, "lexicon.safetensors")


def test_a_lexicon_of_other_pieces_is_refused(run: Path) -> None:
    other = {"vocabulary_size": torch.tensor(9)}
    change_tensors(run / "lexicon.safetensors", lambda tensors, _: tensors.update(other))
    refuses_to_predict(UNFIT, run, "lexicon.safetensors")


def test_a_file_for_a_transformer_that_the_run_did_not_write_is_refused(run: Path) -> None:
    (run / "hub").mkdir()
    os.mkfifo(run / "hub/config.json")
    refuses_to_predict(r"{path}/{name} is unknown to its run: remove it\.", run, "hub/config.json")


def test_a_fifo_as_the_manifest_of_a_store_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST)
    with limited(), pytest.raises(RunError, match=rf"{MANIFEST}"):
        Store.open(tmp_path)


@pytest.mark.parametrize("name", ["shard-00000.arrow", "shard-00000.expert.parquet"])
def test_a_fifo_in_a_store_is_refused(run: Path, name: str) -> None:
    for artefact in ("done", "imitators.safetensors", "mixture.safetensors"):
        (run / artefact).unlink()
    (run / "encoded/unlabeled" / name).unlink()
    os.mkfifo(run / "encoded/unlabeled" / name)
    with pytest.raises(RunError, match=rf"encoded/unlabeled/{name} is damaged; restore it from a copy"):
        tiny.run(run, mixture__method="ours", resume=True)


def test_a_store_that_names_another_teacher_than_its_files_is_refused(run: Path) -> None:
    """The name of the teacher decides what imitators learn from."""
    for artefact in ("done", "imitators.safetensors", "mixture.safetensors"):
        (run / artefact).unlink()
    path = run / "encoded/unlabeled/labels.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["shards"][0]["by"] = "0" + content["shards"][0]["by"][1:-1] + "g"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RunError, match=r"encoded/unlabeled/labels\.json is damaged; restore it from a copy"):
        tiny.run(run, mixture__method="ours", resume=True)


def test_the_report_refuses_predictions_that_do_not_fit(run: Path) -> None:
    table = pq.read_table(run / "predictions.parquet")
    n = table.num_rows
    three = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(3 * n, np.float32)), 3)
    for name, column in (("label", pa.array([2] * n)), ("label", pa.nulls(n)), ("mixture", three)):
        other = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(other, run / "predictions.parquet")
        seal(RunFolder(run))
        refuses_to_report(OTHER_RUN, run, "predictions.parquet")


def test_the_card_of_a_hostile_run_is_refused_in_one_sentence(run: Path) -> None:
    change_json(run / "config.json", lambda content: content["config"].pop("words"))
    with pytest.raises(RunError, match=r"run is damaged \(KeyError\('words'\)\): restore it from a copy\."):
        write_card(run)


def test_the_page_and_the_card_hold_no_control_character(run: Path) -> None:
    change_json(run / "labels.json", lambda content: content.update(classes=["a\x1b[31m", "b"]))
    outcome = attempt(Case(("report", str(run))))
    page = (run / "report.html").read_text(encoding="utf-8")
    assert outcome.kind == "fine", outcome.detail
    assert "a\ufffd[31m" in page
    write_card(run)
    card = (run / "README.md").read_text(encoding="utf-8")
    assert "a\ufffd\\[31m" in card
    assert "\x1b" not in page + card
