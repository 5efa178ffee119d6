"""explain: its parts add up to the log-odds, and what it calls important is important."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from mein import MeinClassifier
from mein.data.demo import demo_corpus
from mein.errors import InputError
from mein.explain import Explanation, as_page, explain
from mein.explain.fragments import RankedFragments
from mein.explain.imitated import WindowFragments
from mein.explain.layout import lay_out
from mein.explain.page import DEPTHS, laid_out
from mein.model.model import Model
from mein.predict.predict import Predictor
from mein.text.words import tokenize
from tests.support.reviews import LABELS, NEW, RAW, TEXTS, THREE_LABELS, THREE_TEXTS, tiny
from tests.support.tiny import networks_of

EXACT = 1e-6


@pytest.fixture(scope="module")
def of_three() -> Model:
    """Three classes, gates of very different size, a temperature that matters."""
    model: Model = tiny().fit(THREE_TEXTS, THREE_LABELS, unlabeled=RAW).model_
    return replace(model, gates=np.array([0.7, 90.0]), temperature=0.6)


@pytest.fixture(scope="module")
def unlike_priors() -> Model:
    rows = [i for i, label in enumerate(LABELS) if label == "negative" or i % 6 == 1]  # 3 to 1
    classifier = tiny().fit([TEXTS[i] for i in rows], [LABELS[i] for i in rows], unlabeled=RAW)
    model: Model = classifier.model_
    return replace(model, gates=np.array([0.7, 0.3]))


@pytest.fixture(scope="module")
def trained() -> MeinClassifier:
    """A small network that has really learned, on the embedded corpus."""
    demo = demo_corpus(seed=1, labeled=600, unlabeled=600, test=0)
    sizes = ("expert.embedding_dim", "expert.hidden_dim", "imitators.embedding_dim", "imitators.channels")
    settings = dict.fromkeys(sizes, 24) | {
        "pieces.vocabulary_size": 2_000,
        "expert_training.learning_rate": 0.01,
        "expert_training.batch_documents": 16,
        "imitator_training.epochs": 3,
        "imitator_training.learning_rate": 0.01,
        "imitator_training.batch_documents": 8,
        "mixture.method": "ours",
    }
    return tiny(settings=settings, random_state=1).fit(
        demo.labeled_texts, demo.labeled_labels, unlabeled=demo.unlabeled_texts
    )


def check_sums(found: Explanation) -> None:
    """log_odds = expert + sum of imitators, an imitator = sum of its fragments; no parts in silence."""
    if found.is_empty:
        assert (found.expert, sum(found.imitators.values()), found.fragments) == (0.0, 0.0, ())
        return
    assert found.log_odds == pytest.approx(found.expert + sum(found.imitators.values()), abs=EXACT)
    for window, part in found.imitators.items():
        spoken = sum(f.contribution for f in found.fragments if f.window == window)
        assert part == pytest.approx(spoken, abs=EXACT)
    for window, part in found.imitators.items():
        assert part == pytest.approx(sum(piece.parts[str(window)] for piece in found.pieces), abs=EXACT)
    for piece in found.pieces:
        assert piece.contribution == pytest.approx(sum(piece.parts.values()), abs=EXACT)
    strengths = [abs(fragment.contribution) for fragment in found.fragments]
    assert strengths == sorted(strengths, reverse=True)


@pytest.mark.parametrize("text", [*NEW[:5], "lovely", " ".join(NEW), "", "日本語 ☃", "qqqq"])
@pytest.mark.parametrize("model", ["of_three", "unlike_priors"])
def test_the_parts_add_up_to_what_is_predicted(text: str, model: str, request: pytest.FixtureRequest) -> None:
    classifier: Model = request.getfixturevalue(model)
    found = explain(classifier, text)
    check_sums(found)
    log_probs = classifier.log_probs([text])[0]
    first, second = np.sort(log_probs)[::-1][:2]
    assert found.log_odds == pytest.approx(first - second, abs=EXACT)
    assert found.label == classifier.labels.classes[log_probs.argmax()]
    assert found.probability == pytest.approx(np.exp(first))
    assert found.log_odds >= 0
    assert found.alternative != found.label


@pytest.mark.parametrize("label", ["negative", "positive", "so so"])
@pytest.mark.parametrize("against", ["negative", "positive", "so so"])
def test_any_two_labels_can_be_compared(of_three: Model, label: str, against: str) -> None:
    if label == against:
        with pytest.raises(InputError, match=rf"The label '{label}' cannot be compared with itself: give"):
            explain(of_three, NEW[2], label, against)
        return
    found = explain(of_three, NEW[2], label, against)
    check_sums(found)
    assert (found.label, found.alternative) == (label, against)
    log_probs = dict(zip(of_three.labels.classes, of_three.log_probs([NEW[2]])[0], strict=True))
    assert found.log_odds == pytest.approx(log_probs[label] - log_probs[against], abs=EXACT)
    assert found.probability == pytest.approx(np.exp(log_probs[label]))
    turned = explain(of_three, NEW[2], against, label)
    assert found.log_odds == pytest.approx(-turned.log_odds)
    assert sum(p.contribution for p in found.pieces) == pytest.approx(
        -sum(p.contribution for p in turned.pieces), abs=EXACT
    )


def test_one_label_is_compared_with_the_most_probable_other(of_three: Model) -> None:
    log_probs = of_three.log_probs([NEW[3]])[0]
    first, second, third = (of_three.labels.classes[y] for y in np.argsort(-log_probs))
    pairs = {(None, None): (first, second), (third, None): (third, first), (None, first): (second, first)}
    pairs |= {(first, None): (first, second), (None, third): (first, third)}
    for given, expected in pairs.items():
        found = explain(of_three, NEW[3], *given)
        assert (found.label, found.alternative) == expected
    with pytest.raises(InputError, match=r"The run has no label 'bad': choose among 'negative', 'positive'"):
        explain(of_three, NEW[3], against="bad")


def test_labels_that_are_numbers_may_be_given_as_words() -> None:
    numbers = [int(label == "positive") for label in LABELS]
    classifier = tiny().fit(TEXTS, numbers)
    assert classifier.explain(NEW[0], label="1") == classifier.explain(NEW[0], label=1, against=0)


def test_each_part_is_what_its_network_predicted(of_three: Model) -> None:
    """The expert's part is its own z, an imitator's its own alpha, weighed and cooled."""
    documents = of_three.encode(NEW[:1])
    found = explain(of_three, NEW[0])
    first, second = (of_three.labels.classes.index(name) for name in (found.label, found.alternative))
    z, alpha = of_three.expert_logits(documents)[0], of_three.alpha(documents)[:, 0]
    assert found.expert == pytest.approx((z[first] - z[second]) / 0.6, abs=1e-5)
    for i, window in enumerate((1, 2)):
        expected = of_three.gates[i] * (alpha[i, first] - alpha[i, second]) / 0.6
        assert found.imitators[window] == pytest.approx(expected, abs=1e-4)
        assert found.imitators[window] != 0


@torch.no_grad()
def test_a_fragment_counts_by_how_far_it_leans(of_three: Model) -> None:
    """Its share of its imitator's part is (a_j - b_j) / sum_j (a_j - b_j), of the two labels' p_ij.

    Where alpha is not centered, that is; centering moves all fragments of an imitator alike.
    """
    centered, of_three = explain(of_three, NEW[1]), deepcopy(of_three)
    networks_of(of_three).imitators.offset.zero_()
    found = explain(of_three, NEW[1])
    first, second = (of_three.labels.classes.index(name) for name in (found.label, found.alternative))
    pieces = torch.tensor(of_three.indexer.pieces.encode([" ".join(NEW[1].replace(".", " .").split())])[0])
    gap = torch.zeros(networks_of(of_three).imitators.gap, dtype=torch.int64)
    probs = (
        networks_of(of_three).imitators(torch.cat([gap, pieces, gap])).double().exp()[:, len(gap) : -len(gap)]
    )
    for i, window in enumerate((1, 2)):
        leans = [float(p[first] - p[second]) for p in probs[i]]
        expected = sorted(found.imitators[window] * lean / sum(leans) for lean in leans)
        spoken = sorted(f.contribution for f in found.fragments if f.window == window)
        assert spoken == pytest.approx(expected, rel=1e-3, abs=1e-4)
        if (centered.label, centered.alternative) == (found.label, found.alternative):
            moved = sorted(f.contribution for f in centered.fragments if f.window == window)
            assert np.ptp(np.array(moved) - np.array(spoken)) < 1e-4


def test_fragments_are_the_windows_of_the_text(of_three: Model) -> None:
    text = "never dull well worth it"
    pieces = of_three.indexer.pieces.fragments(of_three.indexer.pieces.encode([text])[0])
    found = explain(of_three, text).fragments
    for window in (1, 2):
        spans = {(f.start, f.stop): f.text for f in found if f.window == window}
        positions = range(len(pieces))
        assert len([f for f in found if f.window == window]) == len(pieces)
        for j in positions:
            start, stop = max(0, j - window), min(len(pieces), j + window + 1)
            assert spans[start, stop] == "".join(pieces[start:stop]).strip()


@torch.no_grad()
def test_a_fragment_shows_its_imitator_s_prediction(of_three: Model) -> None:
    """p_ij of the pieces that it holds, alone in the world: no window looks beyond them."""
    text = "never dull well worth it"
    pieces = of_three.indexer.pieces.encode([text])[0]
    for fragment in explain(of_three, text).fragments:
        assert fragment.window is not None
        i, c = networks_of(of_three).imitators.windows.index(fragment.window), fragment.window
        if fragment.stop - fragment.start < 2 * c + 1:
            continue  # at an edge, where the middle is not the middle
        seen = torch.tensor(pieces[fragment.start : fragment.stop])
        expected = networks_of(of_three).imitators(seen)[i, c].exp().tolist()
        assert fragment.probabilities == pytest.approx(expected, abs=1e-5)
        assert sum(fragment.probabilities) == pytest.approx(1.0, abs=1e-5)


def test_a_negative_gate_inverts_a_fragment_s_contribution(unlike_priors: Model) -> None:
    """The sign of a contribution and the fragment's own p_ij then differ, and both are shown."""
    turned = replace(unlike_priors, gates=-unlike_priors.gates)
    ours, theirs = (explain(model, NEW[0], "positive", "negative") for model in (unlike_priors, turned))
    by_place = {(f.window, f.start, f.stop): f for f in theirs.fragments}
    for fragment in ours.fragments:
        other = by_place[fragment.window, fragment.start, fragment.stop]
        assert other.probabilities == fragment.probabilities
        assert other.contribution == pytest.approx(-fragment.contribution, abs=EXACT)


