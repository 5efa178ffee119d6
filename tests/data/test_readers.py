"""Readers: every format and compression, columns by guess, bounded chunks."""

import gzip
import json
import tracemalloc
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.data.columns import ColumnsConfig, find_label_column, find_text_column
from mein.data.corpus import corpus_of_files
from mein.data.readers import read_documents, read_tables
from mein.errors import InputError
from tests.support.reading import PACK, put, read, refuses


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"one, two\nthree",x\nfünf,y\n'),
        ("a.tsv", 'text\tlabel\n"one, two\nthree"\tx\nfünf\ty\n'),
        ("a.jsonl", '{"text":"one, two\\nthree","label":"x"}\n\n{"text":"fünf","label":"y"}'),
        ("a.ndjson", '{"label":"x","text":"one, two\\nthree"}\n{"text":"fünf","label":"y"}\n'),
    ],
)
def test_text_formats_are_read_in_every_compression(
    tmp_path: Path, name: str, content: str, suffix: str
) -> None:
    path = put(tmp_path, name + suffix, PACK[suffix](content.encode("utf-8")))
    assert read(path) == (["one, two\nthree", "fünf"], ["x", "y"])


@pytest.mark.parametrize("suffix", PACK)
def test_txt_is_a_document_a_line(tmp_path: Path, suffix: str) -> None:
    content = "one\r\n\ntwo\u2028still two\nlast".encode()
    path = put(tmp_path, "a.txt" + suffix, PACK[suffix](content))
    assert read(path, labeled=False)[0] == ["one", "", "two\u2028still two", "last"]


def test_concatenated_archives_are_read_to_the_end(tmp_path: Path) -> None:
    for suffix in (".gz", ".xz", ".bz2", ".zst"):
        path = put(tmp_path, "a.txt" + suffix, PACK[suffix](b"one\n") + PACK[suffix](b"two\n"))
        assert read(path, labeled=False)[0] == ["one", "two"]


