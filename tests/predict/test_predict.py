"""predict_file: the same rows in the same order, two columns more, whatever the format."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from numpy.testing import assert_allclose

from mein.data import tables
from mein.data.readers import read_tables
from mein.errors import InputError
from mein.explain import explain
from mein.model.model import Model
from mein.predict.predict import Wanted, chunks, predict_file
from tests.support.reviews import LABELS, NEW, RAW, TEXTS, tiny
from tests.support.shell import Answer, mein, refuses

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
    return predict_file(model, str(source), target, Wanted(column))


def check(model: Model, found: pd.DataFrame, texts: list[str]) -> None:
    """The columns of a prediction hold the model's predictions for these texts."""
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


def test_texts_without_known_words_get_the_prior(model: Model, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("target", [".csv", ".tsv", ".jsonl"])
def test_values_stay_as_they_are_whatever_came_before(model: Model, target: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "lovely", "zip": 10001, "m": {"a": 1}}]
    rows += [{"text": "a bore", "zip": "00501", "m": {"b": 1}}]
    (tmp_path / "in").mkdir()
    for number, row in enumerate(rows):
        (tmp_path / "in" / f"{number}.jsonl").write_text(json.dumps(row), encoding="utf-8")
    predict(model, tmp_path / "in", tmp_path / f"out{target}")
    found = [row for batch in read_tables(tmp_path / f"out{target}") for row in batch.to_pylist()]
    if target == ".jsonl":
        lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
        assert [
            {key: json.loads(line)[key] for key in row} for line, row in zip(lines, rows, strict=True)
        ] == rows
    else:
        assert [row["zip"] for row in found] == ["10001", "00501"]
        assert [json.loads(row["m"]) for row in found] == [{"a": 1}, {"b": 1}]


