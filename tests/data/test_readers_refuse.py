"""Readers: one sentence for every bad input, with the thing, the value and the remedy."""

import csv
import re
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.data import tables
from mein.data.formats import format_of, open_writer
from mein.data.readers import read_tables
from mein.errors import InputError, MissingExtra
from tests.support.reading import PACK, put, read, refuses


def test_labeled_folder_needs_sub_folders(tmp_path: Path) -> None:
    put(tmp_path, "set/1.txt", b"one")
    refuses(tmp_path / "set", r"1\.txt lies in a folder without sub-folders; put the documents")
    (tmp_path / "none").mkdir()
    refuses(tmp_path / "none", "none is a folder without a file to read; put .txt files into it")


def test_a_missing_backend_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", absent)
    with pytest.raises(MissingExtra, match=r"s3://b/a.csv needs a package .*'\.\[s3\]'$"):
        read("s3://b/a.csv")
    with pytest.raises(MissingExtra, match=r"abfs:// that is not installed: Install s3fs to"):
        read("abfs://b/a.csv")


def test_an_unknown_protocol_is_refused() -> None:
    refuses("nowhere://a.csv", "nowhere://, which fsspec does not know; use a local path")


def test_a_quotation_mark_left_open_does_not_read_on_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LARGEST_VALUE", 1 << 20)
    path = put(tmp_path, "a.csv", b'text,label\na,x\n"b,y\n' + b"c,z\n" * 400_000)
    limit = csv.field_size_limit(1 << 20)
    try:
        refuses(path, r"malformed in line 3 \(field larger than field limit .*\); close its quot")
    finally:
        csv.field_size_limit(limit)


def test_missing_columns_are_named_with_the_nearest(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"id,Headline,stuff\n1,one,x\n")
    refuses(
        path,
        r"no column 'headlines' among 'id', 'Headline', 'stuff'; did you mean 'Headline'\?$",
        text="headlines",
    )
    refuses(
        path,
        r"no column 'zzz' among 'id', .*; set columns.text to its name \(--text-column NAME\)\.$",
        text="zzz",
    )
    refuses(
        path, r"no column that looks like the text among 'id', .*; set columns.text to its name \(--text-c"
    )
    refuses(
        path,
        r"no column that looks like the label among .*; set columns.label .*--label-column",
        text="Headline",
    )
    refuses(put(tmp_path, "a.txt", b"one"), "no column that looks like the label among 'text'")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("null", "row 2 has no label; fill it in, or move the document to the unlabeled text"),
        ("NaN", "row 2 has no label; fill it in"),
        ('""', "row 2 has no label; fill it in"),
        ('"1.5"', "row 2 has the label 1.5, a fractional number; write labels as integers or strings"),
        ("1.5", "row 2 has the label 1.5, a fractional number; write labels as integers or strings"),
        ('["a"]', r"row 2 has the label \['a'\] of type list; write labels as integers or strings"),
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
        ("inf", "row 2 has the label inf, a fractional number"),
    ],
)
def test_bad_labels_in_csv_are_refused(tmp_path: Path, value: str, sentence: str) -> None:
    refuses(put(tmp_path, "a.csv", f"text,label\na,1\nb,{value}\n".encode()), sentence)


def test_whole_numbers_beside_a_missing_one_are_read_as_integers(tmp_path: Path) -> None:
    """What pandas writes where a column once had a NaN."""
    assert read(put(tmp_path, "a.csv", b"text,label\na,1\nb,0\n"))[1] == ["1", "0"]
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.0, 0.0]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[1] == [1, 0]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.jsonl.gz"])
def test_whole_numbers_in_strings_are_one_class_in_every_format(tmp_path: Path, name: str) -> None:
    """A labeled file keeps a csv's column as the strings it was written with."""
    with open_writer(tmp_path / name) as writer:
        writer.write(pa.table({"text": ["a", "b", "c"], "label": ["1.0", "-2.", "v1.0"]}))
    assert read(tmp_path / name)[1] == ["1", "-2", "v1.0"]


def test_sub_folders_are_labels_like_others(tmp_path: Path) -> None:
    put(tmp_path, "set/1.0/a.txt", b"one")
    assert read(tmp_path / "set") == (["one"], ["1"])
    put(tmp_path, "set/1.5/a.txt", b"one")
    refuses(tmp_path / "set", r"set/1\.5/a\.txt has the label 1\.5, a fractional number; write labels as")