def test_parquet_keeps_the_types_of_labels(tmp_path: Path) -> None:
    columns = {"text": ["a", None], "label": [3, 1], "flag": [True, False], "number": [1.5, 7.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == (["a", ""], [3, 1])
    assert read(tmp_path / "a.parquet", label="flag")[1] == [True, False]
    assert read(tmp_path / "a.parquet", text="number")[0] == ["1.5", "7.0"]


def test_parquet_columns_may_lie_in_any_order_and_be_dictionaries(tmp_path: Path) -> None:
    table = pa.table({"y": pa.array(["p", "q"]).dictionary_encode(), "review": [b"a", b"b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == (["a", "b"], ["p", "q"])


def test_folder_of_texts_takes_labels_from_its_sub_folders(tmp_path: Path) -> None:
    for name in ("pos/2.txt", "pos/10.txt", "neg/1.txt", "urls.txt", "neg/notes.md"):
        put(tmp_path, f"set/{name}", f"{name}\nsecond line".encode())
    expected = [f"{name}\nsecond line" for name in ("neg/1.txt", "pos/10.txt", "pos/2.txt")]
    assert read(tmp_path / "set") == (expected, ["neg", "pos", "pos"])
    assert read(tmp_path / "set", labeled=False)[0] == [*expected, "urls.txt\nsecond line"]
    assert read(str(tmp_path / "set" / "p*"))[1] == ["pos", "pos"]
    batch = next(read_tables(tmp_path / "set"))
    assert batch.schema.names == ["file", "text"]
    assert batch["file"][0].as_py().endswith("set/neg/1.txt")


def test_several_files_make_one_source(tmp_path: Path) -> None:
    for number in (2, 1):
        put(tmp_path, f"raw-{number}.jsonl.gz", gzip.compress(b'{"text": "%d"}' % number))
    put(tmp_path, "raw-3.jsonl.gz", gzip.compress(b""))
    pattern = str(tmp_path / "raw-*.jsonl.gz")
    assert read(pattern, labeled=False)[0] == ["1", "2"]
    both = [tmp_path / "raw-2.jsonl.gz", tmp_path / "raw-1.jsonl.gz"]
    assert read(both, labeled=False)[0] == ["2", "1"]


def test_a_name_with_brackets_is_not_a_pattern(tmp_path: Path) -> None:
    assert read(put(tmp_path, "a[1].txt", b"one"), labeled=False)[0] == ["one"]


def test_fsspec_urls_are_read() -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/mein-readers/a.csv.gz", gzip.compress(b"text,label\none,x\n"))
    filesystem.pipe("/mein-readers/set/pos/1.txt", b"good")
    try:
        assert read("memory://mein-readers/a.csv.gz") == (["one"], ["x"])
        assert read("memory://mein-readers/*.csv.gz") == (["one"], ["x"])
        assert read("memory://mein-readers/set") == (["good"], ["pos"])
    finally:
        filesystem.rm("/mein-readers", recursive=True)


def test_csv_values_stay_as_written(tmp_path: Path) -> None:
    """Also where the first block looks like numbers, dates or nothing at all."""
    rows = b"007,1,2024-01-01,\n" * 90_000 + b"word,x,later,full\n"
    path = put(tmp_path, "a.csv", b"text,label,day,rest\n" + rows)
    texts, labels = read(path)
    assert (len(texts), texts[0], texts[-1]) == (90_001, "007", "word")
    assert (labels[0], labels[-1]) == ("1", "x")
    batches = list(read_tables(path))
    assert batches[0].slice(0, 1).to_pylist() == [
        {"text": "007", "label": "1", "day": "2024-01-01", "rest": ""}
    ]
    assert batches[-1].to_pylist()[-1]["rest"] == "full"


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert read(put(tmp_path, "a.csv", b"\xef\xbb\xbftext,label\none,x\n"))[0] == ["one"]
    assert read(put(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"text":"one","label":"x"}'))[0] == ["one"]
    refuses(put(tmp_path, "a.txt", b"\xef\xbb\xbf"), "a.txt is empty; give a source", labeled=False)


def test_very_long_documents_are_read(tmp_path: Path) -> None:
    long = "word " * 6_000_000
    rows = [("a", "x")] * 20_000 + [(long, "y"), ("b", "z")]
    lines = "".join(f'"{text}",{label}\n' for text, label in rows)
    texts, labels = read(put(tmp_path, "a.csv", f"text,label\n{lines}".encode()))
    assert texts == [text for text, _ in rows]
    assert labels[-2:] == ["y", "z"]
    line = json.dumps({"text": long})
    assert read(put(tmp_path, "a.jsonl", line.encode()), labeled=False)[0] == [long]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.parquet"])
def test_chunks_stay_small_whatever_the_file_size(tmp_path: Path, name: str) -> None:
    text = "some words " * 100  # 1,100 bytes
    count, path = 20_000, tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": [text] * count}), path)
    else:
        line = json.dumps({"text": text}) if name == "a.jsonl" else text
        path.write_text(("text\n" if name == "a.csv" else "") + f"{line}\n" * count, "utf-8")
    chunks = read_documents(path, ColumnsConfig(), labeled=False)
    sizes = [sum(map(len, chunk.texts)) for chunk in chunks]
    assert sum(sizes) in {len(text) * count, len(text.strip()) * count}
    assert max(sizes) <= 2 << 20


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    """Arrow's pool and Python's heap, while 48 MB are read."""
    line = b"some words of a document that goes on a little" * 10 + b"\n"
    if name == "a.jsonl":
        line = b'{"text": "' + line.strip() + b'"}\n'
    content = (b"text\n" if name == "a.csv" else b"") + line * (48_000_000 // len(line))
    path = put(tmp_path, name, PACK[".gz" if name.endswith(".gz") else ""](content))
    before = pa.total_allocated_bytes()
    del content
    tracemalloc.start()
    try:
        most = 0
        for _ in read_documents(path, ColumnsConfig(), labeled=False):
            most = max(most, pa.total_allocated_bytes() - before)
        assert most + tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_columns_are_guessed_whatever_their_case() -> None:
    assert find_text_column(["id", "Review"], None, "a.csv") == "Review"
    assert find_text_column(["content", "TEXT"], None, "a.csv") == "TEXT"
    assert find_text_column(["whatever"], None, "a.csv") == "whatever"
    assert find_text_column(["Sentiment", "phrase"], None, "a.csv") == "phrase"
    assert find_text_column(["Body", "text"], "body", "a.csv") == "Body"
    assert find_label_column(["text", "Y"], None, "a.csv") == "Y"


def test_json_columns_may_appear_after_the_first_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", b'{"text":"one"}\n{"text":"two","more":[1],"n":1}\n{"n":"x"}')
    (batch,) = read_tables(path)
    assert batch.to_pydict() == {
        "text": ["one", "two", None],
        "more": [None, [1], None],
        "n": [None, "1", "x"],
    }


def test_half_a_surrogate_pair_in_json_becomes_a_question_mark(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", b'{"text":"\\ud800 \\ud83d\\ude00"}')
    assert read(path, labeled=False)[0] == ["? \U0001f600"]


def test_texts_that_are_no_strings(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", b'{"text":null}\n{"text":5}\n{"x":1}\n{"text":NaN}')
    assert read(path, labeled=False)[0] == ["", "5", "", ""]
    path = put(tmp_path, "a.jsonl", b'{"text":"a"}\n{"text":["b"]}')
    refuses(path, r"a.jsonl row 2 has a list as its text; write it as a string", labeled=False)


def test_words_with_points_are_labels(tmp_path: Path) -> None:
    content = b"text,label\na,comp.graphics\nb,v1.5\nc,-1\nd,1.2.3\n"
    assert read(put(tmp_path, "a.csv", content))[1] == ["comp.graphics", "v1.5", "-1", "1.2.3"]


def test_raw_text_may_call_its_column_otherwise_than_the_labels_do(tmp_path: Path) -> None:
    columns = ColumnsConfig(text="Customer Comment")
    raw = put(tmp_path, "raw.csv", b"id,text\n1,fine\n")
    (found,) = read_documents(raw, columns, labeled=False, may_guess=True)
    assert found.texts == ["fine"]
    with pytest.raises(InputError, match="has no column 'Customer Comment'"):
        list(read_documents(raw, columns, labeled=False))
    both = put(tmp_path, "both.csv", b"text,customer comment\nno,yes\n")
    (found,) = read_documents(both, columns, labeled=False, may_guess=True)
    assert found.texts == ["yes"]
    for header in (b"a,b", b"comments,label"):  # also where a single column is left over
        neither = put(tmp_path, "neither.csv", header + b"\nno,yes\n")
        with pytest.raises(InputError, match="has no column 'Customer Comment'"):
            list(read_documents(neither, columns, labeled=False, may_guess=True))


def test_a_corpus_guesses_the_column_of_its_raw_text_alone(tmp_path: Path) -> None:
    labels = str(put(tmp_path, "labels.csv", b"words,label\nfine,1\n"))
    raw = str(put(tmp_path, "raw.csv", b"text\nfine\n"))
    corpus = corpus_of_files(labels, raw, None, raw, ColumnsConfig(text="words"))
    assert corpus.unlabeled is not None
    assert next(iter(corpus.unlabeled())).texts == ["fine"]
    assert corpus.test is not None
    with pytest.raises(InputError, match="has no column 'words'"):
        list(corpus.test())
