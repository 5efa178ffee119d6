"""Writers: what is written is read back, and a file is either whole or not there."""

import errno
import json
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from mein.data.readers import ColumnsConfig, read_documents, read_tables
from mein.data.writers import open_writer
from mein.errors import InputError

NAMES = [
    "a.parquet",
    *(f"a{kind}{pack}" for kind in (".csv", ".tsv", ".jsonl") for pack in ("", ".gz", ".xz", ".zst", ".bz2")),
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WORD = st.text(st.characters(categories=["L"]), min_size=1).filter(
    lambda word: word.lower() not in {"nan", "inf"}
)
ROWS = st.lists(st.tuples(TEXT, WORD), min_size=1, max_size=20)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_texts_and_labels_are_read_back_as_written(name: str, rows: list[tuple[str, str]]) -> None:
    texts, labels = ([row[place] for row in rows] for place in (0, 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with open_writer(path) as writer:
            for text, label in rows:
                writer.write(pa.record_batch({"text": [text], "label": [label]}))
        chunks = list(read_documents(path, ColumnsConfig(), labeled=True))
    assert [text for chunk in chunks for text in chunk.texts] == texts
    assert [label for chunk in chunks for label in chunk.labels or []] == labels


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_types_are_kept_where_the_format_has_them(tmp_path: Path, name: str) -> None:
    columns = {"text": ["a", None], "n": [1, 2], "p": [0.5, 1.0], "ok": [True, False], "l": [[1], []]}
    with open_writer(tmp_path / name) as writer:
        writer.write(pa.table(columns))
    (batch,) = read_tables(tmp_path / name)
    assert batch.to_pydict() == columns


def test_csv_holds_lists_as_json(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.csv") as writer:
        writer.write(pa.table({"text": ["a", "b"], "l": [["x", "y"], None], "n": [1, None]}))
    (batch,) = read_tables(tmp_path / "a.csv")
    assert batch.to_pydict() == {"text": ["a", "b"], "l": ['["x", "y"]', ""], "n": ["1", ""]}


def test_json_is_valid_also_for_numbers_that_are_none(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.jsonl") as writer:
        writer.write(pa.table({"p": [float("nan"), 0.5], "text": ["ü", "\u2028"]}))
    lines = (tmp_path / "a.jsonl").read_text("utf-8").split("\n")
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines if line] == [
        {"p": None, "text": "ü"},
        {"p": 0.5, "text": "\u2028"},
    ]
    assert "ü" in lines[0]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl.gz", "a.csv.zst", "a.tsv.xz"])
def test_a_failure_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"before")

    def fail() -> None:
        with open_writer(tmp_path / name) as writer:
            writer.write(pa.table({"text": ["a"]}))
            assert (tmp_path / name).read_bytes() == b"before"
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"before"


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl.gz", "a.csv.zst", "a.tsv.xz"])
def test_a_full_disk_gives_one_sentence(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    really_open = LocalFileSystem.open
    monkeypatch.setattr(LocalFileSystem, "open", lambda *args: Full(really_open(*args)))

    def write() -> None:
        with open_writer(tmp_path / name) as writer:
            for _ in range(100):
                writer.write(pa.table({"text": [str(number) for number in range(10_000)]}))

    with pytest.raises(InputError, match=rf"{name} cannot be written \(No space .*\); check the folder"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_gives_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"none/a.csv cannot be written \(No such file .*\); check"),
        open_writer(tmp_path / "none" / "a.csv"),
    ):
        pass


def test_a_name_that_cannot_hold_a_table_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"a.txt cannot hold a table; name it .csv"),
        open_writer(tmp_path / "a.txt"),
    ):
        pass


def test_urls_are_written() -> None:
    filesystem = fsspec.filesystem("memory")
    try:
        with open_writer("memory://mein-writers/a.csv.gz") as writer:
            writer.write(pa.table({"text": ["a"]}))
        assert filesystem.find("/mein-writers") == ["/mein-writers/a.csv.gz"]
        assert next(read_tables("memory://mein-writers/a.csv.gz")).to_pydict() == {"text": ["a"]}
    finally:
        filesystem.rm("/mein-writers", recursive=True)


def test_later_batches_take_the_columns_of_the_first(tmp_path: Path) -> None:
    with open_writer(tmp_path / "a.parquet") as writer:
        writer.write(pa.table({"text": ["a"], "n": [1], "note": [None]}))
        writer.write(pa.table({"note": ["late"], "text": ["b"]}))
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [
        {"text": "a", "n": 1, "note": None},
        {"text": "b", "n": None, "note": "late"},
    ]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, name: str) -> None:
    def write(second: dict[str, list[Any]]) -> None:
        with open_writer(tmp_path / name) as writer:
            writer.write(pa.table({"n": [1]}))
            writer.write(pa.table(second))

    with pytest.raises(InputError, match=r"the column 'm', which appears after .*; write to .jsonl"):
        write({"n": [1], "m": [2]})
    with pytest.raises(InputError, match=r"string values in the column 'n', which began as int64; write"):
        write({"n": ["x"]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_nothing_written_is_an_empty_file(tmp_path: Path, name: str) -> None:
    with open_writer(tmp_path / name):
        pass
    with pytest.raises(InputError, match="is empty"):
        list(read_tables(tmp_path / name))