def test_a_column_of_json_has_one_type_in_a_table(model: Model, tmp_path: Path) -> None:
    """What the guide states about values in jsonl that change."""
    rows = [
        {"text": "lovely", "n": 3, "m": {}, "v": 1},
        {"text": "a bore", "n": 3.5, "m": {"k": 1}, "v": "1"},
    ]
    rows += [{"text": "dull", "big": 2**70}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    predict(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    first, second, third = map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines())
    assert repr((first["n"], first["m"], first["v"])) == "(3.0, {'k': None}, '1')"
    assert (second["n"], second["m"], second["v"]) == (3.5, {"k": 1}, "1")
    assert (third["n"], third["big"]) == (None, str(2**70))


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


def test_a_file_can_be_labeled_in_place(model: Model, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("target", READERS)
def test_every_class_can_have_its_column(model: Model, target: str, tmp_path: Path) -> None:
    given, out = tmp_path / "in.parquet", tmp_path / f"out{target}"
    ROWS.assign(p_positive="mine").to_parquet(given)
    predict_file(model, str(given), out, Wanted(all_probabilities=True))
    found = READERS[target](out)
    names = ["label", "probability", "p_negative", "predicted_p_positive"]
    assert list(found.columns) == ["id", "text", "note", "p_positive", *names]
    assert found["p_positive"].eq("mine").all()
    written = found[["p_negative", "predicted_p_positive"]].to_numpy(float)
    assert_allclose(written, np.exp(model.log_probs(NEW)), atol=1e-6)


@pytest.mark.parametrize("target", READERS)
def test_what_is_too_uncertain_has_no_label(model: Model, target: str, tmp_path: Path) -> None:
    given, out = tmp_path / "in.csv", tmp_path / f"out{target}"
    WRITERS[".csv"](ROWS, given)
    best = np.exp(model.log_probs(NEW)).max(axis=1)
    for threshold in (float(np.median(best)), 1.0, 0.0):
        predict_file(model, str(given), out, Wanted(abstain_below=threshold))
        found = READERS[target](out)
        is_empty = [label is None or label == "" or label != label for label in found["label"].tolist()]
        assert is_empty == (best < threshold).tolist()
        assert_allclose(found["probability"].to_numpy(float), best, atol=1e-6)
        kept = np.flatnonzero(best >= threshold)
        expected = model.labels.decode(model.log_probs(NEW).argmax(axis=1)[kept])
        assert found["label"].iloc[kept].tolist() == expected


def test_labels_keep_their_type_where_the_first_are_empty(tmp_path: Path) -> None:
    ROWS.to_parquet(tmp_path / "in.parquet")
    fitted = tiny().fit(TEXTS, [int(label == "positive") for label in LABELS])
    predict_file(
        fitted.model_, str(tmp_path / "in.parquet"), tmp_path / "out.parquet", Wanted(abstain_below=1.0)
    )
    found = pa_parquet.read_table(tmp_path / "out.parquet")["label"]
    assert found.type == pa.int64()
    assert found.null_count == len(NEW)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_is_a_probability(threshold: float) -> None:
    with pytest.raises(InputError, match=rf"abstain_below is {threshold}: give a prob"):
        Wanted(abstain_below=threshold)


@pytest.mark.parametrize("target", READERS)
def test_fragments_are_those_that_explain_names(model: Model, target: str, tmp_path: Path) -> None:
    texts = [*NEW[:6], "", "☃"]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    predict_file(model, str(tmp_path / "in.txt"), tmp_path / f"out{target}", Wanted(fragments=3))
    found = READERS[target](tmp_path / f"out{target}")["fragments"].tolist()
    for text, row in zip(texts, found, strict=True):
        fragments = json.loads(row) if isinstance(row, str) else list(row)
        explanation = explain(model, text)
        column = model.labels.classes.index(explanation.label)
        assert len(fragments) == len(explanation.fragments[:3])
        for one, expected in zip(fragments, explanation.fragments, strict=False):
            assert one["contribution"] == pytest.approx(expected.contribution, abs=1e-6)
            assert one["probability"] == pytest.approx(expected.probabilities[column], abs=1e-6)
            assert one["window"] in (1, 2)


def test_fragments_of_imitators_alone_add_up_to_their_word(model: Model, tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "in.csv", index=False)
    wanted = Wanted(imitators_only=True, all_probabilities=True, fragments=10_000)
    predict_file(model, str(tmp_path / "in.csv"), tmp_path / "out.jsonl", wanted)
    found = pd.read_json(tmp_path / "out.jsonl", lines=True)
    assert_allclose(found["p_positive"], np.exp(model.imitator_log_probs(NEW))[:, 1], atol=1e-6)
    moved = [sum(one["contribution"] for one in row) for row in found["fragments"]]
    log_odds = np.abs(np.log(found["p_positive"].to_numpy() / found["p_negative"].to_numpy()))
    assert_allclose(moved, log_odds, atol=1e-5)


def test_without_imitators_there_are_no_fragments(tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "in.csv", index=False)
    fitted: Model = tiny().fit(TEXTS, LABELS).model_
    predict_file(fitted, str(tmp_path / "in.csv"), tmp_path / "out.jsonl", Wanted(fragments=2))
    assert pd.read_json(tmp_path / "out.jsonl", lines=True)["fragments"].tolist() == [[]] * len(NEW)


def test_chunks_are_larger_than_batches_and_depend_on_the_source_alone() -> None:
    batches = [pa.RecordBatch.from_pydict({"text": ["a" * 100] * rows}) for rows in (5_000, 8_000, 4_000, 9)]
    assert [sum(map(len, run)) for run in chunks(iter(batches), 16_384)] == [17_000, 9]
    long = [pa.RecordBatch.from_pydict({"text": ["a" * (3 << 20)]})] * 4
    assert [len(run) for run in chunks(iter(long), 16_384)] == [3, 1]
    assert list(chunks(iter([]), 16_384)) == []


def test_the_shell_reports_what_a_run_without_imitators_cannot_do(tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "in.csv", index=False)
    tiny().fit(TEXTS, LABELS).save(tmp_path / "run")
    for option in (["--imitators-only"], ["--fragments", "2"]):
        words = ["predict", tmp_path / "run", tmp_path / "in.csv", "--out", tmp_path / "out.csv", *option]
        refuses(rf"{tmp_path}/run has no imitators: remove {option[0]}\.", *words)


def test_every_option_from_the_shell(model: Model, tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "in.csv", index=False)
    model.save(tmp_path / "run")
    options = ["--all-probabilities", "--fragments", "1", "--abstain-below", "0.9", "--resume"]
    answer = mein("predict", tmp_path / "run", tmp_path / "in.csv", "--out", tmp_path / "out.csv", *options)
    assert answer == Answer(0, f"Labeled 40 documents in {tmp_path}/out.csv.\n", "")
    names = ["label", "probability", "p_negative", "p_positive", "fragments"]
    assert list(pd.read_csv(tmp_path / "out.csv").columns) == ["id", "text", "note", *names]


def test_refuses_a_folder_that_is_not_there(model: Model, tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(InputError, match=r"nowhere/out.csv cannot be written \(No such file or directory\)"):
        predict(model, tmp_path / "in.csv", tmp_path / "nowhere" / "out.csv")