def test_bad_labels_in_parquet_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.5, None]}), path)
    refuses(path, "a.parquet row 1 has the label 1.5, a fractional number")
    for missing in (None, ""):
        pq.write_table(pa.table({"text": ["a", "b"], "label": ["x", missing]}), path)
        refuses(path, "a.parquet row 2 has no label")


def test_rows_are_counted_over_chunks(tmp_path: Path) -> None:
    rows = b"text,label\n" + b"a,1\n" * 9_000 + b"b,\n"
    refuses(put(tmp_path, "a.csv", rows), "a.csv row 9001 has no label")


def test_an_empty_path_is_not_the_folder_one_is_in() -> None:
    refuses("", r"The path of a source is empty; name a file or a folder, or \. for this one\.")


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
    refuses(path, rf"0xe9 in line {number} \(offset {offset}\); re-encode it, .* iconv", labeled=False)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_utf_16_is_named(tmp_path: Path, name: str, encoding: str) -> None:
    path = put(tmp_path, name, "\ufefftext\ncaf\u00e9\n".encode(encoding))
    refuses(path, rf"{name} is UTF-16, not UTF-8; re-encode it, .* iconv -f utf-16 -t", labeled=False)


def test_parquet_strings_that_are_not_utf_8_are_refused_with_their_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for wrong in (
        pa.array([b"caf\xe9"]).view(pa.string()),
        pa.array([[b"\xe9"]]).view(pa.list_(pa.string())),
    ):
        pq.write_table(pa.table({"text": ["a"], "more": wrong}), path)
        sentence = "a.parquet is not UTF-8, or damaged, in column 'more' .*; write its strings as UTF-8"
        refuses(path, sentence, labeled=False, text="more")
        with pytest.raises(InputError, match=sentence):
            list(read_tables(path))
    pq.write_table(pa.table({"text": ["a"], "more": [b"\xe9"]}), path)
    assert [batch.num_rows for batch in read_tables(path)] == [1]  # bytes may be anything


def test_a_damaged_name_of_a_parquet_column_is_refused(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"text": ["a"], "quite-a-name": ["b"]}), tmp_path / "a.parquet", store_schema=False
    )
    content = (tmp_path / "a.parquet").read_bytes().replace(b"quite-a", b"quit\xe5-a")
    path = put(tmp_path, "a.parquet", content)
    with pytest.raises(InputError, match=r"a.parquet is truncated or not a parquet file .*; fetch or write"):
        list(read_tables(path))


def test_a_character_cut_off_at_the_end_is_refused(tmp_path: Path) -> None:
    refuses(put(tmp_path, "a.txt", b"one\ncaf\xc3"), r"0xc3 in line 2 \(offset 7\)", labeled=False)


def test_malformed_csv_is_refused_with_the_row(tmp_path: Path) -> None:
    ragged = b"text,label\n" + b"a,1\n" * 200_000 + b"a,b,c\n"
    refuses(
        put(tmp_path, "a.csv", ragged),
        r"in line 200002 \(expected 2 columns, got 3\); put values that hold a comma",
    )
    refuses(put(tmp_path, "a.tsv", b"text\tlabel\na\n"), r"in line 2 .* got 1\); .* hold a tab")
    open_end = b'text,label\na,x\nb,"y\nc,z\n'
    remedy = "close its quotation marks, or put the value between double quotes and double those inside it"
    refuses(put(tmp_path, "a.csv", open_end), rf"malformed in line 3 \(unexpected end of data\); {remedy}\.$")
    assert read(put(tmp_path, "b.csv", b'label,text\nx,"a\nb"\ny,c'))[0] == ["a\nb", "c"]


@pytest.mark.parametrize(("name", "sign", "spelled"), [("a.csv", ",", "comma"), ("a.tsv", "\t", "tab")])
@pytest.mark.parametrize("begin", ['"Good" film', '"A ""film"" it" is', '"Open'])
@pytest.mark.parametrize("end", ['a "fine" one', '5" high', '"fine'])
def test_a_row_with_a_loose_quotation_mark_is_refused_by_its_line(
    tmp_path: Path, name: str, sign: str, spelled: str, begin: str, end: str
) -> None:
    rows = [f"text {number}{sign}x" for number in range(50)]
    rows[7], rows[30] = f"{begin}{sign}x", f"{end}{sign}x"
    path = put(tmp_path, name, "\r\n".join([f"text{sign}label", *rows, ""]).encode())
    remedy = "close its quotation marks, or put the value between double quotes and double those inside it"
    refuses(path, rf"{name} is malformed in line 9 \('{spelled}' expected after '\"'\); {remedy}\.$")


