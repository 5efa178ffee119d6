"""A frozen encoder in a run: what its features depend on, what they cost, and that none is exchanged."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mein.config import load_config
from mein.errors import ConfigError, InputError, RunError
from mein.hub import FrozenFeatures, fetch
from mein.hub.fetch import prefix_of
from mein.mixture.inference import expert_logits
from mein.model.artefacts import WRITTEN
from mein.model.loading import load_model
from mein.run.pipeline import train_and_evaluate
from mein.run.prepare import cost_of_features
from mein.runtime.progress import Quiet
from mein.store.store import Store
from mein.text.indexer import Indexer
from mein.text.ragged import Ragged, parted
from tests.support import tiny
from tests.support.hub_models import build

TEXTS = ["The film was good.", "", "a very, very long and dull plot!", "not so bad"]
PROMPTS = "config_sentence_transformers.json"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    return build("Bert", tmp_path_factory.mktemp("hub") / "bert")


@pytest.fixture(scope="module")
def finished(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose expert has an encoder."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    tiny.run(folder, expert__kind="frozen", expert__model=str(original))
    return folder


@pytest.fixture
def source(original: Path, tmp_path: Path) -> Path:
    """A model that a test may spoil."""
    return shutil.copytree(original, tmp_path / "bert")


def write_settings(path: Path, **settings: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings), encoding="utf-8")


def fetched(source: Path, folder: Path) -> FrozenFeatures:
    fetch(str(source), folder, classes=2)
    return FrozenFeatures(folder)


def test_a_default_prompt_comes_before_every_text(source: Path, tmp_path: Path) -> None:
    without = fetched(source, tmp_path / "without")
    prompts = {"query": "the plot ", "document": "so good "}
    write_settings(source / PROMPTS, prompts=prompts, default_prompt_name=None)
    assert fetched(source, tmp_path / "none").fingerprint == without.fingerprint
    write_settings(source / PROMPTS, prompts=prompts, default_prompt_name="query")
    found = fetched(source, tmp_path / "query")
    expected = without(["the plot " + text for text in TEXTS]).values
    np.testing.assert_array_equal(found(TEXTS).values, expected)
    assert found.fingerprint != without.fingerprint
    assert not np.allclose(found(TEXTS).values, without(TEXTS).values, atol=0.01)


def test_prompts_that_cannot_be_used_are_refused(source: Path, tmp_path: Path) -> None:
    write_settings(source / PROMPTS, prompts={"query": "the "}, default_prompt_name="passage")
    with pytest.raises(
        ConfigError, match=r"formers.json has no prompt 'passage', its default: restore or re"
    ):
        prefix_of(source)
    (source / PROMPTS).write_text("[]", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"formers.json is damaged \(it holds no settings\): restore or rem"
    ):
        prefix_of(source)
    write_settings(source / PROMPTS, prompts={"query": "the "}, default_prompt_name="query")
    write_settings(source / "1_Pooling/config.json", pooling_mode_mean_tokens=True, include_prompt=False)
    with pytest.raises(ConfigError, match=r"pools its states by 'mean without the prompt', but features are"):
        fetched(source, tmp_path / "model")
    write_settings(source / PROMPTS, prompts={}, default_prompt_name=None)
    assert fetched(source, tmp_path / "other")(TEXTS).values.any()


def tokenizer_with_another_word(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text.replace('"film"', '"movie"'), encoding="utf-8")


def another_activation(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}), encoding="utf-8")


def other_weights(folder: Path) -> None:
    shutil.rmtree(folder)
    build("Bert", folder, initializer_range=0.3, num_hidden_layers=1)


def first_state(folder: Path) -> None:
    write_settings(folder / "1_Pooling/config.json", pooling_mode="cls")


CHANGES: list[Callable[[Path], None]] = [
    tokenizer_with_another_word,
    another_activation,
    other_weights,
    first_state,
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_features_changes_the_fingerprint(
    change: Callable[[Path], None], source: Path, tmp_path: Path
) -> None:
    before = fetched(source, tmp_path / "before")
    change(source)
    after = fetched(source, tmp_path / "after")
    assert not np.allclose(before(TEXTS).values, after(TEXTS).values, atol=1e-4)
    assert before.fingerprint != after.fingerprint


def test_a_run_s_store_is_of_its_encoder_and_length_and_of_float16(finished: Path, tmp_path: Path) -> None:
    reader = FrozenFeatures(finished / "hub", 1_000)
    model = load_model(finished, "cpu")
    store = Store.open(finished / "encoded/train")
    assert store.fingerprint == model.indexer.fingerprint
    assert model.indexer.reader is not None
    assert (
        model.indexer.reader.fingerprint
        == reader.fingerprint
        != FrozenFeatures(finished / "hub", 9).fingerprint
    )
    plain = SimpleNamespace(fingerprint=reader.fingerprint, is_beside_words=False)
    known = model.indexer
    assert Indexer(known.words_config, known.words, known.pieces, plain).fingerprint != known.fingerprint
    texts = tiny.TEXTS.labeled_texts
    features, _ = parted(store.words(), reader.size)
    expected = reader(texts).values.reshape(len(texts), -1)
    assert not (features == expected).all()
    np.testing.assert_allclose(features, expected, atol=3e-4)
    np.testing.assert_array_equal(features, features.astype(np.float16))


def test_prediction_sees_the_features_that_training_saw(finished: Path) -> None:
    model, store = load_model(finished, "cpu"), Store.open(finished / "encoded/train")
    again = model.encode(tiny.TEXTS.labeled_texts).words
    np.testing.assert_array_equal(again.values, store.words().values)
    expert = tiny.networks_of(model).expert
    np.testing.assert_array_equal(expert_logits(expert, again), expert_logits(expert, store.words()))


def test_a_store_takes_half_a_number_for_each_feature(finished: Path) -> None:
    store = Store.open(finished / "encoded/unlabeled")
    assert store.words().values.dtype == np.int32
    words = sum(len(parted(store.words(shard), 32)[1].values) for shard in range(store.shard_count))
    assert len(store.words().values) == words + 16 * len(store)


class Tight(FrozenFeatures):
    """Features on a GPU whose memory holds so many tokens, padding included."""

    room = 20
    batches: list[int]

    def _features(self, batch: Any) -> Any:
        if batch.words.numel() > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        self.batches.append(len(batch.words))
        return super()._features(batch)


def test_a_full_gpu_halves_the_batch_and_no_text_is_encoded_twice(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mein.text.batches.LEAST_BATCH_TOKENS", 1)
    freed: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(None))
    expected = fetched(source, tmp_path / "model")(TEXTS * 5)
    tight = Tight(tmp_path / "model")
    tight.batches = []
    np.testing.assert_allclose(tight(TEXTS * 5).values, expected.values, atol=1e-5)
    assert sum(tight.batches) == 20
    assert freed
    tight.room = 3
    with pytest.raises(torch.OutOfMemoryError):  # one text alone is too large
        tight(TEXTS)


class Counted:
    """A reader of three features that takes no time, and keeps what it was given."""

    fingerprint, is_slow, is_beside_words, size = "", True, True, 3

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> Ragged:
        self.given.append(list(texts))
        return Ragged(np.zeros(0), np.zeros(1, np.int64))


def test_the_cost_is_said_in_one_line_before_text_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([10.0, 10.08, 20.0, 20.5])
    monkeypatch.setattr("mein.run.prepare.time.perf_counter", lambda: next(seconds))
    reader, texts = Counted(), ["a" * length for length in range(101)]
    line = cost_of_features("a/b", reader, texts, 2_000_000)
    assert list(map(len, reader.given)) == [2, 32, 64]  # 0.08 s is too short to be timed
    assert sorted(map(len, reader.given[1])) == list(range(34, 66))  # those of about the mean length
    # 3 features take 2 numbers of 4 bytes; 0.5 s for 64 texts are 15,625 s for all
    assert line == "a/b: 3 features of each of 2,000,000 documents, 16.0 MB on disk, about 4:20:25 to encode"
    seconds = iter([1.0, 1.001])
    assert "of 1 document," in cost_of_features("a/b", reader, ["one"], 1)


class Told(Quiet):
    """Keeps every line, and the name of every task in its place."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)

    def task(self, name: str, total: int | None, done: int = 0) -> Any:
        self.lines.append(name)
        return super().task(name, total, done)


