"""Splits: dev is stratified, seeded and never empties a class; equal words and symbols are equal texts."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mein.data.splits import dev_size, fingerprints, split_dev, text_key, word_string
from mein.errors import ConfigError

IDS = st.lists(st.integers(0, 4), min_size=1, max_size=200).map(lambda ids: np.array(ids))


def test_case_whitespace_and_punctuation_do_not_count() -> None:
    same = fingerprints(["Not BAD, at all!", "  not bad\nat\tall", "not-bad (at) ALL…"])
    assert same.dtype == np.uint64
    assert len(set(same.tolist())) == 1


@given(st.text() | st.text(st.characters(codec="ascii")))
def test_word_strings_are_the_words_of_a_plain_search(text: str) -> None:
    assert word_string(text) == " ".join(re.findall(r"\w+", text.casefold()))


def plain_key(text: str) -> str:
    """Character by character, without tables: what `text_key` must return."""
    found = ""
    for sign in text.casefold():
        kind = unicodedata.category(sign)
        if kind in ("Sc", "Sm", "So", "Cn"):
            found += f" {sign} "
        elif re.match(r"\w", sign):
            found += sign
        elif not kind.startswith("M"):
            found += " "
        elif "VARIATION SELECTOR" not in unicodedata.name(sign):
            found += sign
    return " ".join(found.split()) or " ".join(text.split())


@given(st.text() | st.text(st.characters(codec="ascii")) | st.text("aA_ 1+$<^`-.!?\n😀🏽❤\ufe0f…é\u0301"))
def test_keys_are_those_of_a_plain_loop(text: str) -> None:
    assert text_key(text) == plain_key(text)
    assert text_key(text_key(text)) == text_key(text)
    assert (text_key(text) == "") == (not text.strip())


@pytest.mark.parametrize("code", range(128))
def test_every_ascii_sign_is_to_ascii_texts_what_it_is_to_others(code: int) -> None:
    around = f"a{chr(code)}b"
    assert text_key(around + " é") == text_key(around) + " é"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("the film was ok 😀", "the film was ok 😡"),
        ("change on day 3: +3%", "change on day 3: -3%"),
        ("5 $", "5 €"),
        ("😀", "😡"),
        ("?", "!"),
        ("हि", "हा"),  # distinguished by a vowel sign, which is no letter
    ],
)
def test_symbols_count_and_signs_do_where_there_is_nothing_else(first: str, second: str) -> None:
    one, other = fingerprints([first, second]).tolist()
    assert one != other
    assert 0 not in (one, other)


def test_spaces_around_symbols_and_the_looks_of_an_emoji_do_not_count() -> None:
    assert len(set(fingerprints(["I ❤ it", "i❤\ufe0fit!", "I ❤\ufe0f it"]).tolist())) == 1
    assert len(set(fingerprints(["1+1 = 2", "1 + 1=2."]).tolist())) == 1
    assert len(set(fingerprints(["``ok''", '"OK"', "ok"]).tolist())) == 1


def test_other_words_and_another_order_do_count() -> None:
    texts = ["not bad", "bad not", "not", "notbad", "not bad bad", "nöt bad", "not 1", "не плохо"]
    assert len(set(fingerprints(texts).tolist())) == len(texts)


def test_empty_texts_alone_are_zero() -> None:
    assert fingerprints(["", " \n", "\u3000"]).tolist() == [0, 0, 0]
    assert (fingerprints(["a", "...", "👍", "\u200b"]) != 0).all()
    assert fingerprints([]).shape == (0,)


def test_fingerprints_are_the_same_on_every_machine() -> None:
    """They are compared between runs, so Python's salted hash would not do."""
    assert fingerprints(["The food was far from cosy."]).tolist() == [17353130668264680615]


@pytest.mark.parametrize(
    ("labeled", "fraction", "size"),
    [
        (300, None, 75),
        (1_000, None, 250),
        (3_000, None, 500),
        (25_000, None, 2_500),
        (3, None, 0),
        (10, 0.1, 1),
        (10, 0.9, 9),
        (25_000, 0.15016, 3_754),
        (11, 0.1, 2),
        (10, 0.0, 0),
    ],
)
def test_dev_size(labeled: int, fraction: float | None, size: int) -> None:
    assert dev_size(labeled, fraction) == size


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 5.0])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match=rf"dev fraction is {fraction}; give a number from 0 to"):
        dev_size(10, fraction)


@given(IDS, st.sampled_from([None, 0.0, 0.1, 0.5, 0.9]), st.integers(0, 5))
def test_every_document_is_in_one_part_and_every_class_in_train(
    ids: np.ndarray, fraction: float | None, seed: int
) -> None:
    train, dev = split_dev(ids, fraction, seed)
    assert sorted([*train, *dev]) == list(range(len(ids)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(dev) > 0).all()
    assert set(ids[train]) == set(ids)
    assert len(dev) == min(dev_size(len(ids), fraction), len(ids) - len(set(ids)))


@given(st.lists(st.integers(5, 60), min_size=2, max_size=6), st.integers(0, 5))
def test_classes_keep_their_proportion(counts: list[int], seed: int) -> None:
    ids = np.repeat(np.arange(len(counts)), counts)
    _, dev = split_dev(ids, 0.2, seed)
    for class_id, count in enumerate(counts):
        assert abs((ids[dev] == class_id).sum() - count * len(dev) / len(ids)) < 1


def test_the_seed_decides() -> None:
    ids = np.arange(400) % 2
    first, again, other = (split_dev(ids, None, seed)[1] for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    assert (np.diff(first) > 1).any(), "drawn at random, not cut off"
