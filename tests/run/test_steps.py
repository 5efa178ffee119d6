"""mein store: the steps of a training, one by one, over a store."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mein.errors import ConfigError, InputError, RunError
from mein.model.artefacts import load_indexer, seal
from mein.model.loading import Classifiers, FinishedRun, load_model, read_config
from mein.run import steps
from mein.runtime.device import choose_device
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.store import writing as workers
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from tests.support import tiny
from tests.support.shell import ROOT, mein, refuses, write_csv
from tests.support.stepping import LEFT, SHARD, content, make_stores, pieces_of, probabilities

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its documents, and a store in every state."""
    folder = tmp_path_factory.mktemp("home")
    make_stores(folder, SHARD, encoded="encoded", labeled="labeled")
    return folder


def encode(home: Path, out: Path, *words: object) -> None:
    answer = mein(
        *(
            "store",
            "encode",
            "--like",
            home / "run",
            "--text",
            home / "raw.csv",
            "--out",
            out,
            "--workers",
            1,
        ),
        *words,
    )
    assert answer.code == 0, answer


def copied(home: Path, name: str, to: Path) -> Path:
    shutil.copytree(home / name, to / name)
    return to / name


def test_a_store_holds_what_the_run_s_vocabularies_make_of_the_text(home: Path) -> None:
    folder = RunFolder(home / "run")
    indexer = load_indexer(read_config(folder), folder)
    store = Store.open(home / "encoded")
    assert store.shard_lengths == (25, 25, 25, 25, 25, 14)  # two documents of the test set are left out
    assert pieces_of(store) == indexer.encode(LEFT)[1]
    assert json.loads((home / "encoded/store.json").read_text(encoding="utf-8"))["documents"] == 139


def test_a_single_document_is_reported_in_the_singular(home: Path, tmp_path: Path) -> None:
    one = write_csv(tmp_path / "one.csv", LEFT[:1])
    answer = mein(
        "store", "encode", "--like", home / "run", "--text", one, "--out", tmp_path / "out", "--workers", 1
    )
    assert "out holds 1 document in 1 shard, 0.0 MB." in answer.out, answer


def test_every_document_is_labeled_once_by_the_expert_alone(home: Path) -> None:
    folder = RunFolder(home / "run")
    config = read_config(folder)
    model = Classifiers(folder, config, choose_device("cpu"), knows_dev=False).load("expert")
    words = model.indexer.encode(LEFT)[0]
    with torch.no_grad():
        expert = tiny.networks_of(model).expert
        z = torch.cat([expert(torch.tensor([row]), torch.tensor([len(row)])) for row in words])
    np.testing.assert_allclose(probabilities(home / "labeled"), torch.softmax(z, 1), atol=1e-6)
    first = pq.read_table(home / "labeled/shard-00000.expert.parquet")
    assert first.schema.names == ["negative", "positive"]
    assert {str(kind) for kind in first.schema.types} == {"float"}


def test_processes_write_the_same_bytes_as_one(home: Path, tmp_path: Path) -> None:
    encode(home, tmp_path / "labeled", "--workers", 2)
    assert content(tmp_path / "labeled") == content(home / "encoded")
    assert mein("store", "label", tmp_path / "labeled", "--by", home / "run", "--workers", 2).code == 0
    assert content(tmp_path / "labeled") == content(home / "labeled")


