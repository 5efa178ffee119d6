"""A transformer that reads raw text: what is left, killed or not, others can read; refusals are brief."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mein.data.corpus import source_of_lists
from mein.errors import ConfigError, InputError, RunError
from mein.experts.transformer import MaskedModel
from mein.hub import load_masked
from mein.hub.fetch import pooling_of
from mein.hub.networks import load_masked_network, transformers_quietly
from mein.model.loading import read_config
from mein.run.pretrain import adapt
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.store.store import Store
from mein.training.masked import MASKED_STAGE
from tests.support import hub_models, tiny
from tests.support.dying import ALWAYS, NEVER, Death, Dying, assert_same_folder
from tests.support.shell import TINY, mein, refuses, write_csv

pytestmark = pytest.mark.usefixtures("unsynced")

SETTINGS: dict[str, Any] = {
    "expert__kind": "transformer",
    "words__max_length": 12,
    "expert_training__learning_rate": 1e-3,
    "pretraining__lanes": 16,
    "pretraining__epochs": 2,
    "pretraining__learning_rate": 1e-3,
    "pretraining__masked": 0.3,
}


def reviews(count: int) -> list[str]:
    """Sentences in which a word predicts its neighbors well; some are longer than a passage."""
    random = np.random.default_rng(0)
    parts = ["the film was very good .", "a plot so dull and long !", "not great , not bad ,"]
    return [" ".join(random.choice(parts, size=random.integers(1, 5))) for _ in range(count)]


TEXTS = reviews(150)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    path = hub_models.build("Bert", tmp_path_factory.mktemp("models") / "bert")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")
    return path


@pytest.fixture
def source(bert: Path, tmp_path: Path) -> Path:
    """A model that a test may spoil."""
    return shutil.copytree(bert, tmp_path / "bert")


def read_on(out: Path, model: Path, reporter: Quiet | None = None, **overrides: Any) -> float:
    """Let a model read the texts, or go on with it; its perplexity."""
    config = tiny.config(**{**SETTINGS, "expert__model": str(model), **overrides})
    reporter = Quiet() if reporter is None else reporter
    return adapt(config, source_of_lists(TEXTS), "the text", out, reporter, resume=out.exists())


@pytest.fixture(scope="module")
def adapted(bert: Path) -> Path:
    """The folder of a model that has read the texts."""
    read_on(bert.parent / "adapted", bert)
    return bert.parent / "adapted"


def states(folder: Path) -> torch.Tensor:
    """What transformers itself makes of a folder: the states of two documents."""
    with transformers_quietly() as transformers, torch.no_grad():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        network = transformers.AutoModel.from_pretrained(folder).eval()
        read = tokenizer(["the film was bad", "so long"], padding=True, return_tensors="pt")
        found: torch.Tensor = network(**read).last_hidden_state
    return found


# What is left.


def test_perplexity_falls_and_the_best_is_reported(bert: Path, adapted: Path) -> None:
    lines = RunFolder(adapted / "pretraining").metrics(MASKED_STAGE)
    reported = [line["perplexity"] for line in lines]
    assert len(reported) == 3
    assert reported[2] < reported[1] < 0.8 * reported[0]
    assert read_on(adapted, bert, Dying(MASKED_STAGE, 1)) == reported[2]  # it is done: nothing is read again


def test_the_folder_is_one_of_transformers_with_the_trained_encoder(bert: Path, adapted: Path) -> None:
    assert {path.name for path in adapted.iterdir()} == {
        "1_Pooling",
        "config.json",
        "model.safetensors",
        "pretraining",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert not list(adapted.glob("pretraining/*.checkpoint.safetensors"))
    weights = load_file(adapted / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert not [name for name in weights if "cls" in name]
    before = load_file(bert / "model.safetensors")
    same = {name for name, value in weights.items() if torch.equal(value, before[f"bert.{name}"])}
    assert same == {"pooler.dense.weight", "pooler.dense.bias"}  # which had nothing to do, and is kept
    assert (states(adapted) - states(bert)).abs().max() > 0.01
    assert pooling_of(adapted) == "cls"
    content = (adapted / "config.json").read_text(encoding="utf-8")
    assert str(bert.parent) not in content
    assert json.loads(content)["architectures"] == ["BertModel"]
    cut, wanted = (folder / "tokenizer.json" for folder in (adapted, adapted / "pretraining/hub"))
    assert cut.read_bytes() == wanted.read_bytes()


def test_every_word_of_a_long_document_is_read(adapted: Path) -> None:
    stores = [Store.open(adapted / f"pretraining/encoded/{part}") for part in ("unlabeled", "held_out")]
    tokens = np.concatenate([store.words(0).values for store in stores])
    assert max(len(text.split()) for text in TEXTS) > 2 * SETTINGS["words__max_length"] - 4  # three passages
    assert (tokens > 4).sum() == sum(len(text.split()) for text in TEXTS)


def test_what_is_left_is_the_encoder_of_the_best_epoch(
    tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint, kept here, knows both the best and the last weights; wild steps let them differ."""
    monkeypatch.setattr(RunFolder, "drop", lambda self, name: None)
    monkeypatch.setattr("mein.config.LARGEST_TRANSFORMER_RATE", 1.0)
    wild: dict[str, Any] = {"pretraining__falls_to_zero": False, "pretraining__clip": None}
    wild |= {"pretraining__learning_rate": 0.05, "pretraining__epochs": 6}
    found = read_on(tmp_path / "out", bert, **wild)
    folder = RunFolder(tmp_path / "out/pretraining")
    reported = [line["perplexity"] for line in folder.metrics(MASKED_STAGE)]
    assert found == min(reported) < reported[-1]
    kept, facts = load_tensors(folder / f"{MASKED_STAGE}.checkpoint.safetensors")
    assert facts["best_epoch"] == reported.index(found)
    model, _ = load_masked(folder / "hub", seed=0)
    for name in dict(model.named_parameters()):
        dict(model.named_parameters())[name].data.copy_(kept[f"best.{name}"])
    weights = load_file(tmp_path / "out/model.safetensors")
    encoder = model.encoder.state_dict()
    assert weights.keys() == encoder.keys() | {"pooler.dense.weight", "pooler.dense.bias"}
    assert all(torch.equal(weights[name], value) for name, value in encoder.items())
    expected = encoder_states(model)
    torch.testing.assert_close(states(tmp_path / "out")[1, :4], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def encoder_states(model: MaskedModel) -> torch.Tensor:
    """Of "so long", which are two words of the vocabulary."""
    words = [hub_models.WORDS.index(word) + 5 for word in ("so", "long")]
    found: torch.Tensor = model.encoder(input_ids=torch.tensor([[2, *words, 3]])).last_hidden_state[0]
    return found


# Killed, and going on.

DEATHS = [
    (f"{MASKED_STAGE} 1/2", 4, ALWAYS),
    (f"{MASKED_STAGE} 1/2", 3, ALWAYS),
    (f"{MASKED_STAGE} epoch 1", 1, ALWAYS),  # reported, not yet saved
    (f"{MASKED_STAGE} 2/2", 5, NEVER),
    (f"{MASKED_STAGE} 2/2", 6, ALWAYS),
]


def test_a_killed_reading_ends_as_if_it_had_not_been(
    tmp_path: Path, bert: Path, adapted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    for task, at, every in DEATHS:
        with pytest.raises(Death):
            read_on(out, bert, Dying(task, at), runtime__checkpoint_seconds=every)
        assert [path.name for path in out.iterdir()] == ["pretraining"]
    _die_while_writing(out, bert, monkeypatch)
    perplexity = read_on(out, bert)
    assert_same_reading(out, adapted)
    assert read_on(out, bert) == perplexity
    assert_same_reading(out, adapted)


def assert_same_reading(path: Path, unbroken: Path) -> None:
    """The run folders inside, and all beside them."""
    assert_same_folder(path / "pretraining", unbroken / "pretraining")
    assert tiny.artefacts(path) == tiny.artefacts(unbroken)


def _die_while_writing(out: Path, bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all files but config.json are in their place."""
    replace = Path.replace

    def dying(self: Path, target: Path) -> Path:
        if target == out / "config.json":
            raise Death
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dying)
        with pytest.raises(Death):
            read_on(out, bert)
    assert (out / "model.safetensors").exists()
    assert not (out / "config.json").exists()
    assert not (out / "pretraining/done").exists()


def test_another_seed_reads_otherwise(tmp_path: Path, bert: Path) -> None:
    weights: list[bytes] = []
    for seed in (0, 0, 1):
        out = tmp_path / f"{len(weights)}"
        read_on(out, bert, seed=seed, pretraining__epochs=1)
        weights.append((out / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_the_networks_own_dropout_is_at_work(tmp_path: Path, bert: Path, source: Path) -> None:
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    assert config["hidden_dropout_prob"] == 0.1
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    losses: list[tuple[float, float]] = []
    for model in (bert, source):
        read_on(tmp_path / f"{len(losses)}", model, pretraining__epochs=1)
        first, second = RunFolder(tmp_path / f"{len(losses)}/pretraining").metrics(MASKED_STAGE)
        losses.append((first["perplexity"], second["loss"]))
    assert losses[0][0] == losses[1][0]  # evaluated without
    assert losses[0][1] != losses[1][1]


# The shell.

WORDS = [word for key, value in SETTINGS.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
BRIEF = ["--set", "pretraining.epochs=1", "--set", "expert_training.epochs=1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("text") / "raw.csv", TEXTS)


@pytest.mark.parametrize("kind", ["transformer", "frozen"])
def test_the_preset_alone_lets_the_model_read_and_train_goes_on_from_there(
    tmp_path: Path, bert: Path, text: Path, kind: str
) -> None:
    out, given = tmp_path / "adapted", ["--preset", kind, *TINY, *WORDS[2:], *BRIEF]
    answer = mein("pretrain", "--text", text, "--out", out, "--set", f"expert.model={bert}", *given)
    assert answer.code == 0, answer
    reported = [line["perplexity"] for line in RunFolder(out / "pretraining").metrics(MASKED_STAGE)]
    assert f"\nPerplexity on held-out text: {min(reported):.1f}.\n" in answer.out
    use = f"mein train --preset {kind} --set expert.model={out}"
    assert answer.out.endswith(f"The transformer is in {out}: use it with `{use} ...`.\n")
    labels = ["good" if "good" in review else "bad" for review in TEXTS]
    labeled = write_csv(tmp_path / "train.csv", TEXTS, labels)
    words = ["--labeled", labeled, "--unlabeled", text, "--out", tmp_path / "run"]
    answer = mein("train", *words, "--set", f"expert.model={out}", *given)
    assert answer.code == 0, answer
    config = read_config(RunFolder(tmp_path / "run"))
    assert (config.expert.kind, config.expert.model) == (kind, str(out))
    weights = load_file(tmp_path / "run/hub/model.safetensors")
    ours = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[f"bert.{name}"], value) for name, value in ours.items())
    assert json.loads((tmp_path / "run/hub/mein.json").read_text(encoding="utf-8"))["pooling"] == "cls"


def test_the_kind_may_come_from_a_config_and_other_kinds_stay_language_models(
    tmp_path: Path, bert: Path, text: Path
) -> None:
    config = tmp_path / "own.toml"
    config.write_text(f'[expert]\nkind = "transformer"\nmodel = "{bert}"\n', encoding="utf-8")
    tame = [word for pair in zip(WORDS[2::2], WORDS[3::2], strict=True) for word in pair]
    given = ["--text", text, *TINY, *tame, *BRIEF]
    answer = mein("pretrain", *given, "--config", config, "--out", tmp_path / "a")
    assert answer.code == 0, answer
    assert (tmp_path / "a/model.safetensors").exists()
    config.write_text('[expert]\nkind = "given"\n', encoding="utf-8")
    answer = mein("pretrain", *given, "--config", config, "--out", tmp_path / "b")
    assert answer.code == 0, answer
    assert (tmp_path / "b/language_model.safetensors").exists()
    refuses(r".*'expert' is a section.*", "pretrain", *given, "--set", "expert=3", "--out", tmp_path / "c")


def test_resume_is_asked_for_and_other_settings_are_refused(bert: Path, adapted: Path, text: Path) -> None:
    before = tiny.artefacts(adapted)
    given = ["--text", text, "--out", adapted, *TINY, *WORDS, "--set", f"expert.model={bert}"]
    refuses(rf"{adapted}/pretraining already holds a run: choose .* with --resume\.", "pretrain", *given)
    with pytest.raises(
        RunError, match=r"holds another run: its config\.pretraining\.masked is 0\.3, not 0\.2"
    ):
        read_on(adapted, bert, pretraining__masked=0.2)
    assert tiny.artefacts(adapted) == before


# Refusals.


def refused(sentence: str, tmp_path: Path, text: Path, *words: object) -> None:
    """In one sentence, and the folder is free for another try."""
    out = tmp_path / "out"
    refuses(sentence, "pretrain", "--text", text, "--out", out, *TINY, *WORDS, *words)
    assert not (out / "pretraining/config.json").exists()
    assert not (out / "config.json").exists()


OR_NOT = r"choose an encoder such as BERT or RoBERTa, or train without `mein pretrain`\."


def test_models_that_cannot_predict_hidden_tokens_are_refused(tmp_path: Path, bert: Path, text: Path) -> None:
    decoder = hub_models.build("GPT2", tmp_path / "gpt2")
    sentence = rf"'{decoder}' cannot be loaded as a masked language model \(Unrecognized .*\): {OR_NOT}"
    refused(sentence, tmp_path, text, "--set", f"expert.model={decoder}")
    unmasked = hub_models.build("Roberta", tmp_path / "roberta")  # whose tokenizer, here, has no mask
    sentence = rf"'{unmasked}' has no mask token, so no token can be hidden: {OR_NOT}"
    refused(sentence, tmp_path, text, "--set", f"expert.model={unmasked}")
    added = hub_models.wrapped(hub_models.byte_pieces(True).backend_tokenizer, mask_token="<mask>")
    added.save_pretrained(unmasked)  # a mask, but behind the last embedding
    refused(sentence, tmp_path, text, "--set", f"expert.model={unmasked}")
    answer = mein(
        *("pretrain", "--text", text, "--out", tmp_path / "out", *TINY, *WORDS, *BRIEF),
        *("--set", f"expert.model={bert}"),
    )
    assert answer.code == 0, answer  # the folder was free


def test_an_encoder_may_not_lack_weights(tmp_path: Path, source: Path, text: Path) -> None:
    weights = load_file(source / "model.safetensors")
    name = "bert.encoder.layer.1.output.dense.weight"
    del weights[name]
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    sentence = rf"The weights of '{source}' do not fit its config\.json: {re.escape(name)} is missing or .*"
    refused(sentence, tmp_path, text, "--set", f"expert.model={source}")


def test_a_network_whose_head_mixes_tokens_is_refused(
    tmp_path: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mixing(source: Path, seed: int, layers: int | None) -> tuple[torch.nn.Module, set[str]]:
        network, fresh = load_masked_network(source, seed, layers)
        head = network.get_submodule("cls.predictions.transform")
        head.register_forward_hook(lambda module, inputs, found: found.cumsum(1))
        return network, fresh

    monkeypatch.setattr("mein.hub.masked.load_masked_network", mixing)
    with pytest.raises(
        ConfigError, match="cannot be pre-trained, since its head uses more than one token: choose an"
    ):
        read_on(tmp_path / "out", bert)


def test_large_steps_are_refused(tmp_path: Path, bert: Path, text: Path) -> None:
    sentence = (
        r"pretraining\.learning_rate is 0\.002, too large for a pre-trained transformer: use --preset "
        r"transformer, or set it to 1e-4 or less\."
    )
    rate = ["--set", f"expert.model={bert}", "--set", "pretraining.learning_rate=2e-3"]
    refused(sentence, tmp_path, text, *rate)
    refused(
        "Setting pretraining.masked is 1.0, .*less than 1.", tmp_path, text, "--set", "pretraining.masked=1.0"
    )


def test_a_folder_of_unknown_files_is_unchanged(tmp_path: Path, source: Path, text: Path) -> None:
    given = ["--text", text, *TINY, *WORDS, "--set", f"expert.model={source}"]
    sentence = (
        rf"{source} exists and is not what `mein pretrain` leaves of a transformer \(it holds '1_Pooling'\): "
        r"choose an empty folder for --out\."
    )
    refuses(sentence, "pretrain", *given, "--out", source)
    assert not (source / "pretraining").exists()


def test_a_finished_folder_that_lost_its_model_is_refused(tmp_path: Path, bert: Path, adapted: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        out = shutil.copytree(adapted, tmp_path / name)
        (out / name).unlink()
        with pytest.raises(RunError, match=f"^{out} was finished, but its model is gone: restore it"):
            read_on(out, bert)


def test_settings_that_a_tokenizer_refuses_do_not_take_the_folder(tmp_path: Path, bert: Path) -> None:
    with pytest.raises(ConfigError, match="leaves no room beside 2 special tokens"):
        read_on(tmp_path / "out", bert, words__max_length=2)
    assert not (tmp_path / "out/pretraining/config.json").exists()
    other = hub_models.build("DistilBert", tmp_path / "other")
    read_on(tmp_path / "out", other, pretraining__epochs=1)  # not the model of the command that was refused
    assert (
        json.loads((tmp_path / "out/config.json").read_text(encoding="utf-8"))["model_type"] == "distilbert"
    )


def test_too_little_text_is_refused(tmp_path: Path, bert: Path) -> None:
    config = tiny.config(**{**SETTINGS, "expert__model": str(bert)})
    sentence = r"^Of {} passages to learn from and {} held out there is no token to hide: give more .*\.$"
    # nothing to predict; nothing to learn from
    for texts, reported in ((["zyx", "zyx"], (1, 1)), ([" ".join(TEXTS)], (0, r"\d+"))):
        with pytest.raises(InputError, match=sentence.format(*reported)):
            adapt(config, source_of_lists(texts), "the text", tmp_path / texts[0][:3], Quiet())


def test_a_transformer_is_no_language_model_for_lstms(adapted: Path, text: Path, tmp_path: Path) -> None:
    sentence = rf"{adapted} holds a transformer pre-trained on raw text: give it by --set expert\.model\."
    refuses(sentence, "train", "--labeled", text, "--lm", adapted, "--out", tmp_path / "run", *TINY)