def test_a_piece_counts_for_what_is_lost_without_it(of_three: Model) -> None:
    """Each piece is blanked in turn and the text read again; what is left over, all pieces share alike."""
    text = NEW[4]
    found = explain(of_three, text)
    first, second = (of_three.labels.classes.index(name) for name in (found.label, found.alternative))
    pieces = of_three.indexer.pieces_of([text]).values.tolist()
    gap, J = networks_of(of_three).imitators.gap, len(pieces)

    def lead(row: list[int]) -> np.ndarray:
        """log mean_j p_ij of the label less that of the alternative (I,), weighed."""
        stream = torch.tensor([0] * gap + row + [0] * gap)
        with torch.no_grad():
            p = networks_of(of_three).imitators(stream).double().exp()[:, gap : gap + J].mean(1).log().numpy()
        led: np.ndarray = of_three.gates / of_three.temperature * (p[:, first] - p[:, second])
        return led

    losses = np.array([lead(pieces) - lead([*pieces[:t], 0, *pieces[t + 1 :]]) for t in range(J)])  # (J, I)
    for i, (window, part) in enumerate(found.imitators.items()):
        expected = losses[:, i] + (part - losses[:, i].sum()) / J
        assert [piece.parts[str(window)] for piece in found.pieces] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "Never  DULL,\n well-worth it!",
        "a<br />bore",
        "☃lovely☃☃film☃",
        "日本語 ☃",
        "half \ud800 pair ▁ here",
        "lovelyunheardofwordqqq",
        "",
    ],
)
def test_pieces_stand_where_the_text_has_them(of_three: Model, text: str) -> None:
    found = explain(of_three, text)
    assert "".join(shown for shown, _ in laid_out(found)) == text
    for piece in found.pieces:
        assert text[piece.start : piece.stop].lower() == piece.text.strip()
    places = [(piece.start, piece.stop) for piece in found.pieces]
    assert places == sorted(places)
    assert len(found.pieces) == of_three.encode([text]).pieces.lengths[0]


