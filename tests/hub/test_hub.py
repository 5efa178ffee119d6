"""Fetched models: complete or not there, offline, never pickled; every refusal is one sentence."""

import builtins
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mein.errors import ConfigError, MissingExtra, RunError
from mein.hub import FrozenFeatures, HubTokenizer, fetch, load_transformer
from mein.hub.fetch import pooling_of
from mein.hub.networks import as_expert, transformers_quietly
from tests.support.hub_models import build


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    return build("Bert", tmp_path_factory.mktemp("hub") / "bert")


@pytest.fixture
def source(original: Path, tmp_path: Path) -> Path:
    """A model that a test may spoil."""
    return shutil.copytree(original, tmp_path / "bert")


def change_config(source: Path, **settings: Any) -> None:
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (source / "config.json").write_text(json.dumps({**config, **settings}), encoding="utf-8")


def output_of(script: str, *arguments: str, **environment: str) -> tuple[str, str]:
    """What a script of its own process writes: a test's log handlers are not the user's."""
    command = [sys.executable, "-c", script, *arguments]
    everything = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=everything, check=True)
    return done.stdout, done.stderr


def test_what_was_fetched_works_without_its_source_and_is_not_fetched_twice(
    source: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    fetch(str(source), model, classes=2)
    written = {path.name: path.stat().st_mtime_ns for path in model.iterdir()}
    assert "model.safetensors" in written
    assert not [name for name in written if name.endswith((".bin", ".pt", ".py"))]
    shutil.rmtree(source)
    fetch(str(source), model, classes=2)
    assert {path.name: path.stat().st_mtime_ns for path in model.iterdir()} == written
    words = HubTokenizer(model)(["The film"])
    logits = load_transformer(model, classes=2, seed=0)(torch.tensor(words.to_lists()), torch.tensor([4]))
    assert logits.shape == (1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_fetched_weights_are_as_readable_as_other_files(source: Path, tmp_path: Path) -> None:
    fetch(str(source), tmp_path / "model", classes=2)
    modes = {path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert len(modes) == 1


def test_a_fetch_that_fails_leaves_nothing_and_one_after_a_kill_begins_anew(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / ".model.fetching").mkdir()  # left by a kill
    (tmp_path / ".model.fetching" / "half").touch()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(RunError, match=r"^Cannot write .*model: the disk is full: free some space"):
            fetch(str(source), tmp_path / "model", classes=2)
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]
    fetch(str(source), tmp_path / "model", classes=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "model"]
    assert not (tmp_path / "model" / "half").exists()


def test_loading_is_silent(source: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; model = Path(sys.argv[2])\n"
        "from mein.hub import FrozenFeatures, fetch, load_transformer\n"
        "fetch(sys.argv[1], model, 5); load_transformer(model, 5, 0); FrozenFeatures(model)(['a film'])\n"
    )
    assert output_of(script, str(source), str(tmp_path / "model")) == ("", "")


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("./nowhere", r"^There is no folder './nowhere': give one that save_pretrained wrote, or a name on"),
        ("a/b/c", r"^There is no folder 'a/b/c': "),
        (
            "two words",
            r"^'two words' is neither a folder nor a name on the hub: give one such as ./minilm or",
        ),
    ],
)
def test_a_name_that_can_be_nothing_is_refused(model: str, sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match=sentence):
        fetch(model, tmp_path / "model", classes=2)


