"""Benchmarks from their official layouts: small files made here, and the real ones where they lie."""

import gzip
import json
import lzma
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from mein.data.splits import dev_size
from mein.errors import InputError
from paper.__main__ import data
from paper.datasets import BENCHMARKS, Row, find_benchmark, prepare
from paper.datasets.benchmark import with_dev
from paper.datasets.reuters import LEVEL_2, single_topic
from tests.support.layouts import (
    REAL,
    imdb_folder,
    newsitem,
    part,
    rcv1_tokens,
    rcv1_zips,
    rows,
    sgm_folder,
    story,
    tarred,
)
from tests.support.reading import put, read

real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the real data is not at {REAL}")


def refuses(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


# IMDB.


def test_imdb_parts_by_file_id_whether_folder_or_archive(tmp_path: Path) -> None:
    folder = imdb_folder(tmp_path)
    found = rows("imdb", folder)
    ids = {
        name: [(text.split("<")[0], label) for text, label in part(found, name)]
        for name in BENCHMARKS["imdb"].counts
    }
    assert ids == {
        "train": [
            ("train/neg/10624_1.txt", "neg"),
            ("train/pos/0_9.txt", "pos"),
            ("train/pos/10620_8.txt", "pos"),
        ],
        "dev": [
            ("train/neg/10625_2.txt", "neg"),
            ("train/neg/12499_3.txt", "neg"),
            ("train/pos/10621_10.txt", "pos"),
        ],
        "test": [("test/neg/2_4.txt", "neg"), ("test/neg/10_4.txt", "neg"), ("test/pos/12499_7.txt", "pos")],
        "unlabeled": [("train/unsup/0_0.txt", None), ("train/unsup/49999_0.txt", None)],
    }
    assert found[0].text.endswith("<br />fünf")
    assert rows("imdb", tarred(folder, tmp_path / "aclImdb_v1.tar.gz")) == found


def test_imdb_refuses_what_is_something_else(tmp_path: Path) -> None:
    put(tmp_path, "a/readme.txt", b"x")
    refuses(lambda: rows("imdb", tmp_path), "holds no file such as train/pos/0_9.txt: give the folder")
    put(tmp_path, "a/train/pos/1_9.txt", b"\xff")
    refuses(lambda: rows("imdb", tmp_path), "1_9.txt is not UTF-8 .* not the published file")


def test_imdb_extra_is_raw_text(tmp_path: Path) -> None:
    lines = b'{"text": "one"}\n\n{"text": "two", "id": 1}\n'
    found = rows("imdb-extra", put(tmp_path, "unlabeled.jsonl.xz", lzma.compress(lines)))
    assert found == [Row("unlabeled", "one"), Row("unlabeled", "two")]
    refuses(
        lambda: rows("imdb-extra", put(tmp_path, "b.jsonl", b'{"review": 1}')),
        "b.jsonl has no text in line 1",
    )
    refuses(lambda: rows("imdb-extra", put(tmp_path, "c.jsonl", b"[[[")), "c.jsonl is malformed in line 1")


# Elec and electronics.


def elec_folder(folder: Path) -> Path:
    for stem, size in {"elec-25k-train": 20, "elec-test": 3}.items():
        texts = "".join(f"{stem} {number}\n" for number in range(size))
        put(folder, f"elec/{stem}.txt", texts.encode())
        put(folder, f"elec/{stem}.txt.tok", b"tokens\n" * size)
        put(folder, f"elec/{stem}.cat", "".join(f"{1 + number % 2}\n" for number in range(size)).encode())
    put(folder, "elec/elec-10k-train.txt", b"a smaller set\n")
    put(folder, "unlab/elec-25k-unlab00.txt.tok", b"raw 0\nraw 1\n")
    put(folder, "unlab/elec-25k-unlab01.txt.tok", b"raw 2\n")
    put(folder, "unlab/imdb-unlab.txt.tok", b"not of elec\n")
    return folder


def test_elec_takes_texts_with_their_categories_and_a_tenth_for_dev(tmp_path: Path) -> None:
    found = rows("elec", elec_folder(tmp_path))
    assert part(found, "unlabeled") == [("raw 0", None), ("raw 1", None), ("raw 2", None)]
    assert part(found, "test") == [("elec-test 0", "neg"), ("elec-test 1", "pos"), ("elec-test 2", "neg")]
    train, dev = part(found, "train"), part(found, "dev")
    assert (len(train), len(dev)) == (18, 2)
    expected = {(f"elec-25k-train {number}", "pos" if number % 2 else "neg") for number in range(20)}
    assert {*train, *dev} == expected
    assert part(rows("elec", tmp_path, seed=1), "dev") != dev


def test_elec_comes_in_two_archives_in_one_folder(tmp_path: Path) -> None:
    plain = elec_folder(tmp_path / "plain")
    (tmp_path / "packed").mkdir()
    tarred(plain / "elec", tmp_path / "packed" / "elec2.tar.gz")
    tarred(plain / "unlab", tmp_path / "packed" / "unlab_data.tar.gz")
    assert Counter(rows("elec", tmp_path / "packed")) == Counter(rows("elec", plain))


def test_elec_refuses_texts_without_categories(tmp_path: Path) -> None:
    elec_folder(tmp_path)
    put(tmp_path, "elec/elec-test.cat", b"1\n3\n1\n")
    refuses(lambda: rows("elec", tmp_path), "elec-test in .* has the category '3', which is neither 1 nor 2")
    put(tmp_path, "elec/elec-test.cat", b"1\n")
    refuses(lambda: rows("elec", tmp_path), "elec-test in .* has 3 texts but 1 categories")
    (tmp_path / "elec" / "elec-test.cat").unlink()
    refuses(lambda: rows("elec", tmp_path), "holds no elec-test.cat")


def test_electronics_is_json_lines_and_not_elec(tmp_path: Path) -> None:
    for name, line in {
        "train": '{"text": "good", "label": 1, "product": "B1"}\n{"text": "bad", "label": 0}\n' * 10,
        "test": '{"text": "fine", "label": 1}',
        "unlabeled": '{"text": "raw", "category": "TVs"}',
    }.items():
        put(tmp_path, f"{name}.jsonl.xz", lzma.compress(line.encode()))
    found = rows("electronics", tmp_path)
    assert sorted(part(found, "train")) == [("bad", "neg")] * 9 + [("good", "pos")] * 9
    assert sorted(part(found, "dev")) == [("bad", "neg"), ("good", "pos")]
    assert part(found, "test") == [("fine", "pos")]
    assert part(found, "unlabeled") == [("raw", None)]
    put(tmp_path, "test.jsonl", b'{"text": "neutral", "label": 2}')
    refuses(lambda: rows("electronics", tmp_path), "has the class 2, which is none of the 2 published")


# A tenth for dev.


def test_dev_takes_a_tenth_and_leaves_every_class_one_to_train_on() -> None:
    sizes = {"earn": 70, "acq": 23, "trade": 4, "jet": 1, "tea": 1, "nickel": 1}
    labeled = [Row("train", f"{name} {n}", name) for name, size in sizes.items() for n in range(size)]
    others = [Row("test", "t", "tea"), Row("unlabeled", "u")]
    for seed in range(20):
        found = list(with_dev([*others, *labeled], seed, "here"))
        assert found[:2] == others
        assert Counter((row.text, row.label) for row in found[2:]) == Counter(row[1:] for row in labeled)
        assert Counter(row.part for row in found[2:]) == {"train": 90, "dev": 10}
        assert {label for _, label in part(found, "train")} == set(sizes)
    assert list(with_dev(labeled, 0, "")) == list(with_dev(labeled, 0, "")) != list(with_dev(labeled, 1, ""))


# Rotten Tomatoes.


def rotten_folder(folder: Path, size: int = 100) -> Path:
    for sign in ("pos", "neg"):
        lines = [f"{sign} snippet {number} . \n" for number in range(size)]
        put(folder, f"rt-polaritydata/rt-polarity.{sign}", "".join(lines).encode() + b"caf\xe9 \x85 . \n")
    return folder


def test_rotten_is_split_anew_by_every_seed(tmp_path: Path) -> None:
    rotten_folder(tmp_path)
    found, again, other = (rows("rotten", tmp_path, seed) for seed in (0, 0, 1))
    sizes = Counter(row.part for row in found)
    assert sizes == {"test": 20, "dev": 19, "train": 163}  # 202 // 10; 182 - floor(0.9 * 182)
    assert found == again
    for name in sizes:
        assert set(part(found, name)) != set(part(other, name))
    assert Counter((row.text, row.label) for row in found) == Counter((row.text, row.label) for row in other)
    assert ("caf\xe9 \x85 .", "pos") in {(row.text, row.label) for row in found}


def test_rotten_sizes_are_those_of_the_paper() -> None:
    """10,662 snippets: 1,066 for test, and of the 9,596 left floor(0.9 n) = 8,636 for training."""
    left = 10_662 - 10_662 // 10
    assert (left, left - dev_size(left, 0.1), dev_size(left, 0.1)) == (9_596, 8_636, 960)


# RCV1.


def test_the_level_2_codes_are_the_55() -> None:
    assert len(LEVEL_2) == 55
    assert {code[0] for code in LEVEL_2} == set("CEGM")
    assert not LEVEL_2 & {"CCAT", "ECAT", "GCAT", "MCAT", "C151", "C1511", "E512", "G151", "M131"}


def test_a_topic_counts_if_it_is_the_only_one_of_its_level() -> None:
    assert single_topic(["C15", "C151", "C1511", "CCAT"]) == "C15"
    assert single_topic(["C15", "C15"]) == "C15"
    assert single_topic(["C15", "GPOL"]) is None
    assert single_topic(["CCAT"]) is None
    assert single_topic([]) is None


def test_rcv1_from_zips_by_date_and_single_topic(tmp_path: Path) -> None:
    train = [newsitem(n, "1996-08-20", "CCAT", "C15") for n in range(10)]
    folder = rcv1_zips(
        tmp_path,
        *train,
        newsitem(20, "1996-08-31", "M11", "C15"),  # two topics
        newsitem(21, "1996-08-31", "GCAT"),  # none of the second level
        newsitem(22, "1996-09-01", "C15"),  # raw, whatever its topics
        newsitem(23, "1997-06-30"),
        newsitem(24, "1997-07-01", "GCAT", "GPOL"),
        newsitem(25, "1997-07-31", "C15", "GPOL"),
        newsitem(26, "1997-08-01", "C15"),  # after the test month
    )
    found = rows("rcv1", folder)
    text = 'Head {0}\nFirst "paragraph" of {0}.\nCaf\xe9.'
    assert part(found, "test") == [(text.format(24), "GPOL")]
    assert part(found, "unlabeled") == [(text.format(22), None), (text.format(23), None)]
    assert len(part(found, "dev")) == 1
    assert {*part(found, "train"), *part(found, "dev")} == {(text.format(n), "C15") for n in range(10)}


def test_rcv1_refuses_what_is_no_story(tmp_path: Path) -> None:
    bomb = b'<!DOCTYPE n [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><newsitem date="1996-08-20">&b;</newsitem>'
    refuses(
        lambda: rows("rcv1", put(tmp_path, "a.xml", bomb)), "a.xml has a document type, which .* not read"
    )
    refuses(lambda: rows("rcv1", put(tmp_path, "a.xml", b"<newsitem")), "a.xml is not XML")
    refuses(lambda: rows("rcv1", put(tmp_path, "a.xml", b"<news/>")), "a.xml is no newsitem with a date")
    refuses(lambda: rows("rcv1", put(tmp_path, "a.txt", b"x")), "holds no file such as 2286newsML.xml")


def test_rcv1_tokens_follow_the_split_of_lewis(tmp_path: Path) -> None:
    found = rows("rcv1-tokens", rcv1_tokens(tmp_path))
    assert part(found, "test") == [("ship", "M14")]
    assert part(found, "unlabeled") == [("bank bank", None), ("gold", None), ("tin", None)]
    labeled = {*part(found, "train"), *part(found, "dev")}
    assert labeled == {(f"stem{n} recov recov", "C15") for n in range(2286, 2306)}
    assert len(part(found, "dev")) == 2


def test_rcv1_tokens_refuse_what_is_incomplete(tmp_path: Path) -> None:
    rcv1_tokens(tmp_path)
    put(tmp_path, "rcv1-v2.topics.qrels.gz", gzip.compress(b"C15 x 1\n"))
    refuses(
        lambda: rows("rcv1-tokens", tmp_path), "has the line b'C15 x 1': expected a topic, a document and 1"
    )
    rcv1_tokens(tmp_path)
    put(tmp_path, "lyrl2004_tokens_train.dat.gz", gzip.compress(b".I " + b"9" * 5000))
    refuses(lambda: rows("rcv1-tokens", tmp_path), "expected .I and a number")
    (tmp_path / "rcv1-v2.topics.qrels.gz").unlink()
    refuses(lambda: rows("rcv1-tokens", tmp_path), "holds no rcv1-v2.topics.qrels")


# Reuters-21578.


def test_r52_from_sgm_takes_single_topics_that_both_parts_have(tmp_path: Path) -> None:
    folder = sgm_folder(
        tmp_path,
        story(1, "TRAIN", ["cocoa"]),
        story(2, "TRAIN", ["grain", "wheat"]),  # two topics: raw
        story(3, "TRAIN", ["earn"], body=False),
        story(4, "TRAIN", ["tea"]),  # no test document has it: raw
        story(5, "TRAIN", [], body=False),  # nothing to read
        story(6, "NOT-USED", ["cocoa"]),
        story(7, "TRAIN", ["cocoa"], usable="NO"),
        story(8, "TEST", ["cocoa"]),
        story(9, "TEST", ["earn", "acq"]),  # neither test nor raw
        story(10, "TEST", ["earn"]),
    )
    found = rows("r52", folder)
    text = "TITLE {0} <XY>\n\nBody {0} & more.\n Reuter"
    assert part(found, "train") == [(text.format(1), "cocoa"), ("TITLE 3 <XY>", "earn")]
    assert part(found, "test") == [(text.format(8), "cocoa"), (text.format(10), "earn")]
    assert part(found, "unlabeled") == [(text.format(n), None) for n in (2, 4, 6, 7)]


def test_r52_from_json_lines_names_its_classes(tmp_path: Path) -> None:
    put(tmp_path, "r52-classes.json", b'["acq", "earn"]')
    put(tmp_path, "r52-train.jsonl.xz", lzma.compress(b'{"text": "a", "label": 1, "id": "1"}'))
    put(tmp_path, "r52-unlabeled.jsonl.xz", lzma.compress(b'{"text": "c", "id": "2"}'))
    assert rows("r52", tmp_path) == [Row("unlabeled", "c"), Row("train", "a", "earn")]
    put(tmp_path, "r52-classes.json", b"{}")
    refuses(lambda: rows("r52", tmp_path), "holds no r52-classes.json with a list of names")


def test_labeled_text_beyond_all_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paper.datasets.benchmark.MOST_HELD", 100)
    sentence = "holds more than 100 bytes of text that is not raw: it is not read"
    refuses(lambda: rows("rotten", rotten_folder(tmp_path / "rotten")), sentence)
    refuses(lambda: rows("elec", elec_folder(tmp_path / "elec")), sentence)
    refuses(lambda: rows("imdb", imdb_folder(tmp_path / "imdb")), sentence)
    refuses(lambda: rows("rcv1-tokens", rcv1_tokens(tmp_path / "tokens")), sentence)
    train = [newsitem(n, "1996-08-20", "C15") for n in range(10)]
    refuses(lambda: rows("rcv1", rcv1_zips(tmp_path / "rcv1", *train)), sentence)


# Amazon.

RECORD = (
    b"product/productId: B003AI2VGA\nreview/userId: A141\nreview/helpfulness: 0/0\nreview/score: 3.0\n"
    b"review/summary: review/text: no\nreview/text: %s\n\n"
)


def test_amazon_records_give_their_text_without_its_prefix(tmp_path: Path) -> None:
    content = RECORD % b"Synopsis: review/text: <br />caf\xe9" + RECORD % b"" + RECORD % "fünf".encode()
    found = rows("amazon-movies", put(tmp_path, "movies.txt.gz", gzip.compress(content)))
    texts = ["Synopsis: review/text: <br />caf\xe9", "", "fünf"]
    assert found == [Row("unlabeled", text) for text in texts]


def test_amazon_json_may_be_python(tmp_path: Path) -> None:
    """The release of 2014 wrote Python dicts, and some reviews have no text."""
    content = (
        b'{"reviewText": "it\'s", "overall": 5.0}\n' + b"{'reviewText': \"it's\", 'asin': 'B0'}\n{\"a\": 1}\n"
    )
    found = rows("amazon-electronics", put(tmp_path, "reviews.json.gz", gzip.compress(content)))
    assert [row.text for row in found] == ["it's", "it's", ""]
    call = b"__import__('os').system('true')\n"
    refuses(lambda: rows("amazon-electronics", put(tmp_path, "b.json", call)), "b.json, line 1 is malformed")
    refuses(
        lambda: rows("amazon-electronics", put(tmp_path, "b.txt", b"x")), "b.txt holds no line that begins"
    )


def test_memory_does_not_grow_with_the_reviews(tmp_path: Path) -> None:
    """30 MB of records stream by; two are held at most."""
    with gzip.open(tmp_path / "movies.txt.gz", "wb", compresslevel=1) as file:
        for number in range(30_000):
            file.write(RECORD % (b"%d words of a review " % number * 40))
    tracemalloc.start()
    try:
        for _ in find_benchmark("amazon-movies").read(tmp_path / "movies.txt.gz", 0):
            pass
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


# AG News and DBpedia.


def test_csv_sets_join_title_and_text_and_name_the_class(tmp_path: Path) -> None:
    put(tmp_path, "ag_news_csv/train.csv", b'"3","Title ""A""","Some, text"\n"4","B","two\nlines"\n')
    put(tmp_path, "ag_news_csv/test.csv", '"1","Fünf","x"\n'.encode())
    put(tmp_path, "ag_news_csv/classes.txt", b"World\nSports\nBusiness\nSci/Tech\n")
    found = rows("ag-news", tarred(tmp_path / "ag_news_csv", tmp_path / "ag.tar.gz"))
    assert part(found, "train") == [('Title "A" Some, text', "Business"), ("B two\nlines", "Sci/Tech")]
    assert part(found, "test") == [("Fünf x", "World")]


def test_csv_sets_refuse_other_tables(tmp_path: Path) -> None:
    put(tmp_path, "test.csv", b'14,"a","b"\n')
    refuses(lambda: rows("dbpedia", tmp_path), "holds no train.csv")
    assert part(rows_of("dbpedia", tmp_path, b'1,"a","b"\n'), "test") == [("a b", "WrittenWork")]
    refuses(lambda: rows_of("dbpedia", tmp_path, b'15,"a","b"\n'), "in line 1: expected a class from 1 to 14")
    refuses(lambda: rows_of("dbpedia", tmp_path, b'1,"a\n'), "is malformed after line 1")


def rows_of(name: str, folder: Path, train: bytes) -> list[Row]:
    put(folder, "train.csv", train)
    return rows(name, folder)


# From there to Parquet.


def test_prepared_parts_can_be_trained_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepared = prepare(find_benchmark("imdb"), imdb_folder(tmp_path), out, any_counts=True)
    assert prepared.counts == {"train": 3, "dev": 3, "test": 3, "unlabeled": 2}
    assert prepared.classes["dev"] == {"neg": 2, "pos": 1}
    assert read(out / "train.parquet")[1] == ["neg", "pos", "pos"]
    assert pq.read_schema(out / "unlabeled.parquet").names == ["text"]
    record = json.loads((out / "data.json").read_text(encoding="utf-8"))
    assert (record["name"], record["seed"], record["counts"]["dev"]) == ("imdb", 0, 3)


def test_other_counts_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    sentence = r"than rotten \(163 train instead of 8,636, 19 dev .* Add --any-counts to accept it"
    source = rotten_folder(tmp_path)
    refuses(lambda: prepare(find_benchmark("rotten"), source, tmp_path / "out"), sentence)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_of_another_set_is_refused(tmp_path: Path) -> None:
    source, out = rotten_folder(tmp_path / "rotten"), tmp_path / "out"
    prepare(find_benchmark("rotten"), source, out, any_counts=True)
    prepare(find_benchmark("rotten"), source, out, seed=1, any_counts=True)  # its own may be made anew
    refuses(
        lambda: prepare(find_benchmark("imdb"), imdb_folder(tmp_path), out, any_counts=True),
        "out holds rotten, not imdb; choose another folder with --out",
    )
    refuses(
        lambda: prepare(find_benchmark("imdb"), tmp_path, put(tmp_path, "file", b"")),
        "file is a file; name a folder",
    )


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path: Path) -> None:
    source = put(tmp_path, "unlabeled.jsonl", b'{"text": "a \\ud83d b"}\n')
    prepare(find_benchmark("imdb-extra"), source, tmp_path / "out", any_counts=True)
    assert read(tmp_path / "out" / "unlabeled.parquet", labeled=False)[0] == ["a ? b"]


