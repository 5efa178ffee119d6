"""The audit: counts by hand, problems that stop a training, remarks worth knowing."""

import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.data.audit import Audit, audit
from mein.data.columns import ColumnsConfig
from mein.data.formats import open_writer
from mein.data.readers import read_documents
from mein.errors import InputError

GOOD = [("good food", "pos"), ("bad food", "neg"), ("great room", "pos"), ("poor room", "neg")]


def put(folder: Path, name: str, rows: list[tuple[str, str]]) -> Path:
    path = folder / f"{name}.jsonl"
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def examine(folder: Path, **parts: list[tuple[str, str]]) -> Audit:
    paths = {name: put(folder, name, rows) for name, rows in parts.items()}
    return audit(
        paths["labeled"], paths.get("unlabeled"), paths.get("dev"), paths.get("test"), ColumnsConfig()
    )


def test_figures_of_a_part(tmp_path: Path) -> None:
    rows = [
        ("one two three", "a"),
        ("One, two: THREE!", "a"),
        ("one two three", "b"),
        ("four", "b"),
        ("four", "b"),
        ("", "b"),
        ("...", "a"),
        *((f"word{number} " * 5, "a") for number in range(12)),
        ("w " * 90, "b"),
    ]
    part = examine(tmp_path, labeled=rows).parts["labeled"]
    assert part.documents == 20
    assert part.class_counts == {"a": 15, "b": 5}
    assert (part.median_words, part.words_95th, part.most_words) == (5, 5, 90)
    assert part.empty == 1
    assert part.duplicates == 3
    assert part.conflicts == 1


def test_texts_without_words_are_compared_by_their_signs(tmp_path: Path) -> None:
    rows = [("👍", "pos"), ("ok 😀", "pos"), ("day 3: +3%", "pos"), ("👎", "neg"), ("ok 😡", "neg")]
    rows += [("day 3: -3%", "neg"), ("👍 ", "pos"), ("?!", "neg")]
    found = examine(tmp_path, labeled=rows, test=[("👍", "pos"), ("ok 🎉", "neg"), ("?!", "neg")])
    part = found.parts["labeled"]
    assert (part.empty, part.duplicates, part.conflicts) == (0, 1, 0)
    assert found.overlaps["labeled", "test"] == 2
    assert part.median_words == 0, "an emoji is no word"


def test_overlaps_count_the_documents_of_the_second_part(tmp_path: Path) -> None:
    found = examine(
        tmp_path,
        labeled=[*GOOD, ("", "pos")],
        unlabeled=[("Good food!", ""), ("good FOOD", ""), ("only here", ""), ("in dev", "")],
        dev=[("in dev", "pos"), ("bad food", "neg")],
        test=[("good food.", "pos"), ("good  food", "pos"), ("in dev", "neg"), ("", "neg")],
    )
    assert found.overlaps == {
        ("labeled", "test"): 2,
        ("labeled", "dev"): 1,
        ("unlabeled", "test"): 3,
        ("unlabeled", "labeled"): 1,
        ("dev", "test"): 1,
    }
    assert "2 test documents are also in the training part." in found.notes
    assert "3 test documents are also in the unlabeled part." in found.notes


def test_clean_data_have_no_problem_and_little_to_remark(tmp_path: Path) -> None:
    found = examine(
        tmp_path, labeled=GOOD, unlabeled=[("raw text", "")], test=[("new", "pos"), ("old", "neg")]
    )
    assert found.problems == []
    assert found.notes == []
    assert found.parts["unlabeled"].class_counts == {}


def test_no_unlabeled_text_is_remarked(tmp_path: Path) -> None:
    note = "There is no unlabeled text, so training gives the plain expert."
    assert examine(tmp_path, labeled=GOOD).notes == [note]


def test_remarks_name_the_file_and_the_number(tmp_path: Path) -> None:
    rows = [*GOOD, ("good food", "neg"), ("", "pos")]
    found = examine(tmp_path, labeled=rows, unlabeled=[("raw", "")], test=[("new", "pos")])
    source = tmp_path / "labeled.jsonl"
    assert found.notes == [
        f"{source} holds 1 empty document, which is kept.",
        f"{source} repeats 1 document.",
        f"{source} gives different labels to 1 text.",
        f"{tmp_path / 'test.jsonl'} holds no document of 'neg'.",
    ]
    assert found.missing_classes == {"test": ["neg"]}


