"""What is linear is split exactly: words and pairs of an expert, entries of a lexicon; and all adds up."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mein.explain import Explanation, Fragment, explain
from mein.explain.imitated import WindowFragments
from mein.explain.layout import lay_out
from mein.explain.linear import MOST_GROUPS
from mein.explain.page import as_page, component, quoted, sum_of_parts
from mein.model.loading import load_model
from mein.model.model import Model
from mein.serve.schema import explained
from mein.text.indexer import Indexer
from mein.text.ragged import parted
from mein.text.words import tokenize
from tests.support import tiny
from tests.support.hub_models import build
from tests.support.tiny import TEXTS, networks_of

EXACT = 1e-6
ROUNDING = 1e-4  # of z, which networks compute in float32
ODD = ["☃☃", "zzz 龍", "", "İ good", "a\0b", "good " * 50, "good, good; GOOD<br>film"]
TEXT = st.lists(
    st.sampled_from([*" ".join(TEXTS.test_texts[:3]).split(), "☃", "zzz", "龍", ".", "\n"]), max_size=60
).map(" ".join)


def opened(path: Path) -> Model:
    """A run with gates of both signs and a lexicon that counts, so that every part is there."""
    model = load_model(path, "cpu")
    assert model.lexicon is not None
    lexicon = model.lexicon.with_gate(0.7)
    return replace(model, gates=np.array([0.8, -0.6]), temperature=1.7, lexicon=lexicon)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("linear")
    tiny.run(path, expert__kind="linear", mixture__method="ours")
    return opened(path)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Model:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    path = tmp_path_factory.mktemp("frozen")
    encoder = str(build("Bert", path / "bert", classes=2))
    tiny.run(path / "run", expert__kind="frozen", expert__model=encoder, mixture__method="ours")
    return opened(path / "run")


def check_sums(found: Explanation) -> None:
    """Every sum that the explanation promises."""
    whole = found.expert + found.lexicon + sum(found.imitators.values())
    if found.is_empty:
        assert (whole, found.encoder, len(found.fragments)) == (0.0, 0.0, 0)
        return
    assert found.log_odds == pytest.approx(whole, abs=EXACT)
    parts = {str(window): part for window, part in found.imitators.items()}
    parts |= {"expert": found.expert - found.encoder, "encoder": found.encoder, "lexicon": found.lexicon}
    sums: Counter[str] = Counter()
    for fragment in found.fragments:
        sums[str(fragment.window or fragment.source)] += fragment.contribution  # type: ignore[assignment]
    for name, part in parts.items():
        assert part == pytest.approx(sums[name] + found.rest.get(name, 0.0), abs=EXACT), name
    for name in found.pieces[0].parts:
        through = sum(piece.parts[name] for piece in found.pieces)
        assert through == pytest.approx(parts[name] - found.rest.get(name, 0.0), abs=EXACT), name
    for piece in found.pieces:
        assert piece.contribution == pytest.approx(sum(piece.parts.values()), abs=EXACT)


@pytest.mark.parametrize("text", [TEXTS.test_texts[0], *ODD])
@pytest.mark.parametrize("name", ["linear", "frozen"])
def test_all_parts_add_up(name: str, text: str, request: pytest.FixtureRequest) -> None:
    check_sums(explain(request.getfixturevalue(name), text))


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(text=TEXT)
def test_all_parts_of_any_text_add_up(linear: Model, text: str) -> None:
    found = explain(linear, text)
    check_sums(found)
    turned = explain(linear, text, found.alternative, found.label)
    for name, rest in found.rest.items():
        assert rest == pytest.approx(-turned.rest[name], abs=EXACT)


@pytest.mark.parametrize("name", ["linear", "frozen"])
def test_of_an_exact_split_a_constant_is_left(name: str, request: pytest.FixtureRequest) -> None:
    """The same for every text: the bias between the labels, and no share that was forgotten."""
    model: Model = request.getfixturevalue(name)
    bias = networks_of(model).expert.bias.detach().numpy()  # type: ignore[operator]
    assert model.lexicon is not None
    for text in [*TEXTS.test_texts[:8], "good good good film", "zzz"]:
        found = explain(model, text)
        first, second = (found.labels.index(y) for y in (found.label, found.alternative))
        assert found.rest["expert"] == pytest.approx((bias[first] - bias[second]) / 1.7, abs=ROUNDING)
        constant = 0.7 * (model.lexicon.bias[first] - model.lexicon.bias[second]) / 1.7
        assert found.rest["lexicon"] == pytest.approx(constant, abs=ROUNDING)


def test_a_word_s_share_is_what_the_formula_gives_it(linear: Model) -> None:
    """z = W' x + sum_t U' e_{w_t} / sqrt(T), with x by counting in a dictionary."""
    weights = linear.networks.linear_weights()
    assert weights is not None
    text = f"{TEXTS.test_texts[1]} {TEXTS.test_texts[1]} zzz"
    found = explain(linear, text)
    first, second = (found.labels.index(y) for y in (found.label, found.alternative))
    names = linear.indexer.words.words
    read = [
        n for n in map(linear.indexer.words.numbers.get, tokenize(text, linear.indexer.words_config)) if n
    ]
    pairs = [(p + 1) * linear.indexer.words.size + q for p, q in pairwise(read)]
    spelled = dict(zip(read, (names[n - 2] for n in read), strict=True))
    spelled |= {
        code: f"{names[p - 2]} {names[q - 2]}" for code, (p, q) in zip(pairs, pairwise(read), strict=True)
    }
    at = {code: f for f, code in enumerate(weights.codes.tolist())}
    x = {
        code: (1 + np.log(times)) * float(weights.idf[at[code]])
        for code, times in Counter(read + pairs).items()
        if code in at
    }
    norm = np.sqrt(sum(value**2 for value in x.values()))
    expected: Counter[str] = Counter()
    for code, value in x.items():
        lead = weights.ngrams[at[code], first] - weights.ngrams[at[code], second]
        expected[spelled[code]] += value / norm * lead / 1.7
    for n in read:
        vector = weights.words[n, first] - weights.words[n, second]
        expected[names[n - 2]] += vector / np.sqrt(len(read)) / 1.7
    shown = {f.text: f.contribution for f in found.fragments if f.source == "expert"}
    expected = Counter({name: share for name, share in expected.items() if share != 0.0})
    assert shown == pytest.approx(dict(expected), abs=1e-6)
    assert max(map(abs, shown.values())) > 0.01
    times = {f.text: f.times for f in found.fragments if f.source == "expert"}
    assert set(times.values()) >= {2}


def test_a_fragment_stands_where_its_pieces_are(linear: Model) -> None:
    text = f"zzz {TEXTS.test_texts[2]} {TEXTS.test_texts[2]}"
    found, layout = explain(linear, text), lay_out(linear.indexer, text)
    seen = Counter(fragment.source for fragment in found.fragments)
    assert {"expert", "lexicon", "imitator"} == set(seen)
    for fragment in found.fragments:
        letters = layout.letters(fragment.start, fragment.stop).strip()
        assert letters == fragment.text or (fragment.source == "expert" and "zzz" in letters)
        assert fragment.times >= 1
        assert (fragment.window is None) == (fragment.source != "imitator")
        assert len(fragment.probabilities) == (2 if fragment.source == "imitator" else 0)
    assert max(fragment.times for fragment in found.fragments if fragment.source == "lexicon") > 1


@pytest.mark.parametrize("name", ["linear", "frozen"])
def test_of_a_long_text_the_words_that_are_read_have_shares(
    name: str, request: pytest.FixtureRequest
) -> None:
    """An expert of words reads the end, and each share is at its word."""
    model: Model = request.getfixturevalue(name)
    long = model.indexer.words_config.model_copy(update={"max_length": 5})
    short = replace(
        model, indexer=Indexer(long, model.indexer.words, model.indexer.pieces, model.indexer.reader)
    )
    text = "the battery is good and the screen is bad"
    found, whole = explain(short, text), explain(model, text)
    check_sums(found)
    assert found.rest["expert"] == pytest.approx(whole.rest["expert"], abs=ROUNDING)
    known = [word for word in text.split() if word in model.indexer.words.numbers]
    shown = {f.text for f in found.fragments if f.source == "expert" and " " not in f.text}
    assert shown == set(known[-4:])  # and the end of sequence
    read = [piece.start for piece in found.pieces if piece.parts["expert"]]
    assert min(read) == text.rindex(known[-4], 0, len(text) - len(" ".join(known[-3:])))


def test_an_encoder_s_words_are_left_out_one_after_another(frozen: Model) -> None:
    text = "the film was very good and not so long"
    found = explain(frozen, text)
    weights = frozen.networks.linear_weights()
    assert weights is not None
    assert frozen.indexer.reader is not None
    first, second = (found.labels.index(y) for y in (found.label, found.alternative))
    lead = (weights.features[:, first] - weights.features[:, second]) / 1.7

    def part(read: str) -> float:
        features, _ = parted(frozen.encode([read]).words, len(weights.features))
        return float(features[0] @ lead)

    assert found.encoder == pytest.approx(part(text), abs=ROUNDING)
    assert found.encoder != 0.0
    words = text.split()
    falls = {
        word: part(text) - part(" ".join(w for w in words if w != word).replace("  ", " ")) for word in words
    }
    shown = {f.text: f.contribution for f in found.fragments if f.source == "encoder"}
    assert shown == pytest.approx(falls, abs=1e-3)


def test_a_long_text_is_encoded_again_a_bounded_number_of_times(
    frozen: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, read = frozen.indexer.reader, [0]
    assert reader is not None

    class Counting:
        """The reader, with the texts that it reads counted."""

        size, is_slow, is_beside_words, fingerprint = 32, True, True, "counted"

        def __call__(self, texts: list[str]) -> object:
            read[0] += len(texts)
            assert reader is not None
            return reader(texts)

    monkeypatch.setattr(frozen.indexer, "reader", Counting())
    for text in ("good film. " * 30, "not so good, " * 2_000):
        read[0] = 0
        found = explain(frozen, text)
        check_sums(found)
        fragments = [f for f in found.fragments if f.source == "encoder"]
        assert 1 < len(fragments) <= MOST_GROUPS
        assert read[0] <= MOST_GROUPS + 10


def test_every_door_shows_the_same_parts(frozen: Model) -> None:
    text = TEXTS.test_texts[4]
    found = explain(frozen, text)
    plain = json.loads(json.dumps(found.to_dict()))
    assert [row["contribution"] for row in plain["fragments"]] == [f.contribution for f in found.fragments]
    assert [row["text"] for row in plain["pieces"]] == [piece.text for piece in found.pieces]
    assert "shares" not in plain
    page = as_page(found, 10_000)
    for heading in ("Words and pairs of the expert", "Words left out", "by the lexicon", "(c=1)", "(c=2)"):
        assert heading in page
    assert page.count("<td>imitator c=1</td>") == sum(f.window == 1 for f in found.fragments)
    assert "(words and pairs)" in sum_of_parts(found)
    assert "(constant)" in sum_of_parts(found)
    served = explained(frozen, text, 10_000)
    assert [row["source"] for row in served["fragments"]] == [f.source for f in found.fragments]
    assert served["rest"] == found.rest
    assert set(served["shares"]) == {"expert", "encoder", "lexicon", "1", "2"}
    for name, shares in served["shares"].items():
        assert sum(shares) == pytest.approx(sum(piece.parts[name] for piece in found.pieces), abs=EXACT)


def test_a_fragment_is_named_by_its_component(linear: Model) -> None:
    found = explain(linear, f"{TEXTS.test_texts[2]} {TEXTS.test_texts[2]}")
    names = {component(fragment) for fragment in found.fragments}
    assert names == {"expert", "lexicon", "imitator c=1", "imitator c=2"}
    often = next(fragment for fragment in found.fragments if fragment.times == 2)
    assert quoted(often) == f"{often.text} (2 times)"
    assert quoted(replace(often, times=1)) == often.text


def test_an_expert_that_is_no_sum_of_words_is_one_part(tmp_path: Path) -> None:
    tiny.run(tmp_path, mixture__method="ours")
    model = load_model(tmp_path, "cpu")
    found = explain(model, TEXTS.test_texts[0])
    check_sums(found)
    assert found.rest["expert"] == found.expert != 0.0
    assert not [f for f in found.fragments if f.source == "expert"]
    assert "words and pairs" not in sum_of_parts(found)


def test_only_fragments_that_are_read_are_made(linear: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 100,000 characters has some 100,000 of them, and most are never shown."""
    made = [0]
    fragment = WindowFragments.fragment

    def counted(source: WindowFragments, k: int) -> Fragment:
        made[0] += 1
        return fragment(source, k)

    monkeypatch.setattr(WindowFragments, "fragment", counted)
    found = explain(linear, " ".join(TEXTS.test_texts))
    assert len(found.fragments) > 1_000
    assert made == [0]
    top = found.fragments[:7]
    assert made[0] <= 7
    assert top == tuple(found.fragments)[:7]
    assert found.fragments[-1] == tuple(found.fragments)[-1]
    assert made[0] > 1_000


def test_a_piece_that_is_unknown_ends_where_the_next_known_one_begins(linear: Model) -> None:
    """Among hundreds of both in one word, as anywhere."""
    word = "aж" * 400
    layout = lay_out(linear.indexer, f"{word} {word}")
    assert layout.letters(0, len(layout.which)) == f" {word} {word}"
    places = zip(layout.starts.tolist(), layout.stops.tolist(), strict=True)
    assert [f"{word} {word}"[start:stop] for start, stop in places] == list(word + word)