def test_a_labeled_store_becomes_a_run_like_any_other(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "large"
    words = ("store", "train", home / "labeled", "--like", home / "run", "--out", out)
    answer = mein(*words, "--set", "imitator_training.epochs=1")
    assert answer.code == 0, answer
    assert "40 test documents" in answer.out
    counts = json.loads((out / "prepared.json").read_text(encoding="utf-8"))
    assert (counts["unlabeled"], counts["held_out"]) == (126, 13)
    assert (out / "expert.safetensors").read_bytes() == (home / "run/expert.safetensors").read_bytes()
    assert (out / "imitators.safetensors").read_bytes() != (home / "run/imitators.safetensors").read_bytes()
    assert mein("evaluate", out, home / "test.csv").code == 0
    assert mein("predict", out, home / "raw.csv", "--out", tmp_path / "raw.csv").code == 0
    before = content(out)
    assert mein(*words, "--set", "imitator_training.epochs=1").code == 0  # nothing is left to do
    assert content(out) == before
    refuses(r".*holds another run: its config\.imitator_training\.epochs is 1, not 2; choose.*", *words)


def test_a_run_needs_no_encoded_text_to_be_followed(home: Path, tmp_path: Path) -> None:
    run = copied(home, "run", tmp_path)
    shutil.rmtree(run / "encoded")
    assert mein("store", "train", home / "labeled", "--like", run, "--out", tmp_path / "large").code == 0
    load_model(run, "cpu").save(tmp_path / "saved")
    words = ("store", "train", home / "labeled", "--like", tmp_path / "saved", "--out", tmp_path / "other")
    refuses(
        r".*saved holds a classifier without its expert and its text: give the folder that.*",
        *words,
        "--labeled",
        home / "train.csv",
    )


RANKED = f"""
from mein.run import steps
from mein.cli.main import main
steps.SHARD_DOCUMENTS = {SHARD}
main()
"""


def test_ranks_share_the_shards_and_write_the_same_bytes(home: Path, tmp_path: Path) -> None:
    (tmp_path / "ranked.py").write_text(RANKED, encoding="utf-8")
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "ranked.py")]
    store = tmp_path / "store"
    encoding = ("store", "encode", "--like", home / "run", "--text", home / "raw.csv", "--out", store)
    for words in (
        (*encoding, "--workers", 1),
        ("store", "label", store, "--by", home / "run", "--workers", 1),
    ):
        subprocess.run(
            [sys.executable, "-m", *torchrun, *map(str, words)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
            timeout=200,
        )
    assert content(store) == content(home / "labeled")


def test_what_is_held_out_is_not_learned_from(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "large"
    assert mein("store", "train", home / "labeled", "--like", home / "run", "--out", out).code == 0
    store, learned, held_out = (
        Store.open(path) for path in (home / "labeled", out / "encoded/unlabeled", out / "encoded/held_out")
    )
    parts = sorted(pieces_of(learned) + pieces_of(held_out))
    assert parts == sorted(pieces_of(store))
    assert len(learned) == 126
    assert [len(learned.column(EXPERT_COLUMN, shard)) for shard in range(6)] == list(learned.shard_lengths)
    probs_of = {
        tuple(row): p for row, p in zip(pieces_of(store), probabilities(home / "labeled"), strict=True)
    }
    for part in (learned, held_out):
        for shard in range(part.shard_count):
            for row, p in zip(part.pieces(shard).to_lists(), part.column(EXPERT_COLUMN, shard), strict=True):
                np.testing.assert_allclose(p, probs_of[tuple(row)], atol=1e-6)


def test_finished_steps_read_and_write_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(home, "labeled", tmp_path)
    times = {file: file.stat().st_mtime_ns for file in store.glob("[!.]*")}
    monkeypatch.setattr(workers, "write_shard", None)
    encode(home, store)
    assert mein("store", "label", store, "--by", home / "run").code == 0
    assert {file: file.stat().st_mtime_ns for file in times} == times


def test_whole_shards_are_kept_without_being_encoded_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(home, "encoded", tmp_path)
    (store / "store.json").unlink()
    monkeypatch.setattr(workers, "write_shard", None)
    encode(home, store)
    assert content(store) == content(home / "encoded")


def test_a_store_of_other_text_is_refused(home: Path) -> None:
    words = (
        "store",
        "encode",
        "--like",
        home / "run",
        "--out",
        home / "encoded",
        "--text",
        home / "test.csv",
    )
    refuses(r".*encoded holds a store whose text is \['.*raw\.csv'\], not \['.*test\.csv'\]; rem.*", *words)


def test_a_store_of_other_vocabularies_is_refused(home: Path, tmp_path: Path) -> None:
    store = copied(home, "labeled", tmp_path)
    manifest = (store / "store.json").read_text(encoding="utf-8")
    (store / "store.json").write_text(manifest.replace('"encoder": "', '"encoder": "0'), encoding="utf-8")
    sentence = r".*labeled was encoded with other vocabularies than those of .*run: encode .*--like .*run`\."
    refuses(sentence, "store", "label", store, "--by", home / "run")
    refuses(sentence, "store", "train", store, "--like", home / "run", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_whose_documents_are_gone_shows_how_to_name_them(home: Path, tmp_path: Path) -> None:
    """Imitate must have them; encode goes on without leaving the test documents out, and reports it."""
    run = copied(home, "run", tmp_path)
    for part in ("train", "test"):
        config = (run / "config.json").read_text(encoding="utf-8")
        (run / "config.json").write_text(config.replace(f"{part}.csv", f"{part}-gone.csv"), encoding="utf-8")
    seal(RunFolder(run))
    words = ("store", "train", home / "labeled", "--like", run, "--out", tmp_path / "out")
    refuses(r"The run in .*run was made with .*train-gone\.csv, which is not there: give its l.*", *words)
    refuses(r".*test-gone\.csv, which is not there: give its test.*", *words, "--labeled", home / "train.csv")
    named = (*words, "--labeled", home / "train.csv", "--test", home / "test.csv")
    assert mein(*named).code == 0
    answer = mein("store", "encode", "--like", run, "--text", home / "raw.csv", "--out", tmp_path / "store")
    assert "test-gone.csv are missing: none are left out. Name " in answer.out
    assert len(Store.open(tmp_path / "store")) == 141


def test_imitate_wants_labels(home: Path, tmp_path: Path) -> None:
    words = ("store", "train", home / "encoded", "--like", home / "run", "--out", tmp_path / "out")
    refuses(
        r".*encoded is not completely labeled: label it with `mein store label .*encoded --by .*run`\.",
        *words,
    )


def test_imitate_shares_what_it_must(home: Path, tmp_path: Path) -> None:
    words = ("store", "train", home / "labeled", "--like", home / "run", "--out", tmp_path / "out")
    refuses(
        r"expert\.hidden_dim cannot be set, for it .*: set something in im.*",
        *words,
        "--set",
        "expert.hidden_dim=9",
    )
    refuses(r"gone\.csv does not exist; check the path\.", *words, "--labeled", "gone.csv")
    other = write_csv(
        tmp_path / "other.csv", ["a good film", "a bad film"] * 20, ["positive", "negative"] * 20
    )
    refuses(
        r".*other\.csv holds other labeled documents than those of .*run: give the fi.*",
        *words,
        "--labeled",
        other,
    )


def test_a_store_that_changes_under_a_run_is_refused(home: Path, tmp_path: Path) -> None:
    store, out = copied(home, "labeled", tmp_path), tmp_path / "out"
    words = ("store", "train", store, "--like", home / "run", "--out", out)
    assert mein(*words).code == 0
    for name in ("done", "imitators.safetensors"):
        (out / name).unlink()
    labels = (store / "labels.json").read_text(encoding="utf-8")
    (store / "labels.json").write_text(labels + " ", encoding="utf-8")
    refuses(r"The store .*labeled has changed since .*unlabeled was made from it: restore it, or.*", *words)


def test_a_folder_of_something_else_takes_no_store(home: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    refuses(
        rf"{tmp_path} exists and is not a store of mein \(it holds 'thesis\.tex'\): choose an empty folder\.",
        *("store", "encode", "--like", home / "run", "--text", home / "raw.csv", "--out", tmp_path),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("option", "other"),
    [("--from-run", {"from_run": "x"}), ("--soft-labels", {"kind": "given", "model": "x"})],
)
def test_a_store_trains_no_run_with_another_teacher(home: Path, option: str, other: dict[str, str]) -> None:
    run = FinishedRun.open(home / "run")
    expert = run.config.expert.model_copy(update=other)
    with pytest.raises(
        ConfigError,
        match=rf"/run was trained with {option}, which `mein store train` does not support: give a run ",
    ):
        steps.settings_like(replace(run, config=run.config.model_copy(update={"expert": expert})), {})


# Labels that somebody else wrote


def write_teacher(store: Path, shard: int, columns: dict[str, list[object]]) -> Path:
    path = store / f"shard-{shard:05d}.expert.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_imitators_do_not_learn_from_two_teachers(home: Path, tmp_path: Path) -> None:
    """They read the labeled text where the run's own expert labeled all the rest, and only there."""
    store = copied(home, "encoded", tmp_path)
    write_teacher(store, 1, {"positive": [0.3] * 25, "negative": [0.7] * 25})
    assert mein("store", "label", store, "--by", home / "run", "--workers", 1).code == 0
    for name, text in (("own", home / "labeled"), ("both", store)):
        words = ("store", "train", text, "--like", home / "run", "--out", tmp_path / name)
        assert mein(*words, "--set", "imitator_training.reads_labeled=true").code == 0
        assert (tmp_path / name / "encoded/train/labels.json").exists() == (name == "own")


def test_another_teacher_s_labels_are_kept_in_any_order_of_columns(home: Path, tmp_path: Path) -> None:
    store = copied(home, "encoded", tmp_path)
    p = np.linspace(0, 1, 25)
    write_teacher(store, 1, {"positive": list(p), "id": list(range(25)), "negative": list(1 - p)})
    answer = mein("store", "label", store, "--by", home / "run", "--workers", 1)
    assert "1 shards were labeled by another teacher: kept unchanged." in answer.out, answer
    found = Store.open(store).column(EXPERT_COLUMN, 1)
    np.testing.assert_allclose(found, np.stack([1 - p, p], axis=1), atol=1e-7)
    expected = Store.open(home / "labeled").column(EXPERT_COLUMN, 2)
    assert Store.open(store).column(EXPERT_COLUMN, 2).tolist() == expected.tolist()


HALF = [0.5] * 25


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"negative": HALF}, r"has no single column for the class 'positive' among 'negative': give one f"),
        ({"negative": HALF[1:], "positive": HALF[1:]}, r"holds 24 rows, but its shard 25 documents: give a"),
        ({"negative": [*HALF[1:], 0.7], "positive": HALF}, r"row 25 gives \[0\.7, 0\.5\]: give probabilit"),
        ({"negative": [1.5, *HALF[1:]], "positive": [-0.5, *HALF[1:]]}, r"row 1 gives \[1\.5, -0\.5\]: gi"),
        ({"negative": [*HALF[:3], None, *HALF[4:]], "positive": HALF}, r"row 4 gives \[nan, 0\.5\]: give "),
        ({"negative": ["x"] * 25, "positive": HALF}, r"holds something that is not a number"),
        ({"negative": [[0.5]] * 25, "positive": HALF}, r"holds something that is not a number"),
    ],
)
def test_bad_labels_are_named_by_file_and_row(
    home: Path, tmp_path: Path, columns: dict[str, list[object]], sentence: str
) -> None:
    store = copied(home, "encoded", tmp_path)
    path = write_teacher(store, 3, columns)
    with pytest.raises(InputError, match=rf"{path} {sentence}"):
        steps.label(FinishedRun.open(home / "run"), str(store), Quiet(), workers=1)
    assert not (store / "labels.json").exists()
    refuses(r".*shard-00003\.expert\.parquet .*", "store", "label", store, "--by", home / "run")