def test_labels_that_are_one_but_for_case_and_spaces_are_remarked(tmp_path: Path) -> None:
    rows = [("one", "fresh"), ("two", "Fresh"), ("three", "fresh "), ("four", "rotten")]
    found = examine(tmp_path, labeled=[*rows, *rows], unlabeled=[("raw", "")], dev=[("new", "true")])
    (note,) = [sentence for sentence in found.notes if "differ" in sentence]
    assert note == "The labels 'Fresh', 'fresh', 'fresh ' differ in case or spaces only: they are 3 classes."


def test_guessed_columns_are_reported_if_there_was_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(
        "title,review,text,sentiment,Label\n" + "a,b,c,pos,1\nd,e,f,neg,2\n" * 2, encoding="utf-8"
    )
    found = audit(path, path, None, None, ColumnsConfig())
    text = f"{path} has several columns that look like the text: 'text' is taken, not 'review' (--text-column"
    label = f"{path} has several columns that look like the label: 'Label' is taken, not 'sentiment' (--label"
    notes = [sentence for sentence in found.notes if "several columns" in sentence]
    assert [text in sentence for sentence in notes] == [True, False, True], "the unlabeled part has no label"
    assert label in notes[1]
    assert set(found.parts["labeled"].class_counts) == {"1", "2"}
    named = audit(path, None, None, None, ColumnsConfig(text="review", label="sentiment"))
    assert [sentence for sentence in named.notes if "several columns" in sentence] == []


def test_a_column_that_raw_text_lacks_is_reported_with_its_replacement(tmp_path: Path) -> None:
    labeled = tmp_path / "train.csv"
    labeled.write_text("words,label\n" + "a,pos\nb,neg\n" * 2, encoding="utf-8")
    tables = ["Words,review\na,b\n", "id,Review\n1,b\n", "text,review\na,b\n", "x,Review\n1,b\n"]
    (tmp_path / "raw").mkdir()
    for number, table in enumerate(tables):
        (tmp_path / f"raw/{number}.csv").write_text(table, encoding="utf-8")
    (tmp_path / "raw/4.txt").write_text("lines have no column to name\n", encoding="utf-8")
    found = audit(labeled, str(tmp_path / "raw/*"), None, None, ColumnsConfig(text="words"))
    assert found.problems == []
    assert [sentence for sentence in found.notes if "is taken" in sentence] == [
        f"{tmp_path}/raw/1.csv and 1 more file lack the column 'words': 'Review' is taken for the text.",
        f"{tmp_path}/raw/2.csv lacks the column 'words': 'text' is taken for the text.",
    ]


