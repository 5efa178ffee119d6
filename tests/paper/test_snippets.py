"""Raw text for Rotten Tomatoes: sentences of reviews, dressed as its snippets, drawn by their content."""

import random

import pytest

from paper.datasets.rotten import FEWEST, MOST, sentences, snippet, snippets

NUMBERED = [f"Sentence number {number} of a review." for number in range(200)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("A line<br /><br />another<BR>and\na last", ["A line", "another", "and", "a last"]),
        ("Mr. Bean met Dr. No, and J. R. Ewing.", ["Mr. Bean met Dr. No, and J. R. Ewing."]),
        ("It lasts 1.5 hours... too long, e.g. here.", ["It lasts 1.5 hours... too long, e.g. here."]),
        ("", []),
    ],
)
def test_a_review_parts_into_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "published",
    [
        "with one exception , every blighter digs into dysfunction like it's a big , comforting jar",
        '( wendigo is ) why we go to the cinema : to be fed through the " eye " , the heart ; the mind !',
        "a charming , banter-filled comedy . . . one of those -- and by extension -- ms . vardalos' ?",
        "writer/director [an] 'truth' b&w for $9 . 50",
    ],
)
def test_a_published_snippet_stays_as_it_is(published: str) -> None:
    assert snippet(published) == published
    words = published.replace(" , ", ", ").replace(" . . . ", "... ").replace(" -- ", "--")
    assert snippet(words.upper()) == published


def test_sentences_have_a_fitting_length_and_come_once() -> None:
    short, long = "word " * (FEWEST - 1), "word " * (MOST + 1)
    fitting = ["w " * FEWEST + "<br>" + "x " * MOST]
    assert sorted(map(len, snippets([short, long, *fitting]))) == [2 * FEWEST - 1, 2 * MOST - 1]
    twice = ["A film that is good.", "a film, that IS good!"]  # the same words
    assert list(snippets(twice)) == ["a film that is good ."]


def test_so_many_are_drawn_whatever_their_order_and_however_often_they_come() -> None:
    drawn = list(snippets(NUMBERED, 20))
    shuffled = NUMBERED * 3
    random.Random(0).shuffle(shuffled)
    assert list(snippets(shuffled, 20)) == drawn
    assert len(set(drawn)) == 20
    assert list(snippets(NUMBERED, 50))[:20] == drawn  # more hold fewer
    places = [int(sentence.split()[2]) for sentence in drawn]
    assert 60 < sum(places) / 20 < 140  # from all over the text, not from its start; the mean is 99.5
