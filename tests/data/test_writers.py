"""Writers: what is written is read back, and a file is either complete or not there."""

import errno
import json
import tempfile
import time
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_equal

from mein.data.columns import ColumnsConfig
from mein.data.formats import open_writer
from mein.data.readers import read_documents, read_tables
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


def write(path: Path, batches: list[dict[str, Any]]) -> None:
    with open_writer(path) as writer:
        for batch in batches:
            writer.write(pa.table(batch))


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
def test_a_column_that_appears_late_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"the column 'm', which appears after .*; write to .jsonl"):
        write(tmp_path / name, [{"n": [1]}, {"n": [1], "m": [2]}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "second", "types"),
    [
        (10001, "00501", "string .* int64"),
        ("00501", 10001, "int64 .* string"),
        (True, "0", "string .* bool"),
        (True, 0, "int64 .* bool"),
        ([1], [True], "list<item: bool> .* list<item: int64>"),
        (1, 1.5, "double .* int64"),
        (0.5, 2**53 + 1, "int64 .* double"),
        ({"a": 1}, {"b": 1}, "struct<b: int64> .* struct<a: int64>"),
        (None, 5, "int64 .* null"),
        (date(2024, 1, 2), datetime(2024, 1, 2, 3), r"timestamp\[us\] .* date32\[day\]"),
        (b"a", "a", "string .* binary"),
        (
            pa.scalar(0, pa.date32()),
            pa.scalar(10**7 * 86_400_000, pa.date64()),
            r"date64\[ms\] .* date32\[day\]",
        ),
    ],
)
def test_parquet_refuses_what_it_would_change(tmp_path: Path, first: Any, second: Any, types: str) -> None:
    new, old = types.split(" .* ")
    sentence = rf"a.parquet cannot take {new} values in the column 'v', which began as {old}; write to .jsonl"
    with pytest.raises(InputError, match=sentence):
        write(tmp_path / "a.parquet", [{"v": [first]}, {"v": [second]}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([0.5]), pa.array([3])),
        (pa.array([3]), pa.array([4.0])),
        (pa.array([2**40]), pa.array([1], pa.int8())),
        (pa.array([[1]]), pa.array([[], None])),
        (pa.array([{"a": "x"}]), pa.array([{"a": None}])),
        (pa.array([{"a": "x"}]), pa.array([None])),
        (pa.array(["a"], pa.large_string()), pa.array(["b"]).dictionary_encode()),
        (pa.array([datetime(2024, 1, 2)], pa.timestamp("us")), pa.array([0], pa.timestamp("s"))),
        (pa.array([0.5], pa.float32()), pa.array([float("nan"), 0.25])),
    ],
)
def test_parquet_takes_other_types_whose_values_it_can_hold(
    tmp_path: Path, first: pa.Array, second: pa.Array
) -> None:
    write(tmp_path / "a.parquet", [{"v": first}, {"v": second}])
    found = pq.read_table(tmp_path / "a.parquet")["v"]
    assert found.type == first.type
    assert_equal(found.to_pylist(), [*first.to_pylist(), *second.to_pylist()])


def test_parquet_fills_what_a_struct_lacks_with_null(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [{"m": [{"a": 1, "b": 2}]}, {"m": [{"b": 3}]}, {"m": [{}]}])
    found = pq.read_table(tmp_path / "a.parquet")["m"].to_pylist()
    assert found == [{"a": 1, "b": 2}, {"a": None, "b": 3}, {"a": None, "b": None}]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz"])
