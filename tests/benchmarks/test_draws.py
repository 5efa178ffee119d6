"""Draws of few labels: the same as those of an independent loop, packed and unpacked, as files."""

import hashlib
import io
import json
import lzma
import random
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import draws
from benchmarks.draws import PROBLEMS, Cell, Document, load_problem, read_cell, write_cell, write_packed
from mein.errors import InputError

SUITE = Path(__file__).parents[3] / "shared/data"
# SHA-256 of labeled.csv, raw.csv, and test.csv, as the suite's referee writes them with pandas.
OF_REFEREE = {
    ("trec", 0): ("00eb7f163166751d", "312653b7c96788bc", "d80a9770e5c4ebe6"),
    ("trec", 2): ("b638944e5a701d44", "4084959c891b00cc", "d80a9770e5c4ebe6"),
    ("cr", 0): ("23368217e40d7b72", "6a13dd70eeb3183e", "61d402d1e6b7d1a0"),
    ("cr", 2): ("a1864e485898cd83", "64616f02321d7c4c", "61d402d1e6b7d1a0"),
}


def rows_of(count: int, classes: Sequence[str]) -> list[Document]:
    return [Document(f"text {i}, “{i}”\nand more", classes[i % len(classes)]) for i in range(count)]


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz" if path.suffix == ".xz" else "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder laid out as the suite's, with few documents and plans to match."""
    folder = tmp_path / "data"
    for name, labels, tests in (("trec", 9, 12), ("r52", 8, 10)):
        monkeypatch.setitem(
            PROBLEMS, name, replace(PROBLEMS[name], labels=labels, tests=tests, raw_documents=3)
        )
    for name in ("rotten", "imdb"):
        monkeypatch.setitem(PROBLEMS, name, replace(PROBLEMS[name], labels=4, tests=5, raw_documents=3))
    monkeypatch.setattr(draws, "CLASSES_OF_R52", 2)
    monkeypatch.setattr(draws, "MOST_LABELS", 6)  # what is kept of IMDB's pool
    write_rows(folder / PROBLEMS["trec"].file, [d._asdict() for d in rows_of(40, "abc")])
    write_rows(folder / PROBLEMS["r52"].file, [d._asdict() for d in [*rows_of(40, "ab"), *rows_of(5, "c")]])
    raw = PROBLEMS["r52"].raw
    assert raw is not None
    write_rows(folder / raw, [{"text": f"raw {i}"} for i in range(9)])
    sentences = {f"x/rt-polarity.{kind}": f" a {kind} caf\xe9 \n\nb {kind}\n" * 5 for kind in ("pos", "neg")}
    write_archive(
        folder / PROBLEMS["rotten"].file, {name: text.encode("latin-1") for name, text in sentences.items()}
    )
    folders = [f"aclImdb/{part}/{kind}" for part in ("train", "test") for kind in ("neg", "pos", "unsup")]
    names = [f"{folder}/{i}_7.txt" for folder in folders for i in range(9)]
    reviews = {name: f"{name} é".encode() for name in [*names, "aclImdb/train/labeledBow.feat"]}
    write_archive(folder / PROBLEMS["imdb"].file, reviews)
    return folder


def drawn_by_hand(
    rows: list[Document], more: list[str], tests: int, labels: int, draw: int, pool_is_raw: bool = True
) -> Cell:
    """The rule in six lines, on documents rather than on their numbers."""
    rows = list(rows)
    random.Random(2019).shuffle(rows)
    test, rest = rows[:tests], rows[tests:]
    random.Random(100 + draw).shuffle(rest)
    return Cell(rest[:labels], [*(d.text for d in rest[labels:] if pool_is_raw), *more], test)


@pytest.mark.parametrize("draw", [0, 2])
def test_draws_are_those_of_an_independent_loop(data: Path, draw: int) -> None:
    rows = rows_of(40, "abc")
    found = load_problem("trec", data, [draw]).cell(draw)
    assert found == drawn_by_hand(rows, [], 12, 9, draw)
    assert (len(found.labeled), len(found.raw), len(found.test)) == (9, 19, 12)
    raw = ["raw 0", "raw 1", "raw 2"]  # the first three, behind what is left of the labeled file
    assert load_problem("r52", data, [draw]).cell(draw) == drawn_by_hand(
        rows_of(40, "ab"), raw, 10, 8, draw
    ), "without the rarest class"


