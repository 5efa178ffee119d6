"""Readers: every format and compression, columns by guess, and a sentence for every bad input."""

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.data import tables
from mein.data.columns import find_label_column, find_text_column
from mein.data.files import format_of
from mein.data.readers import ColumnsConfig, Label, Source, read_documents, read_tables
from mein.errors import InputError, MissingExtra

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def read(source: Source, labeled: bool = True, **names: str) -> tuple[list[str], list[Label]]:
    texts: list[str] = []
    labels: list[Label] = []
    for chunk in read_documents(source, ColumnsConfig(**names), labeled=labeled):
        texts += chunk.texts
        labels += chunk.labels if chunk.labels is not None else []
        assert (chunk.labels is not None) == labeled
    return texts, labels


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refuses(source: Source, sentence: str, **names: Any) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(source, **names)
    assert "\n" not in str(caught.value)


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


def test_labelled_folder_needs_sub_folders(tmp_path: Path) -> None:
    put(tmp_path, "set/1.txt", b"one")
    refuses(tmp_path / "set", r"1\.txt lies in a folder without sub-folders; put the documents")
    (tmp_path / "none").mkdir()
    refuses(tmp_path / "none", "none is a folder without a file to read; put .txt files into it")


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


def test_a_missing_backend_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", absent)
    with pytest.raises(MissingExtra, match=r"s3://b/a.csv needs a package .*'mein\[s3\]'$"):
        read("s3://b/a.csv")
    with pytest.raises(MissingExtra, match=r"abfs:// that is not installed: Install s3fs to"):
        read("abfs://b/a.csv")


def test_an_unknown_protocol_is_refused() -> None:
    refuses("nowhere://a.csv", "nowhere://, which fsspec does not know; use a local path")


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


def test_very_long_documents_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "word " * 6_000_000
    rows = [("a", "x")] * 20_000 + [(long, "y"), ("b", "z")]
    lines = "".join(f'"{text}",{label}\n' for text, label in rows)
    texts, labels = read(put(tmp_path, "a.csv", f"text,label\n{lines}".encode()))
    assert texts == [text for text, _ in rows]
    assert labels[-2:] == ["y", "z"]
    line = json.dumps({"text": long})
    assert read(put(tmp_path, "a.jsonl", line.encode()), labeled=False)[0] == [long]
    monkeypatch.setattr(tables, "LARGEST_CSV_ROW", 1 << 24)
    refuses(tmp_path / "a.csv", r"a row after row 20000 that does not end within 16 MiB; close")


def test_a_long_header_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CHUNK_BYTES", 64)
    path = put(tmp_path, "a.csv", b"n" * 300 + b",text\n1,one\n")
    assert read(path, labeled=False)[0] == ["one"]


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
    assert max(sizes) <= 2 * tables.CHUNK_BYTES


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    """Arrow's pool and Python's heap, while 48 MB are read."""
    import tracemalloc

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


def test_missing_columns_are_named_with_the_nearest(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"id,Headline,stuff\n1,one,x\n")
    refuses(
        path,
        r"no column 'headlines' among 'id', 'Headline', 'stuff'; did you mean 'Headline'\?$",
        text="headlines",
    )
    refuses(path, r"no column 'zzz' among 'id', .*; set columns.text to one", text="zzz")
    refuses(
        path, r"no column that looks like the text among 'id', .*; set columns.text to its name"
    )
    refuses(
        path, r"no column that looks like the label among .*; set columns.label", text="Headline"
    )
    refuses(put(tmp_path, "a.txt", b"one"), "no column that looks like the label among 'text'")


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


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("null", "row 2 has no label; fill it in, or move the document to the unlabelled text"),
        ("NaN", "row 2 has no label; fill it in"),
        ("1.5", "row 2 has the label 1.5, a fractional number; write labels as integers or words"),
        ('["a"]', r"row 2 has the label \['a'\] of type list; write labels as integers or words"),
    ],
)
def test_bad_labels_in_json_are_refused(tmp_path: Path, value: str, sentence: str) -> None:
    content = f'{{"text":"a","label":1}}\n{{"text":"b","label":{value}}}'
    refuses(put(tmp_path, "a.jsonl", content.encode()), sentence)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("", "row 2 has no label"),
        ("nan", "row 2 has no label"),
        ("1.5", "row 2 has the label 1.5, a fractional number"),
        ("2.0", "row 2 has the label 2.0, a fractional number"),
    ],
)
def test_bad_labels_in_csv_are_refused(tmp_path: Path, value: str, sentence: str) -> None:
    refuses(put(tmp_path, "a.csv", f"text,label\na,1\nb,{value}\n".encode()), sentence)


def test_words_with_points_are_labels(tmp_path: Path) -> None:
    content = b"text,label\na,comp.graphics\nb,v1.5\nc,-1\nd,1.2.3\n"
    assert read(put(tmp_path, "a.csv", content))[1] == ["comp.graphics", "v1.5", "-1", "1.2.3"]