def test_further_raw_text_follows_the_set_s_own_less_what_is_labeled(tmp_path: Path) -> None:
    folder, out = imdb_folder(tmp_path), tmp_path / "out"
    own = [text for text, _ in part(rows("imdb", folder), "unlabeled")]
    tested = part(rows("imdb", folder), "test")[0][0]
    lines = [{"text": text} for text in ("One more.", tested.upper(), own[0])]
    first = put(tmp_path, "more.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    second = put(tmp_path, "more.csv.gz", gzip.compress(b"text,label\nAnother.,pos\n"))
    more = [str(first), str(second)]
    prepared = prepare(find_benchmark("imdb"), folder, out, any_counts=True, more=more)
    assert read(out / "unlabeled.parquet", labeled=False)[0] == [*own, "One more.", own[0], "Another."]
    assert prepared.counts["unlabeled"] == len(own) + 3
    assert json.loads((out / "data.json").read_text(encoding="utf-8"))["more"] == more


def test_further_raw_text_does_not_make_up_for_missing_documents(tmp_path: Path) -> None:
    source = put(tmp_path, "unlabeled.jsonl", b'{"text": "a"}\n')
    more = put(tmp_path, "more.txt", b"b\n" * 99_999)
    refuses(
        lambda: prepare(find_benchmark("imdb-extra"), source, tmp_path / "out", more=[str(more)]),
        r"\(1 unlabeled instead of 100,000\)",
    )
    refuses(
        lambda: prepare(find_benchmark("imdb-extra"), tmp_path / "none", tmp_path / "out", more=["none.txt"]),
        "none.txt does not exist; check the path",
    )


def test_further_text_for_rotten_becomes_snippets_that_all_seeds_share(tmp_path: Path) -> None:
    source = rotten_folder(tmp_path / "rotten")
    known = 'Pos: "snippet" 7!'
    text = f"A fine film, really.<br />Too short.\nThe POS snippet 7, was it? {known}"
    reviews = [text, "Neg: caf\xe9 snippet... two of them.", "pos snippet 7 . or not"]
    more = put(tmp_path, "more.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in reviews).encode())
    texts = []
    for seed in range(2):
        out = tmp_path / f"seed-{seed}"
        code, shown, _ = run(
            "rotten", "--source", source, "--out", out, "--seed", seed, "--any-counts", "--more", more
        )
        assert code == 0, shown
        texts.append(read(out / "unlabeled.parquet", labeled=False)[0])
    assert texts[0] == texts[1]
    assert sorted(texts[0]) == [
        "a fine film , really .",
        "neg : caf\xe9 snippet . . . two of them .",
        "pos snippet 7 . or not",
        "the pos snippet 7 , was it ?",
    ]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    refuses(lambda: find_benchmark("idmb"), "There is no benchmark 'idmb'; did you mean imdb?")
    refuses(lambda: find_benchmark("zzz"), "There is no benchmark 'zzz'; there are imdb, imdb-extra, elec")


def test_each_benchmark_describes_itself() -> None:
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert benchmark.where
        assert benchmark.license
        names = [download.name for download in benchmark.downloads]
        assert len(set(names)) == len(names)
        assert all(len(download.sha256 or "0" * 64) == 64 for download in benchmark.downloads)


# The command.


def run(*words: object) -> tuple[int, str, BaseException | None]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command("data")(data)
    answer = CliRunner().invoke(app, [str(word) for word in words])
    return answer.exit_code, answer.output, answer.exception


def test_the_command_lists_the_sets_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, shown, _ = run()
    assert code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert all(f"\n{name} " in shown for name in BENCHMARKS)
    assert "…" not in shown


def test_the_command_prepares_and_sums_up(tmp_path: Path) -> None:
    source = rotten_folder(tmp_path)
    code, shown, _ = run("rotten", "--source", source, "--out", tmp_path / "out", "--seed", 3, "--any-counts")
    assert code == 0
    assert [line.split()[:4] for line in shown.splitlines()[2:5]] == [
        ["train", "163", "8,636", "2"],
        ["dev", "19", "960", "2"],
        ["test", "20", "1,066", "2"],
    ]
    assert f"Written to {tmp_path / 'out'}. Terms: research use" in shown.replace("\n", " ")
    assert read(tmp_path / "out" / "dev.parquet")[0] == [
        text for text, _ in part(rows("rotten", source, 3), "dev")
    ]


def test_the_command_shows_where_to_get_what_it_cannot_fetch() -> None:
    _, _, problem = run("rcv1")
    assert isinstance(problem, InputError)
    assert "rcv1 cannot be downloaded from here; get it from NIST's page" in str(problem)
    assert str(problem).endswith("then name it with --source.")


# The real data, where it lies beside the repository.


@real
@pytest.mark.parametrize(
    ("name", "folder", "counts"),
    [
        ("rotten", "rotten", {"train": 8_636, "dev": 960, "test": 1_066}),
        ("r52", "reuters21578", {"train": 5_878, "dev": 654, "test": 2_568, "unlabeled": 10_784}),
        pytest.param(
            "imdb",
            "imdb/aclImdb_v1.tar.xz",
            {"train": 21_246, "dev": 3_754, "test": 25_000, "unlabeled": 50_000},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "electronics",
            "electronics",
            {"train": 22_500, "dev": 2_500, "test": 25_000, "unlabeled": 200_000},
            marks=pytest.mark.slow,
        ),
        pytest.param("imdb-extra", "imdb-extra", {"unlabeled": 100_000}, marks=pytest.mark.slow),
    ],
)
def test_the_real_sets_have_the_published_counts(
    tmp_path: Path, name: str, folder: str, counts: dict[str, int]
) -> None:
    prepared = prepare(find_benchmark(name), REAL / folder, tmp_path)
    assert prepared.counts == counts
    classes = find_benchmark(name).classes
    assert {len(prepared.classes[part]) for part in prepared.counts if part != "dev"} <= {classes, 0}
    for part_name, count in counts.items():
        assert pq.read_metadata(tmp_path / f"{part_name}.parquet").num_rows == count