def test_csv_takes_every_type_as_it_is_written(tmp_path: Path, name: str) -> None:
    values = [10001, "00501", 2.5, True, "0", "1e3", 1000, {"a": 1}, {"b": [None]}, None, 2**62, b"a"]
    write(tmp_path / name, [{"text": ["a"], "v": pa.array([value])} for value in values])
    found = [row["v"] for batch in read_tables(tmp_path / name) for row in batch.to_pylist()]
    json_texts = ['{"a": 1}', '{"b": [null]}']
    assert found == ["10001", "00501", "2.5", "true", "0", "1e3", "1000", *json_texts, "", str(2**62), "a"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_bytes_are_written_as_the_text_they_are_or_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, [{"text": ["a"], "b": ["ü".encode()], "l": [[b"x"]]}])
    (batch,) = read_tables(tmp_path / name)
    assert batch.to_pydict() == {"text": ["a"], "b": ["ü"], "l": [["x"] if name == "a.jsonl" else '["x"]']}
    for value in (b"\x00\xff", [b"\xff"]):
        with pytest.raises(
            InputError, match=rf"{name} cannot hold the bytes in the column 'b', .* UTF-8; write to .parquet"
        ):
            write(tmp_path / name, [{"text": ["a"], "b": [value]}])
    write(tmp_path / "b.parquet", [{"b": [b"\x00\xff"]}])
    assert pq.read_table(tmp_path / "b.parquet")["b"].to_pylist() == [b"\x00\xff"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (1, pa.timestamp("ns"), "1970-01-01 00:00:00.000000001"),
        (1, pa.timestamp("ns", "UTC"), "1970-01-01 00:00:00.000000001Z"),
        (1_500_000, pa.timestamp("us"), "1970-01-01 00:00:01.500000"),
        (1, pa.time64("ns"), "00:00:00.000000001"),
        (1, pa.duration("ns"), "1"),
        (2**62, pa.duration("s"), str(2**62)),
        (59, pa.date32(), "1970-03-01"),
    ],
)
def test_times_are_written_to_the_last_digit(
    tmp_path: Path, name: str, number: int, kind: pa.DataType, text: str
) -> None:
    """Python's own times have no nanoseconds: some were lost, and some had the file refused."""
    values = pa.array([number, None], kind)
    write(tmp_path / name, [{"text": ["a", "b"], "v": values, "d": values.dictionary_encode()}])
    rows = [row for batch in read_tables(tmp_path / name) for row in batch.to_pylist()]
    missing = None if name == "a.jsonl" else ""
    assert [(row["v"], row["d"]) for row in rows] == [(text, text), (missing, missing)]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_times_within_lists_that_python_has_no_date_for_are_refused(tmp_path: Path, name: str) -> None:
    far = pa.array([[2**61]], pa.list_(pa.timestamp("us")))
    with pytest.raises(
        InputError,
        match=rf"{name} cannot hold the values in the column 'v' \(.*\); write to .parquet, or leave the col",
    ):
        write(tmp_path / name, [{"text": ["a"], "v": far}])
    assert list(tmp_path.iterdir()) == []


def test_types_that_arrow_has_no_csv_for_are_texts(tmp_path: Path) -> None:
    views = pa.array(["a"], pa.string_view())
    pairs = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    write(tmp_path / "a.csv", [{"v": views, "m": pairs, "n": pa.array([1]).dictionary_encode()}])
    assert (tmp_path / "a.csv").read_text("utf-8") == '"v","m","n"\n"a","[[""k"", 1]]",1\n'


def test_a_struct_without_fields_is_no_parquet_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a.parquet cannot hold a column \(.*'m'.*\); write to .jsonl\."):
        write(tmp_path / "a.parquet", [{"m": pa.array([{}])}])


def test_many_columns_take_time_in_proportion(tmp_path: Path) -> None:
    """Looking each name up among all took 27 seconds for these, and minutes for 50,000."""
    names = [f"c{number}" for number in range(8_000)]
    start = time.monotonic()
    for name in ("a.csv", "a.parquet"):
        write(tmp_path / name, [{column: ["x"] for column in names}])
    (batch,) = read_tables(tmp_path / "a.csv")
    assert batch.schema.names == names
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_nothing_written_is_an_empty_file(tmp_path: Path, name: str) -> None:
    with open_writer(tmp_path / name):
        pass
    with pytest.raises(InputError, match="is empty"):
        list(read_tables(tmp_path / name))
