"""predict_file: the same rows in the same order, two columns more, whatever the format."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from numpy.testing import assert_allclose

from mein.data import tables
from mein.errors import InputError
from mein.model import Model
from mein.predict import predict_file
from mein.progress import Silence
from tests.reviews import LABELS, NEW, RAW, TEXTS, tiny

ROWS = pd.DataFrame({"id": range(len(NEW)), "text": NEW, "note": [f'a, "b"\t{n}' for n in range(len(NEW))]})

Write = Callable[[pd.DataFrame, Path], None]
WRITERS: dict[str, Write] = {
    ".csv": lambda rows, path: rows.to_csv(path, index=False),
    ".tsv": lambda rows, path: rows.to_csv(path, index=False, sep="\t"),
    ".jsonl": lambda rows, path: rows.to_json(path, orient="records", lines=True),
    ".jsonl.gz": lambda rows, path: rows.to_json(path, orient="records", lines=True),
    ".parquet": lambda rows, path: rows.to_parquet(path),
}
READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: pd.read_csv(path, keep_default_na=False),
    ".tsv": lambda path: pd.read_csv(path, sep="\t", keep_default_na=False),
    ".jsonl": lambda path: pd.read_json(path, lines=True),
    ".jsonl.gz": lambda path: pd.read_json(path, lines=True),
    ".parquet": pd.read_parquet,
}


@pytest.fixture(scope="module")
def model() -> Model:
    fitted: Model = tiny().fit(TEXTS, LABELS, unlabeled=RAW).model_
    return fitted


def predict(model: Model, source: Path | str, target: Path, column: str | None = None) -> int:
    return predict_file(model, str(source), target, column, Silence())


def check(model: Model, found: pd.DataFrame, texts: list[str]) -> None:
    """The columns of a prediction hold what the model says of these texts."""
    probabilities = np.exp(model.log_probs(texts))
    expected = model.labels.decode(probabilities.argmax(axis=1))
    assert found["label"].tolist() == expected
    assert_allclose(found["probability"].to_numpy(float), probabilities.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("target", READERS)
@pytest.mark.parametrize("source", WRITERS)
def test_keeps_columns_and_order_in_every_format(
    model: Model, source: str, target: str, tmp_path: Path
) -> None:
    given, out = tmp_path / f"in{source}", tmp_path / f"out{target}"
    WRITERS[source](ROWS, given)
    assert predict(model, given, out) == len(NEW)
    found = READERS[target](out)
    assert list(found.columns) == ["id", "text", "note", "label", "probability"]
    assert found["id"].astype(int).tolist() == ROWS["id"].tolist()
    assert found["text"].tolist() == ROWS["text"].tolist()
    assert found["note"].tolist() == ROWS["note"].tolist()
    check(model, found, NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([given.name, out.name])


def test_reads_lines_and_folders_of_text(model: Model, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n", encoding="utf-8")
    predict(model, tmp_path / "new.txt", tmp_path / "out.csv")
    check(model, pd.read_csv(tmp_path / "out.csv"), NEW)
    (tmp_path / "folder").mkdir()
    for number, text in enumerate(NEW[:3]):
        (tmp_path / "folder" / f"{number}.txt").write_text(text, encoding="utf-8")
    predict(model, tmp_path / "folder", tmp_path / "folder.csv")
    found = pd.read_csv(tmp_path / "folder.csv")
    check(model, found, NEW[:3])
    assert [Path(name).name for name in found["file"]] == ["0.txt", "1.txt", "2.txt"]


def test_cannot_write_a_table_as_lines(model: Model, tmp_path: Path) -> None:
    WRITERS[".csv"](ROWS, tmp_path / "in.csv")
    with pytest.raises(InputError, match=r"out.txt cannot hold a table; name it .csv, .tsv, .jsonl or"):
        predict(model, tmp_path / "in.csv", tmp_path / "out.txt")


def test_long_files_go_through_in_batches(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK_ROWS", 6)
    for ending in WRITERS:
        WRITERS[ending](ROWS, tmp_path / f"in{ending}")
        predict(model, tmp_path / f"in{ending}", tmp_path / "out.parquet")
        check(model, pd.read_parquet(tmp_path / "out.parquet"), NEW)


def test_texts_that_say_nothing_get_the_prior(model: Model, tmp_path: Path) -> None:
    texts = ["", None, "   ", float("nan"), NEW[0]]
    rows = [{"text": text} for text in texts]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    predict(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    found = pd.read_json(tmp_path / "out.jsonl", lines=True)
    assert_allclose(found["probability"][:4], model.prior.max())
    check(model, found, ["", "", "", "", NEW[0]])
    assert found["text"].isna().tolist() == [False, True, False, True, False]


def test_columns_of_the_same_name_are_kept(model: Model, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(4)]
    ROWS.assign(label="mine").to_csv(paths[0], index=False)
    for source, target in pairwise(paths):
        predict(model, source, target)
    found = pd.read_csv(paths[3])
    assert found["label"].eq("mine").all()
    names = ["label", "predicted_label", "probability"]
    names += ["predicted_label_2", "predicted_probability"]
    names += ["predicted_label_3", "predicted_probability_2"]
    assert list(found.columns) == ["id", "text", "note", *names]
    assert found["predicted_label"].tolist() == found["predicted_label_3"].tolist()
    expected = np.exp(model.log_probs(NEW)).max(axis=1)
    assert_allclose(found["predicted_probability_2"], expected, atol=1e-6)


def test_a_column_that_begins_late_is_not_overwritten(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK_ROWS", 2)
    rows = [{"text": "lovely"}, {"text": "a bore"}, {"text": "never dull", "label": "mine"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"in.jsonl has a column 'label' below row 2 that it lacks above"):
        predict(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    rows[2] = {"review": "never dull"}  # would be a guess of its own
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"in.jsonl has no column 'text' among 'review'"):
        predict(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")


def test_the_text_column_can_be_named(model: Model, tmp_path: Path) -> None:
    ROWS.assign(headline="lovely").to_parquet(tmp_path / "in.parquet")
    predict(model, tmp_path / "in.parquet", tmp_path / "out.parquet", "headline")
    check(model, pd.read_parquet(tmp_path / "out.parquet"), ["lovely"] * len(NEW))
    with pytest.raises(
        InputError, match=r"in.parquet has no column 'headlin' among .*; did you mean 'headline'"
    ):
        predict(model, tmp_path / "in.parquet", tmp_path / "out.parquet", "headlin")


def test_texts_that_are_no_strings(model: Model, tmp_path: Path) -> None:
    pa_parquet.write_table(pa.table({"text": [b"lovely", b"a bore"]}), tmp_path / "bytes.parquet")
    predict(model, tmp_path / "bytes.parquet", tmp_path / "out.parquet")
    check(model, pd.read_parquet(tmp_path / "out.parquet"), ["lovely", "a bore"])
    pa_parquet.write_table(pa.table({"text": [["a"], ["b"]]}), tmp_path / "lists.parquet")
    with pytest.raises(InputError, match=r"lists.parquet row 1 has a list as its text; write it as a string"):
        predict(model, tmp_path / "lists.parquet", tmp_path / "out.parquet")


def test_a_file_can_be_labelled_in_place(model: Model, tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    predict(model, tmp_path / "rows.csv", tmp_path / "rows.csv")
    check(model, pd.read_csv(tmp_path / "rows.csv"), NEW)


@pytest.mark.parametrize("target", READERS)
def test_nothing_is_left_behind_when_it_fails_in_the_middle(
    model: Model, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)
    rows = ROWS.to_csv(index=False) + "too,few\n"
    (tmp_path / "in.csv").write_text(rows, encoding="utf-8")
    out = tmp_path / f"out{target}"
    with pytest.raises(InputError, match=r"in.csv is malformed in line"):
        predict(model, tmp_path / "in.csv", out)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
    out.write_bytes(b"what was there before")
    with pytest.raises(InputError, match=r"in.csv is malformed in line"):
        predict(model, tmp_path / "in.csv", out)
    assert out.read_bytes() == b"what was there before"


def test_numbers_and_several_types_of_labels(tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "in.parquet")
    for classes, dtype in (([0, 1], pa.int64()), ([False, True], pa.bool_()), ([0, "yes"], pa.string())):
        fitted = tiny().fit(TEXTS, [classes[label == "positive"] for label in LABELS])
        predict(fitted.model_, tmp_path / "in.parquet", tmp_path / "out.parquet")
        found = pa_parquet.read_table(tmp_path / "out.parquet")["label"]
        assert found.type == dtype
        as_written = [str(label) if dtype == pa.string() else label for label in fitted.predict(NEW)]
        assert found.to_pylist() == as_written


def test_refuses_a_folder_that_is_not_there(model: Model, tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(InputError, match=r"nowhere/out.csv cannot be written \(No such file or directory\)"):
        predict(model, tmp_path / "in.csv", tmp_path / "nowhere" / "out.csv")
