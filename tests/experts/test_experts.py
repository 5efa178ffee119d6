"""Every expert, by every way of training, from text to folder: it runs, resumes, and peeks at nothing."""

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from mein import MeinClassifier
from mein.config import load_config
from mein.data.columns import ColumnsConfig
from mein.data.corpus import Corpus, corpus_of_files, source_of_lists
from mein.errors import ConfigError, RunError
from mein.evaluation.systems import (
    CLOSED_GATES,
    ENCODER,
    EXPERT,
    IMITATORS_ONLY,
    MIXTURE,
    RANDOM_IMITATORS,
    TFIDF,
)
from mein.experts.config import KINDS
from mein.model.artefacts import seal
from mein.model.loading import load_model, read_config
from mein.run.pipeline import train_and_evaluate
from mein.run.pretrain import pretrain
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.text.words import Words
from tests.support import hub_models, tiny
from tests.support.dying import ALWAYS, NEVER, Death, Dying, assert_same_folder
from tests.support.shell import SIZES, mein, refuses, write_corpus, write_csv

pytestmark = pytest.mark.usefixtures("unsynced")

SHORT: dict[str, Any] = {
    "pretraining__epochs": 2,
    "pretraining__lanes": 16,
    "pretraining__segment": 20,
    "pretraining__learning_rate": 0.01,
    "expert_training__epochs": 1,
    "imitator_training__epochs": 1,
    "fine_tuning__epochs": 1,
}
OF_HUB = ("transformer", "frozen")
OF_LANGUAGE = ("lm-lstm", "elmo-lstm")
TRAININGS = ("plain", "adv", "vat", "ivat")
ALLOWED = [
    *[(kind, training) for kind in ("lstm", "lm-lstm", "average") for training in TRAININGS],
    *[(kind, training) for kind in ("elmo-lstm", "transformer") for training in ("plain", "adv", "vat")],
    ("frozen", "plain"),
    ("linear", "plain"),
    ("given", "plain"),
]
FORBIDDEN = {
    ("elmo-lstm", "ivat"): r"ivat needs embeddings of words, which 'elmo-lstm' lacks: use vat, or lm-lstm\.",
    ("transformer", "ivat"): r"ivat needs embeddings of words, which 'transformer' lacks: use vat, or lm-l",
    ("frozen", "adv"): r"A frozen encoder cannot be trained by 'adv': set expert\.training to plain\.",
    ("frozen", "vat"): r"A frozen encoder cannot be trained by 'vat': set expert\.training to plain\.",
    **{
        ("linear", training): rf"A linear expert cannot be trained by '{training}': set .* to plain\."
        for training in ("adv", "vat", "ivat")
    },
    ("frozen", "ivat"): r"A frozen encoder cannot be trained by 'ivat': set expert\.training to plain\.",
    (
        "given",
        "adv",
    ): r"Given probabilities cannot be trained by 'adv': set expert\.training to plain\.",
    (
        "given",
        "vat",
    ): r"Given probabilities cannot be trained by 'vat': set expert\.training to plain\.",
    (
        "given",
        "ivat",
    ): r"Given probabilities cannot be trained by 'ivat': set expert\.training to plain\.",
}
SYSTEMS = [TFIDF, EXPERT, CLOSED_GATES, RANDOM_IMITATORS, IMITATORS_ONLY, MIXTURE]
TEXTS = tiny.TEXTS
TRAINING_TEXT = [*TEXTS.labeled_texts, *TEXTS.unlabeled_texts]


def teacher_probs(texts: Sequence[str]) -> np.ndarray:
    """A teacher that only counts letters, of a text at a time."""
    share = np.array([(1 + text.count("e")) / (2 + text.count("e") + text.count("o")) for text in texts])
    return np.stack([1 - share, share], axis=1)