def test_archives_are_read_in_their_order(data: Path) -> None:
    rows = [Document(f"{word} {kind}{' café' if word == 'a' else ''}", kind)
            for kind in ("pos", "neg") for _ in range(5) for word in "ab"]  # fmt: skip
    assert load_problem("rotten", data, [1]).cell(1) == drawn_by_hand(rows, [], 5, 4, 1)
    reviews = [
        Document(f"aclImdb/train/{kind}/{i}_7.txt é", kind) for kind in ("neg", "pos") for i in range(9)
    ]
    more = [f"aclImdb/train/unsup/{i}_7.txt é" for i in range(3)]
    own = load_problem("imdb", data, [1]).cell(1)
    assert own == drawn_by_hand(reviews, more, 5, 4, 1, pool_is_raw=False)


def test_more_labels_hold_fewer_and_all_text_holds_a_half(data: Path) -> None:
    problem = load_problem("trec", data, [0])
    few, many = problem.cell(0, 4), problem.cell(0, 20)
    assert many.labeled[:4] == few.labeled
    assert [d.text for d in many.labeled[4:]] + list(many.raw) == few.raw
    whole, half, quarter = (problem.cell(0, share=share).raw for share in (1, 0.5, 0.25))
    assert (half, quarter) == (whole[::2], whole[::4])
    assert problem.cell(0, share=0).raw == []
    with pytest.raises(
        InputError,
        match=re.escape("trec has 28 documents to label, and 29 are asked for: choose fewer with --sizes."),
    ):
        problem.cell(0, 29)


@pytest.mark.parametrize("name", ["trec", "r52", "rotten", "imdb"])
def test_packed_draws_are_the_same(data: Path, tmp_path: Path, name: str) -> None:
    original = load_problem(name, data, [0, 2])
    path = write_packed(original, tmp_path / "pack")
    packed = load_problem(name, tmp_path / "pack", [0, 2])
    for draw in (0, 2):
        assert packed.cell(draw) == original.cell(draw)
        assert packed.cell(draw, 6, 0.5) == original.cell(draw, 6, 0.5)
    assert packed.classes == original.classes
    texts = lzma.decompress(path.read_bytes()).decode("utf-8").splitlines()[1:]
    assert max(Counter(texts).values()) == max(
        Counter(map(str, [*original.test, *original.pool, *original.raw])).values()
    ), "each document is there once, for all draws"
    with pytest.raises(InputError, match=r"imdb|trec|r52|rotten.* holds draws 0, 2 and not 1: pack it again"):
        load_problem(name, tmp_path / "pack", [0, 1])


def test_what_is_missing_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent: there is no such folder. Name the one with the data by"):
        load_problem("trec", tmp_path / "absent", [0])
    with pytest.raises(
        InputError, match=r"cr.jsonl.xz: the file of cr is missing. Put it there, or set --da"
    ):
        load_problem("cr", data, [0])


def test_a_cell_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    texts = ['a "quoted", text', "two\nlines", "two\r\nlines", "", " spaces ", "漢字"]
    cell = Cell([Document(text, str(i)) for i, text in enumerate(texts)], texts, [Document("x", "NA")])
    write_cell(cell, tmp_path / "cell")
    assert read_cell(tmp_path / "cell") == cell


@pytest.mark.parametrize(("name", "draw"), OF_REFEREE)
def test_the_suite_is_drawn_as_the_referee_draws_it(tmp_path: Path, name: str, draw: int) -> None:
    if not (SUITE / PROBLEMS[name].file).exists():
        pytest.skip(f"{SUITE} is not there: the suite's data do not come with the code")
    write_cell(load_problem(name, SUITE, [draw]).cell(draw), tmp_path)
    files = [(tmp_path / f"{part}.csv").read_bytes() for part in ("labeled", "raw", "test")]
    assert tuple(hashlib.sha256(content).hexdigest()[:16] for content in files) == OF_REFEREE[name, draw]
