"""The expert for few labels: a sum of vectors by hand, deaf to padding, that starts from raw text."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mein.data.corpus import source_of_lists
from mein.experts.average import AverageExpert
from mein.experts.config import ExpertConfig
from mein.report.card import card
from mein.report.page import page
from mein.report.record import read_finished
from mein.run import warm_start as starting
from mein.runtime.tensors import load_tensors
from tests.support import tiny
from tests.support.dying import assert_same_folder
from tests.support.killing import Death, live_and_die

VOCABULARY, D, Y = 9, 4, 3
UNTRAINED: dict[str, Any] = {
    "expert__kind": "average",
    "expert_training__epochs": 0,
    "imitator_training__epochs": 0,
}


@pytest.fixture
def expert() -> AverageExpert:
    torch.manual_seed(5)
    config = ExpertConfig(kind="average", embedding_dim=D)
    return AverageExpert(config, VOCABULARY, Y).double().eval()


def logits(expert: AverageExpert, words: list[list[int]], lengths: list[int]) -> Tensor:
    true_lengths = torch.tensor(lengths)
    return expert.classify(expert.embed(torch.tensor(words), true_lengths, None), true_lengths, None)


def test_logits_are_those_of_hand_arithmetic(expert: AverageExpert) -> None:
    E, W, b = expert.embedding.weight.tolist(), expert.output.weight.tolist(), expert.output.bias.tolist()
    text = [3, 7, 7, 1]
    found = logits(expert, [text], [4])[0].tolist()
    for y in range(Y):
        m = [sum(E[word][d] for word in text) / 2 for d in range(D)]  # the root of 4 words
        assert found[y] == pytest.approx(b[y] + sum(W[y][d] * m[d] for d in range(D)))


def test_padding_changes_no_logit(expert: AverageExpert) -> None:
    """Whatever stands there: only the lengths determine what is a word."""
    alone = logits(expert, [[3, 7, 1]], [3])
    for padding in (0, 5):
        padded = logits(expert, [[3, 7, 1, padding, padding], [2, 4, 6, 8, 1]], [3, 5])
        torch.testing.assert_close(padded[:1], alone, rtol=1e-12, atol=1e-12)  # float64


def test_the_order_of_words_is_lost_on_it(expert: AverageExpert) -> None:
    torch.testing.assert_close(logits(expert, [[3, 7, 2, 1]], [4]), logits(expert, [[1, 2, 3, 7]], [4]))


def shuffled(texts: Sequence[str]) -> list[str]:
    """The same words beside others."""
    return [" ".join([*text.split()[::2], *text.split()[1::2]]) for text in texts]


def start_of(path: Path) -> Tensor:
    return load_tensors(path / "expert.safetensors")[0]["embedding.weight"]


def test_it_starts_from_vectors_of_train_and_unlabeled_text_never_of_dev(tmp_path: Path) -> None:
    texts, labels, raw = tiny.TEXTS.labeled_texts, tiny.TEXTS.labeled_labels, tiny.TEXTS.unlabeled_texts

    def start(train: Sequence[str], unlabeled: Sequence[str], dev: Sequence[str]) -> Tensor:
        labeled, held = source_of_lists(train, labels[:60]), source_of_lists(dev, labels[60:])
        documents = replace(tiny.corpus(unlabeled=unlabeled), labeled=labeled, dev=held)
        path = tmp_path / f"run {len(list(tmp_path.iterdir()))}"
        tiny.run(path, documents, **UNTRAINED)
        return start_of(path)

    usual = start(texts[:60], raw, texts[60:])
    assert usual.abs().sum(1).count_nonzero() > 50
    assert torch.equal(start(texts[:60], raw, shuffled(texts[60:])), usual)
    assert not torch.equal(start(shuffled(texts[:60]), raw, texts[60:]), usual)
    assert not torch.equal(start(texts[:60], shuffled(raw), texts[60:]), usual)


def test_without_unlabeled_text_train_is_enough(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", replace(tiny.corpus(), unlabeled=None), **UNTRAINED)
    assert start_of(tmp_path / "run").abs().sum(1).count_nonzero() > 50


def test_vectors_are_no_longer_kept_where_the_expert_is(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", expert__kind="average")
    assert (tmp_path / "run" / "expert.safetensors").exists()
    assert not list((tmp_path / "run").glob(f"{starting.VECTORS}*"))


@pytest.mark.parametrize("is_given", [True, False])
def test_page_and_card_show_whether_it_has_used_unlabeled_text(tmp_path: Path, is_given: bool) -> None:
    documents = tiny.corpus() if is_given else replace(tiny.corpus(), unlabeled=None)
    tiny.run(tmp_path / "run", documents, expert__kind="average")
    finished = read_finished(tmp_path / "run")
    assert ("which was trained on labels only" in page([finished])) != is_given
    used = "The <b>expert</b> was itself trained on the unlabeled text."
    assert (used in page([finished])) == is_given
    assert ("learned from the labels and, by itself, from unlabeled text;" in card(finished)) == is_given


BESIDE_VECTORS = [
    (Death("expert", what="log"), ""),  # logged, not begun
    (Death("expert", what="open .vectors", at=2, torn=True), ".vectors*.tmp"),
    (Death("expert", what="os.rename .vectors"), ".vectors*.tmp"),
    (Death("expert", what="open .expert.checkpoint"), "vectors.safetensors"),
    (Death("expert", what="os.rename .expert.safetensors"), "vectors.safetensors"),
    (Death("labeling", what="os.remove vectors"), "vectors.safetensors"),
]


def test_killed_beside_its_vectors_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    path, unbroken, diary = tmp_path / "run", tmp_path / "unbroken", tmp_path / "diary"
    assert live_and_die(unbroken, diary, None, expert__kind="average") == 0
    for death, left in BESIDE_VECTORS:
        assert live_and_die(path, diary, death, expert__kind="average") == -signal.SIGKILL
        assert not left or list(path.glob(left)), death
    assert live_and_die(path, diary, None, expert__kind="average") == 0
    assert_same_folder(path, unbroken)
