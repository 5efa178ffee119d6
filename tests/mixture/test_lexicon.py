"""The lexicon: naive Bayes' weights and logistic regression, and one more component of the mixture."""

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from mein.cli.training import weights_line
from mein.errors import RunError
from mein.evaluation.comparison import verdict_of
from mein.evaluation.rendering import signed
from mein.evaluation.systems import CLOSED_GATES, EXPERT, MIXTURE
from mein.explain import explain
from mein.explain.page import sum_of_parts
from mein.mixture import lexicon as module
from mein.mixture.lexicon import (
    LEXICON,
    LEXICON_OF_TRAIN,
    informativeness_of,
    learn_lexicon,
    load_lexicon,
)
from mein.model.artefacts import restore
from mein.model.loading import Classifiers, load_model, read_config
from mein.report.card import card
from mein.report.page import page
from mein.report.record import read_finished
from mein.run.algorithm import learned_imitators
from mein.run.evaluate import encoded, log_probs_of_all
from mein.run.pipeline import train_and_evaluate
from mein.run.prepare import prepare
from mein.run.state import evidence, evidence_on
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.serve.schema import explained
from mein.text.features import LARGEST_OF_TRIPLES, codes_of
from mein.text.ragged import Ragged, concatenate, ragged
from tests.support import tiny

V = 12
MIXED = "mixture.safetensors"
CPU = torch.device("cpu")


