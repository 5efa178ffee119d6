"""The synthetic demo corpus: seeded, balanced, noisy, hard for word counts, and rich in rare n-grams."""

import json
from collections import Counter
from hashlib import sha256

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mein.data import demo
from mein.data.demo import DemoCorpus, Opinion, demo_corpus, opinions
from mein.data.splits import fingerprints, word_string


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return demo_corpus()


def find_opinions(text: str, known: dict[str, Opinion]) -> list[Opinion]:
    """The opinions of a text, the longest first where several begin at a word."""
    words = word_string(text).split()
    found, place = [], 0
    while place < len(words):
        sizes = [size for size in range(7, 0, -1) if " ".join(words[place : place + size]) in known]
        size = sizes[0] if sizes else 1
        if sizes:
            found.append(known[" ".join(words[place : place + size])])
        place += size
    return found


def known_opinions(seed: int) -> dict[str, Opinion]:
    return {opinion.words: opinion for ranked in opinions(seed).values() for opinion in ranked}


def test_the_corpus_is_the_one_whose_figures_are_published(corpus: DemoCorpus) -> None:
    """The digest of commit b8c219c: another spelling of a word is another corpus."""
    parts = [
        corpus.labeled_texts,
        corpus.labeled_labels,
        corpus.unlabeled_texts,
        corpus.test_texts,
        corpus.test_labels,
    ]
    digest = sha256(json.dumps([list(part) for part in parts]).encode("utf-8")).hexdigest()
    assert digest == "9824afca023629a77e3efd71461ea470628e39e7c7145f49e6ebabfd77cbe04e"


def test_sizes_and_labels(corpus: DemoCorpus) -> None:
    assert len(corpus.labeled_texts) == len(corpus.labeled_labels) == 300
    assert len(corpus.unlabeled_texts) == 20_000
    assert len(corpus.test_texts) == len(corpus.test_labels) == 2_000
    share = Counter(corpus.test_labels)["positive"] / 2_000
    assert set(corpus.test_labels) == {"negative", "positive"}
    assert 0.47 < share < 0.53
    small = demo_corpus(labeled=10, unlabeled=20, test=30)
    assert [len(part) for part in (small.labeled_texts, small.unlabeled_texts)] == [10, 20]


def test_the_seed_decides() -> None:
    assert demo_corpus(3, 20, 20, 20) == demo_corpus(3, 20, 20, 20)
    assert demo_corpus(3, 20, 20, 20).test_texts != demo_corpus(4, 20, 20, 20).test_texts


def test_parts_do_not_overlap(corpus: DemoCorpus) -> None:
    parts = (corpus.labeled_texts, corpus.unlabeled_texts, corpus.test_texts)
    hashes = np.concatenate([fingerprints(part) for part in parts])
    assert len(np.unique(hashes)) == len(hashes)


def test_documents_are_of_a_review_s_length(corpus: DemoCorpus) -> None:
    lengths = [len(text.split()) for text in corpus.unlabeled_texts]
    assert min(lengths) >= demo.FEWEST_WORDS
    assert 30 <= np.median(lengths) <= 50
    assert np.percentile(lengths, 95) <= 70


def test_signs_have_equally_many_opinions_and_share_their_words() -> None:
    ranked = opinions(0)
    assert len(ranked[+1]) == len(ranked[-1]) > 300
    known = known_opinions(0)
    assert len(known) == len(ranked[+1]) + len(ranked[-1]), "no n-gram has both signs"
    words = {sign: {w for o in ranked[sign] for w in o.words.split()} for sign in ranked}
    shared = words[+1] & words[-1]
    assert len(shared) > 0.8 * len(words[+1] | words[-1])
    assert {len(opinion.words.split()) for opinion in known.values()} >= {1, 2, 3, 4}


def test_most_opinions_are_rare_among_labels_and_common_in_raw_text(corpus: DemoCorpus) -> None:
    known = known_opinions(0)
    among = {
        part: Counter(o.words for text in texts for o in find_opinions(text, known))
        for part, texts in (("few", corpus.labeled_texts), ("many", corpus.unlabeled_texts))
    }
    few = np.array([among["few"][words] for words in known])
    many = np.array([among["many"][words] for words in known])
    assert (few <= 3).mean() > 0.8
    assert (many >= 10).mean() > 0.8
    assert np.median(many) >= 20
    assert many.max() > 50 * np.median(many), "a small set is common"


def test_who_knows_all_opinions_errs_by_the_label_noise_alone(corpus: DemoCorpus) -> None:
    known = known_opinions(0)
    sums = [sum(o.sign for o in find_opinions(text, known)) for text in corpus.test_texts]
    wrong = np.mean(
        [
            (total > 0) != (label == demo.POSITIVE)
            for total, label in zip(sums, corpus.test_labels, strict=True)
        ]
    )
    assert 0.02 <= wrong <= 0.05


def test_word_counts_with_few_labels_err_often_and_with_many_less() -> None:
    errors = {}
    corpus = demo_corpus(seed=1, labeled=3_000, unlabeled=0, test=2_000)
    for size in (300, 3_000):
        model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10))
        model.fit(corpus.labeled_texts[:size], corpus.labeled_labels[:size])
        errors[size] = 1 - model.score(corpus.test_texts, corpus.test_labels)
    assert 0.10 <= errors[300] <= 0.25
    assert errors[3_000] <= errors[300] - 0.04


def test_negation_and_contrast_occur(corpus: DemoCorpus) -> None:
    everything = " ".join(corpus.unlabeled_texts).lower()
    for word in ("although", "but", "not at all", "never", "hardly", "the battery", "the food"):
        assert everything.count(f"{word} ") > 50