def test_a_name_on_the_hub_is_one_sentence_when_offline(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = (
        "import sys; from pathlib import Path\n"
        "from mein.errors import ConfigError; from mein.hub import fetch\n"
        "try:\n    fetch('somebody/some-model', Path(sys.argv[1]), 2)\n"
        "except ConfigError as problem:\n    print(problem)\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    printed, noise = output_of(script, str(tmp_path / "model"), **offline)
    assert printed.startswith(
        "'somebody/some-model' is no folder here, and as a name on the hub it cannot be re"
    )
    assert printed.endswith("): go online once, or give a local folder.\n")
    assert printed.count("\n") == 1
    assert noise == ""
    assert not (tmp_path / "model").exists()


def test_pickled_weights_are_refused_and_not_read(source: Path, tmp_path: Path) -> None:
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    sentence = r"bert' has no model.safetensors, and pickled weights are not read since .*: convert them with"
    with pytest.raises(ConfigError, match=sentence):
        fetch(str(source), tmp_path / "model", classes=2)


def test_a_folder_without_config_tokenizer_or_sound_weights_is_refused(source: Path, tmp_path: Path) -> None:
    def refusal(spoiled: str, content: bytes | None) -> str:
        kept = (source / spoiled).read_bytes()
        (source / spoiled).unlink() if content is None else (source / spoiled).write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            fetch(str(source), tmp_path / "model", classes=2)
        (source / spoiled).write_bytes(kept)
        assert not (tmp_path / "model").exists()
        return str(caught.value).removeprefix(repr(str(source)))

    assert refusal("config.json", None).startswith(
        " is no model of transformers, it has no config.json: give"
    )
    assert refusal("tokenizer.json", None).startswith(" has no tokenizer: save it into the same folder with")
    assert "cannot be read (" in refusal("tokenizer.json", b"{}")
    assert refusal("config.json", b'{"model_type": "strange"}').startswith(
        " cannot be loaded as a text classifier ("
    )
    assert refusal("model.safetensors", b"short").startswith(" cannot be loaded as a text classifier (")


def test_weights_and_tokenizers_of_another_network_are_refused(source: Path, tmp_path: Path) -> None:
    weights = load_file(source / "model.safetensors")
    shallow = {name: value for name, value in weights.items() if "layer.1." not in name}
    save_file(shallow, source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ConfigError, match=r"do not fit its config.json: bert.encoder.layer.1.\S+ is missing or has"
    ):
        fetch(str(source), tmp_path / "model", classes=2)
    table = weights["bert.embeddings.word_embeddings.weight"][:20].clone()
    weights["bert.embeddings.word_embeddings.weight"] = table
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    change_config(source, vocab_size=20)
    with pytest.raises(
        ConfigError, match=r"bert' has more tokens than embeddings: give it the tokenizer that"
    ):
        fetch(str(source), tmp_path / "model", classes=2)


def test_a_network_that_takes_no_embeddings_is_refused(source: Path, tmp_path: Path) -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    with transformers_quietly() as transformers:
        config = transformers.BartConfig(
            vocab_size=40, d_model=8, encoder_attention_heads=2, decoder_attention_heads=2, **sizes
        )
        transformers.BartForSequenceClassification(config).save_pretrained(source)
    with pytest.raises(ConfigError, match=r"^'.*bert' cannot be an expert \(.*\): choose an encoder such as"):
        fetch(str(source), tmp_path / "model", classes=3)


def test_a_folder_with_something_else_in_it_is_refused(source: Path, tmp_path: Path) -> None:
    fetch(str(source), tmp_path / "model", classes=2)
    with pytest.raises(RunError, match=r"model holds '.*bert' for 2 classes, not '.*bert' for 3: choose"):
        fetch(str(source), tmp_path / "model", classes=3)
    with pytest.raises(RunError, match=r"bert exists and holds no fetched model: choose another folder or"):
        fetch(str(tmp_path / "model"), source, classes=2)
    for use in (HubTokenizer, FrozenFeatures, lambda folder: load_transformer(folder, 2, 0)):
        with pytest.raises(
            RunError, match=r"bert holds no fetched model, mein.json is missing: fetch it again"
        ):
            use(source)


def test_a_damaged_folder_is_one_sentence(source: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    fetch(str(source), model, classes=2)
    damaged = r"model is damaged \(.*\): remove it and fetch the model again.$"
    (model / "model.safetensors").write_bytes(b"short")
    with pytest.raises(RunError, match=damaged):
        load_transformer(model, classes=2, seed=0)
    with pytest.raises(RunError, match=damaged):
        FrozenFeatures(model)
    (model / "tokenizer.json").write_bytes(b"short")
    with pytest.raises(RunError, match=damaged):
        HubTokenizer(model)
    (model / "mein.json").write_bytes(b"{}")
    with pytest.raises(RunError, match=damaged):
        HubTokenizer(model)


def test_settings_that_leave_nothing_are_refused(source: Path, tmp_path: Path) -> None:
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling/config.json").write_text('{"pooling_mode": "max"}', encoding="utf-8")
    assert pooling_of(source) == "max"
    fetch(str(source), tmp_path / "model", classes=2)
    with pytest.raises(ConfigError, match=r"bert' pools its states by 'max', but .*: choose another enc"):
        FrozenFeatures(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"^max_length \(=2\) leaves no room beside 2 .*: set it to 3 or more"
    ):
        HubTokenizer(tmp_path / "model", max_length=2)
    (source / "1_Pooling/config.json").write_text("mean", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config.json is damaged \(.*\): restore or remove it.$"):
        pooling_of(source)


def test_without_the_extra_one_sentence_names_what_to_install(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] in ("transformers", "tokenizers"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return import_module(name, *rest)

    fetch(str(source), tmp_path / "model", classes=2)
    monkeypatch.setattr(builtins, "__import__", without)
    sentence = (
        r"^Hugging Face experts need .*'(transformers|tokenizers)'\): pip install '\.\[transformers\]'$"
    )
    with pytest.raises(MissingExtra, match=sentence):
        fetch(str(source), tmp_path / "other", classes=2)
    with pytest.raises(MissingExtra, match=sentence):
        HubTokenizer(tmp_path / "model")


class ReadsPadding(nn.Module):
    """A classifier that averages over padding too."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=0, num_labels=4)
        self.table = nn.Embedding(10, 4)

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def forward(
        self, attention_mask: Tensor, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> SimpleNamespace:
        embedded = self.table(input_ids) if inputs_embeds is None else inputs_embeds
        return SimpleNamespace(logits=embedded.mean(1))


def test_a_network_that_reads_padding_is_refused() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(
        ConfigError, match=r"^it cannot be an expert, since padding, or embeddings instead of"
    ):
        as_expert(ReadsPadding(), "it")


def test_a_padding_and_a_cut_saved_with_a_tokenizer_do_not_count(source: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    model, texts = tmp_path / "model", ["the film", "a very long and dull plot"]
    fetch(str(source), model, classes=2)
    expected = HubTokenizer(model)(texts).to_lists()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(5)
    tokenizer.save(str(model / "tokenizer.json"))
    assert HubTokenizer(model)(texts).to_lists() == expected
    assert [len(row) for row in expected] == [4, 8]


def test_a_slow_tokenizer_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with transformers_quietly() as transformers:
        slow = SimpleNamespace(from_pretrained=lambda *_, **__: SimpleNamespace(is_fast=False))
        monkeypatch.setattr(transformers, "AutoTokenizer", slow)
    with pytest.raises(
        ConfigError, match=r"bert' has no fast tokenizer: choose a model with a tokenizer.json.$"
    ):
        fetch(str(source), tmp_path / "model", classes=2)


def test_a_name_that_the_hub_does_not_show_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def not_found(*_: object, **__: object) -> None:
        kind = hub.utils.RepositoryNotFoundError
        raise kind.__new__(kind)  # its constructor wants another thing in each version

    monkeypatch.setattr(hub, "snapshot_download", not_found)
    with pytest.raises(
        ConfigError, match=r"^The hub shows no model 'some/model': check its spelling, or log in"
    ):
        fetch("some/model", tmp_path / "model", classes=2)
