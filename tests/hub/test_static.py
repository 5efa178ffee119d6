"""Static embeddings: what a plain loop over tokens gives, in every layout that others write."""

import builtins
import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mein.errors import ConfigError, MissingExtra, RunError
from mein.hub import StaticFeatures, fetch
from mein.hub.networks import read_facts
from mein.model.loading import load_model
from mein.runtime.run_folder import RunFolder
from mein.store.store import Store
from mein.text.ragged import parted
from tests.support import tiny

WORDS = ["[PAD]", "[UNK]", "[CLS]", "good", "bad", "film", "the", "dull", "plot"]
TEXTS = ["the good film", "the the dull plot zzz", "", "zzz", "bad", "good [CLS] good"]
SIZE = 5


def tokenizer_file(folder: Path) -> None:
    """A tokenizer of words that puts [CLS] first, unless it is told not to, and pads."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra mein[transformers] is not installed")
    model = tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    template = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    tokenizer.post_processor = template
    tokenizer.enable_padding(length=8)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def static_model(
    folder: Path,
    *,
    normalize: bool = True,
    dtype: torch.dtype = torch.float32,
    weights: bool = False,
    mapping: bool = False,
) -> dict[str, np.ndarray]:
    """Write a model as model2vec does; its tensors, in float64."""
    tokenizer_file(folder)
    random = torch.Generator().manual_seed(3)
    rows = 4 if mapping else len(WORDS)
    tensors = {"embeddings": (40 * torch.randn(rows, SIZE, generator=random)).to(dtype)}
    if weights:
        tensors["weights"] = torch.rand(len(WORDS), generator=random)
    if mapping:
        tensors["mapping"] = torch.arange(len(WORDS)) % rows
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "model2vec", "normalize": normalize, "hidden_dim": SIZE}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return {name: tensor.double().numpy() for name, tensor in tensors.items()}


def plainly(tensors: dict[str, np.ndarray], text: str, normalize: bool) -> np.ndarray:
    """The mean of a text's known tokens, one after another; a special one that it spells counts."""
    tokens = [WORDS.index(word) for word in text.split() if word in WORDS]
    total = np.zeros(SIZE)
    for token in tokens:
        row = int(tensors["mapping"][token]) if "mapping" in tensors else token
        total += tensors["embeddings"][row] * (tensors["weights"][token] if "weights" in tensors else 1.0)
    mean = total / max(1, len(tokens))
    return mean / np.linalg.norm(mean) if normalize and mean.any() else mean


def features_of(folder: Path, target: Path, texts: Sequence[str] = TEXTS) -> np.ndarray:
    fetch(str(folder), target, classes=2)
    rows = StaticFeatures(target)(texts)
    assert rows.values.dtype == np.float32
    return rows.values.reshape(len(texts), -1)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
