"""What a document weighs, it weighs everywhere: in training, in what is chosen on dev, in the lexicon."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from mein.data.columns import ColumnsConfig
from mein.data.corpus import as_weights, corpus_of_lists, source_of_lists
from mein.data.demo import demo_corpus
from mein.errors import InputError
from mein.evaluation.metrics import fit_temperature
from mein.mixture.gates import fit_gates, is_worse, shrunk
from mein.run.documents import Split, read_labeled
from mein.training.stages import standard_error, supervised_scores
from tests.support import tiny

RNG = np.random.default_rng(0)
Z, ALPHA, Y = RNG.normal(size=(40, 3)), RNG.normal(size=(2, 40, 3)), RNG.integers(0, 3, 40)
ALPHA[:, :20] *= 5.0  # so that the scale of a component depends on the weights of documents
TWICE = np.r_[np.full(20, 2.0), np.ones(20)].astype(np.float32)
REPEATED = np.r_[np.arange(20), np.arange(40)]


def test_a_document_of_weight_2_counts_on_dev_as_if_it_were_there_twice() -> None:
    z, alpha, y = Z[REPEATED], ALPHA[:, REPEATED], Y[REPEATED]
    weighed, plain = fit_gates(Z, ALPHA, Y, TWICE), fit_gates(z, alpha, y)
    assert_allclose(weighed[0], plain[0], rtol=1e-3)
    assert weighed[1] == pytest.approx(plain[1], rel=1e-4)
    assert fit_temperature(Z, Y, weights=TWICE) == pytest.approx(fit_temperature(z, y), rel=1e-4)
    scores = supervised_scores(torch.from_numpy(Z), Y, TWICE)
    assert scores == pytest.approx(supervised_scores(torch.from_numpy(z), y, np.ones(60)))
    assert fit_gates(Z, ALPHA, Y, TWICE)[0].tolist() != fit_gates(Z, ALPHA, Y)[0].tolist()


def test_a_calibrated_log_loss_does_not_depend_on_the_scale_of_logits() -> None:
    """That of logits drawn with their labels is about their own log-loss, whatever they are multiplied by."""
    draws = np.random.default_rng(0)
    z = draws.normal(size=(6_000, 3))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = (p.cumsum(1) < draws.random((6_000, 1))).sum(1)
    w = draws.choice([1.0, 2.0], 6_000)
    true = float(-(w @ np.log(p[np.arange(6_000), y])) / w.sum())
    found = [supervised_scores(torch.from_numpy(scale * z), y, w) for scale in (0.1, 1.0, 10.0)]
    assert [scores["dev_log_loss_calibrated"] for scores in found] == pytest.approx([true] * 3, rel=2e-3)
    assert found[2]["dev_log_loss"] > 2 * true
    assert [*found[0]][:2] == ["dev_error", "dev_log_loss"], "what decides between epochs"


@pytest.mark.parametrize("documents", [100, 2_500])
def test_an_error_depends_on_how_many_are_wrong_and_not_on_which(documents: int) -> None:
    """Else its last bits, and not the log-loss, would decide between epochs that err equally often."""
    draws, labels = np.random.default_rng(2), np.zeros(documents, dtype=np.int64)
    for wrong in (documents // 7, documents // 4):
        found = []
        for _ in range(50):
            z = np.tile([1.0, 0.0], (documents, 1))
            z[draws.choice(documents, wrong, replace=False)] = [0.0, 1.0]
            found.append(supervised_scores(torch.from_numpy(z), labels, np.ones(documents, np.float32)))
        assert {scores["dev_error"] for scores in found} == {100.0 * (wrong / documents)}


def test_an_error_of_uneven_weights_depends_on_the_weights_of_the_wrong_alone() -> None:
    draws, labels = np.random.default_rng(2), np.zeros(900, dtype=np.int64)
    weights = np.tile(np.array([1e-6, 0.3, 1.7], np.float32), 300)
    found = []
    for _ in range(50):
        z = np.tile([1.0, 0.0], (900, 1))
        z[(3 * draws.choice(300, 40, replace=False) + [[0], [1], [2]]).ravel()] = [0.0, 1.0]
        found.append(supervised_scores(torch.from_numpy(z), labels, weights))
    assert len({scores["dev_error"] for scores in found}) == 1
    assert found[0]["dev_error"] == pytest.approx(100 * 40 / 300)


def test_the_chance_in_an_error_is_that_of_the_documents_which_weigh() -> None:
    """Beside 20,000 draws of which documents are wrong: 90 that hardly count, and 10 that do."""
    weights = np.r_[np.full(90, 1e-3), np.ones(10)].astype(np.float32)
    is_wrong = np.random.default_rng(0).random((20_000, 100)) < 0.3
    errors = 100 * (is_wrong @ weights) / weights.sum()
    assert standard_error(30.0, 7 * weights) == pytest.approx(errors.std(), rel=0.02)
    for documents in (1, 75, 2_500):  # to the bit, the textbook's for weights of 1
        assert standard_error(12.3, np.ones(documents, np.float32)) == math.sqrt(12.3 * 87.7 / documents)


def test_light_documents_do_not_outvote_a_heavy_one() -> None:
    labels, one_hot = np.zeros(20, dtype=int), np.eye(2)
    before = one_hot[np.repeat([0, 1], [19, 1])]
    after = one_hot[np.repeat([1, 0], [10, 10])]  # ten become wrong, and the last one right
    light = np.r_[np.full(10, 1e-6), np.ones(10)]
    assert is_worse(after, before, labels)
    assert not is_worse(after, before, labels, light)
    one_wrong = one_hot[np.repeat([1, 0, 1], [1, 18, 1])]
    assert not is_worse(one_wrong, before, labels, np.full(20, 4.0))  # chance, on whatever scale
    alpha, gates = 2 * (after - before)[None], np.array([1.0])
    assert shrunk(before, alpha, labels, gates).tolist() == [0.25]
    assert shrunk(before, alpha, labels, gates, light).tolist() == [1.0]


def test_weights_have_the_mean_1_on_train_whatever_their_scale() -> None:
    corpus = tiny.corpus()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 80)
    found = [
        read_labeled(tiny.config(class_weight="balanced"), replace(corpus, sample_weight=scale * weights))
        for scale in (1.0, 1e-3)
    ]
    for labeled in found:
        assert labeled.train_weights.mean() == pytest.approx(1.0, rel=1e-6)
        assert labeled.dev_weights.std() > 0.1
        by_text = dict(zip(tiny.TEXTS.labeled_texts, weights, strict=True))
        sample = np.array([by_text[text] for text in labeled.dev_texts])
        assert_allclose(labeled.dev_weights / labeled.dev_weights[0], sample / sample[0], rtol=1e-5)
        ids, examples = labeled.examples("dev")
        assert_allclose(examples, labeled.dev_weights * labeled.class_weights[ids], rtol=1e-6)
    assert_allclose(found[0].train_weights, found[1].train_weights, rtol=1e-5)
    assert_allclose(found[0].dev_weights, found[1].dev_weights, rtol=1e-5)


def test_classes_are_balanced_by_the_labels_outside_a_fold() -> None:
    """By sample weights; whatever the labels inside it, which weigh what their class does outside."""
    texts, held = tiny.TEXTS.labeled_texts, np.arange(80) % 5 == 0
    sample = np.random.default_rng(1).uniform(0.5, 2.0, 80)
    found = []
    for inside in ("a", "b"):
        labels = [inside if is_held else "ab"[i % 3 == 0] for i, is_held in enumerate(held)]
        documents = replace(tiny.corpus(), labeled=source_of_lists(texts, labels), sample_weight=sample)
        settings = {"expert__kind": "linear", "class_weight": "balanced"}
        found.append(read_labeled(tiny.config(**settings), documents))
    for labeled in found:
        weights, ids = labeled.weights_without(held), labeled.train_ids
        sums = np.bincount(ids[~held], weights[~held])
        assert sums[0] == pytest.approx(sums[1], rel=1e-5)  # as heavy as each other
        assert sums.sum() == pytest.approx(labeled.sample_weights[~held].sum(), rel=1e-5)
        ratio = weights / sample
        for y in (0, 1):
            assert_allclose(ratio[ids == y], ratio[~held & (ids == y)][0], rtol=1e-5)
        assert_array_equal(labeled.weights_without(np.zeros(80, bool)), labeled.train_weights)
    assert_array_equal(*(labeled.weights_without(held)[~held] for labeled in found))


def test_a_dev_document_weighs_for_a_lexicon_what_its_class_weighs_in_train() -> None:
    labels = ["positive"] * 60 + ["negative"] * 20
    documents = replace(tiny.corpus(), labeled=source_of_lists(tiny.TEXTS.labeled_texts, labels))
    labeled = read_labeled(tiny.config(class_weight="balanced"), documents)
    for y in (0, 1):
        in_train = labeled.train_weights[labeled.train_ids == y]
        in_dev = labeled.examples("dev")[1][labeled.dev_ids == y]
        assert len({*in_train.tolist(), *in_dev.tolist()}) == 1
    assert_array_equal(labeled.dev_weights, 1.0)  # in validation, classes are as frequent as they are


@pytest.mark.parametrize("has_sample_weights", [False, True])
def test_class_weights_by_name_are_those_of_balanced_where_they_are_the_same_numbers(
    has_sample_weights: bool,
) -> None:
    labels = ["positive"] * 60 + ["negative"] * 20
    sample = np.random.default_rng(1).uniform(0.5, 2.0, 80) if has_sample_weights else None

    def read(named: Mapping[Any, float] | None, kind: str | None) -> Split:
        given = as_weights(sample, named, labels)
        columns = ColumnsConfig()
        documents = corpus_of_lists(tiny.TEXTS.labeled_texts, labels, given, None, columns, Path("unused"))
        return read_labeled(tiny.config(class_weight=kind), documents)

    balanced = read(None, "balanced")
    counts = np.bincount(balanced.train_ids, balanced.sample_weights)
    by_hand = {name: 1_000 / n for name, n in zip(balanced.labels.classes, counts.tolist(), strict=True)}
    named = read(by_hand, None)
    assert_allclose(named.train_weights, balanced.train_weights, rtol=1e-6)
    assert_array_equal(named.dev_weights, balanced.dev_weights)
    assert_allclose(named.class_weights, balanced.class_weights, rtol=1e-12)
    ratio = 3.0 if sample is None else counts[1] / counts[0]  # 60 documents beside 20
    assert named.class_weights[0] == pytest.approx(ratio * named.class_weights[1])
    assert_allclose(read({"negative": ratio}, None).class_weights, balanced.class_weights)  # others weigh 1
    assert_allclose(read(by_hand, "balanced").class_weights, read({"negative": ratio**2}, None).class_weights)


def test_the_digest_distinguishes_weights_of_dev_and_is_unchanged_without_any() -> None:
    plain = read_labeled(tiny.config(), tiny.corpus())
    other = replace(plain, dev_weights=plain.dev_weights * 2)
    assert plain.digest != other.digest
    assert plain.digest == replace(plain, dev_weights=np.ones(len(plain.dev_ids))).digest


def test_wrong_labels_of_next_to_no_weight_do_no_harm(tmp_path: Path) -> None:
    """Half of the labels are wrong, and weigh a millionth: as good as if they were not there."""
    from mein import MeinClassifier

    texts = demo_corpus(seed=5, labeled=300, unlabeled=300, test=400)
    is_wrong = np.random.default_rng(0).random(300) < 0.5
    other = {"positive": "negative", "negative": "positive"}
    labels = [other[y] if wrong else y for y, wrong in zip(texts.labeled_labels, is_wrong, strict=True)]
    settings = {"expert.kind": "lstm", **tiny.SETTINGS, "mixture.method": "ours"}
    settings["expert_training.epochs"] = 1
    del settings["runtime.device"]
    model = MeinClassifier(preset="small", settings=settings, run_dir=tmp_path / "run", device="cpu")
    model.fit(texts.labeled_texts, labels, np.where(is_wrong, 1e-6, 1.0), unlabeled=texts.unlabeled_texts)
    error = np.mean(model.predict(texts.test_texts) != np.array(texts.test_labels))
    assert error < 0.22  # 0.33 where dev took them in full


def test_texts_without_a_label_do_not_change_the_scale() -> None:
    assert as_weights([0.1, 0.2, 5], None, ["a", "b", None]).of_texts[:2].tolist() == [0.5, 1.0]
    assert as_weights([1, 2, 0.5], None, ["a", "b", None]).of_texts[:2].tolist() == [1.0, 2.0]  # are whole


def test_a_class_that_weighs_nothing_is_as_good_as_absent() -> None:
    found = as_weights([1, 2, 2, 1], {"a": 0, "b": 0.02}, ["a", "b", "c", "a"])
    assert found.of_texts.tolist() == [0.0, 2.0, 2.0, 0.0]
    with pytest.raises(InputError, match=r"^The weights of texts or classes differ by more than 10\*\*37"):
        as_weights(None, {"a": 1e-60}, ["a", "b"])  # none in 32 bits
    with pytest.raises(InputError, match="The weight of every text is 0: give some of them"):
        as_weights([1, 0], {"a": 0}, ["a", "b"])


@pytest.mark.parametrize(("margin", "documents", "usual"), [(0.1, 75, 20.0), (0.004, 150, 1.0)])
def test_a_temperature_is_the_best_of_all_and_not_of_one_valley(
    margin: float, documents: int, usual: float
) -> None:
    z, y = np.tile([0.0, margin], (documents, 1)), np.ones(documents, dtype=int)
    found = fit_temperature(z, y, usual)

    def cost(T: float) -> float:
        return float(np.log1p(np.exp(-margin / T)) + np.log(T / usual) ** 2 / (2 * documents))

    assert cost(found) <= min(cost(T) for T in np.geomspace(0.05, 1_000, 2_000)) + 1e-6