def test_where_letters_change_number_the_text_is_still_the_one_that_was_written(of_three: Model) -> None:
    text = "İ lovely"  # two characters in lower case
    found = explain(of_three, text)
    assert "".join(shown for shown, _ in laid_out(found)) == text
    last = text[found.pieces[-1].start : found.pieces[-1].stop]
    assert last
    assert "lovely".endswith(last)
    assert not any(" " in text[piece.start : piece.stop] for piece in found.pieces)


def test_fragments_quote_signs_that_no_piece_spells(of_three: Model) -> None:
    text = "a lovely film ☃ 日本語 for 7"
    found = explain(of_three, text)
    assert any("☃" in fragment.text for fragment in found.fragments)
    assert not any("\N{REPLACEMENT CHARACTER}" in fragment.text for fragment in found.fragments)
    named = Predictor(of_three, fragments=5)([text])["fragments"][0].as_py()
    assert [row["text"] for row in named] == [fragment.text for fragment in found.fragments[:5]]


def test_the_page_is_complete_and_escaped(of_three: Model) -> None:
    text = '<script>alert("dreadful")</script> & lovely'
    page = as_page(explain(of_three, text))
    root = ElementTree.fromstring(
        page.replace("<!doctype html>", "")
        .replace('">\n<meta', '"/>\n<meta')
        .replace('initial-scale=1">', 'initial-scale=1"/>')
    )
    assert root.find(".//script") is None
    assert root.findtext("head/title", "").startswith("Why ")
    maps = ["".join(one.itertext()) for one in root.iterfind(".//p[@class='map']")]
    assert maps == [text] * 3  # together, and each window
    names = {one.get("id") for one in root.iterfind(".//h2")}
    assert {one.get("aria-labelledby") for one in root.iterfind(".//section")} <= names
    assert not re.search(r"https?://|<link|src=", page)  # nothing is fetched
    assert "prefers-color-scheme: dark" in page