def test_a_damaged_column_that_nobody_reads_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    wrong = pa.array([b"caf\xe9"] * 4).view(pa.string())
    columns = {"note": wrong, "text": list("abcd"), "review": list("abcd"), "label": ["x", "x", "y", "y"]}
    pq.write_table(pa.table(columns), path)
    assert len(list(read_documents(path, ColumnsConfig(), labeled=True))) == 1
    found = audit(path, path, None, None, ColumnsConfig())
    assert found.problems == []
    notes = [sentence for sentence in found.notes if "'text' is taken, not 'review'" in sentence]
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("suffix", "missing"), [("csv", ("", "NaN", "")), ("jsonl", (None, float("nan"), None))]
)
def test_all_missing_labels_are_counted(tmp_path: Path, suffix: str, missing: tuple[object, ...]) -> None:
    path = tmp_path / f"train.{suffix}"
    labels = [missing[0], "pos", missing[1], "neg", "pos", missing[2]]
    lines = [json.dumps({"text": "one", "label": label}) for label in labels]
    if suffix == "csv":
        lines = ["text,label", *(f"one,{label}" for label in labels)]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = audit(path, None, None, None, ColumnsConfig())
    (problem,) = found.problems
    assert problem.startswith(f"{path} row 1 has no label; fill it in")
    assert f"3 rows of {path} have no label." in found.notes


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_labels_that_are_counted_as_missing_are_those_that_training_refuses(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name

    def write(labels: list[str | None]) -> Path:
        with open_writer(path) as writer:
            writer.write(pa.table({"text": ["one"] * len(labels), "label": pa.array(labels, pa.string())}))
        return path

    def is_refused(label: str | None) -> bool:
        try:
            list(read_documents(write([label]), ColumnsConfig(), labeled=True))
        except InputError as error:
            return "has no label" in str(error)
        return False

    labels = ["", None, "nan", "NaN", " ", "pos", "1.0", "nancy", "None"]
    refused = sum(map(is_refused, labels))
    assert refused == (4 if name in {"a.csv", "a.tsv"} else 2)  # "nan" is a word where NaN has a type
    found = audit(write(labels), None, None, None, ColumnsConfig())
    assert f"{refused} rows of {path} have no label." in found.notes


def test_a_folder_of_documents_has_no_columns_to_guess(tmp_path: Path) -> None:
    for label in ("neg", "pos"):
        for name in ("one", "two"):
            (tmp_path / label).mkdir(exist_ok=True)
            (tmp_path / label / f"{name}.txt").write_text(f"{name} {label}", encoding="utf-8")
    found = audit(tmp_path, None, None, None, ColumnsConfig())
    assert (found.problems, len(found.notes)) == ([], 1)


@pytest.mark.parametrize(
    ("labeled", "test", "sentence"),
    [
        (GOOD[::2], [("x", "pos")], "holds the single class 'pos' (2 documents); add documents"),
        (GOOD, [("x", "new")], "holds 'new' (1 document), which training lacks (it knows 'neg', 'pos')"),
    ],
)
def test_labels_that_stop_a_training_are_problems(
    tmp_path: Path, labeled: list[tuple[str, str]], test: list[tuple[str, str]], sentence: str
) -> None:
    (problem,) = examine(tmp_path, labeled=labeled, test=test).problems
    assert sentence in problem


def test_a_class_of_one_document_is_named(tmp_path: Path) -> None:
    found = examine(tmp_path, labeled=GOOD[:3])
    assert found.problems == []
    (note,) = [note for note in found.notes if "holds one example of 'neg': it teaches, but nothing" in note]
    assert note.endswith("Experts that learn by gradients need two, or dev documents.")


def test_one_document_of_each_class_is_a_problem_without_others_to_evaluate_on(tmp_path: Path) -> None:
    (problem,) = examine(tmp_path, labeled=GOOD[:2]).problems
    assert problem.endswith(
        "holds one text of each class, which leaves none to evaluate on: add other texts, "
        "or give test documents."
    )
    assert examine(tmp_path, labeled=GOOD[:2], test=GOOD[2:]).problems == []


def test_every_part_is_read_although_one_cannot_be(tmp_path: Path) -> None:
    found = examine(tmp_path, labeled=[], unlabeled=[("raw", "")], test=[("a", "b")])
    (problem,) = found.problems
    assert problem.endswith("labeled.jsonl is empty; give a source with documents.")
    assert set(found.parts) == {"unlabeled", "test"}


def test_all_documents_may_be_empty(tmp_path: Path) -> None:
    found = examine(tmp_path, labeled=[("", "a"), ("", "a"), ("", "b"), ("", "b")], test=[("x", "a")])
    assert found.parts["labeled"].empty == 4
    assert found.parts["labeled"].duplicates == found.parts["labeled"].conflicts == 0
    assert found.overlaps["labeled", "test"] == 0


def test_memory_does_not_hold_the_texts(tmp_path: Path) -> None:
    path = tmp_path / "raw.txt"
    with path.open("w", encoding="utf-8") as lines:
        for number in range(20_000):
            lines.write(f"{number} {'and some more words ' * 30}\n")
    assert path.stat().st_size > 12_000_000
    tracemalloc.start()
    try:
        found = audit(put(tmp_path, "labeled", GOOD), path, None, None, ColumnsConfig())
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert found.parts["unlabeled"].documents == 20_000