def documents(count: int, seed: int = 0) -> tuple[Ragged, np.ndarray]:
    """Random pieces that lean to one of three labels; the last document is empty."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    rows = [
        [int(p) % V for p in generator.normal(3 * y, 2.5, generator.integers(1, 30)).clip(0)] for y in labels
    ]
    return ragged([*rows[:-1], []]), labels


def n_grams(row: list[int]) -> Iterator[str]:
    for length in (1, 2, 3):
        yield from (" ".join(map(str, row[at : at + length])) for at in range(len(row) - length + 1))


def log_odds(holds: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> list[float]:
    """The largest |log-odds| of each entry, in plain loops."""
    found = []
    counts = {
        y: [
            1 + sum(w for row, w in zip(holds, weights * (labels == y), strict=True) if row[entry])
            for entry in range(holds.shape[1])
        ]
        for y in sorted(set(labels.tolist()))
    }
    for entry in range(holds.shape[1]):
        ratios = []
        for y in counts:
            others = [sum(counts[o][e] for o in counts if o != y) for e in range(holds.shape[1])]
            ratios.append(
                abs(np.log(counts[y][entry] / sum(counts[y])) - np.log(others[entry] / sum(others)))
            )
        found.append(max(ratios))
    return found


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_logistic_regression_on_what_naive_bayes_weighs(classes: int) -> None:
    pieces, labels = documents(200)
    labels, others = labels % classes, documents(50, seed=1)[0]
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 200)
    lexicon = learn_lexicon(pieces, labels, weights, classes, V)
    vectors = CountVectorizer(analyzer=lambda row: list(n_grams(row)), min_df=2, binary=True)
    holds = vectors.fit_transform(pieces.to_lists()).toarray()
    informativeness = np.array(log_odds(holds, labels, weights))
    np.testing.assert_allclose(np.sort(lexicon.informativeness), np.sort(informativeness), rtol=1e-5)
    learned = LogisticRegression(C=30.0, max_iter=1000)
    learned.fit(normalize(holds * informativeness), labels, sample_weight=weights)
    wanted = learned.predict_log_proba(
        normalize(vectors.transform(others.to_lists()).toarray() * informativeness)
    )
    found = lexicon.log_probs(others)
    np.testing.assert_allclose(found, wanted, atol=5e-3)
    assert (found.argmax(1) != found.argmax(1)[0]).any()


def test_the_informativeness_of_an_entry_by_hand() -> None:
    """Entry 0 stands in 2 documents of the first class and 0 of the second, entry 1 in 1 and 1."""
    holds = csr_array(np.array([[1, 0], [1, 1], [0, 0], [0, 1]], np.float32))
    found = informativeness_of(holds, np.array([0, 0, 0, 1]), np.ones(4))
    first, second = (2 + 1) / (3 + 2), (0 + 1) / (1 + 2)
    np.testing.assert_allclose(found, [np.log(first / second), np.log((1 - second) / (1 - first))], rtol=1e-6)
    twice = informativeness_of(holds, np.array([0, 0, 0, 1]), np.array([2.0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(twice[0], np.log((3 + 1) / (4 + 2) / second), rtol=1e-6)
    assert informativeness_of(holds, np.zeros(4, int), np.ones(4)).tolist() == [1.0, 1.0]


def test_of_very_many_documents_it_reads_some_drawn_alike_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, labels = documents(300)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 300)
    all_of_them = module._few_enough(pieces.lengths)
    assert all_of_them.tolist() == list(range(300))
    monkeypatch.setattr(module, "MOST_PIECES", 2_000)
    kept = module._few_enough(pieces.lengths)
    assert 1_900 < pieces.lengths[kept].sum() <= 2_000
    assert kept.tolist() == sorted(kept)
    assert kept.max() - kept.min() > 250  # drawn from everywhere
    found = learn_lexicon(pieces, labels, weights, 3, V)
    monkeypatch.setattr(module, "MOST_PIECES", 10_000)
    wanted = learn_lexicon(pieces.take(kept), labels[kept], weights[kept], 3, V)
    np.testing.assert_array_equal(found.entries, wanted.entries)
    np.testing.assert_array_equal(found.weights, wanted.weights)


def test_a_document_too_long_to_learn_from_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PIECES", 100)
    assert module._few_enough(np.array([5, 1_000, 5, 11, 5])).tolist() == [0, 2, 4]
    assert module._few_enough(np.array([60, 40])).tolist() == [0, 1]


def test_a_vocabulary_too_large_for_triples_has_pairs() -> None:
    pieces = ragged([[0, 1, LARGEST_OF_TRIPLES - 1], [5]])
    codes = codes_of(pieces, LARGEST_OF_TRIPLES, 3)[1]
    assert len(codes) == 4 + 2
    _, codes = codes_of(pieces, LARGEST_OF_TRIPLES - 1, 3)
    assert len(codes) == 4 + 2 + 1
    last = (LARGEST_OF_TRIPLES - 1) ** 3 + 2 * (LARGEST_OF_TRIPLES - 1) ** 2
    assert last < 2**63


def test_a_document_gets_the_same_word_alone_and_in_company() -> None:
    pieces, labels = documents(100)
    lexicon = learn_lexicon(pieces, labels, np.ones(100), 3, V)
    together = lexicon.log_probs(pieces)
    alone = [lexicon.log_probs(pieces.take(np.array([row]))) for row in range(100)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_unseen_pieces_contribute_nothing() -> None:
    pieces, labels = documents(100)
    lexicon = learn_lexicon(pieces, labels, np.ones(100), 3, 40)
    empty, strange, mixed = lexicon.log_probs(ragged([[], [30, 39], [30, 1, 39]]))
    np.testing.assert_array_equal(strange, empty)
    assert not np.array_equal(mixed, empty)
    assert lexicon.log_probs(ragged([])).shape == (0, 3)


def test_an_entry_stands_in_two_documents_and_only_the_most_frequent_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces = ragged([[1, 1, 2], [2, 3], [2, 3], [4]])
    labels = np.array([0, 1, 0, 1])
    every = learn_lexicon(pieces, labels, np.ones(4), 2, V)
    assert every.entries.tolist() == [2, 3, (2 + 1) * V + 3]
    monkeypatch.setattr(module, "MOST_WEIGHTS", 4)
    assert learn_lexicon(pieces, labels, np.ones(4), 2, V).entries.tolist() == [2, 3]
    monkeypatch.setattr(module, "MOST_ENTRIES", 1)
    assert learn_lexicon(pieces, labels, np.ones(4), 2, V).entries.tolist() == [2]


def test_a_class_without_documents_is_unlikely_but_not_impossible() -> None:
    pieces, labels = documents(100)
    p = np.exp(learn_lexicon(pieces, np.where(labels == 2, 3, labels), np.ones(100), 5, V).log_probs(pieces))
    assert (p[:, [2, 4]] > 0).all()
    assert (p[:, [2, 4]].max(1) < p[:, [0, 1, 3]].max(1) / 10).all()
    assert (p[:, 2] == p[:, 4]).all()
    assert p[-1, 2] == pytest.approx(1 / 105)  # of the empty document: their share, if each had one more


@pytest.mark.parametrize("rows", [[[1, 2], [1, 2]], [[], []]], ids=["one label", "no piece"])
def test_with_nothing_to_learn_it_predicts_the_same_for_all(rows: list[list[int]]) -> None:
    labels = np.array([0, 0]) if rows[0] else np.array([0, 1])
    log_probs = learn_lexicon(ragged(rows), labels, np.ones(2), 2, V).log_probs(ragged([[1], [5, 6]]))
    assert np.isfinite(log_probs).all()
    assert np.array_equal(log_probs[0], log_probs[1])


def test_classes_of_one_or_two_documents_are_learned_without_a_warning() -> None:
    pieces = ragged([[y, y + 30, k] for y in range(30) for k in (70, 71 + y % 2)[: 1 + y % 2]])
    labels = np.repeat(np.arange(30), [1 + y % 2 for y in range(30)])
    learned = learn_lexicon(pieces, labels, np.ones(len(labels)), 30, V)
    twice = labels % 2 == 1  # an entry is in two documents
    assert (learned.log_probs(pieces).argmax(1) == labels)[twice].all()


def test_it_is_kept_without_loss(tmp_path: Path) -> None:
    pieces, labels = documents(100)
    lexicon = learn_lexicon(pieces, labels, np.ones(100), 3, V)
    lexicon.save(tmp_path / LEXICON)
    back = load_lexicon(tmp_path / LEXICON)
    np.testing.assert_array_equal(back.log_probs(pieces), lexicon.log_probs(pieces))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lexicon") / "run"
    tiny.run(path, mixture__method="ours")
    return path


def test_the_mixture_is_the_sum_of_its_components(finished: Path) -> None:
    model = load_model(finished, "cpu")
    texts = tiny.TEXTS.test_texts
    found = model.encode(texts)
    assert model.lexicon is not None
    assert model.lexicon.gate != 0.0
    assert len(model.gates) == 2
    log_probs = model.lexicon.log_probs(found.pieces).astype(np.float64)
    mixed = model.expert_logits(found).astype(np.float64) + model.lexicon.gate * log_probs
    for gate, alpha in zip(model.gates, model.alpha(found), strict=True):
        mixed += gate * alpha
    wanted = torch.log_softmax(torch.from_numpy(mixed / model.temperature), -1).numpy()
    np.testing.assert_allclose(model.log_probs(texts), wanted, atol=1e-9)


def test_the_controls_have_it_so_that_they_lack_only_the_imitators(finished: Path) -> None:
    folder = RunFolder(finished)
    names = ("expert", "closed", "random")
    expert, closed, random = (Classifiers(folder, read_config(folder), CPU).load(name) for name in names)
    assert [len(model.gates) for model in (expert, closed, random)] == [0, 0, 2]
    assert [model.lexicon is not None for model in (expert, closed, random)] == [False, True, True]
    texts = tiny.TEXTS.test_texts
    kept = predictions(finished, CLOSED_GATES)
    np.testing.assert_allclose(kept, closed.log_probs(texts), atol=1e-6)
    assert not np.allclose(kept, predictions(finished, EXPERT))


def predictions(path: Path, system: str) -> np.ndarray:
    return read_finished(path).log_probs(system)


def test_dev_is_evaluated_with_that_of_train_and_predictions_use_both(finished: Path) -> None:
    folder = RunFolder(finished)
    run = prepare(read_config(folder), tiny.corpus(), folder, Quiet(), resume=True)
    train, dev = (run.store(part).pieces(0) for part in ("train", "dev"))
    ids, others = run.labeled.train_ids, run.labeled.dev_ids
    sizes = (run.classes, run.indexer.pieces.size)
    own = run.labeled.train_weights.astype(np.float32)
    of_train = learn_lexicon(train, ids, own, *sizes)
    weights = np.concatenate([own, np.ones(len(others), np.float32)])
    of_both = learn_lexicon(concatenate([train, dev]), np.concatenate([ids, others]), weights, *sizes)
    for name, wanted in ((LEXICON_OF_TRAIN, of_train), (LEXICON, of_both)):
        np.testing.assert_array_equal(load_lexicon(folder / name).log_probs(dev), wanted.log_probs(dev))
    model = load_model(finished, "cpu")
    assert model.lexicon is not None
    texts = run.labeled.dev_texts
    classifiers = Classifiers(folder, run.config, torch.device("cpu"), knows_dev=False)
    dev_documents = encoded(classifiers.mixture, "dev", texts)
    on_dev = log_probs_of_all(classifiers, "dev", dev_documents)[MIXTURE]
    assert not np.allclose(on_dev, model.log_probs(texts))
    model.lexicon = of_train.with_gate(model.lexicon.gate)
    restore(folder, "mixture-of-train", tiny.networks_of(model).expert)
    np.testing.assert_array_equal(on_dev, model.log_probs(texts))


def test_it_is_silent_where_it_knows_the_labels(finished: Path) -> None:
    folder = RunFolder(finished)
    run = prepare(read_config(folder), tiny.corpus(), folder, Quiet(), resume=True)
    imitators = learned_imitators(
        run, tiny.networks_of(Classifiers(folder, run.config, CPU).load("expert")).expert
    )
    assert not evidence(run, imitators, "mixture", "train")[-1].any()
    assert not evidence_on(run, imitators, "mixture", run.store("dev").pieces(0), "mixture step 1")[-1].any()
    assert evidence(run, imitators, "mixture", "dev")[-1].any()
    names = ("mixture", "random", "closed", "imitators-only", "expert")
    assert [len(evidence(run, imitators, name, "dev")) for name in names] == [3, 3, 1, 2, 0]


@pytest.mark.parametrize("training", ["adv", "vat"])
def test_experts_that_are_pushed_can_have_one(tmp_path: Path, training: str) -> None:
    tiny.run(tmp_path, mixture__method="ours", expert__training=training)
    assert load_model(tmp_path, "cpu").lexicon is not None


def test_copies_predict_the_same(finished: Path, tmp_path: Path) -> None:
    model, texts = load_model(finished, "cpu"), tiny.TEXTS.test_texts
    model.save(tmp_path / "copy")
    for copy in (load_model(tmp_path / "copy", "cpu"), pickle.loads(pickle.dumps(model))):  # noqa: S301
        np.testing.assert_array_equal(copy.log_probs(texts), model.log_probs(texts))
        assert copy.fingerprint == model.fingerprint
    assert model.lexicon is not None
    model.lexicon = model.lexicon.with_gate(model.lexicon.gate + 1.0)
    assert model.fingerprint != load_model(finished, "cpu").fingerprint


def test_a_run_that_lost_it_is_refused(finished: Path, tmp_path: Path) -> None:
    load_model(finished, "cpu").save(tmp_path / "copy")
    (tmp_path / "copy" / LEXICON).unlink()
    with pytest.raises(RunError, match=r"lexicon\.safetensors is missing"):
        load_model(tmp_path / "copy", "cpu")


def test_the_explanation_adds_up_and_names_it(finished: Path) -> None:
    model = load_model(finished, "cpu")
    found = explain(model, tiny.TEXTS.test_texts[0])
    assert found.lexicon != 0.0
    parts = found.expert + found.lexicon + sum(found.imitators.values())
    assert parts == pytest.approx(found.log_odds, abs=1e-6)
    assert f"{found.lexicon:+.2f} (lexicon)" in sum_of_parts(found)
    assert explain(model, "").lexicon == 0.0


def test_the_report_shows_its_weight(finished: Path) -> None:
    facts = load_tensors(finished / MIXED)[1]
    shown = page([read_finished(finished)])
    assert len(facts["gates"]) == 2
    assert "The rest is from the expert and the lexicon." in shown
    assert signed(facts["lexicon_weight"], 3) in shown


def test_without_unlabeled_text_there_is_none(tmp_path: Path) -> None:
    tiny.run(tmp_path, tiny.corpus(unlabeled=[]), mixture__method="ours")
    assert load_model(tmp_path, "cpu").lexicon is None
    assert not (tmp_path / LEXICON).exists()


@pytest.mark.parametrize(
    "lost",
    [
        ("mixture.safetensors",),
        (LEXICON,),
        (LEXICON_OF_TRAIN, "mixture.safetensors"),
        (LEXICON, LEXICON_OF_TRAIN),
    ],
    ids=lambda names: " and ".join(names),
)
def test_what_a_killed_run_lacks_is_made_again(finished: Path, tmp_path: Path, lost: tuple[str, ...]) -> None:
    stopped = tmp_path / "run"
    shutil.copytree(finished, stopped)
    for name in ("done", *lost):
        (stopped / name).unlink()
    tiny.run(stopped, mixture__method="ours", resume=True)
    assert tiny.artefacts(stopped) == tiny.artefacts(finished)


def test_a_file_of_another_kind_is_refused(finished: Path, tmp_path: Path) -> None:
    load_model(finished, "cpu").save(tmp_path / "copy")
    shutil.copy(tmp_path / "copy/mixture.safetensors", tmp_path / "copy" / LEXICON)
    with pytest.raises(RunError, match=r"lexicon\.safetensors is damaged, or is a copy of 'mixture\.safe"):
        load_model(tmp_path / "copy", "cpu")


def test_without_closed_gates_no_gain_is_the_unlabeled_text_s(tmp_path: Path) -> None:
    config = tiny.config(mixture__method="ours")
    rows = train_and_evaluate(config, tiny.corpus(), tmp_path, Quiet(), controls=())
    found = read_finished(tmp_path).verdict
    assert found == verdict_of(rows)
    assert (found.outcome, len(found.against)) == ("untested", 1)


def test_the_card_the_shell_and_the_server_show_it(finished: Path) -> None:
    model = load_model(finished, "cpu")
    assert model.lexicon is not None
    assert "**lexicon**" in card(read_finished(finished))
    assert f"lexicon {model.lexicon.gate / model.temperature:.2f}" in weights_line(read_finished(finished))
    text = tiny.TEXTS.test_texts[0]
    assert explained(model, text, 3)["lexicon"] == explain(model, text).lexicon != 0.0


def test_the_paper_s_gates_have_no_room_for_it(tmp_path: Path) -> None:
    tiny.run(tmp_path, mixture__method="paper")
    assert load_model(tmp_path, "cpu").lexicon is None
    assert read_finished(tmp_path).lexicon_gate is None