def test_what_is_no_parquet_file_is_named(home: Path, tmp_path: Path) -> None:
    store = copied(home, "encoded", tmp_path)
    (store / "shard-00002.expert.parquet").write_bytes(b"text,label\n")
    refuses(
        r".*shard-00002\.expert\.parquet is damaged or not a Parquet file \(.*\): write it again, or.*",
        *("store", "label", store, "--by", home / "run"),
    )


def test_two_experts_do_not_label_one_store(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied(home, "labeled", tmp_path)
    (store / "labels.json").unlink()
    (store / "shard-00001.expert.parquet").unlink()
    run = FinishedRun.open(home / "run")
    with monkeypatch.context() as patch:
        patch.setattr(steps, "author_of", lambda folder, config: "another")
        with pytest.raises(
            RunError, match=r"shard-00000\.expert\.parquet holds the soft labels of another expert: l"
        ):
            steps.label(run, str(store), Quiet())
    steps.label(run, str(store), Quiet(), workers=1)
    assert content(store) == content(home / "labeled")


def test_old_columns_are_still_read(home: Path, tmp_path: Path) -> None:
    """Stores of version 1, with lengths for shards and the expert's word as Arrow."""
    store = copied(home, "labeled", tmp_path)
    new = Store.open(store)
    probs_of = [new.column(EXPERT_COLUMN, shard) for shard in range(new.shard_count)]
    for shard, probs in enumerate(probs_of):
        new.write_column(EXPERT_COLUMN, shard, probs)
    for file in [*store.glob("*.parquet"), store / "labels.json"]:
        file.unlink()
    manifest = json.loads((store / "store.json").read_text(encoding="utf-8"))
    manifest |= {"version": 1, "shards": [shard["documents"] for shard in manifest["shards"]]}
    (store / "store.json").write_text(json.dumps(manifest), encoding="utf-8")
    old = Store.open(store)
    assert (len(old), old.shard_lengths) == (139, new.shard_lengths)
    assert old.has_column(EXPERT_COLUMN)
    for shard, probs in enumerate(probs_of):
        assert old.column(EXPERT_COLUMN, shard).tolist() == probs.tolist()
    assert pieces_of(old) == pieces_of(Store.open(home / "labeled"))
