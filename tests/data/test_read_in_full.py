"""Nothing is read as less than it is: every stream of a file, every file of a folder; FIFOs are refused."""

import gzip
import os
from pathlib import Path

import pytest

from mein.data.compression import COMPRESSIONS
from tests.support.reading import PACK, put, read, refuses

SUFFIXES = sorted(COMPRESSIONS)
FIRST = "".join(f"first {number * 7919}\n" for number in range(3_000)).encode()
SECOND = "".join(f"second {number * 7919}\n" for number in range(3_000)).encode()


def texts_of(path: Path) -> list[str]:
    return read(path, labeled=False)[0]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_stream_of_a_file_is_read(tmp_path: Path, suffix: str) -> None:
    pack = PACK[suffix]
    path = put(tmp_path, f"a.txt{suffix}", pack(FIRST) + pack(b"") + pack(SECOND))
    assert texts_of(path) == (FIRST + SECOND).decode().splitlines()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rest", ["flipped", "zeros", "junk", "begun", "one byte"])
def test_what_follows_a_stream_and_is_none_is_refused(tmp_path: Path, suffix: str, rest: str) -> None:
    second = PACK[suffix](SECOND)
    follows = {
        "flipped": bytes([second[0] ^ 1]) + second[1:],
        "zeros": bytes(18 * 100),  # 18 zeros are a stream of the format before xz
        "junk": b"junk",
        "begun": second[:-20],
        "one byte": second[:1],
    }[rest]
    path = put(tmp_path, f"a.txt{suffix}", PACK[suffix](FIRST) + follows)
    refuses(path, rf"a\.txt{suffix} is truncated or not .* data \(.*\); fetch or compress it", labeled=False)


def test_many_small_streams_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt.gz", gzip.compress(b"line\n") * 50_000)
    assert len(texts_of(path)) == 50_000


@pytest.mark.parametrize("tables", [["a.csv"], ["a.parquet", "deep/b.jsonl.gz"]])
@pytest.mark.parametrize("document", ["README.txt", "pos/1.txt.xz"])
def test_a_folder_of_documents_and_tables_is_refused(
    tmp_path: Path, tables: list[str], document: str
) -> None:
    for name in [*tables, document]:
        put(tmp_path, f"set/{name}", b"text\nfine\n")
    sentence = (
        f"set mixes documents, such as .*set/{document}, and tables, such as .*set/{tables[0]}; move one"
    )
    refuses(tmp_path / "set", sentence, labeled=False)
    refuses(str(tmp_path / "s*"), sentence, labeled=False)


def test_a_folder_of_documents_beside_a_table_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "set/1.txt", b"one")
    table = put(tmp_path, "set.csv", b"text\ntwo\n")
    sentence = r"mixes documents, such as .*set/1\.txt, and tables, such as .*set\.csv; move one"
    refuses(str(tmp_path / "set*"), sentence, labeled=False)
    refuses([str(tmp_path / "set"), str(table)], sentence, labeled=False)


def test_a_fifo_is_refused_wherever_it_lies(tmp_path: Path) -> None:
    put(tmp_path, "set/a.csv", b"text\none\n")
    os.mkfifo(tmp_path / "set/b.csv")
    os.mkfifo(tmp_path / "set/c.parquet")
    (tmp_path / "d.csv").symlink_to(tmp_path / "set/b.csv")
    places = [tmp_path / "set/b.csv", tmp_path / "set/c.parquet", tmp_path / "d.csv", tmp_path / "set"]
    for place in [*map(str, places), f"file://{tmp_path}/set/b.csv", f"{tmp_path}/set/*.csv"]:
        refuses(place, r"[bcd]\.(csv|parquet) is no regular file: choose another path\.", labeled=False)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path, os.fsdecode(b"set/bad\xff.txt"), b"one")
    refuses(
        tmp_path / "set", r"set/bad\\udcff\.txt' is not UTF-8: rename the file or folder\.", labeled=False
    )


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("hf://x", r"hf://x (cannot be read \(|needs a package for hf)"),
        ("zip://a.csv::no.zip", r"zip://a\.csv::no\.zip cannot be read \("),
        ("reference://x", r"reference://x cannot be read \("),
        ("ftp://127.0.0.1:1/x.csv", r"ftp://127\.0\.0\.1:1/x\.csv cannot be read \(.*refused"),
    ],
)
def test_whatever_a_storage_raises_names_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "no.zip", b"this is no zip")
    refuses(url, sentence)