def test_a_page_may_do_nothing_but_apply_its_own_style(of_three: Model) -> None:
    page = as_page(explain(of_three, NEW[1]))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert page.index(f'<meta http-equiv="Content-Security-Policy" content="{policy}">') < page.index(
        "<style>"
    )
    assert not re.search(r" style=| on[a-z]+=|<script", page)  # which the policy would forbid
    used = set(re.findall(r'class="(?:for|against) (s\d+)"', page))
    assert {"s12", f"s{DEPTHS}"} <= used <= set(re.findall(r"\.(s\d+) \{ --s:", style))


def test_a_page_of_hostile_labels() -> None:
    labels = ["<b>&" if label == "positive" else '"no"' for label in LABELS]
    found = tiny().fit(TEXTS, labels, unlabeled=RAW).explain(NEW[0])
    page = as_page(found)
    assert "<b>&<" not in page
    assert "&lt;b&gt;&amp;" in page


def test_who_a_fragment_spoke_for(of_three: Model) -> None:
    found = explain(of_three, "dreadful, not worth it, lovely")
    strongest = found.fragments[0]
    assert found.contribution_label(replace(strongest, contribution=0.1)) == found.label
    assert found.contribution_label(replace(strongest, contribution=-0.1)) == found.alternative


def test_an_empty_text_is_explained_by_the_prior(unlike_priors: Model) -> None:
    found = explain(unlike_priors, " \n ")
    assert (found.label, found.alternative) == ("negative", "positive")
    assert found.is_empty
    assert found.log_odds == pytest.approx(np.log(unlike_priors.prior[0] / unlike_priors.prior[1]))
    assert (found.expert, found.imitators, found.fragments) == (0.0, {1: 0.0, 2: 0.0}, ())


def test_where_labels_are_equally_likely_explain_names_the_predicted_one(unlike_priors: Model) -> None:
    even = replace(unlike_priors, prior=np.array([0.5, 0.5]))
    assert explain(even, "").label == even.labels.classes[even.log_probs([""])[0].argmax()]


def test_unknown_characters_are_shown_as_they_were_written(unlike_priors: Model) -> None:
    found = explain(unlike_priors, "☃☃")
    assert not found.is_empty
    assert {fragment.text.replace(" ", "") for fragment in found.fragments} <= {"☃", "☃☃"}
    assert len(found.fragments) > 0