def language_model(path: Path, reporter: Quiet | None = None, **overrides: Any) -> float:
    """A language model of the embedded corpus, made or resumed in `path`; its perplexity."""
    config = tiny.config(**{**SHORT, "expert__kind": "lm-lstm", **overrides})
    source, folder = source_of_lists(TRAINING_TEXT), RunFolder(path)
    reporter = Quiet() if reporter is None else reporter
    return pretrain(config, source, "the text", folder, reporter, resume=path.exists())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model for each expert that starts from one."""
    path = tmp_path_factory.mktemp("models")
    for kind in OF_LANGUAGE:
        language_model(path / kind, expert__kind=kind)
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return hub_models.build("Bert", tmp_path_factory.mktemp("models") / "bert")


Run = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def run(models: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Run:
    """The folder of a finished run with a kind of expert and a training; each is run once.

    Stage 3 takes its steps, but may not leave its start.
    """
    folder, teachers = tmp_path_factory.mktemp("runs"), {"given": teacher_probs}

    def train(kind: str, training: str) -> Path:
        path = folder / f"{kind} {training}"
        settings = {**SHORT, "expert__kind": kind, "expert__training": training}
        if kind in OF_LANGUAGE:
            settings["expert__language_model"] = str(models / kind)
        if kind in OF_HUB:
            settings["expert__model"] = str(request.getfixturevalue("bert"))
            settings["expert_training__learning_rate"] = 1e-4
        if not path.exists():
            config = tiny.config(**settings)
            with patch("mein.training.stages.standard_error", lambda error, weights: 100.0):
                train_and_evaluate(config, tiny.corpus(), path, Quiet(), soft_labels=teachers.get(kind))
        return path

    return train


def tensors(path: Path, name: str) -> dict[str, torch.Tensor]:
    return load_tensors(path / f"{name}.safetensors")[0]


def predictions_of(path: Path, system: str) -> np.ndarray:
    """log p(y | X) (n, Y) of one system on the test documents."""
    return np.stack(pq.read_table(path / "predictions.parquet")[system].to_numpy())


def same(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)


# Every kind and every training.


@pytest.mark.parametrize(("kind", "training"), ALLOWED)
def test_runs_with_its_controls_and_predicts_from_its_folder(run: Run, kind: str, training: str) -> None:
    path = run(kind, training)
    systems = [TFIDF, ENCODER, *SYSTEMS[1:]] if kind == "frozen" else SYSTEMS
    assert pq.read_table(path / "predictions.parquet").column_names == ["label", *systems]
    model = load_model(path, "cpu", teacher_probs if kind == "given" else None)
    assert model.config.expert.kind == kind
    assert_allclose(model.log_probs(TEXTS.test_texts), predictions_of(path, MIXTURE), atol=1e-5)
    for control, epochs in (("expert", 2), ("closed", 2), ("random", 2), ("mixture", 2)):
        lines = RunFolder(path).metrics(control)
        is_without_steps = kind in ("frozen", "linear") or (kind, control) == ("given", "expert")
        assert len(lines) == (0 if is_without_steps else epochs)
        assert all(np.isfinite(line["loss"]) for line in lines[1:])


@pytest.mark.parametrize(
    ("kind", "training"), [(kind, training) for kind, training in ALLOWED if not KINDS[kind].is_fitted]
)
def test_closed_gates_are_the_bare_expert_where_nothing_was_tuned(run: Run, kind: str, training: str) -> None:
    """Though steps were taken in stage 3: its start was the best, and is what is kept."""
    path = run(kind, training)
    if KINDS[kind].learns:  # and again from all labels
        assert same(tensors(path, "closed-of-train"), tensors(path, "expert"))
        assert same(tensors(path, "closed"), tensors(path, "expert-of-all"))
    else:
        assert same(tensors(path, "closed"), tensors(path, "expert"))
    assert_array_equal(predictions_of(path, CLOSED_GATES), predictions_of(path, EXPERT))


def test_no_training_is_another_in_disguise(run: Run) -> None:
    """What an epoch of stage 1, and of stage 3, cost on average."""
    for kind in ("lm-lstm", "average", "transformer"):
        for stage in ("expert", "mixture"):
            trainings = [training for name, training in ALLOWED if name == kind]
            folders = [RunFolder(run(kind, training)) for training in trainings]
            losses = [folder.metrics(stage)[-1]["loss"] for folder in folders]
            assert len(set(losses)) == len(trainings), (kind, stage)
            assert losses[1] > 1.5 * losses[0]  # adv counts every document twice


@pytest.mark.parametrize(("kind", "training"), FORBIDDEN)
def test_what_does_not_go_together_is_refused(kind: str, training: str) -> None:
    with pytest.raises(ConfigError, match=FORBIDDEN[kind, training]):
        tiny.config(expert__kind=kind, expert__training=training, expert__model="a model")


@pytest.mark.parametrize("kind", OF_HUB)
def test_a_model_of_others_must_be_named(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"expert.kind is '{kind}' but expert.model is not set: give a fol"):
        tiny.config(expert__kind=kind)


def test_every_pair_is_either_allowed_or_forbidden() -> None:
    kinds = ("lstm", *OF_LANGUAGE, "average", *OF_HUB, "linear", "given")
    assert Counter([*ALLOWED, *FORBIDDEN]) == Counter((k, t) for k in kinds for t in TRAININGS)


@pytest.mark.parametrize(("kind", "training"), [("lm-lstm", "ivat"), ("elmo-lstm", "vat")])
def test_without_unlabeled_text_they_learn_from_the_training_text(
    tmp_path: Path, kind: str, training: str
) -> None:
    settings = {**SHORT, "expert__kind": kind, "expert__training": training}
    documents = replace(tiny.corpus(), unlabeled=None)
    rows = tiny.run(tmp_path / "run", documents, **settings)
    assert [row.name for row in rows] == [TFIDF, EXPERT]
    perplexities = [line["perplexity"] for line in RunFolder(tmp_path / "run").metrics("language_model")]
    assert perplexities[-1] < perplexities[0]


# What a language model leaves in an expert.


def test_an_expert_starts_where_its_language_model_ended(tmp_path: Path, models: Path) -> None:
    path, untrained = tmp_path / "run", {**SHORT, "expert_training__epochs": 0}
    lm = models / "lm-lstm"
    tiny.run(path, expert__kind="lm-lstm", expert__language_model=str(lm), **untrained)
    found, learned = tensors(path, "expert"), tensors(lm, "language_model")
    assert torch.equal(found["embedding.weight"], learned["embedding.weight"])
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        assert torch.equal(found[f"lstm.{name}"], learned[f"readers.0.lstms.0.{name}"])


def test_elmo_stays_frozen_in_every_stage(run: Run, models: Path) -> None:
    path, learned = run("elmo-lstm", "vat"), tensors(models / "elmo-lstm", "language_model")
    names = {"forward_reader": "readers.0", "backward_reader": "readers.1", "embedding": "embedding"}
    for stage in ("expert", "mixture"):
        found = tensors(path, stage)
        for ours, theirs in names.items():
            of_elmo = [name for name in found if name.startswith(f"features.{ours}.")]
            assert of_elmo
            for name in of_elmo:
                assert torch.equal(found[name], learned[name.replace(f"features.{ours}", theirs)]), name
    assert not torch.equal(tensors(path, "expert")["embedding.weight"], learned["embedding.weight"])


# Resuming.


IN_LANGUAGE_MODEL = [
    ("language_model 1/2", 4, ALWAYS),
    ("language_model 1/2", 3, ALWAYS),
    ("language_model epoch 1", 1, ALWAYS),  # logged, not yet saved
    ("language_model 2/2", 5, NEVER),
    ("language_model 2/2", 6, ALWAYS),
]
IN_LATER_STAGES = [
    ("expert 1/2", 2, ALWAYS),
    ("expert 2/2", 3, ALWAYS),
    ("expert 2/2", 1, ALWAYS),
    ("mixture 1/2", 3, ALWAYS),
    ("mixture 2/2", 2, NEVER),
]


@pytest.mark.parametrize(
    ("kind", "training", "deaths"),
    [
        ("lm-lstm", "ivat", [*IN_LANGUAGE_MODEL, *IN_LATER_STAGES]),
        ("elmo-lstm", "vat", [IN_LANGUAGE_MODEL[0], IN_LANGUAGE_MODEL[-1], *IN_LATER_STAGES[1:4]]),
        ("average", "plain", IN_LATER_STAGES),
    ],
    ids=["lm-lstm ivat", "elmo-lstm vat", "average plain"],
)
def test_a_killed_run_ends_as_if_it_had_not_been(
    tmp_path: Path, kind: str, training: str, deaths: list[tuple[str, int, float]]
) -> None:
    settings = {**SHORT, "expert__kind": kind, "expert__training": training, "fine_tuning__epochs": 2}
    settings |= {"expert_training__epochs": 2, "expert_training__learning_rate": 0.03}
    path, unbroken = tmp_path / "run", tmp_path / "unbroken"

    def go_on(folder: Path, reporter: Quiet, every: float = NEVER) -> None:
        config = tiny.config(**settings, runtime__checkpoint_seconds=every)
        train_and_evaluate(config, tiny.corpus(), folder, reporter, resume=folder.exists(), controls=())

    go_on(unbroken, Quiet())
    for task, at, every in deaths:
        with pytest.raises(Death):
            go_on(path, Dying(task, at), every)
    go_on(path, Quiet())
    assert_same_folder(path, unbroken)


def test_a_killed_pretraining_ends_as_if_it_had_not_been(tmp_path: Path, models: Path) -> None:
    path = tmp_path / "lm"
    for task, at, every in IN_LANGUAGE_MODEL:
        with pytest.raises(Death):
            language_model(path, Dying(task, at), runtime__checkpoint_seconds=every)
        assert not (path / "done").exists()
    perplexity = language_model(path)
    assert_same_folder(path, models / "lm-lstm")
    assert language_model(path) == perplexity
    assert_same_folder(path, models / "lm-lstm")


def test_a_language_model_is_kept_with_embeddings_of_scale_one(models: Path) -> None:
    """By which the steps of an expert that starts from it are not too large."""
    folder = models / "lm-lstm"
    weight = load_tensors(folder / "language_model.safetensors")[0]["embedding.weight"].double()
    counts = torch.from_numpy(Words.load(folder / "words.txt").counts).double()
    shares = counts / counts.sum()
    mean = shares @ weight
    assert mean.abs().max() < 1e-3
    assert torch.allclose(shares @ (weight - mean).square(), torch.ones(len(mean)).double(), atol=5e-3)


# Labels, dev and test are not peeked at.

SECRET = "zyxomma"


def poison(text: str) -> str:
    """A word that no other text holds, and the known ones backwards: unknown ones alone would be dropped."""
    return " ".join([SECRET, *reversed(text.split()), SECRET])


def flipped(labels: Sequence[str]) -> list[str]:
    return ["positive" if label == "negative" else "negative" for label in labels]


@dataclass(frozen=True)
class Files:
    """The embedded corpus in four files, of which any may be written anew."""

    folder: Path

    def write(self, **changed: tuple[Sequence[str], Sequence[object] | None]) -> Corpus:
        texts, labels = TEXTS.labeled_texts, TEXTS.labeled_labels
        raw = [*TEXTS.unlabeled_texts, *TEXTS.test_texts[:3]]
        parts: dict[str, tuple[Sequence[str], Sequence[object] | None]] = {
            "labeled": (texts[:60], labels[:60]),
            "unlabeled": (raw, None),
            "dev": (texts[60:], labels[60:]),
            "test": (TEXTS.test_texts, TEXTS.test_labels),
        }
        paths = {
            part: str(write_csv(self.folder / f"{part}.csv", *content))
            for part, content in (parts | changed).items()
        }
        return corpus_of_files(**paths, columns=ColumnsConfig())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


def learn(path: Path, documents: Corpus) -> dict[str, bytes]:
    """A run that uses unlabeled text wherever it can; its files but the marker, which sums them up."""
    settings = {**SHORT, "expert__kind": "lm-lstm", "expert__training": "vat", "pretraining__epochs": 1}
    train_and_evaluate(tiny.config(**settings), documents, path, Quiet())
    return {name: content for name, content in tiny.artefacts(path).items() if name != "done"}


@pytest.fixture(scope="module")
def honest(files: Files, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    path = tmp_path_factory.mktemp("honest") / "run"
    return path, learn(path, files.write())


def losses(path: Path, stage: str) -> list[float]:
    return [line["loss"] for line in RunFolder(path).metrics(stage)]


def different(some: dict[str, bytes], others: dict[str, bytes]) -> set[str]:
    assert some.keys() == others.keys()
    return {name for name in some if some[name] != others[name]}


Honest = tuple[Path, dict[str, bytes]]


def test_labels_of_unlabeled_text_are_not_read(tmp_path: Path, files: Files, honest: Honest) -> None:
    raw = [*TEXTS.unlabeled_texts, *TEXTS.test_texts[:3]]
    poisoned = files.write(unlabeled=(raw, ["positive"] * 50 + ["poison"] * (len(raw) - 50)))
    assert different(learn(tmp_path / "run", poisoned), honest[1]) == set()


def test_test_labels_change_the_verdict_alone(tmp_path: Path, files: Files, honest: Honest) -> None:
    poisoned = files.write(test=(TEXTS.test_texts, flipped(TEXTS.test_labels)))
    assert different(learn(tmp_path / "run", poisoned), honest[1]) == {
        "predictions.parquet",
        "highlights.json",
    }
    assert_array_equal(predictions_of(tmp_path / "run", MIXTURE), predictions_of(honest[0], MIXTURE))
    before, after = (
        [line for line in tiny.timeless_metrics(path) if line["stage"] != "verdict"]
        for path in (honest[0], tmp_path / "run")
    )
    assert before == after


def test_test_texts_reach_nothing_but_the_verdict(tmp_path: Path, files: Files, honest: Honest) -> None:
    """The three that are also unlabeled stay as they are, for those are left out by design.

    test.json is a checksum of the test texts, by which a resumed run knows them.
    """
    texts = [*TEXTS.test_texts[:3], *map(poison, TEXTS.test_texts[3:])]
    poisoned = files.write(test=(texts, TEXTS.test_labels))
    changed = different(learn(tmp_path / "run", poisoned), honest[1])
    assert changed == {"predictions.parquet", "highlights.json", "test.json"}


def test_dev_reaches_neither_vocabularies_nor_language_model_nor_optimizer(
    tmp_path: Path, files: Files, honest: Honest
) -> None:
    dev = list(map(poison, TEXTS.labeled_texts[60:])), flipped(TEXTS.labeled_labels[60:])
    poisoned = learn(tmp_path / "run", files.write(dev=dev))
    changed = different(poisoned, honest[1])
    assert {"labels.json", "encoded/dev/shard-00000.arrow", "predictions.parquet"} <= changed
    learned = {"words.txt", "pieces.model", "vocabularies.json", "language_model.safetensors"}
    encoded = {f"encoded/{part}/shard-00000.arrow" for part in ("train", "unlabeled", "held_out")}
    assert learned | encoded <= poisoned.keys() - changed
    assert SECRET.encode() not in poisoned["words.txt"]
    assert losses(tmp_path / "run", "expert") == losses(honest[0], "expert")


def test_training_text_does_reach_the_language_model(tmp_path: Path, files: Files, honest: Honest) -> None:
    """The poison works: where it is allowed to, it shows."""
    raw = list(map(poison, TEXTS.unlabeled_texts))
    poisoned = learn(tmp_path / "run", files.write(unlabeled=(raw, None)))
    assert SECRET.encode() in poisoned["words.txt"]
    assert "language_model.safetensors" in different(poisoned, honest[1])


def test_pretraining_reads_no_label(tmp_path: Path) -> None:
    found: list[dict[str, bytes]] = []
    for labels in (None, ["poison"] * len(TRAINING_TEXT), range(len(TRAINING_TEXT))):
        text = write_csv(tmp_path / "text.csv", TRAINING_TEXT, labels)
        out = tmp_path / f"lm{len(found)}"
        assert mein("pretrain", "--text", text, "--out", out, *SIZES, *BRIEF).code == 0
        found.append(tiny.artefacts(out))
    assert found[1] == found[0]
    assert found[2] == found[0]


# mein pretrain, and mein train --set expert.language_model.


def from_lm(folder: object) -> list[str]:
    """The words that let a training start from a language model."""
    return ["--set", f"expert.language_model={folder}"]


BRIEF = [
    word
    for key, value in {**SHORT, "pretraining__epochs": 1}.items()
    for word in ("--set", f"{key.replace('__', '.')}={value}")
]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that name the files of the embedded corpus."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def test_pretrain_reports_how_good_the_kept_model_is(tmp_path: Path, words: list[str]) -> None:
    """Also where the last epoch was not the best."""
    out = tmp_path / "lm"
    wild = ["--set", "pretraining.learning_rate=3.0", "--set", "optimizer.schedule=constant"]
    wild += ["--set", "pretraining.epochs=4"]
    answer = mein("pretrain", "--text", words[1], "--text", words[3], "--out", out, *SIZES, *BRIEF, *wild)
    assert answer.code == 0, answer
    perplexities = [line["perplexity"] for line in RunFolder(out).metrics("language_model")]
    assert min(perplexities) < perplexities[-1]
    assert f"\nPerplexity on held-out text: {min(perplexities):.1f}.\n" in answer.out
    use = f"use it with `mein train --set expert.language_model={out} ...`.\n"
    assert answer.out.endswith(f"The language model is in {out}: {use}")
    facts = load_tensors(out / "language_model.safetensors")[1]
    assert facts["perplexity"] == pytest.approx(min(perplexities))


def test_train_takes_over_a_language_model(tmp_path: Path, words: list[str], models: Path) -> None:
    lm, out = models / "lm-lstm", tmp_path / "run"
    answer = mein("train", *words, *from_lm(lm), "--out", out, *SIZES, *BRIEF)
    assert answer.code == 0, answer
    assert "language model learns" not in answer.out
    assert (out / "words.txt").read_bytes() == (lm / "words.txt").read_bytes()
    assert list(out.glob("*language_model*")) == []
    assert RunFolder(out).metrics("language_model") == []
    assert load_model(out, "cpu").config.expert.kind == "lm-lstm"


def test_the_run_of_another_expert_serves_as_a_language_model(
    tmp_path: Path, words: list[str], honest: Honest
) -> None:
    out = tmp_path / "run"
    assert mein("train", *words, *from_lm(honest[0]), "--out", out, *SIZES, *BRIEF).code == 0
    assert (out / "words.txt").read_bytes() == honest[1]["words.txt"]
    assert not (out / "language_model.safetensors").exists()


@pytest.mark.parametrize(
    ("kind", "setting", "ours", "theirs"),
    [
        ("lm-lstm", "expert.hidden_dim", "7", "5"),
        ("lm-lstm", "expert.embedding_dim", "4", "6"),
        ("lm-lstm", "words.lowercase", "false", "true"),
        ("lm-lstm", "words.tokenizer", "paper", "words"),
        ("lm-lstm", "words.max_words", "9", "30000"),
        ("lm-lstm", "expert.kind", "elmo-lstm", "lm-lstm"),
        ("elmo-lstm", "expert.kind", "lm-lstm", "elmo-lstm"),
    ],
)
def test_a_language_model_that_does_not_fit_is_refused(
    tmp_path: Path, words: list[str], models: Path, kind: str, setting: str, ours: str, theirs: str
) -> None:
    trained = rf"The language model in .*{kind} was trained with other settings"
    sentence = rf"{trained}: set {setting}={theirs}, instead of {ours}\."
    change = ["--set", f"{setting}={ours}"]
    refuses(sentence, "train", *words, *from_lm(models / kind), "--out", tmp_path / "run", *SIZES, *change)
    assert not (tmp_path / "run/config.json").exists()


@pytest.mark.parametrize(("theirs", "ours"), [(1000, 30), (20, 30)])
def test_an_expert_may_read_more_or_less_of_a_document_than_its_language_model(
    tmp_path: Path, words: list[str], models: Path, theirs: int, ours: int
) -> None:
    lm, out = tmp_path / "lm", tmp_path / "run"
    shutil.copytree(models / "lm-lstm", lm)
    content = json.loads((lm / "config.json").read_text(encoding="utf-8"))
    content["config"]["words"]["max_length"] = theirs
    (lm / "config.json").write_text(json.dumps(content), encoding="utf-8")
    seal(RunFolder(lm))
    length = ["--set", f"words.max_length={ours}"]
    assert mein("train", *words, *from_lm(lm), "--out", out, *SIZES, *BRIEF, *length).code == 0
    assert read_config(RunFolder(out)).words.max_length == ours
    assert (out / "words.txt").read_bytes() == (lm / "words.txt").read_bytes()


def test_a_language_model_brings_the_settings_that_it_needs(
    tmp_path: Path, words: list[str], models: Path
) -> None:
    """No --set names the kind and the sizes, which are not the preset's."""
    pairs = [pair for pair in zip(SIZES[::2], SIZES[1::2], strict=True) if not pair[1].startswith("expert.")]
    kept = [word for pair in pairs for word in pair]
    answer = mein("train", *words, *from_lm(models / "elmo-lstm"), "--out", tmp_path / "run", *kept)
    assert answer.code == 0, answer
    assert read_config(RunFolder(tmp_path / "run")).expert.kind == "elmo-lstm"