def test_a_run_says_what_its_encoder_takes_and_one_without_says_nothing(source: Path, tmp_path: Path) -> None:
    told, without = Told(), Told()
    config = tiny.config(expert__kind="frozen", expert__model=str(source))
    train_and_evaluate(config, tiny.corpus(), tmp_path / "run", told)
    at = told.lines.index("encoding train")
    pattern = r": 32 features of each of 200 documents, 0\.0 MB on disk, about 0:0\d to encode$"
    assert re.search(pattern, told.lines[at - 1])
    assert told.lines[at - 1].startswith(str(source))
    train_and_evaluate(tiny.config(expert__kind="linear"), tiny.corpus(), tmp_path / "linear", without)
    assert not [line for line in without.lines if "to encode" in line]


def stopped(finished: Path, folder: Path) -> Path:
    """The same run as if it had been killed before its end."""
    shutil.copytree(finished, folder)
    (folder / "done").unlink()
    return folder


def other_file(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "mein.json"])
def test_an_exchanged_file_of_the_encoder_is_refused(finished: Path, name: str, tmp_path: Path) -> None:
    sentence = rf"hub/{name} is damaged, or belongs to another run: restore it from a copy of its own run\.$"
    done = shutil.copytree(finished, tmp_path / "done")
    other_file(done / "hub" / name)
    with pytest.raises(RunError, match=sentence):
        load_model(done, "cpu")
    half = stopped(finished, tmp_path / "half")
    config = load_model(finished, "cpu").config
    other_file(half / "hub" / name)
    with pytest.raises(RunError, match=sentence):
        train_and_evaluate(config, tiny.corpus(), half, Quiet(), resume=True)
    (half / "hub" / name).write_bytes((finished / "hub" / name).read_bytes())
    assert train_and_evaluate(config, tiny.corpus(), half, Quiet(), resume=True)


def test_a_run_that_cannot_begin_leaves_no_digests_of_its_encoder(source: Path, tmp_path: Path) -> None:
    def unreadable() -> Any:
        raise InputError("raw.csv cannot be read.")

    config = tiny.config(expert__kind="frozen", expert__model=str(source))
    with pytest.raises(InputError, match=r"raw\.csv"):
        train_and_evaluate(config, replace(tiny.corpus(), unlabeled=unreadable), tmp_path / "run", Quiet())
    assert not (tmp_path / "run" / WRITTEN).exists()
    other_weights(source)  # it begins anew, perhaps with another encoder of this name
    train_and_evaluate(config, tiny.corpus(), tmp_path / "run", Quiet(), controls=())


def test_the_config_names_model_revision_and_length() -> None:
    config = load_config(encoder="some/encoder@v2", overrides={"words.max_length": 99})
    assert (config.expert.model, config.words.max_length) == ("some/encoder@v2", 99)
