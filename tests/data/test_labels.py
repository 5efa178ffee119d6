"""Labels: classes in order, ids and back, types kept, and a sentence for labels that cannot do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mein.data.labels import Label, Labels
from mein.errors import InputError

LABELS = st.lists(st.text(min_size=1) | st.integers() | st.booleans(), min_size=2, unique_by=str)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["pos", "neg", "pos", "neg"], ("neg", "pos")),
        ([10, 9, 10, 9], (9, 10)),
        (["10", "9", "10", "9"], ("10", "9")),
        ([True, False, True, False], (False, True)),
        (["b", 2, "b", 2, "a", "a"], (2, "a", "b")),
        (np.array([1, 0, 1, 0]), (0, 1)),
    ],
)
def test_classes_are_sorted_and_keep_their_type(values: list[Label], classes: tuple[Label, ...]) -> None:
    found = Labels.from_values(values, "train.csv").classes
    assert found == classes
    assert [type(label) for label in found] == [type(label) for label in classes]


def test_labels_meet_by_their_text() -> None:
    labels = Labels.from_values([1, 2, "1", 2], "train.parquet")
    assert labels.classes == (1, 2)
    assert labels.encode(["2", 1, np.int64(2)], "test.csv").tolist() == [1, 0, 1]
    assert labels.encode([], "test.csv").dtype == np.int64


@given(LABELS)
def test_encoding_and_decoding_give_back_every_label(classes: list[Label]) -> None:
    labels = Labels.from_values(classes * 2, "train")
    decoded = labels.decode(labels.encode(classes, "train"))
    assert [(type(label), label) for label in decoded] == [(type(x), x) for x in classes]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], r"train.csv holds no labels; give it labeled documents\."),
        (["x"] * 7, r"holds the single class 'x' \(7 documents\); add documents of at least one"),
        (["a", "b", "b", "c"], r"one example of 'a', 'c'; add examples or drop the class\."),
        (["a", None], r"train.csv has no label; fill it in, or move the document"),
        (["a", float("nan")], "train.csv has no label"),
        (["a", ""], "train.csv has no label; fill it in"),
        (np.array(["a", ""]), "train.csv has no label; fill it in"),
        ([1.5, 2.0], "train.csv has the label 1.5, a fractional number; write labels as integers"),
        ([float("inf"), 2.0], "train.csv has the label inf, a fractional number"),
        (np.array([0.5, 1]), "train.csv has the label 0.5, a fractional number"),
        ([["a"], ["b"]], r"train.csv has the label \['a'\] of type list; write labels as integers"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(values: list[object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Labels.from_values(values, "train.csv")


def test_a_class_unseen_in_training_is_refused_with_its_count() -> None:
    labels = Labels.from_values(["neg", "pos"] * 2, "train.csv")
    sentence = (
        r"test.csv holds 'mixed' \(2 documents\), 'new' \(1 document\), which training lacks "
        r"\(it knows 'neg', 'pos'\); add such documents to the training labels or drop them here\."
    )
    with pytest.raises(InputError, match=sentence):
        labels.encode(["mixed", "pos", "new", "mixed"], "test.csv")


def test_a_long_list_of_classes_is_cut() -> None:
    with pytest.raises(InputError, match=r"'09' and 10 more; add examples"):
        Labels.from_values([f"{number:02}" for number in range(20)], "train.csv")


def test_whole_numbers_that_a_nan_made_fractional_are_integers() -> None:
    labels = Labels.from_values([1.0, 0.0, np.float64(1.0), 1], "train.csv", once_is_enough=True)
    assert labels.classes == (0, 1)
    assert [type(label) for label in labels.classes] == [int, int]
    assert labels.encode([0.0, 1, 1.0], "test.csv").tolist() == [0, 1, 1]
