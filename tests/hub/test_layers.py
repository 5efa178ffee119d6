"""Transformers of which the first layers alone are read, or the last alone are fine-tuned."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from mein.config import load_config
from mein.errors import ConfigError
from mein.experts.transformer import TransformerExpert
from mein.hub import FrozenFeatures, HubTokenizer, fetch, load_transformer
from mein.hub.networks import transformers_quietly
from mein.runtime.tensors import load_tensors
from tests.support import tiny
from tests.support.hub_models import DECODERS, KINDS, LLAMA_SIZES, SIZES, SIZES_OF, build

TEXT = "The film was not so good."
NORMS = {"GPT2": "ln_f", "Llama": "norm"}  # what comes after the last layer of a decoder

pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")


NAMES = {"DistilBert": "n_layers", "GPT2": "n_layer"}  # how a config calls its number of layers


def layers_of(kind: str, count: int) -> dict[str, int]:
    return {NAMES.get(kind, "num_hidden_layers"): count}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind with three layers."""
    folder = tmp_path_factory.mktemp("three")
    return {kind: build(kind, folder / kind, classes=2, **layers_of(kind, 3)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_layers_give_the_same_as_in_the_full_network(
    kind: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    fetch(str(sources[kind]), tmp_path / "model", classes=2, layers=2)
    features = FrozenFeatures(tmp_path / "model")([TEXT]).values
    with transformers_quietly() as transformers, torch.no_grad():
        whole = transformers.AutoModel.from_pretrained(sources[kind]).eval()
        tokens = torch.tensor(HubTokenizer(tmp_path / "model")([TEXT]).to_lists())
        states = whole(tokens, output_hidden_states=True).hidden_states[2][0]  # 0: the embeddings
        if kind in DECODERS:
            states = getattr(whole, NORMS[kind])(states)[-1:]
    np.testing.assert_allclose(features, functional.normalize(states.mean(0), dim=0), atol=1e-5)
    kept = {name: value.shape for name, value in load_file(tmp_path / "model/model.safetensors").items()}
    assert len(kept) < len(load_file(sources[kind] / "model.safetensors"))
    config = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert config[NAMES.get(kind, "num_hidden_layers")] == 2


@pytest.mark.parametrize(
    ("kind", "base"), [("Qwen3", "Llama"), ("Gemma3Text", "Llama"), ("ModernBert", "Bert")]
)
def test_networks_whose_layers_differ_are_cut_too(
    kind: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (
        {**SIZES_OF[base], "head_dim": 16} if base == "Llama" else {**SIZES, "global_attn_every_n_layers": 2}
    )
    build_more(kind, base, sizes, tmp_path / "source", monkeypatch)
    config = json.loads((tmp_path / "source/config.json").read_text(encoding="utf-8"))
    fetch(str(tmp_path / "source"), tmp_path / "model", classes=2, layers=2, frozen_layers=1)
    cut = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))
    assert cut["layer_types"] == config["layer_types"][:2]
    assert np.isfinite(FrozenFeatures(tmp_path / "model")([TEXT, "a film"]).values).all()
    assert isinstance(load_transformer(tmp_path / "model", 2, seed=0, frozen_layers=1), TransformerExpert)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_layers_stay_as_they_are_and_all_others_learn(
    kind: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    fetch(str(sources[kind]), tmp_path / "model", classes=2, frozen_layers=2)
    expert = load_transformer(tmp_path / "model", 2, seed=0, frozen_layers=2)
    before = {name: value.clone() for name, value in expert.named_parameters()}
    words = torch.tensor(HubTokenizer(tmp_path / "model")([TEXT]).to_lists())
    trained = [value for value in expert.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1.0)
    functional.cross_entropy(expert(words, torch.tensor([words.shape[1]])), torch.tensor([1])).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    moved = {name for name, value in expert.named_parameters() if not torch.equal(value, before[name])}
    below = ("embeddings.", "wte.", "wpe.", "embed_tokens.", ".0.", ".1.")
    is_frozen = {name: any(part in name for part in below) for name in before}
    assert not [name for name in moved if is_frozen[name]]
    # A bias of keys changes no attention, so its gradient is 0 up to rounding.
    still = {name for name in before if name not in moved and not is_frozen[name]}
    assert not [
        name for name in still if "pooler" not in name and "key.bias" not in name and "k_lin.bias" not in name
    ]
    assert sum(is_frozen.values()) > 2
    assert {name for name, value in expert.named_parameters() if not value.requires_grad} == {
        name for name, frozen in is_frozen.items() if frozen
    }


@pytest.mark.parametrize("training", ["plain", "adv", "vat"])
def test_a_run_leaves_its_frozen_layers_alone_in_every_stage(
    training: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    tiny.run(
        tmp_path / "run",
        expert__kind="transformer",
        expert__training=training,
        expert__model=str(sources["Bert"]),
        expert__layers=2,
        expert__frozen_layers=1,
        expert_training__learning_rate=1e-3,
        expert_training__epochs=1,
        fine_tuning__epochs=1,
        fine_tuning__patience=None,
    )
    start = load_file(tmp_path / "run/hub/model.safetensors")
    learned = load_tensors(tmp_path / "run/expert.safetensors")[0]
    tuned = load_tensors(tmp_path / "run/mixture.safetensors")[0]
    below = [name for name in start if ".embeddings." in name or ".layer.0." in name]
    assert len(below) > 10
    for found in (learned, tuned):
        assert all(torch.equal(found[f"network.{name}"], start[name]) for name in below)
    above = "bert.encoder.layer.1.output.dense.weight"
    assert not torch.equal(learned[f"network.{above}"], start[above])
    assert not [name for name in learned if ".layer.2." in name]


def test_without_frozen_layers_all_learn(sources: dict[str, Path], tmp_path: Path) -> None:
    fetch(str(sources["Bert"]), tmp_path / "model", classes=2)
    assert all(value.requires_grad for value in load_transformer(tmp_path / "model", 2, seed=0).parameters())


MORE: dict[str, tuple[str, dict[str, Any], str]] = {
    "MPNet": ("Bert", {**SIZES}, "encoder.relative_attention_bias"),  # which all layers share
    "DebertaV2": (
        "Bert",
        {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "conv_kernel_size": 3},
        "encoder.rel_embeddings",
    ),
    "OPT": (
        "Llama",
        {"hidden_size": 32, "num_attention_heads": 2, "word_embed_proj_dim": 32},
        "embed_positions",
    ),
}


def build_more(
    kind: str, like: str, sizes: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A model of a kind that is not among KINDS, with three layers."""
    monkeypatch.setitem(SIZES_OF, kind, sizes)
    decoders = (*DECODERS, kind) if like in DECODERS else DECODERS
    monkeypatch.setattr("tests.support.hub_models.DECODERS", decoders)
    return build(kind, folder, classes=2, num_hidden_layers=3)


@pytest.mark.parametrize("kind", MORE)
def test_what_frozen_layers_share_with_others_is_frozen_too(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like, sizes, shared = MORE[kind]
    build_more(kind, like, sizes, tmp_path / "source", monkeypatch)
    fetch(str(tmp_path / "source"), tmp_path / "model", classes=2, frozen_layers=2)
    expert = load_transformer(tmp_path / "model", 2, seed=0, frozen_layers=2)
    frozen = {name for name, value in expert.named_parameters() if not value.requires_grad}
    assert any(shared in name for name in frozen)
    assert all(any(f".{i}." in name for name in frozen) for i in (0, 1))
    learns = {name for name, _ in expert.named_parameters()} - frozen
    assert not [name for name in learns if ".0." in name or ".1." in name or "conv." in name]
    assert any(".2." in name for name in learns)
    assert not [name for name in frozen if ".2." in name or "decoder.final_layer_norm" in name]


@pytest.mark.parametrize(
    ("kind", "like", "sizes", "settings", "sentence"),
    [
        (
            "Albert",
            "Bert",
            {**SIZES, "embedding_size": 16},
            {"frozen_layers": 1},
            r"^The layers of '.*' cannot be disti",
        ),
        (
            "GPTNeo",
            "Llama",
            {"hidden_size": 32, "num_layers": 3, "num_heads": 2, "attention_types": [[["global"], 3]]},
            {"layers": 2},
            r"' cannot be loaded as a text classifier \(it cannot be cut to 2 layers\): choose a model that",
        ),
        (
            "Qwen3",
            "Llama",
            {**LLAMA_SIZES, "head_dim": 16},
            {"layers": 9},
            r"^expert.layers \(=9\) is more than the 3 layers of '",
        ),
    ],
)
def test_networks_that_cannot_be_cut_or_frozen_are_refused(
    kind: str,
    like: str,
    sizes: dict[str, Any],
    settings: dict[str, int],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = build_more(kind, like, sizes, tmp_path / "source", monkeypatch)
    with pytest.raises(ConfigError, match=sentence):
        fetch(str(source), tmp_path / "model", classes=2, **settings)
    assert not (tmp_path / "model").exists()


def test_layers_that_are_not_there_are_refused(sources: dict[str, Path], tmp_path: Path) -> None:
    bert = str(sources["Bert"])
    with pytest.raises(
        ConfigError, match=r"^expert.layers \(=4\) is more than the 3 layers of '.*Bert': set it lower"
    ):
        fetch(bert, tmp_path / "model", classes=2, layers=4)
    with pytest.raises(
        ConfigError,
        match=r"^expert.frozen_layers \(=2\) leaves none of the 2 layers of '.*Bert' to fine-tune: ",
    ):
        fetch(bert, tmp_path / "model", classes=2, layers=2, frozen_layers=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"expert.layers": 2},
            r"^expert.layers applies to transformers only, not to 'linear': remove it.$",
        ),
        (
            {"expert.frozen_layers": 2},
            r"^expert.frozen_layers applies to transformers only, not to 'linear': ",
        ),
        (
            {"expert.kind": "frozen", "expert.model": "m", "expert.frozen_layers": 2},
            r"^expert.frozen_layers applies to transformers only, not to 'frozen': ",
        ),
        (
            {
                "expert.kind": "transformer",
                "expert.model": "m",
                "expert.layers": 2,
                "expert.frozen_layers": 2,
            },
            r"^expert.frozen_layers \(=2\) leaves none of 2 layers to fine-tune: set it lower, or ",
        ),
    ],
)
def test_other_experts_have_no_such_layers(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_config("small", overrides=settings)
