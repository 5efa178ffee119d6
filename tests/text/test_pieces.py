"""Pieces: learned from every word, deterministic, saved as a .model, sized to the corpus."""

import io
import multiprocessing
import pickle
import random
import string
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from mein.errors import InputError, RunError
from mein.text import pieces as pieces_module
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.pieces import UNKNOWN, Pieces
from mein.text.words import WordCounter, tokenize

TEXTS = ["the battery died after a week", "the battery lasts a week or two", "no better battery"]


def count(texts: list[str]) -> WordCounter:
    counter = WordCounter(WordsConfig())
    counter.add(texts)
    return counter


def learn(texts: list[str], size: int = 20_000, min_count: int = 1) -> Pieces:
    return Pieces.from_counts(count(texts), PiecesConfig(vocabulary_size=size, min_count=min_count))


def spelling(pieces: Pieces) -> list[str]:
    return pieces.fragments(range(pieces.size))


def learn_from_text(texts: list[str], size: int) -> "sentencepiece.SentencePieceProcessor":
    """The same settings, but on the text itself: what sentencepiece is usually given."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(tokenize(text, WordsConfig())) for text in texts),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def test_counts_teach_the_pieces_that_the_text_would_teach() -> None:
    texts = [f"{a}ing {b}ed, {a}{b}!" for a in TEXTS[0].split() for b in TEXTS[1].split()]
    ours = learn(texts, size=60)
    theirs = learn_from_text(texts, size=ours.size)
    numbers = range(2, ours.size)
    assert spelling(ours)[2:] == [theirs.id_to_piece(i).replace("▁", " ") for i in numbers]


def test_the_same_corpus_in_any_order_gives_the_same_bytes() -> None:
    assert learn(TEXTS).model == learn(TEXTS[::-1]).model


def test_the_rarest_words_are_left_out_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "MAX_LEARNED", 10)
    texts = ["zebra", "zebra", *(f"word{i}" for i in range(50))]
    config = PiecesConfig(vocabulary_size=4)  # so 12 words, three times as many
    learned = dict(pieces_module._most_frequent(count(texts), config))
    assert (len(learned), learned["zebra"]) == (12, 2)
    assert set(learned) != {"zebra", *sorted(texts)[:11]}  # not the first of the alphabet
    assert learned == dict(pieces_module._most_frequent(count(texts[::-1]), config))


def test_a_long_document_is_not_lost() -> None:
    # sentencepiece skips lines over 4,192 bytes and dies at 65,536 characters
    long = "start " + "filler " * 30_000 + "zebra " * 30_000
    assert {" filler", " zebra"} <= set(spelling(learn([long, *TEXTS])))
    assert learn(["x" * 200_000]).size > 3


def test_padding_is_never_produced() -> None:
    pieces = learn(TEXTS)
    encoded = pieces.encode(["<pad> the battery", "", "\x00 Ω"])
    assert encoded[1] == []
    assert all(0 < i < pieces.size for ids in encoded for i in ids)


@given(st.text(alphabet="abdehtkl wxyzÄ☃.", max_size=40))
def test_the_pieces_of_a_text_are_those_of_its_words(text: str) -> None:
    pieces = PIECES
    words = tokenize(text, WordsConfig())
    one_by_one = [i for ids in pieces.encode(words) for i in ids]
    assert pieces.encode([" ".join(words)]) == [one_by_one]


def test_fragments_spell_the_text() -> None:
    pieces = learn(TEXTS)
    [ids] = pieces.encode(["the battery week ☃"])
    assert "".join(pieces.fragments(ids)).strip() == "the battery week \N{REPLACEMENT CHARACTER}"
    assert pieces.fragments([0]) == [""]


def test_signs_are_not_folded() -> None:
    pieces = learn(["ﬁne … ①", "ﬁne … ①"])
    [ids] = pieces.encode(["ﬁne … ①"])
    assert "".join(pieces.fragments(ids)).strip() == "ﬁne … ①"


def test_a_small_corpus_has_fewer_pieces_and_a_size_is_a_cap() -> None:
    # a, b, c and space, padding, unknown; "ab" is seen 5 times, "bc" is not, "cab" 50 times
    assert learn(["ab"] * 5 + ["bc"] * 4, min_count=5).size == 6 + 1
    assert learn(["ab"] * 5 + ["bc"] * 4 + ["cab"] * 50, min_count=5).size == 6 + 2 + 1
    assert learn(TEXTS, size=30).size == 30


def test_characters_have_their_piece_even_beyond_the_size() -> None:
    assert learn(["abcdefgh"], size=4).size == 11


def test_learning_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    learn(TEXTS)
    assert capfd.readouterr() == ("", "")


def test_a_corpus_without_words_is_refused() -> None:
    with pytest.raises(InputError, match=r"The 2 documents hold no word to learn pieces from; che"):
        learn(["", " "])


def test_saving_pickling_and_spawning_change_nothing(tmp_path: Path) -> None:
    pieces = learn(TEXTS)
    pieces.save(tmp_path / "pieces.model")
    assert Pieces.load(tmp_path / "pieces.model").encode(TEXTS) == pieces.encode(TEXTS)
    assert pickle.loads(pickle.dumps(pieces)).encode(TEXTS) == pieces.encode(TEXTS)  # noqa: S301
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(pieces.encode, (TEXTS,)) == pieces.encode(TEXTS)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_damaged_model_is_named(tmp_path: Path, part: float) -> None:
    model = learn(TEXTS).model
    path = tmp_path / "pieces.model"
    path.write_bytes(model[: int(part * len(model))])
    with pytest.raises(RunError, match=r"pieces\.model is damaged or not a model of pieces; restore"):
        Pieces.load(path)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"pieces\.model cannot be read \(No such file"):
        Pieces.load(tmp_path / "pieces.model")


PIECES = learn(TEXTS, size=45)


def learn_beside_many_words(texts: list[str]) -> Pieces:
    counter = count(texts)
    counter.frequency.update({"the": 80_000, "battery": 80_000, "died": 80_000})
    return Pieces.from_counts(counter, PiecesConfig())


def test_marks_and_digits_are_pieces_however_rare() -> None:
    """Each is one in a million characters; digits and the underscore are in no word of their own."""
    signs = string.punctuation + string.digits
    pieces = learn_beside_many_words([f"a{sign}b" for sign in signs])
    for sign in signs:
        found = pieces.encode(tokenize(f"a{sign}b", WordsConfig()))
        assert "".join("".join(pieces.fragments(ids)).strip() for ids in found) == f"a{sign}b"


def test_with_the_tokenizer_of_the_paper_rare_signs_stay_unknown() -> None:
    """As in the published runs."""
    config = WordsConfig(tokenizer="paper")
    counter = WordCounter(config)
    counter.add(["a7b"])
    counter.frequency.update({"the": 80_000, "battery": 80_000, "died": 80_000})
    ids = Pieces.from_counts(counter, PiecesConfig()).encode(tokenize("a7b", config))
    assert UNKNOWN in [i for word in ids for i in word]


def test_emoji_and_other_signs_are_pieces_where_they_occur_a_few_times() -> None:
    pieces = learn_beside_many_words(["😀 … €"] * 5 + ["☃ Ω"] * 4 + ["Ж"] * 5)
    spelled = {fragment.strip() for fragment in spelling(pieces)}
    assert {"😀", "…", "€"} <= spelled
    assert not {"☃", "Ω", "Ж"} & spelled  # too few; letters, which have no meaning of their own


def test_a_sign_that_is_too_rare_to_be_learned_with_is_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "MAX_LEARNED", 10)
    pieces = learn([*(f"word word{'x' * i}" for i in range(50)), "?!", "a7b"] * 2 + ["word"] * 3, size=4)
    assert {"?", "!", "7"} <= {fragment.strip() for fragment in spelling(pieces)}


def test_without_rare_signs_the_pieces_are_those_of_coverage_alone() -> None:
    """Frequent signs change nothing, and rare letters stay unknown."""
    texts = [
        f"{a}ing, {b}ed! {i % 10}" for i, a in enumerate(TEXTS[0].split() * 99) for b in TEXTS[1].split()
    ]
    texts += ["aЖb"]
    ours = learn(texts, size=60)
    assert UNKNOWN in ours.encode(["aЖb"])[0]
    theirs = learn_from_text(texts, size=ours.size)
    assert spelling(ours)[2:] == [theirs.id_to_piece(i).replace("▁", " ") for i in range(2, ours.size)]


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_of_tens_of_thousands_of_characters_the_most_frequent_are_spelled(spread: float) -> None:
    draws = random.Random(0)
    letters = [chr(0x4E00 + int(20_000 * draws.random() ** spread)) for _ in range(200_000)]
    texts = ["".join(letters[start : start + 100]) + "!" for start in range(0, 200_000, 100)]
    pieces = Pieces.from_counts(count(texts), PiecesConfig())
    spelled = {fragment.strip() for fragment in spelling(pieces)} - {"", "\N{REPLACEMENT CHARACTER}"}
    assert 4_900 < len(spelled) <= 5_000
    assert "!" in spelled
    often = [letter for letter, _ in Counter(letters).most_common(4_000)]
    assert spelled.issuperset(often)
    assert Pieces.from_counts(count(texts[::-1]), PiecesConfig()).model == pieces.model