def test_a_folder_without_a_language_model_is_refused(tmp_path: Path, words: list[str], run: Run) -> None:
    for folder in (tmp_path / "nothing", run("lstm", "plain")):
        sentence = f"{folder} holds no language model: make one with `mein pretrain` in a folder .*"
        refuses(sentence, "train", *words, *from_lm(folder), "--out", tmp_path / "run", *SIZES)
        assert not (tmp_path / "run").exists()


def test_a_run_with_another_language_model_records_where_it_is_from(
    tmp_path: Path, words: list[str], models: Path
) -> None:
    lm, first = models / "lm-lstm", tmp_path / "first"
    assert mein("train", *words, *from_lm(lm), "--out", first, *SIZES, *BRIEF).code == 0
    sentence = rf"{first} started from the language model in {lm.resolve()}: give that\."
    refuses(sentence, "train", *words, *from_lm(first), "--out", tmp_path / "run", *SIZES)


def test_a_language_model_does_not_apply_to_others(tmp_path: Path, words: list[str], models: Path) -> None:
    lm = models / "lm-lstm"
    sentence = r"expert\.language_model does not apply to 'lstm': set expert\.kind to lm-lstm\."
    given = [*from_lm(lm), "--set", "expert.kind=lstm"]
    refuses(sentence, "train", *words, *given, "--out", tmp_path / "run", *SIZES)