def test_bad_labels_in_parquet_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.0, None]}), path)
    refuses(path, "a.parquet row 1 has the label 1.0, a fractional number")
    pq.write_table(pa.table({"text": ["a", "b"], "label": ["x", None]}), path)
    refuses(path, "a.parquet row 2 has no label")


def test_rows_are_counted_over_chunks(tmp_path: Path) -> None:
    rows = b"text,label\n" + b"a,1\n" * 9_000 + b"b,\n"
    refuses(put(tmp_path, "a.csv", rows), "a.csv row 9001 has no label")


def test_missing_and_unknown_files_are_refused(tmp_path: Path) -> None:
    refuses(tmp_path / "none.csv", r"none\.csv does not exist; check the path")
    refuses(str(tmp_path / "none-*.csv"), r"none-\*\.csv does not exist; check the path")
    refuses(put(tmp_path, "a.doc", b"x"), r"a\.doc has an unknown format; name it \.csv, \.tsv")
    with pytest.raises(InputError, match="is a compressed parquet file; decompress it"):
        format_of("a.parquet.gz")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("content", [b"", b"text,label\n", b"text,label"])
def test_empty_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = put(tmp_path, name, content if name == "a.csv" else b"")
    refuses(path, f"{name} is empty; give a source with documents", labeled=False)
    with pytest.raises(InputError, match="is empty"):
        list(read_tables(path))


def test_an_empty_parquet_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    refuses(tmp_path / "a.parquet", "a.parquet is empty; give a source", labeled=False)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_damaged_archives_are_refused(tmp_path: Path, name: str, suffix: str) -> None:
    lines = [f'{{"text": "{number * 7919}"}}' for number in range(20_000)]
    packed = PACK[suffix]("\n".join(["text", *lines] if name == "a.csv" else lines).encode())
    sentence = f"{name}{suffix} is truncated or not .* data .*; fetch or compress it again"
    refuses(put(tmp_path, name + suffix, packed[:-40]), sentence, labeled=False)
    refuses(put(tmp_path, name + suffix, b"plain text\n" * 9), sentence, labeled=False)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [str(number) for number in range(5_000)]}), path)
    whole = path.read_bytes()
    sentence = "a.parquet is truncated or not a parquet file .*; fetch or write it again"
    for content in (whole[:-50], b"", b"text,label", whole[:40] + b"\xff" * 400 + whole[440:]):
        refuses(put(tmp_path, "a.parquet", content), sentence, labeled=False)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.txt.gz"])
def test_other_encodings_are_refused_with_the_place(tmp_path: Path, name: str) -> None:
    line = b'{"text":"caf\xe9"}\n' if name == "a.jsonl" else b"caf\xe9\n"
    good = b'{"text":"caf\xc3\xa9"}\n' if name == "a.jsonl" else "caf\u00e9\n".encode()
    content = (b"text\n" if name[2:] in {"csv", "tsv"} else b"") + good * 300_000 + line
    path = put(tmp_path, name, PACK[".gz" if name.endswith(".gz") else ""](content))
    number = content.count(b"\n")
    offset = content.index(b"\xe9\n" if name != "a.jsonl" else b'\xe9"', len(content) - 6)
    refuses(
        path, rf"0xe9 in line {number} \(offset {offset}\); re-encode it, .* iconv", labeled=False
    )


def test_a_character_cut_off_at_the_end_is_refused(tmp_path: Path) -> None:
    refuses(put(tmp_path, "a.txt", b"one\ncaf\xc3"), r"0xc3 in line 2 \(offset 7\)", labeled=False)


def test_malformed_csv_is_refused_with_the_row(tmp_path: Path) -> None:
    ragged = b"text,label\n" + b"a,1\n" * 200_000 + b"a,b,c\n"
    refuses(
        put(tmp_path, "a.csv", ragged),
        r"in row 200002, .* \(expected 2 columns, got 3\); put values that hold a comma",
    )
    refuses(put(tmp_path, "a.tsv", b"text\tlabel\na\n"), r"in row 2, .* got 1\); .* hold a tab")
    open_end = b'text,label\na,x\nb,"y\nc,z\n'
    refuses(
        put(tmp_path, "a.csv", open_end), "malformed at its end .* starts with 'y' is never closed"
    )
    assert read(put(tmp_path, "b.csv", b'label,text\nx,"a\nb"\ny,c'))[0] == ["a\nb", "c"]


def test_malformed_json_is_refused_with_the_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", b'{"text":"a"}\n\n{"text":\n')
    refuses(
        path, r"a.jsonl is malformed in line 3 \(.*\); write one JSON object a line", labeled=False
    )
    path = put(tmp_path, "a.json", b'[{"text":"a"}]')
    refuses(path, r"a.json holds a list in line 1, not an object; .* jq -c '\.\[\]'", labeled=False)


def test_messages_name_the_file_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path, "a.csv", b"text,label\na\n")
    refuses(path, re.escape(str(path)))
    assert capsys.readouterr() == ("", "")
