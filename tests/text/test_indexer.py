"""The indexer: both vocabularies in one pass over a text, the same as each alone."""

import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mein.errors import InputError
from mein.text import indexer as encoder_module
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.indexer import Indexer, learn_vocabularies, spelled_pieces
from mein.text.ragged import Ragged, concatenate, ragged
from mein.text.words import END, tokenize

TEXTS = ["The battery died.", "The battery lasts a week!<br />", "", "No battery lasts"]
PIECES = PiecesConfig(vocabulary_size=60, min_count=1)


def learn(texts: list[str]) -> Indexer:
    return learn_vocabularies([texts], WordsConfig(), PIECES)[0]


ENCODER = learn(TEXTS)


def plainly(indexer: Indexer, text: str) -> tuple[list[int], list[int]]:
    """What `encode` gives for a text, by its definition."""
    tokens = tokenize(text, indexer.words_config)
    return indexer.words.encode(tokens), indexer.pieces.encode([" ".join(tokens)])[0]


@given(st.lists(st.text(alphabet="TheBatrydisw ☃.▁!\ud800\x00\n", max_size=60), max_size=5))
def test_remembering_tokens_changes_nothing(texts: list[str]) -> None:
    words, pieces = ENCODER.encode(texts)
    assert list(zip(words, pieces, strict=True)) == [plainly(ENCODER, text) for text in texts]


@pytest.mark.parametrize(("name", "value"), [("BATCH_CHARACTERS", 1), ("TABLE_TOKENS", 2)])
def test_the_size_of_a_batch_and_of_the_table_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    expected = learn(TEXTS).encode(TEXTS)
    monkeypatch.setattr(encoder_module, name, value)
    indexer = learn(TEXTS)
    assert indexer.encode(TEXTS) == expected
    assert indexer.encode(TEXTS) == expected


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "BATCH_CHARACTERS", 1)
    monkeypatch.setattr(encoder_module, "TABLE_TOKENS", 10)
    indexer = learn(TEXTS)
    for i in range(100):
        indexer.encode([f"a{i} b{i}", f"c{i}"])
        assert len(indexer._table) <= 12


def test_an_empty_document_is_an_end_without_pieces() -> None:
    assert ENCODER.encode(["", " \n"]) == ([[END], [END]], [[], []])
    assert ENCODER.encode([]) == ([], [])


def test_a_stream_is_learned_chunk_by_chunk_and_counted() -> None:
    def chunks() -> Iterator[list[str]]:
        for text in TEXTS:
            yield [text]

    indexer, documents = learn_vocabularies(chunks(), WordsConfig(), PIECES)
    assert documents == len(TEXTS)
    assert indexer.words.words == ENCODER.words.words
    assert indexer.pieces.model == ENCODER.pieces.model


def test_a_corpus_without_words_is_refused() -> None:
    with pytest.raises(InputError, match="The 0 documents hold no word"):
        learn([])


def test_pickling_keeps_the_vocabularies_and_drops_what_was_remembered() -> None:
    small = len(pickle.dumps(learn(TEXTS)))
    indexer = learn(TEXTS)
    indexer.encode([" ".join(f"w{i}" for i in range(1000))])
    pickled = pickle.dumps(indexer)
    assert len(pickled) == small
    assert pickle.loads(pickled).encode(TEXTS) == ENCODER.encode(TEXTS)  # noqa: S301


def test_fingerprints_distinguish_vocabularies() -> None:
    other_case = learn_vocabularies([TEXTS], WordsConfig(lowercase=False), PIECES)[0]
    fingerprints = {ENCODER.fingerprint, other_case.fingerprint, learn(TEXTS[1:]).fingerprint}
    assert len(fingerprints) == 3
    assert learn(TEXTS).fingerprint == ENCODER.fingerprint


def test_threads_may_share_an_indexer() -> None:
    indexer = learn(TEXTS)
    texts = [" ".join(f"t{i}{j}" for j in range(50)) for i in range(200)]
    found: dict[int, tuple[list[list[int]], list[list[int]]]] = {}

    def encode(part: int) -> None:
        found[part] = indexer.encode(texts[part::4])

    threads = [threading.Thread(target=encode, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in range(4):
        assert found[part] == learn(TEXTS).encode(texts[part::4])


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6), st.data())
def test_rows_are_taken_and_joined_as_in_lists(rows: list[list[int]], data: st.DataObject) -> None:
    assert ragged(rows).to_lists() == rows
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    taken = ragged(rows).take(np.array(chosen, np.int64))
    assert taken.to_lists() == [rows[i] for i in chosen]
    assert taken.lengths.tolist() == [len(rows[i]) for i in chosen]
    assert len(taken) == len(chosen)
    assert concatenate([ragged(rows), taken]).to_lists() == rows + taken.to_lists()


def test_a_part_of_a_larger_array_is_joined_without_the_rest() -> None:
    middle = Ragged(np.arange(6), np.array([2, 3, 5]))
    assert concatenate([middle, middle]).to_lists() == [[2], [3, 4], [2], [3, 4]]


@pytest.mark.parametrize("text", ["这部Great电影，真好看!", "สวัสดี ราคา 20", "映画は、最高でした😀"])
def test_where_a_script_sets_no_spaces_pieces_are_in_their_places(text: str) -> None:
    indexer, _ = learn_vocabularies([[text] * 60], WordsConfig(), PiecesConfig())
    spelled = list(spelled_pieces(indexer, text))
    for letters, start, stop in spelled:
        assert letters.strip() == text[start:stop].lower()
    assert "".join(text[start:stop] for _, start, stop in spelled) == text.replace(" ", "")
    assert len(spelled) == len(indexer.pieces_of([text]).values)
    pieces = [letters.strip() for letters, *_ in spelled]
    assert all(len(piece) <= 1 for piece in pieces if "\u3040" <= piece[:1] <= "\u9fff")


def test_the_expert_reads_the_end_of_a_long_document_and_imitators_all_of_it() -> None:
    config = WordsConfig(max_length=3)
    indexer, _ = learn_vocabularies([["a b c d", "b c d"]], config, PiecesConfig())
    number = indexer.words.numbers
    words, pieces = indexer.encode(["a b c d", "b", ""])
    assert words == [[number["c"], number["d"], 1], [number["b"], 1], [1]]
    assert len(pieces[0]) >= 4
