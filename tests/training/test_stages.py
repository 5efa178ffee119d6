"""Each stage trains what it must and nothing else, on what it may see and nothing else."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mein.experts.config import ExpertConfig
from mein.experts.lstm import LSTMExpert
from mein.mixture.gates import GATES
from mein.mixture.inference import imitator_alpha
from mein.run.algorithm import learned_expert, learned_imitators, tuned
from mein.run.prepare import prepare
from mein.run.state import Run
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.store.files import EXPERT_COLUMN
from mein.store.store import Store
from mein.text.ragged import ragged
from mein.training.config import Imitation, Supervision
from mein.training.loop import Runtime
from mein.training.objectives import Plain
from mein.training.stages import LabeledPart, fine_tune, imitation_stage, suited, train_expert
from tests.support import tiny

CPU = torch.device("cpu")


def begin(path: Path, **overrides: Any) -> Run:
    """A run whose documents are encoded, before its first stage."""
    config, corpus, folder = tiny.config(**overrides), tiny.corpus(), RunFolder(path)
    with folder.held():
        return prepare(config, corpus, folder, Quiet())


def weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    assert sorted(before) == sorted(after)
    return {name for name in before if not torch.equal(before[name], after[name])}


def poisoned(run: Run) -> Run:
    """The same run, in which every label of train and dev is another one."""
    labeled = run.labeled
    flipped = replace(labeled, train_ids=1 - labeled.train_ids, dev_ids=1 - labeled.dev_ids)
    return replace(run, labeled=flipped)


def test_stage_2_leaves_the_expert_alone_and_never_sees_a_label(tmp_path: Path) -> None:
    """Given Theta', every label can be changed: Phi is the same, bit for bit."""
    phi = []
    for name in ("true", "poisoned"):
        run = begin(tmp_path / name)
        expert = learned_expert(run)
        theta, artefact = weights(expert), (run.folder / "expert.safetensors").read_bytes()
        imitators = learned_imitators(poisoned(run) if name == "poisoned" else run, expert)
        assert moved(theta, weights(expert)) == set()
        assert (run.folder / "expert.safetensors").read_bytes() == artefact
        phi.append(weights(imitators))
    assert moved(phi[0], phi[1]) == set()