@pytest.mark.parametrize(("weights", "mapping"), [(False, False), (True, False), (True, True)])
def test_features_are_a_plain_loop_over_tokens(
    normalize: bool, dtype: torch.dtype, weights: bool, mapping: bool, tmp_path: Path
) -> None:
    tensors = static_model(
        tmp_path / "source", normalize=normalize, dtype=dtype, weights=weights, mapping=mapping
    )
    found = features_of(tmp_path / "source", tmp_path / "model")
    for text, row in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(row, plainly(tensors, text, normalize), rtol=1e-4, atol=1e-5)
    assert not found[[2, 3]].any()  # nothing is known of them


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("inside", ["0_StaticEmbedding", ""])
@pytest.mark.parametrize("module", ["sentence_transformers.models.StaticEmbedding", "a.b.c.StaticEmbedding"])
def test_the_layout_of_sentence_transformers_is_read_too(
    normalize: bool, inside: str, module: str, tmp_path: Path
) -> None:
    tensors = static_model(tmp_path / "plain")
    source = tmp_path / "source"
    tokenizer_file(source / inside)
    table = load_file(tmp_path / "plain/model.safetensors")["embeddings"]
    save_file({"embedding.weight": table}, source / inside / "model.safetensors")
    modules = [{"idx": 0, "name": "0", "path": inside, "type": module}]
    if normalize:
        modules.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": "x.models.Normalize"})
    (source / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    found = features_of(source, tmp_path / "model")
    for text, row in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(row, plainly(tensors, text, normalize), rtol=1e-4, atol=1e-5)
    modules.append({"idx": 2, "name": "2", "path": "2_Dense", "type": "x.models.Dense"})
    (source / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"has layers after its static embeddings \(\w+\): choose another"):
        fetch(str(source), tmp_path / "other", classes=2)


def test_a_path_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    static_model(tmp_path / "elsewhere")
    (tmp_path / "source").mkdir()
    modules = [{"path": "../elsewhere", "type": "a.StaticEmbedding"}]
    (tmp_path / "source/modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^The static embeddings of .*source' cannot be read \("):
        fetch(str(tmp_path / "source"), tmp_path / "model", classes=2)


def test_a_text_is_cut_and_batches_change_nothing(tmp_path: Path) -> None:
    tensors = static_model(tmp_path / "source")
    fetch(str(tmp_path / "source"), tmp_path / "model", classes=2)
    cut = StaticFeatures(tmp_path / "model", max_length=2)
    wanted = plainly(tensors, "the good", normalize=True)
    np.testing.assert_allclose(cut(["the good film bad"]).values, wanted, rtol=1e-5)
    features = StaticFeatures(tmp_path / "model", threads=2)
    many = features(TEXTS * 100).values.reshape(100, -1)
    assert (many == features(TEXTS).values).all()
    assert len(features([])) == 0
    again = pickle.loads(pickle.dumps(features))  # noqa: S301
    assert again.fingerprint == features.fingerprint != cut.fingerprint
    np.testing.assert_array_equal(again(TEXTS).values, features(TEXTS).values)


def test_a_fingerprint_distinguishes_tables_normalization_and_tokens(tmp_path: Path) -> None:
    def print_of(name: str) -> str:
        fetch(str(tmp_path / name), tmp_path / f"{name}-model", classes=2)
        return StaticFeatures(tmp_path / f"{name}-model").fingerprint

    static_model(tmp_path / "a")
    static_model(tmp_path / "same")
    static_model(tmp_path / "normalized", normalize=False)
    static_model(tmp_path / "weighted", weights=True)
    static_model(tmp_path / "tokens")
    text = (tmp_path / "tokens/tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokens/tokenizer.json").write_text(text.replace('"film"', '"movie"'), encoding="utf-8")
    first, same, *others = (print_of(name) for name in ("a", "same", "normalized", "weighted", "tokens"))
    assert first == same
    assert len({first, *others}) == 4


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"

    def refusal(tensors: dict[str, torch.Tensor] | None) -> str:
        if tensors is None:
            (source / "model.safetensors").write_bytes(b"short")
        else:
            save_file(tensors, source / "model.safetensors")
        with pytest.raises(ConfigError) as caught:
            fetch(str(source), tmp_path / "model", classes=2)
        assert not (tmp_path / "model").exists()
        return str(caught.value).replace(str(source), "it")

    static_model(source)
    table = torch.zeros(len(WORDS), SIZE)
    cannot = "The static embeddings of 'it' cannot be read ("
    assert refusal(None).startswith(cannot)
    remedy = "give a folder that model2vec's save_pretrained wrote."
    assert refusal({"other": table}) == f"{cannot}model.safetensors holds no table 'embeddings'): {remedy}"
    too_many = "'it' has more tokens than embeddings: give it the tokenizer that it was trained with."
    assert refusal({"embeddings": table[1:].clone()}) == too_many
    assert refusal({"embeddings": table, "weights": torch.ones(3)}) == too_many
    assert refusal({"embeddings": table, "mapping": torch.full((len(WORDS),), len(WORDS))}) == too_many
    static_model(source)
    (source / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"^The static embeddings of .* cannot be read \("):
        fetch(str(source), tmp_path / "model", classes=2)
    static_model(source)
    with pytest.raises(
        ConfigError, match=r"source' holds static embeddings, without layers: remove expert.la"
    ):
        fetch(str(source), tmp_path / "model", classes=2, layers=1)


def test_a_damaged_folder_is_one_sentence(tmp_path: Path) -> None:
    static_model(tmp_path / "source")
    fetch(str(tmp_path / "source"), tmp_path / "model", classes=2)
    (tmp_path / "model/model.safetensors").write_bytes(b"short")
    with pytest.raises(RunError, match=r"model is damaged \(.*\): remove it and fetch the model again.$"):
        StaticFeatures(tmp_path / "model")


def test_transformers_are_not_needed_and_tokenizers_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static_model(tmp_path / "source")
    import_module, absent = builtins.__import__, ["transformers"]

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return import_module(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert features_of(tmp_path / "source", tmp_path / "model").any()
    absent.append("tokenizers")
    monkeypatch.delitem(sys.modules, "tokenizers")
    with pytest.raises(MissingExtra, match=r"'tokenizers'\): pip install '\.\[transformers\]'$"):
        StaticFeatures(tmp_path / "model")


def test_a_run_learns_from_them_and_predicts_from_its_folder(tmp_path: Path) -> None:
    static_model(tmp_path / "source")
    tiny.run(tmp_path / "run", expert__kind="frozen", expert__model=str(tmp_path / "source"))
    for path in (tmp_path / "source").iterdir():
        path.unlink()
    rows = Store.open(tmp_path / "run/encoded/unlabeled").words()
    assert parted(rows, SIZE)[0].any()
    assert read_facts(tmp_path / "run/hub").pooling == "static"
    model = load_model(tmp_path / "run", "cpu")
    assert np.ptp(model.log_probs(tiny.TEXTS.test_texts)[:, 0]) > 1e-3
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    texts = tiny.TEXTS.test_texts
    np.testing.assert_array_equal(again.log_probs(texts), model.log_probs(texts))


def test_they_cannot_be_fine_tuned(tmp_path: Path) -> None:
    static_model(tmp_path / "source")
    settings: dict[str, Any] = {"expert__kind": "transformer", "expert__model": str(tmp_path / "source")}
    settings["expert_training__learning_rate"] = 1e-4
    sentence = r"source' holds static embeddings, which are not fine-tuned: use --preset frozen\.$"
    with pytest.raises(ConfigError, match=sentence):
        tiny.run(tmp_path / "run", **settings)
    assert not (RunFolder(tmp_path / "run") / "config.json").exists()  # another encoder may be given
    assert not (tmp_path / "run/hub").exists()
