"""The audit: counts by hand, problems that stop a training, remarks worth knowing."""

import json
import tracemalloc
from pathlib import Path

import pytest

from mein.data.audit import Audit, audit
from mein.data.readers import ColumnsConfig

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
    assert part.empty == 2
    assert part.duplicates == 3
    assert part.conflicts == 1


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
    assert "2 test documents are also in the training part." in found.remarks
    assert "3 test documents are also in the unlabelled part." in found.remarks


def test_clean_data_have_no_problem_and_little_to_remark(tmp_path: Path) -> None:
    found = examine(
        tmp_path, labeled=GOOD, unlabeled=[("raw text", "")], test=[("new", "pos"), ("old", "neg")]
    )
    assert found.problems == []
    assert found.remarks == []
    assert found.parts["unlabeled"].class_counts == {}


def test_no_unlabelled_text_is_remarked(tmp_path: Path) -> None:
    remark = "There is no unlabelled text, so training gives the plain expert."
    assert examine(tmp_path, labeled=GOOD).remarks == [remark]


def test_remarks_name_the_file_and_the_number(tmp_path: Path) -> None:
    rows = [*GOOD, ("good food", "neg"), ("", "pos")]
    found = examine(tmp_path, labeled=rows, unlabeled=[("raw", "")], test=[("new", "pos")])
    source = tmp_path / "labeled.jsonl"
    assert found.remarks == [
        f"{source} holds 1 empty documents, which are kept.",
        f"{source} repeats 1 documents.",
        f"{source} gives different labels to 1 texts.",
        f"{tmp_path / 'test.jsonl'} holds no document of 'neg'.",
    ]
    assert found.missing_classes == {"test": ["neg"]}


@pytest.mark.parametrize(
    ("labeled", "test", "sentence"),
    [
        (GOOD[::2], [("x", "pos")], "holds the single class 'pos' (2 documents); add documents"),
        (GOOD[:3], [("x", "pos")], "holds one example of 'neg'; add examples or drop the class."),
        (GOOD, [("x", "new")], "holds 'new' (1 documents), which training lacks (it knows 'neg', 'pos')"),
    ],
)
def test_labels_that_stop_a_training_are_problems(
    tmp_path: Path, labeled: list[tuple[str, str]], test: list[tuple[str, str]], sentence: str
) -> None:
    (problem,) = examine(tmp_path, labeled=labeled, test=test).problems
    assert sentence in problem


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
