"""Hidden tokens: drawn, predicted by the network, each passage once an epoch; against plain loops."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, nn

from mein.experts.transformer import MaskedModel
from mein.hub import HubTokenizer, Vocabulary, fetch_masked, load_masked
from mein.hub.networks import load_masked_network, transformers_quietly
from mein.runtime import ranks
from mein.text.ragged import Ragged, ragged
from mein.training.masked import (
    NOT_HIDDEN,
    Hidden,
    Passages,
    hidden_once,
    hide,
    own_part,
    perplexity,
    token_losses,
)
from tests.support import hub_models

CPU = torch.device("cpu")
MASK, SPECIALS, SIZE = 4, [0, 1, 2, 3, 4], 26
VOCABULARY = Vocabulary(MASK, np.isin(np.arange(SIZE), SPECIALS), np.arange(5, SIZE))


class Shards:
    """Several shards of text."""

    def __init__(self, *shards: Sequence[Sequence[int]]) -> None:
        self.shards = [ragged(rows) for rows in shards]
        self.shard_count = len(shards)

    def words(self, shard: int) -> Ragged:
        return self.shards[shard]


def documents(count: int, seed: int = 0, longest: int = 12) -> list[list[int]]:
    """[CLS] ... [SEP], of ordinary tokens and now and then an unknown one."""
    random = np.random.default_rng(seed)
    inside = [random.integers(5, SIZE, size=random.integers(1, longest)).tolist() for _ in range(count)]
    return [[2, *[1 if token == 7 else token for token in row], 3] for row in inside]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    return hub_models.build("Bert", tmp_path_factory.mktemp("hub") / "bert")


@pytest.fixture(scope="module")
def fetched(bert: Path) -> Path:
    fetch_masked(str(bert), bert.parent / "fetched")
    return bert.parent / "fetched"


@pytest.fixture(scope="module")
def model(fetched: Path) -> MaskedModel:
    return load_masked(fetched, seed=0)[0]


# What is hidden.


def test_hiding_is_the_plain_loop_over_tokens() -> None:
    rows = documents(40)
    found = hide(ragged(rows), VOCABULARY, 0.3, np.random.default_rng(5))
    random = np.random.default_rng(5)
    flat = [token for row in rows for token in row]
    draws = (random.random(len(flat)), random.random(len(flat)), random.integers(SIZE - 5, size=len(flat)))
    shown, wanted = [], []
    for token, choice, fate, other in zip(flat, *(draw.tolist() for draw in draws), strict=True):
        is_chosen = choice < 0.3 and token not in SPECIALS
        wanted.append(token if is_chosen else NOT_HIDDEN)
        if is_chosen and fate < 0.8:
            token = MASK
        elif is_chosen and fate < 0.9:
            token = range(5, SIZE)[other]
        shown.append(token)
    assert found.shown.values.tolist() == shown
    assert found.wanted.values.tolist() == wanted
    assert found.count == sum(token != NOT_HIDDEN for token in wanted) > 20
    for part in (found.shown, found.wanted):
        assert part.lengths.tolist() == [len(row) for row in rows]


def test_a_share_is_chosen_of_which_8_1_1_of_10_are_masked_changed_and_kept() -> None:
    flat = np.array([2, *[20] * 100_000, 3, 1, 0, 4] * 2)
    found = hide(Ragged(flat, np.array([0, len(flat)])), VOCABULARY, 0.15, np.random.default_rng(1))
    asked = found.wanted.values != NOT_HIDDEN
    assert not asked[flat != 20].any()
    assert (found.shown.values == flat)[~asked].all()
    assert asked.sum() / 200_000 == pytest.approx(0.15, abs=0.004)  # 5 standard errors
    shown = Counter(found.shown.values[asked].tolist())
    total = asked.sum()
    assert shown.pop(MASK) / total == pytest.approx(0.8, abs=0.012)
    assert shown.pop(20) / total == pytest.approx(0.1 + 0.1 / 21, abs=0.01)  # kept, or another that is it
    assert sorted(shown) == [token for token in range(5, SIZE) if token != 20]
    assert max(shown.values()) < 1.4 * min(shown.values())


def test_a_slice_of_a_longer_text_is_hidden_as_if_it_were_all() -> None:
    rows = ragged(documents(9))
    part = Ragged(rows.values, rows.offsets[3:6])
    alone = Ragged(rows.values[rows.offsets[3] : rows.offsets[5]], part.offsets - part.offsets[0])
    found, wanted = (hide(text, VOCABULARY, 0.5, np.random.default_rng(2)) for text in (part, alone))
    assert found.shown.to_lists() == wanted.shown.to_lists()
    assert found.wanted.to_lists() == wanted.wanted.to_lists()


# What the network predicts.


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Roberta"])
@torch.no_grad()
def test_logits_at_some_places_are_those_of_the_plain_network_on_each_document(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    network, _ = load_masked_network(hub_models.build(kind, tmp_path / kind), seed=3)
    words, lengths = torch.tensor([[2, 9, 5, 3, 0, 0], [2, 6, 7, 8, 11, 3]]), torch.tensor([4, 6])
    found = MaskedModel(network)(words, lengths, torch.tensor([1, 2, 6, 10]), None)
    short = network(input_ids=words[:1, :4]).logits[0]
    long = network(input_ids=words[1:]).logits[0]
    torch.testing.assert_close(
        found, torch.stack([short[1], short[2], long[0], long[4]]), rtol=1e-4, atol=1e-5
    )
    again = network(input_ids=words[1:]).logits
    assert torch.equal(again[0], long)  # nothing was left hooked


def test_a_generators_seed_decides_what_is_dropped_out_and_nothing_else_is_drawn(model: MaskedModel) -> None:
    words, lengths, places = torch.tensor([[2, 9, 5, 3]]), torch.tensor([4]), torch.tensor([1, 2])
    before = torch.get_rng_state()
    first, second, third = (model(words, lengths, places, Generator().manual_seed(n)) for n in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert not model.network.training


def losses_by_hand(network: nn.Module, hidden: Hidden) -> list[float]:
    """-log p of each token asked for, a document at a time, by a plain softmax."""
    losses = []
    for shown, wanted in zip(hidden.shown.to_lists(), hidden.wanted.to_lists(), strict=True):
        logits = network(input_ids=torch.tensor([shown])).logits[0].double().tolist()
        for z, token in zip(logits, wanted, strict=True):
            if token != NOT_HIDDEN:
                losses.append(math.log(sum(map(math.exp, z))) - z[token])
    return losses


@torch.no_grad()
def test_the_loss_is_the_mean_over_hidden_tokens_by_hand(model: MaskedModel) -> None:
    hidden = hide(ragged(documents(7)), VOCABULARY, 0.3, np.random.default_rng(3))
    batch = own_part(hidden, CPU)
    losses = losses_by_hand(model.network, hidden)
    assert len(losses) == hidden.count > 5
    assert token_losses(model, batch).tolist() == pytest.approx(losses, rel=1e-4)
    mean = float(token_losses(model, batch).sum() * batch.weight)
    assert mean == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_a_batch_of_which_nothing_is_hidden_gives_zero_and_no_nan(model: MaskedModel) -> None:
    hidden = hide(ragged([[2, 3], [2, 1, 3]]), VOCABULARY, 0.9, np.random.default_rng(0))
    assert hidden.count == 0
    batch = own_part(hidden, CPU)
    loss = token_losses(model, batch, Generator().manual_seed(0)).sum() * batch.weight
    assert loss.item() == 0.0
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all((gradient == 0.0).all() for gradient in gradients)
    model.zero_grad()


@torch.no_grad()
def test_the_shares_of_several_processes_add_up_to_the_batchs_loss(
    model: MaskedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = hide(ragged(documents(4)), VOCABULARY, 0.4, np.random.default_rng(3))
    whole = own_part(hidden, CPU)
    wanted = float(token_losses(model, whole).sum() * whole.weight)
    for processes in (2, 3, 6):  # of six, two have nothing that counts
        monkeypatch.setattr(ranks, "world", lambda processes=processes: processes)
        found = 0.0
        for rank in range(processes):
            monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
            part = own_part(hidden, CPU)
            assert part.share is not None
            found += float(token_losses(model, part).sum() * part.weight)
        assert found == pytest.approx(wanted, rel=1e-5)


@torch.no_grad()
def test_perplexity_is_exp_of_the_mean_over_all_shards_and_hides_the_same_each_time(
    model: MaskedModel,
) -> None:
    text = Shards(documents(30), documents(11, seed=1))
    evaluated = hidden_once(text, 6, VOCABULARY, 0.3, seed=4)
    losses = [loss for hidden in evaluated for loss in losses_by_hand(model.network, hidden)]
    assert perplexity(model, evaluated) == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)
    assert max(int(hidden.shown.lengths.max()) for hidden in evaluated) == 6
    again, other = (hidden_once(text, 6, VOCABULARY, 0.3, seed) for seed in (4, 5))
    assert [h.shown.to_lists() for h in again] == [h.shown.to_lists() for h in evaluated]
    assert [h.shown.to_lists() for h in other] != [h.shown.to_lists() for h in evaluated]


# Which passage is read when.


def test_every_passage_is_read_once_an_epoch_beside_others_of_like_length() -> None:
    rows = [documents(500, seed=n, longest=40) for n in range(3)]
    passages = Passages(Shards(*rows), 10, lanes=8, seed=1)
    cut = [row[i : i + 10] for shard in rows for row in shard for i in range(0, len(row), 10)]
    assert len(passages) == len(cut)
    for epoch in range(2):
        read: list[list[int]] = []
        waste = 0
        for batch in passages.plan(epoch):
            found = passages.take(batch)
            assert len(found) == len(batch) <= 8
            waste += int((found.lengths.max() - found.lengths).sum())
            read += found.to_lists()
        assert sorted(read) == sorted(cut)
        assert waste < 0.05 * sum(map(len, cut))


def test_the_order_and_the_masks_change_with_the_epoch_and_follow_from_rows() -> None:
    text = Shards(documents(60), documents(60, seed=1))
    first, again = (Passages(text, None, lanes=8, seed=1) for _ in range(2))
    epochs = [list(first.plan(epoch)) for epoch in range(3)]
    numbers = np.concatenate([batch for plan in epochs for batch in plan])
    assert sorted(numbers.tolist()) == list(range(3 * 120))  # so the first row of a batch names its masks
    orders = {tuple((np.concatenate(plan) % 120).tolist()) for plan in epochs}
    assert len(orders) == 3
    for plan, epoch in zip(reversed(epochs), (2, 1, 0), strict=True):
        assert [batch.tolist() for batch in again.plan(epoch)] == [batch.tolist() for batch in plan]
        for batch in reversed(plan):
            assert again.take(batch).to_lists() == first.take(batch).to_lists()
    other = Passages(text, None, lanes=8, seed=2).plan(0)
    assert [batch.tolist() for batch in other] != [batch.tolist() for batch in epochs[0]]


# Tokens.


def test_a_long_text_becomes_passages_that_hold_all_of_its_tokens(fetched: Path) -> None:
    texts = [
        "the film was so very long and the plot not good , a film !",
        "",
        "great",
        "bad bad bad bad",
    ]
    tokenizer = HubTokenizer(fetched, 6, reads_on=True)
    rows = tokenizer(texts)
    passages = rows.pieces(tokenizer.max_length).to_lists()
    assert [len(passage) for passage in passages] == [6, 6, 6, 5, 2, 3, 6]
    assert all(passage[0] == 2 and passage[-1] == 3 for passage in passages)
    whole = HubTokenizer(fetched, None)(texts).to_lists()
    assert [token for passage in passages for token in passage[1:-1]] == [
        token for row in whole for token in row[1:-1]
    ]
    assert HubTokenizer(fetched, 6)(texts).to_lists() == [passages[0], *passages[4:]]


def test_reading_on_survives_pickling_and_has_a_fingerprint_of_its_own(fetched: Path) -> None:
    tokenizer = HubTokenizer(fetched, 6, reads_on=True)
    make, arguments = tokenizer.__reduce__()
    assert make(*arguments)(["bad " * 9]).to_lists() == tokenizer(["bad " * 9]).to_lists()
    assert tokenizer.fingerprint != HubTokenizer(fetched, 6).fingerprint


# The model.


def test_a_fetched_models_head_comes_from_the_seed_and_its_embeddings_are_tied(
    fetched: Path, bert: Path
) -> None:
    with transformers_quietly() as transformers:
        source = transformers.AutoModel.from_pretrained(bert).state_dict()
    (first, vocabulary), (again, _), (other, _) = (load_masked(fetched, seed) for seed in (0, 0, 1))
    states = [model.state_dict() for model in (first, again, other)]
    changed = [name for name in states[0] if not torch.equal(states[0][name], states[2][name])]
    assert changed == ["network.cls.predictions.transform.dense.weight"]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    for name, value in first.encoder.state_dict().items():
        assert torch.equal(value, source[name]), name
    assert first.network.cls.predictions.decoder.weight is first.encoder.embeddings.word_embeddings.weight  # type: ignore[union-attr]
    assert vocabulary.mask == MASK
    assert np.flatnonzero(vocabulary.is_special).tolist() == SPECIALS
    assert vocabulary.ordinary.tolist() == list(range(5, SIZE))


def test_a_head_that_is_there_is_kept(tmp_path: Path, bert: Path) -> None:
    network, _ = load_masked_network(bert, seed=7)
    with transformers_quietly() as transformers:
        network.save_pretrained(tmp_path / "source")  # type: ignore[operator]
        transformers.AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "source")
    fetch_masked(str(tmp_path / "source"), tmp_path / "fetched")
    found = load_masked(tmp_path / "fetched", seed=0)[0].network.state_dict()
    assert found.keys() == network.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in network.state_dict().items())