@pytest.mark.parametrize("kind", ["lstm", "given"])
def test_pretrain_refuses_experts_without_a_language_model(
    tmp_path: Path, words: list[str], kind: str
) -> None:
    sentence = (
        f"expert.kind is '{kind}': to train a language model, set it to lm-lstm or elmo-lstm, "
        "and remove expert.language_model."
    )
    given = ["--text", words[1], "--set", f"expert.kind={kind}"]
    refuses(sentence, "pretrain", *given, "--out", tmp_path / "lm", *SIZES)
    assert not (tmp_path / "lm").exists()


def test_a_language_model_is_no_classifier(words: list[str], models: Path, tmp_path: Path) -> None:
    sentence = (
        r"The run in .*lm-lstm holds no classifier: it is a language model for "
        r"`mein train --set expert\.language_model`; give .*\."
    )
    refuses(sentence, "predict", models / "lm-lstm", words[5], "--out", tmp_path / "out.csv")


def test_pretrain_into_a_folder_of_another_model_is_refused(models: Path) -> None:
    with pytest.raises(RunError, match=r"holds another run: its config\.expert\.hidden_dim is 5, not 9"):
        language_model(models / "lm-lstm", expert__hidden_dim=9)


# Models of Hugging Face, through Python.


def classifier(kind: str, bert: Path, **parameters: Any) -> MeinClassifier:
    named = {**SHORT, "expert__kind": kind, "expert__model": str(bert)}
    named |= {"expert_training__learning_rate": 1e-4}
    settings = {name.replace("__", "."): value for name, value in named.items()}
    mine = {name: value for name, value in tiny.SETTINGS.items() if name != "runtime.device"}
    return MeinClassifier(preset="small", settings=mine | settings, device="cpu", **parameters)