def test_without_raw_text_the_expert_is_the_only_part() -> None:
    found = tiny().fit(TEXTS, LABELS).explain(NEW[0])
    assert (found.imitators, found.fragments) == ({}, ())
    assert found.log_odds == pytest.approx(found.expert, abs=EXACT)


def test_with_closed_gates_too(of_three: Model) -> None:
    closed = replace(of_three, gates=np.zeros(0))
    found = explain(closed, NEW[0])
    assert (found.imitators, found.fragments) == ({}, ())
    check_sums(found)


def test_plain_data_survives_json(of_three: Model) -> None:
    found = explain(of_three, NEW[0])
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["label"] == found.label
    assert plain["fragments"][0]["text"] == found.fragments[0].text
    assert len(plain["fragments"]) == len(found.fragments)


def without(model: Model, text: str, spans: list[tuple[int, int]]) -> str:
    """The text without the words that these spans of pieces touch."""
    words = tokenize(text, model.indexer.words_config)
    lengths = [len(pieces) for pieces in model.indexer.pieces.encode(words)]
    owner = np.repeat(np.arange(len(words)), lengths)
    dropped = {int(word) for start, stop in spans for word in owner[start:stop]}
    return " ".join(word for place, word in enumerate(words) if place not in dropped)


def falls(classifier: MeinClassifier, texts: list[str], count: int) -> Iterator[tuple[float, float]]:
    """How far p(label) falls without the top fragments, and without as many random ones."""
    chance = np.random.default_rng(0)
    for text in texts:
        found = classifier.explain(text)
        column = classifier.classes_.tolist().index(found.label)
        pool = [f for f in found.fragments if f.window == found.fragments[0].window]
        for_label = sorted(pool, key=lambda f: -f.contribution)[:count]
        random = [[pool[i] for i in chance.choice(len(pool), count, replace=False)] for _ in range(5)]
        spoiled = [
            without(classifier.model_, text, [(f.start, f.stop) for f in chosen])
            for chosen in (for_label, *random)
        ]
        drops = found.probability - classifier.predict_proba(spoiled)[:, column]
        yield float(drops[0]), float(drops[1:].mean())


def test_what_it_calls_important_is_important(trained: MeinClassifier) -> None:
    """Without the words of the three top fragments p(label) falls further than without random ones."""
    texts = demo_corpus(seed=1, labeled=2, unlabeled=2, test=60).test_texts
    top, random = np.array(list(falls(trained, texts, count=3))).T
    assert top.mean() > 3 * random.mean()
    assert top.mean() > 0.1


def test_the_pieces_it_colors_most_are_important_too(trained: MeinClassifier) -> None:
    """Without the words of the five strongest pieces p(label) falls further than without random ones."""
    texts, chance = demo_corpus(seed=1, labeled=2, unlabeled=2, test=60).test_texts, np.random.default_rng(0)
    drops = []
    for text in texts:
        found = trained.explain(text)
        order = np.argsort([-piece.contribution for piece in found.pieces])[:5]
        random = chance.choice(len(found.pieces), 5, replace=False)
        spoiled = [without(trained.model_, text, [(j, j + 1) for j in rows]) for rows in (order, random)]
        column = trained.classes_.tolist().index(found.label)
        drops.append(found.probability - trained.predict_proba(spoiled)[:, column])
    top, by_chance = np.mean(drops, axis=0)
    assert top > 3 * by_chance
    assert top > 0.1


def test_fragments_of_an_imitator_that_corrects_come_last(of_three: Model) -> None:
    layout = lay_out(of_three.indexer, "lovely")
    shares, probs = np.array([[9.0, -8.0], [0.5, -1.0]]), np.full((2, 2, 2), 0.5)

    def ranked(*weights: float) -> list[float]:
        source = WindowFragments((1, 2), layout, probs, shares, np.array(weights))
        return [fragment.contribution for fragment in RankedFragments([source])]

    assert ranked(1.0, 1.0) == [9.0, -8.0, -1.0, 0.5]
    assert ranked(-1.0, 1.0) == [-1.0, 0.5, 9.0, -8.0]
    assert ranked(0.0, -1.0) == [-1.0, 0.5, 9.0, -8.0]  # one without a weight explains nothing
