"""Words: the tokenizers, which words are kept, how they are numbered, the file that holds them."""

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mein.errors import RunError
from mein.text.config import WordsConfig
from mein.text.words import (
    END,
    LONGEST_WORD,
    MARKS,
    PATTERNS,
    UNSPACED,
    WordCounter,
    Words,
    tokenize,
    words_in,
)

PAPER = WordsConfig(tokenizer="paper", lowercase=False)


def vocabulary(texts: list[str], max_words: int = 100) -> Words:
    counter = WordCounter(WordsConfig(max_words=max_words))
    counter.add(texts)
    return Words.from_counts(counter)


def test_paper_tokenizer_splits_at_non_words_and_strips_nothing() -> None:
    assert tokenize("don't", PAPER) == ["don", "t"]
    assert tokenize("<br /><br />", PAPER) == ["br", "br"]
    assert tokenize("snake_case 007 -- Été!", PAPER) == ["snake_case", "007", "Été"]


@given(st.text())
def test_paper_tokenizer_is_the_predecessors_split(text: str) -> None:
    assert tokenize(text, PAPER) == [token for token in re.split(r"\W+", text) if token]


def test_words_tokenizer_keeps_signs_and_removes_line_breaks() -> None:
    tokens = tokenize("Great!<br /><BR>Isn't it... <b>new</b>?", WordsConfig())
    assert " ".join(tokens) == "great ! isn ' t it . . . < b > new < / b > ?"


def test_case_is_kept_on_request() -> None:
    assert tokenize("Great FILM", WordsConfig(lowercase=False)) == ["Great", "FILM"]


def test_no_token_is_huge_and_none_is_lost() -> None:
    tokens = tokenize("x" * (2 * LONGEST_WORD + 5), WordsConfig())
    assert [len(token) for token in tokens] == [LONGEST_WORD, LONGEST_WORD, 5]


UNSPACED_TEXTS = {
    "这部Great电影,真好!２０２４": "这 部 great 电 影 , 真 好 ! ２０２４",
    "ソフト３個がすごい。": "ソ フ ト ３ 個 が す ご い 。",
    "สวัสดี ราคา 20": "ส วั ส ดี ร า ค า 20",
    "ສະບາຍດີ": "ສ ະ ບ າ ຍ ດີ",
    "ភាសាខ្មែរ": "ភា សា ខ្ មែ រ",
    "မြန်မာ": "မြ န် မာ",
    "이 영화 좋아요": "이 영화 좋아요",
    "снято в L’été 3D": "снято в l ’ été 3d",
}


@pytest.mark.parametrize("text", UNSPACED_TEXTS)
def test_where_a_script_sets_no_spaces_each_letter_with_its_marks_is_a_word(text: str) -> None:
    assert tokenize(text, WordsConfig()) == UNSPACED_TEXTS[text].split()
    spelled = [text[start:stop].lower() for _, start, stop in words_in(text, WordsConfig())]
    assert spelled == UNSPACED_TEXTS[text].split()


OF_UNSPACED = re.compile(f"[{UNSPACED}]")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_other_scripts_are_cut_as_without_those(text: str) -> None:
    text = OF_UNSPACED.sub("", text)
    assert tokenize(text, WordsConfig(lowercase=False)) == PATTERNS["words"].findall(text)


@given(st.text(st.sampled_from("电影เ๊ีがミョ가aé7İ! ▁")))
def test_of_mixed_scripts_no_letter_is_lost_and_each_is_in_its_place(text: str) -> None:
    words = words_in(text, WordsConfig())
    assert [word for word, _, _ in words] == tokenize(text, WordsConfig())
    assert "".join(text[start:stop] for _, start, stop in words) == re.sub(r"[\s▁]", "", text)


def test_marks_are_those_of_unicode() -> None:
    letters = [chr(code) for code in range(0x110000) if OF_UNSPACED.match(chr(code))]
    marks = {letter for letter in letters if unicodedata.category(letter)[0] == "M"}
    assert marks <= set(re.findall(f"[{MARKS}]", "".join(letters)))


def test_signs_that_pieces_cannot_hold_are_no_tokens() -> None:
    assert tokenize("a\ud800b ▁ c▁d", WordsConfig()) == ["a", "b", "c", "d"]


def test_words_are_kept_by_documents_not_by_tokens() -> None:
    words = vocabulary(["often often often", "shared", "shared rare"])
    assert words.words == ("shared",)


def test_ids_fall_with_frequency_and_ties_go_by_spelling() -> None:
    words = vocabulary(["b a c c", "a b c d", "d"])
    assert words.words == ("c", "a", "b", "d")
    assert words.counts.tolist() == [0, 3, 3, 2, 2, 2]
    assert words.document_counts.tolist() == [0, 3, 2, 2, 2, 2]
    assert words.size == 6


def test_unknown_words_are_deleted_and_the_end_is_appended() -> None:
    words = vocabulary(["good film", "good film good"])
    assert words.encode(["film", "never", "good"]) == [3, 2, END]
    assert words.encode([]) == [END]


def test_the_most_frequent_words_are_kept_under_the_cap() -> None:
    assert vocabulary(["a b b c", "c c a b"], max_words=2).words == ("b", "c")


def test_a_handful_of_documents_keeps_every_word_where_none_repeats() -> None:
    assert vocabulary(["one two", "three"]).words == ("one", "three", "two")
    assert vocabulary([""]).size == 2


def test_the_counter_is_bounded_and_keeps_the_frequent_words() -> None:
    counter = WordCounter(WordsConfig(), limit=100)
    for i in range(1000):
        counter.add([f"common w{i} w{i // 2}"])
        assert len(counter.frequency) <= 100
    assert counter.frequency["common"] == counter.in_documents["common"] == 1000
    assert counter.frequency.keys() == counter.in_documents.keys()
    assert (counter.documents, counter.tokens) == (1000, 3000)


@given(st.lists(st.text(max_size=30), max_size=8))
def test_saving_and_loading_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("words") / "words.txt"
    words = vocabulary(texts)
    words.save(path)
    again = Words.load(path)
    assert again.words == words.words
    np.testing.assert_array_equal(again.counts, words.counts)
    np.testing.assert_array_equal(again.document_counts, words.document_counts)


def test_the_file_is_readable_by_eye(tmp_path: Path) -> None:
    vocabulary(["good film", "good film good"]).save(tmp_path / "words.txt")
    content = (tmp_path / "words.txt").read_text(encoding="utf-8")
    assert content == "mein words\t1\t2\t2\ngood\t3\t2\nfilm\t2\t2\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged: its first line is not `mein words<TAB>version`; restore it"),
        (b"mein words\t2\t1\n", "has version 2, but this mein reads up to 1; update mein."),
        (b"mein words\t1\t2\t2\ngood\t3\t2\nfil", "is damaged: it was cut short;"),
        (b"mein words\t1\t2\t2\ngood\t3\t2\n", "it should hold 2 words but holds 1;"),
        (b"mein words\t1\t2\t1\ngood\tx\t2\n", "line 2 is not `word<TAB>count<TAB>documents`"),
        (b"mein words\t1\t2\t2\na\t3\t2\na\t3\t2\n", "a word occurs in it twice;"),
        (b"mein words\t1\t2\t1\n\xff\t3\t2\n", "is damaged: it is not UTF-8;"),
    ],
)
def test_a_damaged_file_is_named_in_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(RunError) as error:
        Words.load(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"words\.txt cannot be read \(No such file or directory\)"):
        Words.load(tmp_path / "words.txt")