@pytest.mark.parametrize("kind", OF_HUB)
def test_a_classifier_is_saved_loaded_and_pickled(tmp_path: Path, bert: Path, kind: str) -> None:
    model = classifier(kind, bert).fit(
        TEXTS.labeled_texts, TEXTS.labeled_labels, unlabeled=TEXTS.unlabeled_texts[:50]
    )
    answers = model.predict_proba(TEXTS.test_texts)
    assert np.ptp(answers[:, 0]) > 1e-3  # it distinguishes texts
    model.save(tmp_path / "saved")
    assert_array_equal(
        MeinClassifier.load(tmp_path / "saved", "cpu").predict_proba(TEXTS.test_texts), answers
    )
    pickled, hub = pickle.dumps(model), str(model.model_.hub)
    del model
    assert not Path(hub).parent.exists()  # and yet, in another process or a year later:
    again = pickle.loads(pickled)  # noqa: S301 - our own
    assert_array_equal(again.predict_proba(TEXTS.test_texts), answers)
    again.save(tmp_path / "again")
    loaded = MeinClassifier.load(tmp_path / "again", "cpu")
    assert_array_equal(pickle.loads(pickle.dumps(loaded)).predict_proba(TEXTS.test_texts), answers)  # noqa: S301


def test_frozen_features_are_computed_once_for_each_document(
    tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the few texts that the encoder is timed on."""
    from mein.hub import FrozenFeatures

    monkeypatch.setattr("mein.run.prepare.cost_of_features", lambda *_: "")

    read: list[str] = []
    original = FrozenFeatures.__call__

    def counted(self: FrozenFeatures, texts: Sequence[str]) -> Any:
        read.extend(texts)
        return original(self, texts)

    monkeypatch.setattr(FrozenFeatures, "__call__", counted)
    config = tiny.config(expert__kind="frozen", expert__model=str(bert), **SHORT)
    train_and_evaluate(config, tiny.corpus(), tmp_path / "run", Quiet(), controls=())
    assert sorted(read) == sorted([*TRAINING_TEXT, *TEXTS.test_texts])


def test_shipped_presets_choose_their_experts() -> None:
    kinds = {"paper": "lstm", "transformer": "transformer", "frozen": "frozen", "small": "linear"}
    assert {name: load_config(name).expert.kind for name in kinds} == kinds