def test_a_quotation_mark_inside_a_value_is_a_sign_like_others(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tsv", b'text\tlabel\n5" high\tx\na "fine" one\ty\n')
    assert read(path)[0] == ['5" high', 'a "fine" one']


def test_many_rows_in_one_value_of_a_tsv_are_refused(tmp_path: Path) -> None:
    rows = [f"x\ttext {number}" for number in range(50)]
    rows[7], rows[30] = 'x\t"so', 'x\tit is 5"'
    path = put(tmp_path, "a.tsv", "\n".join(["label\ttext", *rows, ""]).encode())
    refuses(
        path,
        r"a\.tsv has a value in line 9 that holds 22 lines of 2 columns and begins with 'so'; close its "
        r"quotation mark, or, if the value is meant so, write the file as .jsonl or .parquet\.$",
    )


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_csv_within_a_csv_is_read(tmp_path: Path, quoting: Literal[0, 1]) -> None:
    """Its value could be rows whose quotation mark is left open, but it is good csv."""
    table = "".join(f"x,text {number}\n" for number in range(30))
    rows = [["y", table], ["y", f'"so" {table}and'], ["y", "plain"]]
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=quoting).writerows([["label", "text"], *rows])
    assert read(tmp_path / "a.csv")[0] == [text for _, text in rows]


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.tsv", "\t")])
def test_texts_of_many_lines_are_read(tmp_path: Path, name: str, sign: str) -> None:
    poem = f"roses are red{sign} violets are blue\n" * 12
    essay = f"one{sign} two\n\nand {sign} so {sign} on\n" * 50
    lines = [f'x{sign}"{text}"' for text in (poem, essay)]
    path = put(tmp_path, name, "\n".join([f"label{sign}text", *lines, ""]).encode())
    assert read(path)[0] == [poem, essay]
    path = put(tmp_path, name, f'text\n"{essay}"\n'.encode())
    assert read(path, labeled=False)[0] == [essay]


def test_malformed_json_is_refused_with_the_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", b'{"text":"a"}\n\n{"text":\n')
    refuses(path, r"a.jsonl is malformed in line 3 \(.*\); write one JSON object a line", labeled=False)
    path = put(tmp_path, "a.json", b'[{"text":"a"}]')
    refuses(path, r"a.json holds a list in line 1, not an object; .* jq -c '\.\[\]'", labeled=False)


def test_messages_name_the_file_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path, "a.csv", b"text,label\na\n")
    refuses(path, re.escape(str(path)))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".parquet"):
        columns = [pa.array(["good"]), pa.array(["b"]), pa.array(["c"])]
        pq.write_table(pa.Table.from_arrays(columns, ["text", "label", "label"]), path)
    else:
        sign = "," if name.endswith(".csv") else "\t"
        path = put(tmp_path, name, f"text{sign}label{sign}label\ngood{sign}b{sign}c\n".encode())
    refuses(path, r"has the column 'label' twice; rename one of them\.")


@pytest.mark.parametrize(
    ("name", "sign", "remedy"),
    [
        ("a.csv", ";", "commas"),
        ("a.tsv", ";", "tabs"),
        ("a.tsv", ",", "tabs, or name it .csv"),
        ("a.csv", "\t", "commas, or name it .tsv"),
    ],
)
def test_another_separator_is_noticed(tmp_path: Path, name: str, sign: str, remedy: str) -> None:
    path = put(tmp_path, name, f"text{sign}label\ngood{sign}b\n".encode())
    sentence = f"single column {f'text{sign}label'!r}; it seems to be separated by {sign!r}: separate it by "
    refuses(path, re.escape(f"{sentence}{remedy}."))


def test_a_single_column_of_texts_may_hold_any_sign(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"text\nso; so | so\n")
    assert [batch.to_pydict() for batch in read_tables(path)] == [{"text": ["so; so | so"]}]