def test_stage_2_moves_every_parameter_of_the_imitators(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    expert = learned_expert(run)
    unmoved = begin(tmp_path / "unmoved", imitator_training__epochs=0)
    before = weights(learned_imitators(unmoved, learned_expert(unmoved)))
    after = weights(learned_imitators(run, expert))
    assert moved(before, after) == set(before)
    assert len(before) == 1 + 4 + 4 + 1  # table, convolutions, outputs, and the offset
    assert torch.equal(after["embedding.weight"][0], torch.zeros(4))  # padding never contributes


def test_stage_3_leaves_the_imitators_and_theta_prime_alone(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    expert = learned_expert(run)
    imitators = learned_imitators(run, expert)
    phi, theta = weights(imitators), weights(expert)
    files = {
        name: (run.folder / name).read_bytes() for name in ("expert.safetensors", "imitators.safetensors")
    }
    for system in run.systems:
        tuned(run, system, expert, imitators)
    assert moved(phi, weights(imitators)) == set()
    assert moved(theta, weights(expert)) == set()
    assert {name: (run.folder / name).read_bytes() for name in files} == files


def test_the_expert_labels_documents_softly_and_without_dropout(tmp_path: Path) -> None:
    """Its word beside each document is its own forward pass on that document alone."""
    run = begin(tmp_path / "run")
    expert = learned_expert(run)
    learned_imitators(run, expert)
    for part in ("unlabeled", "held_out"):
        store = run.store(part)
        words, found = store.words(0).to_lists(), store.column(EXPERT_COLUMN, 0)
        with torch.no_grad():
            z = torch.cat([expert(torch.tensor([row]), torch.tensor([len(row)])) for row in words])
        np.testing.assert_allclose(found, torch.softmax(z, dim=1), atol=1e-6)
        assert found.max() < 1.0


def test_only_words_of_training_documents_reach_the_expert_s_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam moves a row of the embedding only where it had a gradient: where its word was read.

    So neither unlabeled nor test documents were trained on, in stage 1 or in stage 3, nor was dev by what it
    evaluates.
    """
    monkeypatch.setattr("mein.experts.lstm.DROPOUT", 0.0)
    settings = {"expert_training__learning_rate": 0.02, "expert_training__epochs": 4}
    run = begin(tmp_path / "run", fine_tuning__learning_rate=0.02, **settings)
    untrained = begin(tmp_path / "untrained", expert_training__epochs=0)
    before = learned_expert(untrained).state_dict()["embedding.weight"]
    expert = learned_expert(run)
    imitators = learned_imitators(run, expert)
    for system in run.systems:
        tuned(run, system, expert, imitators)
    read = set(np.unique(run.store("train").words(0).values).tolist())
    others = set(np.unique(run.store("unlabeled").words(0).values).tolist()) - read
    assert len(others) > 10  # words that only unlabeled documents have
    dev = set(np.unique(run.store("dev").words(0).values).tolist())
    systems = ("closed", "random", "mixture")
    names = ["expert", *(f"{system}-of-train" for system in systems)]
    for name in [*names, "expert-of-all", *systems]:  # the latter learn again, from all labels
        after = load_tensors(run.folder / f"{name}.safetensors")[0]["embedding.weight"]
        rows = set((before != after).any(dim=1).nonzero().flatten().tolist())
        assert rows == (read if name in names else read | dev), name


def synthetic_part() -> LabeledPart:
    """Documents whose first word determines the label."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 48)
    words = ragged([[2 + int(y), *draw.integers(4, 9, 3), 1] for y in labels])
    alpha = np.log(draw.dirichlet([1.0, 1.0], (3, 48))).astype(np.float32)
    return LabeledPart(words, labels, np.ones(48, np.float32), alpha)


def small_expert() -> LSTMExpert:
    torch.manual_seed(0)
    return LSTMExpert(ExpertConfig(embedding_dim=4, hidden_dim=5, mlp_dim=6), 9, 2)


CONFIG = Supervision(epochs=3, learning_rate=0.01, batch_documents=8)


def test_stage_1_moves_every_parameter_of_the_expert(tmp_path: Path) -> None:
    part, expert = synthetic_part(), small_expert()
    part = replace(part, alpha=part.alpha[:0])
    before = weights(expert)
    outcome = train_expert(
        expert, part, part, CONFIG, Plain(), Runtime(RunFolder(tmp_path), Quiet(), 1e9), seed=0
    )
    assert outcome.epoch > 0
    assert moved(before, weights(expert)) == set(before)


@pytest.mark.parametrize("kind", list(GATES))
def test_stage_3_moves_every_parameter_of_the_expert_and_the_gates(tmp_path: Path, kind: str) -> None:
    part, expert = synthetic_part(), small_expert()
    gates = GATES[kind](3)
    before, lam, alpha = weights(expert), gates.lam.detach().clone(), part.alpha.copy()
    runtime = Runtime(RunFolder(tmp_path), Quiet(), 1e9)
    outcome = fine_tune("mixture", expert, gates, part, part, CONFIG, Plain(), runtime, seed=0)
    assert outcome.epoch > 0
    assert moved(before, weights(expert)) == set(before)
    assert (gates.lam != lam).all()
    assert np.array_equal(part.alpha, alpha)


def test_test_labels_are_read_at_the_very_end_only(tmp_path: Path) -> None:
    """Poisoned test labels change the verdict, and not one other byte."""
    flip = {"positive": "negative", "negative": "positive"}
    tiny.run(tmp_path / "true")
    tiny.run(tmp_path / "poisoned", tiny.corpus(test_labels=[flip[y] for y in tiny.TEXTS.test_labels]))
    true, poisoned_files = (tiny.artefacts(tmp_path / name) for name in ("true", "poisoned"))
    for name in ("predictions.parquet", "highlights.json", "done"):
        assert true.pop(name) != poisoned_files.pop(name)
    assert true == poisoned_files


@pytest.mark.parametrize(("method", "centers"), [("no-lexicon", True), ("paper", False)])
def test_evidence_is_centered_on_unlabeled_text_but_by_the_paper(
    tmp_path: Path, method: str, centers: bool
) -> None:
    run = begin(tmp_path, mixture__method=method)
    imitators = learned_imitators(run, learned_expert(run))
    alpha = imitator_alpha(imitators, run.store("held_out").pieces(0), run.classes)
    leaning = np.abs(alpha.mean(axis=1)).max()
    assert leaning < 1e-6 if centers else leaning > 0.1
    assert bool(imitators.offset.any()) == centers


@pytest.mark.parametrize(
    ("pieces", "tokens", "rate"),
    [
        (5_000, 512, 1e-3),
        (2_000_000, 4_000, 1e-3),
        (4_095_999, 8_191, 1e-3),
        (8_192_000, 40_960, 1e-3 * math.sqrt(5)),
        (10**9, 65_536, 1e-3 * math.sqrt(8)),
    ],
)
def test_large_corpora_get_large_batches_and_a_rate_that_suits_them(
    pieces: int, tokens: int, rate: float
) -> None:
    """An epoch has 500 steps, 200 of a large text; above 8,192 pieces the rate grows by the root."""
    store = cast(Store, SimpleNamespace(manifest=SimpleNamespace(pieces=pieces)))
    found = suited(Imitation(learning_rate=1e-3), store)
    assert found.batch_tokens == tokens
    assert found.learning_rate == pytest.approx(rate)


def test_labeled_text_counts_for_the_size_of_batches() -> None:
    few, many = (cast(Store, SimpleNamespace(manifest=SimpleNamespace(pieces=n))) for n in (5_000, 2_000_000))
    assert suited(Imitation(), few, many).batch_tokens == 4_010
    assert suited(Imitation(), few).batch_tokens == 512


@pytest.mark.parametrize("given", [{"batch_tokens": 77}, {"batch_documents": 32}])
def test_a_batch_that_is_set_stays(given: dict[str, Any]) -> None:
    store = cast(Store, SimpleNamespace(manifest=SimpleNamespace(pieces=10**9)))
    config = Imitation(**given)
    assert suited(config, store) == config


@pytest.mark.parametrize("falls", [True, False])
def test_the_last_epoch_is_taken_only_where_the_rate_falls_to_zero(tmp_path: Path, falls: bool) -> None:
    run = begin(tmp_path / "run", optimizer__schedule="linear" if falls else "constant")
    imitators = learned_imitators(run, learned_expert(run))
    unlabeled, held_out = run.store("unlabeled"), run.store("held_out")
    config = suited(run.config.imitator_training.resolved(run.config.optimizer), unlabeled)
    assert imitation_stage(imitators, unlabeled, held_out, config, 0).takes_last == falls


def test_imitators_read_labeled_text_where_they_should(tmp_path: Path) -> None:
    """Stage 2 then goes through it too, whole, however few of the others are drawn."""
    settings = {"imitator_training__documents": 7, "imitator_training__reads_labeled": True}
    run = begin(tmp_path / "run", **settings)
    imitators = learned_imitators(run, learned_expert(run))
    train, unlabeled, held_out = (run.store(part) for part in ("train", "unlabeled", "held_out"))
    assert train.has_column(EXPERT_COLUMN)
    config = suited(run.config.imitator_training.resolved(run.config.optimizer), unlabeled)
    stage = imitation_stage(imitators, unlabeled, held_out, config, 0, train)
    rows = np.concatenate(list(stage.plan(0)))
    assert stage.documents == len(rows) == len(np.unique(rows)) == 7 + len(train)
    assert (rows >= len(unlabeled)).sum() == len(train)
    every = replace(config, documents=None)
    whole = imitation_stage(imitators, unlabeled, held_out, every, 0, train)
    assert whole.documents == sum(map(len, whole.plan(0))) == len(unlabeled) + len(train)
    plain = begin(tmp_path / "plain", **settings | {"imitator_training__reads_labeled": False})
    others = learned_imitators(plain, learned_expert(plain))
    assert not plain.store("train").has_column(EXPERT_COLUMN)
    assert not torch.equal(weights(imitators)["outputs.0.weight"], weights(others)["outputs.0.weight"])
