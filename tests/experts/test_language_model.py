"""Language models: normalized embeddings, exact softmaxes, every word once, and what experts take over."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from mein.errors import InputError
from mein.experts.config import ExpertConfig
from mein.experts.embedding import WordEmbedding, drop_out
from mein.experts.language_model import ElmoFeatures, LanguageModel, reversal, softmax_over, word_losses
from mein.experts.lstm import LSTMExpert
from mein.run.warm_start import Rows
from mein.runtime.progress import Quiet
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import Ragged, ragged
from mein.training.config import Pretraining
from mein.training.imitation_batches import fetched
from mein.training.language_model import (
    STAGE,
    Blocks,
    perplexity,
    segment_losses,
    side_by_side,
    train_language_model,
)
from mein.training.loop import Runtime

CPU = torch.device("cpu")
VOCABULARY, D, H = 9, 4, 5
COUNTS = torch.tensor([0.0, 6.0, 5.0, 4.0, 3.0, 2.0, 2.0, 1.0, 1.0])
TEXTS = [[3, 7, 2, 1], [5, 1], [8, 4, 4, 6, 2, 3, 1], [2, 1], [6, 5, 1]]


def model_of(
    is_bidirectional: bool = False, is_normalized: bool = True, vocabulary: int = VOCABULARY
) -> LanguageModel:
    torch.manual_seed(4)
    frequencies = COUNTS if is_normalized else None
    return LanguageModel(D, H, vocabulary, frequencies, is_bidirectional).double()


# Embeddings.


def test_embeddings_have_mean_0_and_variance_1_over_running_text() -> None:
    torch.manual_seed(2)
    embedding = WordEmbedding(VOCABULARY, D, COUNTS.double()).double()
    text = [word for word, count in enumerate(COUNTS.tolist()) for _ in range(int(count))]
    embedded = embedding(torch.tensor([text]))[0].tolist()
    raw = embedding.weight.tolist()
    for d in range(D):
        values = [vector[d] for vector in embedded]
        assert sum(values) / len(text) == pytest.approx(0.0, abs=1e-12)
        assert sum(v * v for v in values) / len(text) == pytest.approx(1.0, rel=1e-4)  # 1e-6 in the root
        mean = sum(raw[word][d] for word in text) / len(text)
        variance = sum((raw[word][d] - mean) ** 2 for word in text) / len(text)
        expected = [(raw[word][d] - mean) / math.sqrt(variance + 1e-6) for word in text]
        assert values == pytest.approx(expected, rel=1e-10)


def test_the_gradient_flows_through_mean_and_deviation() -> None:
    embedding = WordEmbedding(VOCABULARY, 2, COUNTS).double()
    words = torch.tensor([[3, 1, 0], [5, 5, 8]])

    def embed(weight: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(embedding, {"weight": weight}, (words,))
        return found

    weight = torch.randn(VOCABULARY, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(embed, (weight,))
    (gradient,) = torch.autograd.grad(embed(weight).square().sum(), weight)
    assert gradient[2].abs().min() > 0.0  # word 2 is not in the batch: it moves only the moments
    assert gradient[0].abs().max() == 0.0  # padding counts for nothing


@pytest.mark.parametrize("is_normalized", [False, True])
def test_padding_is_embedded_as_zero_and_the_table_is_every_words_embedding(is_normalized: bool) -> None:
    embedding = WordEmbedding(VOCABULARY, D, COUNTS if is_normalized else None)
    assert embedding(torch.tensor([[0, 3, 0]]))[0, [0, 2]].abs().max() == 0.0
    table = embedding.table()
    assert table.shape == (VOCABULARY, D)
    for word in range(VOCABULARY):
        assert torch.equal(table[word], embedding(torch.tensor([[word]]))[0, 0])


def test_a_models_embeddings_start_small_where_their_scale_is_not_seen() -> None:
    """So that Adam's steps count for something beside the start of a rare word."""
    small, large = (
        LanguageModel(50, 8, 400, counts, False).embedding.weight[1:].std().item()
        for counts in (torch.ones(400), None)
    )
    assert small == pytest.approx(0.02, rel=0.05)
    assert large == pytest.approx(1.0, rel=0.05)


def test_dropout_scales_what_it_keeps_and_a_seed_repeats_it() -> None:
    embedded = torch.ones(40, 50, 4)
    first = drop_out(embedded, 0.2, Generator().manual_seed(1))
    assert torch.equal(first, drop_out(embedded, 0.2, Generator().manual_seed(1)))
    assert sorted(set(first.flatten().tolist())) == [0.0, 1.25]
    assert (first == 0.0).float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert drop_out(embedded, 0.2, None) is embedded


# The softmax.


@pytest.mark.parametrize("vocabulary", [10_001, 10_300])
@torch.no_grad()
def test_an_adaptive_softmax_is_a_distribution_over_all_words(vocabulary: int) -> None:
    """p(word) = p(head entry), times p(word in its cluster) beyond the head; each by a plain softmax."""
    torch.manual_seed(0)
    size = 16
    softmax = softmax_over(size, vocabulary).double()
    assert isinstance(softmax, nn.AdaptiveLogSoftmaxWithLoss)
    outputs = torch.randn(1, size).double()
    every = torch.split(torch.arange(vocabulary), 500)
    found = torch.stack(
        [
            torch.cat([word_losses(softmax, o.expand(len(words), size), words) for words in every])
            for o in outputs
        ]
    )
    assert (-found).exp().sum(1).tolist() == pytest.approx([1.0], rel=1e-10)
    torch.testing.assert_close(-found, softmax.log_prob(outputs))
    cuts = [2_000, 10_000, vocabulary] if vocabulary > 10_001 else [2_000, vocabulary]
    head = torch.log_softmax(softmax.head(outputs), 1)
    expected = [head[:, :2_000]]
    for cluster in range(len(cuts) - 1):
        inside = torch.log_softmax(softmax.tail[cluster](outputs), 1)
        assert inside.shape[1] == cuts[cluster + 1] - cuts[cluster]
        expected.append(head[:, 2_000 + cluster, None] + inside)
    torch.testing.assert_close(-found, torch.cat(expected, 1))


def test_a_small_vocabulary_gets_a_full_softmax() -> None:
    softmax = softmax_over(3, 10_000)
    assert isinstance(softmax, nn.Linear)
    small = softmax_over(3, 7).double()
    outputs = torch.randn(4, 3).double()
    logits = small(outputs).tolist()
    found = word_losses(small, outputs, torch.tensor([2, 0, 6, 6])).tolist()
    for row, word in enumerate([2, 0, 6, 6]):
        total = sum(math.exp(z) for z in logits[row])
        assert found[row] == pytest.approx(-math.log(math.exp(logits[row][word]) / total))


# Which words are read when.


def config_of(lanes: int = 3, segment: int = 2, **others: Any) -> Pretraining:
    return Pretraining(lanes=lanes, segment=segment, **others)


class Shards:
    """Several shards of text."""

    def __init__(self, shards: Sequence[Sequence[Sequence[int]]]) -> None:
        self.shards = [ragged(rows) for rows in shards]
        self.shard_count = len(shards)

    def words(self, shard: int) -> Ragged:
        return self.shards[shard]


def predicted(blocks: Blocks, epoch: int, direction: int = 0) -> tuple[Counter[int], int, list[int]]:
    """How often each word is predicted in an epoch, how many lanes began, and the order of all that."""
    order: list[int] = []
    lanes = 0
    for columns in blocks.plan(epoch):
        segment = blocks.segment(columns, CPU, 2)
        rows = segment.rows[direction]
        lanes += int((rows[:, 0] != 0).sum()) if segment.is_first else 0
        order += rows[:, 1:][rows[:, 1:] != 0].tolist()
    return Counter(order), lanes, order


def distinct(lengths: Sequence[int]) -> list[list[int]]:
    """Documents of these lengths in which no word occurs twice."""
    starts = np.concatenate([[1], 1 + np.cumsum(lengths)])
    return [list(range(a, b)) for a, b in pairwise(starts.tolist())]


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("lanes", [1, 3, 7, 50])
def test_every_word_is_predicted_once_an_epoch_but_the_first_of_a_lane(lanes: int, direction: int) -> None:
    documents = distinct([4, 1, 7, 2, 2, 1, 5, 9, 3])
    texts = [Shards([documents[:4], documents[4:6]]), Shards([documents[6:]])]
    blocks = Blocks(texts, config_of(lanes, segment=3), seed=1)
    total = sum(map(len, documents))
    for epoch in range(3):
        found, begun, order = predicted(blocks, epoch, direction)
        assert max(found.values()) == 1
        unread = set(range(1, total + 1)) - set(found)
        in_blocks_with_columns = begun
        alone = sum(width == 0 for width in blocks.widths)
        assert len(unread) == in_blocks_with_columns + alone
        assert len(order) == total - len(unread)


def test_the_order_changes_from_epoch_to_epoch_and_repeats_with_the_seed() -> None:
    text = Shards([distinct([3] * 20), [[word + 60 for word in row] for row in distinct([4] * 10)]])
    blocks = Blocks([text], config_of(), seed=1)
    epochs = [predicted(blocks, epoch)[2] for epoch in range(3)]
    assert len({tuple(order) for order in epochs}) == 3
    again = Blocks([text], config_of(), seed=1)
    assert [predicted(again, epoch)[2] for epoch in reversed(range(3))] == epochs[::-1]
    assert predicted(Blocks([text], config_of(), seed=2), 0)[2] != epochs[0]


def test_a_segment_is_known_by_its_columns_alone_so_a_resumed_run_reads_the_same() -> None:
    text = Shards([distinct([5, 9, 2]), [[30]], distinct([6, 6])])  # the one in the middle has no columns
    whole = Blocks([text], config_of(), seed=3)
    planned = [columns for epoch in range(3) for columns in whole.plan(epoch)]
    read = [whole.segment(columns, CPU, 2) for columns in planned]
    for columns, segment in reversed(list(zip(planned, read, strict=True))):
        fresh = Blocks([text], config_of(), seed=3).segment(columns, CPU, 2)
        assert fresh.is_first == segment.is_first
        assert all(torch.equal(a, b) for a, b in zip(fresh.rows, segment.rows, strict=True))
    numbers = [int(c) for columns in planned for c in columns]
    assert sorted(numbers) == list(range(3 * whole.columns))


def test_segments_of_a_block_follow_one_another_by_one_shared_word() -> None:
    blocks = Blocks([Rows(ragged(distinct([4, 8, 3, 6])))], config_of(lanes=3, segment=2), seed=0)
    segments = [blocks.segment(columns, CPU, 2) for columns in blocks.plan(0)]
    assert [segment.is_first for segment in segments] == [True, *[False] * (len(segments) - 1)]
    for before, after in pairwise(segments):
        for direction in range(2):
            assert torch.equal(before.rows[direction][:, -1], after.rows[direction][:, 0])


def test_the_other_direction_reads_each_lane_from_its_end() -> None:
    blocks = Blocks([Rows(ragged(distinct([4, 8, 3, 6, 1])))], config_of(lanes=3), seed=0)
    ahead, behind = blocks.matrix(0, 0)
    for row, mirrored in zip(ahead.tolist(), behind.tolist(), strict=True):
        words = [word for word in row if word]
        assert row == words + [0] * (len(row) - len(words))
        assert mirrored == words[::-1] + [0] * (len(row) - len(words))


@pytest.mark.parametrize("texts", [[[1]], [[1], [1]], [[2, 1]], [[], [3, 2, 1]]])
def test_a_tiny_text_is_read_completely_in_fewer_lanes(texts: list[list[int]]) -> None:
    blocks = Blocks([Rows(ragged(texts))], config_of(lanes=64, segment=100), seed=0)
    assert blocks.columns == sum(map(len, texts)) - 1
    assert sum(predicted(blocks, 0)[0].values()) == blocks.columns


def test_lanes_are_cut_from_documents_laid_end_to_end() -> None:
    words = ragged([[1, 2], [3, 4, 5], [6, 7]])
    assert side_by_side(words, 1).tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    assert side_by_side(words, 2).tolist() == [[1, 2, 3, 4], [5, 6, 7, 0]]
    assert side_by_side(words, 5).tolist() == [[1, 2], [3, 4], [5, 6], [7, 0], [0, 0]]


# Losses.


def cell(w: dict[str, Tensor], e: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, gate by gate."""
    pre = w["weight_ih_l0"] @ e + w["bias_ih_l0"] + w["weight_hh_l0"] @ h + w["bias_hh_l0"]
    i, f, g, o = pre.chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def read_by_loops(model: LanguageModel, direction: int, words: Sequence[int]) -> list[list[Tensor]]:
    """The outputs of every layer (L, T, D or H) over one row of words, from a zero state."""
    reader = model.reader(direction)
    read = [model.embedding.table()[word] for word in words]
    layers = []
    for number, lstm in enumerate(reader.lstms):
        h = c = torch.zeros(H, dtype=torch.double)
        outputs = []
        for e in read:
            h, c = cell(dict(lstm.named_parameters()), e, h, c)
            outputs.append(reader.projections[number](h) if len(reader.projections) else h)
        layers.append(outputs)
        read = outputs
    return layers


def losses_by_loops(model: LanguageModel, direction: int, words: Sequence[int]) -> list[float]:
    """-log p of every word but the first."""
    last = read_by_loops(model, direction, words)[-1]
    logits = [model.softmax(output) for output in last[:-1]]
    following = zip(logits, words[1:], strict=True)
    return [-torch.log_softmax(z, 0)[word].item() for z, word in following]


@pytest.mark.parametrize("direction", [0, 1])
@torch.no_grad()
def test_reading_in_segments_with_the_state_carried_on_is_reading_at_once(direction: int) -> None:
    model = model_of(is_bidirectional=True)
    rows = torch.tensor([[3, 7, 2, 1, 5, 1, 8], [4, 4, 6, 2, 0, 0, 0]])
    state = model.reader(direction).start(2)
    at_once, end = segment_losses(model, direction, rows, state)
    expected = [losses_by_loops(model, direction, rows[0].tolist())]
    expected += [losses_by_loops(model, direction, rows[1, :4].tolist()) + [0.0] * 3]  # padding
    for row in range(2):
        assert at_once[row].tolist() == pytest.approx(expected[row], rel=1e-10)
    parts = []
    for start, stop in ((0, 2), (2, 3), (3, 6)):
        losses, state = segment_losses(model, direction, rows[:, start : stop + 1], state)
        parts.append(losses)
    torch.testing.assert_close(torch.cat(parts, dim=1), at_once, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(state, end, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("is_bidirectional", [False, True])
@torch.no_grad()
def test_the_perplexity_is_that_of_every_document_alone(is_bidirectional: bool) -> None:
    model = model_of(is_bidirectional)
    text = [*TEXTS, [4]]  # a document without a next word counts for nothing
    losses = [loss for words in text for loss in losses_by_loops(model, 0, words)]
    if is_bidirectional:
        losses += [loss for words in text for loss in losses_by_loops(model, 1, words[::-1])]
    expected = math.exp(sum(losses) / len(losses))
    assert perplexity(model, Rows(ragged(text))) == pytest.approx(expected, rel=1e-10)
    assert perplexity(model, Shards([text[:2], text[2:]])) == pytest.approx(expected, rel=1e-10)
    assert perplexity(model, Rows(ragged([[1], [1]]))) == 1.0


def runtime_in(path: Path) -> Runtime:
    return Runtime(RunFolder(path), Quiet(), 1e9)


@pytest.mark.parametrize("is_bidirectional", [False, True])
def test_the_loss_in_training_is_the_mean_over_segments_of_loops_both_directions_added(
    tmp_path: Path, is_bidirectional: bool
) -> None:
    """At a learning rate of nearly nothing the recorded loss is that of the weights as they came."""
    model = model_of(is_bidirectional)
    config = config_of(lanes=2, segment=3, epochs=1, dropout=0.0, learning_rate=1e-15)
    blocks = Blocks([Rows(ragged(TEXTS))], config, seed=5)
    total = 0.0
    for block, width in enumerate(blocks.widths):
        matrices = blocks.matrix(0, block)[: 1 + is_bidirectional]
        for start in range(0, width, 3):
            columns = min(3, width - start)
            for direction, matrix in enumerate(matrices):
                rows = [[word for word in row if word] for row in matrix.tolist()]
                losses = [
                    losses_by_loops(model, direction, words)[start : start + columns]
                    for words in rows
                    if len(words) > 1
                ]
                inside = [loss for row in losses for loss in row]
                total += columns * sum(inside) / len(inside)
    train_language_model(model, [Rows(ragged(TEXTS))], Rows(ragged(TEXTS)), config, runtime_in(tmp_path), 5)
    recorded = RunFolder(tmp_path).metrics(STAGE)[1]["loss"]
    assert recorded == pytest.approx(total / blocks.columns, rel=1e-7)


def test_the_gradient_stops_where_a_segment_begins(tmp_path: Path) -> None:
    """The second segment's gradient is that of its own words from a constant state: no word before it
    gets any. By Adam a word without a gradient does not move at all."""
    words = ragged([[2, 3, 4, 5, 6, 7]])
    config = config_of(lanes=1, segment=3, epochs=1, dropout=0.0, learning_rate=0.1, clip=1e9)
    model = model_of(is_normalized=False)
    seen: list[Tensor] = []
    states: list[tuple[Tensor, bool]] = []
    model.embedding.weight.register_hook(lambda gradient: seen.append(gradient.clone()))  # type: ignore[no-untyped-call]
    model.readers[0].register_forward_pre_hook(
        lambda _, inputs: states.append((inputs[1].detach().clone(), inputs[1].requires_grad))
    )
    train_language_model(model, [Rows(words)], Rows(words), config, runtime_in(tmp_path), 0)
    first, second = ({n for n in range(VOCABULARY) if g[n].abs().max() > 0.0} for g in seen)
    assert (first, second) == ({2, 3, 4}, {5, 6})  # 7, the last, is only predicted
    (begin, _), (carried, needs_gradient) = states[1:3]  # before and after them the text is evaluated
    assert begin.abs().max() == 0.0
    assert carried.abs().max() > 0.0
    assert not needs_gradient


def test_a_text_without_anything_to_predict_is_refused(tmp_path: Path) -> None:
    single = Rows(ragged([[1]]))
    with pytest.raises(InputError, match=r"too little text for a language model: give more than a document"):
        train_language_model(model_of(), [single], single, config_of(epochs=2), runtime_in(tmp_path), 0)


@pytest.mark.parametrize("kill", [4, 7, 15])
def test_a_killed_training_goes_on_with_the_state_it_carried(tmp_path: Path, kill: int) -> None:
    """A checkpoint at each step; the kill strikes between the two directions of a step."""

    def live(path: Path, last: int) -> dict[str, Tensor]:
        path.mkdir(exist_ok=True)
        model, calls = model_of(is_bidirectional=True), iter(range(10**6))

        def strike(*_: object) -> None:
            if torch.is_grad_enabled() and next(calls) == 2 * last + 1:
                raise KeyboardInterrupt

        model.softmax.register_forward_pre_hook(strike)
        config = config_of(lanes=2, segment=2, epochs=3, dropout=0.2, learning_rate=0.02)
        text = Rows(ragged([*TEXTS, *TEXTS]))
        try:
            train_language_model(model, [text], text, config, Runtime(RunFolder(path), Quiet(), 0.0), 5)
        except KeyboardInterrupt:
            return {}
        return {name: p.detach() for name, p in model.named_parameters()}

    whole = live(tmp_path / "whole", 10**6)
    assert live(tmp_path / "parts", kill) == {}
    resumed = live(tmp_path / "parts", 10**6)
    assert all(torch.equal(resumed[name], parameter) for name, parameter in whole.items())


def test_batches_come_in_their_order_fetched_ahead_and_errors_come_through() -> None:
    done: list[int] = []

    def fetch(rows: np.ndarray) -> int:
        if rows[0] == 7:
            raise OSError("the shard is gone")
        done.append(int(rows[0]))
        return 10 * int(rows[0])

    plan = [np.array([number]) for number in range(4)]
    found = []
    for rows, batch in fetched(plan, fetch):
        found.append((int(rows[0]), batch))
        assert set(done) >= set(range(len(found)))
        assert len(done) <= len(found) + 2  # no more than two ahead: a batch takes memory
    assert found == [(0, 0), (1, 10), (2, 20), (3, 30)]
    assert list(fetched([], fetch)) == []
    with pytest.raises(OSError, match="the shard is gone"):
        list(fetched([np.array([1]), np.array([7]), np.array([2])], fetch))


# Learning a language that is known.


def bigram_language(words: int, documents: int, length: int) -> tuple[Ragged, np.ndarray, np.ndarray]:
    """Documents of a random bigram model, its p(next | word) (V, V), and the frequency of each word (V,)."""
    draw = np.random.default_rng(0)
    P = draw.dirichlet(np.full(words, 0.3), size=words)
    pi = np.linalg.matrix_power(P, 500)[0]
    text = np.zeros((documents, length), np.int64)
    text[:, 0] = draw.choice(words, documents, p=pi)
    for t in range(1, length):
        u = draw.random((documents, 1))
        text[:, t] = np.minimum((P.cumsum(1)[text[:, t - 1]] < u).sum(1), words - 1)
    return ragged((1 + text).tolist()), P, pi


def test_the_perplexity_approaches_that_of_the_language_itself(tmp_path: Path) -> None:
    """The entropy rate is known exactly: sum_w pi(w) H(P[w])."""
    text, P, pi = bigram_language(9, 300, 60)
    words, held_out = text.take(np.arange(200)), text.take(np.arange(200, 300))
    entropy = -sum(pi[w] * p * math.log(p) for w in range(9) for p in P[w] if p > 0.0)
    unigram = -sum(p * math.log(p) for p in pi)
    torch.manual_seed(0)
    counts = np.bincount(words.values, minlength=10).astype(np.float32)
    model = LanguageModel(8, 24, 10, torch.from_numpy(counts), is_bidirectional=False)
    config = config_of(lanes=16, segment=20, epochs=8, dropout=0.0, learning_rate=0.02)
    train_language_model(model, [Rows(words)], Rows(held_out), config, runtime_in(tmp_path), 0)
    found = perplexity(model, Rows(held_out))
    assert found < 1.08 * math.exp(entropy)
    assert found > 0.97 * math.exp(entropy)  # nobody beats the language, but for chance
    assert found < 0.7 * math.exp(unigram)


# What an expert takes over.

EXPERT = ExpertConfig(kind="lm-lstm", embedding_dim=D, hidden_dim=H, mlp_dim=3)


def test_an_expert_takes_over_embeddings_and_lstm_bit_for_bit() -> None:
    model = model_of()
    expert = LSTMExpert(EXPERT, VOCABULARY, 2, COUNTS).double()
    hidden = expert.hidden.weight.clone()
    expert.start_from(model)
    assert torch.equal(expert.embedding.weight, model.embedding.weight)
    lstm = dict(model.reader(0).lstms[0].named_parameters())
    for name, parameter in expert.lstm.named_parameters():
        assert torch.equal(parameter, lstm[name])
        assert parameter.data_ptr() != lstm[name].data_ptr()  # a copy: the model stays as it was
    assert torch.equal(expert.hidden.weight, hidden)
    assert all(parameter.requires_grad for parameter in expert.parameters())


@pytest.mark.parametrize("is_normalized", [False, True])
@torch.no_grad()
def test_an_expert_sees_a_text_as_its_language_model_does(is_normalized: bool) -> None:
    model = model_of(is_normalized=is_normalized)
    expert = LSTMExpert(EXPERT, VOCABULARY, 2, COUNTS if is_normalized else None).double()
    expert.start_from(model)
    words, lengths = torch.tensor([[3, 7, 2, 1], [5, 1, 0, 0]]), torch.tensor([4, 2])
    embedded = expert.embed(words, lengths, None)
    assert torch.equal(embedded, model.embedding(words))
    states, _ = expert.lstm(embedded)
    outputs, _ = model.read(0, words, model.reader(0).start(2), 0.0, None)
    assert torch.equal(states, outputs)
    for row, length in enumerate(lengths.tolist()):
        h = read_by_loops(model, 0, words[row, :length].tolist())[-1][-2]  # before the end of sequence
        s = torch.relu(expert.hidden.weight @ h + expert.hidden.bias)
        z = expert.output.weight @ s + expert.output.bias
        torch.testing.assert_close(expert(words, lengths)[row], z)


def test_an_expert_of_a_language_model_does_not_use_the_state_after_the_end_of_sequence() -> None:
    """Where the model read on it has learned to forget; a document without a word has no other state."""
    expert = LSTMExpert(EXPERT, VOCABULARY, 2, COUNTS)
    read = expert.embed(torch.tensor([[3, 7, 1], [1, 0, 0]]), torch.tensor([3, 1]), None).detach()
    read.requires_grad_()
    expert.classify(read, torch.tensor([3, 1]), None).square().sum().backward()  # type: ignore[no-untyped-call]
    assert read.grad is not None
    has_say = read.grad.abs().sum(-1) > 0.0
    assert has_say.tolist() == [[True, True, False], [True, False, False]]


def test_a_model_that_has_settled_reads_as_before_from_weights_of_scale_one() -> None:
    model = model_of()
    with torch.no_grad():
        model.embedding.weight.mul_(5.0)  # the floor of the variance does not show then
    words = torch.tensor([[3, 7, 2, 1, 0]])
    before = model.embedding(words)
    model.embedding.settle()
    torch.testing.assert_close(model.embedding(words), before, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(model.embedding.weight[words], before, rtol=0.0, atol=0.0)
    assert (model.embedding.weight[0] == 0.0).all()


# ELMo.


def features_of(model: LanguageModel) -> ElmoFeatures:
    features = ElmoFeatures(model).double()
    with torch.no_grad():
        features.scalars.copy_(torch.tensor([0.3, -0.7, 1.1]))
        features.gamma.fill_(1.7)
    return features


@torch.no_grad()
def elmo_by_loops(model: LanguageModel, words: list[int]) -> Tensor:
    """gamma sum_l s_l [ahead_l; behind_l] (T, 2 D) of one document, which one reader reads from its end."""
    shares = [math.exp(s) for s in (0.3, -0.7, 1.1)]
    embedded = [model.embedding.table()[word] for word in words]
    ahead = [embedded, *read_by_loops(model, 0, words)]
    behind = [embedded[::-1], *read_by_loops(model, 1, words[::-1])]
    found = []
    for t in range(len(words)):
        mixed = torch.zeros(2 * D, dtype=torch.double)
        for layer in range(3):
            both = torch.cat([ahead[layer][t], behind[layer][len(words) - 1 - t]])
            mixed += 1.7 * shares[layer] / sum(shares) * both
        found.append(mixed)
    return torch.stack(found)


@pytest.mark.parametrize("more_padding", [0, 3])
@torch.no_grad()
def test_elmo_reads_every_document_in_both_directions_whatever_its_padding(more_padding: int) -> None:
    model = model_of(is_bidirectional=True)
    features = features_of(model)
    longest = max(map(len, TEXTS)) + more_padding
    words = torch.tensor([text + [0] * (longest - len(text)) for text in TEXTS])
    found = features(words, torch.tensor(list(map(len, TEXTS))))
    assert found.shape == (len(TEXTS), longest, features.size)
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(found[row, : len(text)], elmo_by_loops(model, text))
        assert (found[row, len(text) :] == 0.0).all()


def test_a_reversal_mirrors_each_document_and_leaves_padding() -> None:
    assert reversal(torch.tensor([4, 1, 2]), 4).tolist() == [[3, 2, 1, 0], [0, 1, 2, 3], [1, 0, 2, 3]]


def test_of_elmo_only_scalars_and_gamma_learn() -> None:
    features = features_of(model_of(is_bidirectional=True))
    expert = LSTMExpert(EXPERT, VOCABULARY, 2, COUNTS, features).double()
    words, lengths = torch.tensor([[3, 7, 2, 1], [5, 1, 0, 0]]), torch.tensor([4, 2])
    expert(words, lengths).square().sum().backward()
    inside = {name for name, p in features.named_parameters() if p.requires_grad}
    assert inside == {"scalars", "gamma"}
    for name, parameter in expert.named_parameters():
        is_frozen = name.startswith("features.") and name.split(".", 1)[1] not in inside
        assert (parameter.grad is None) == is_frozen, name
        assert is_frozen or (parameter.grad is not None and parameter.grad.abs().max() > 0.0), name


def test_an_expert_with_elmo_takes_over_the_features_and_the_embeddings_but_not_the_lstm() -> None:
    trained = model_of(is_bidirectional=True)
    torch.manual_seed(99)
    fresh = LanguageModel(D, H, VOCABULARY, COUNTS, is_bidirectional=True).double()
    expert = LSTMExpert(EXPERT, VOCABULARY, 2, COUNTS, ElmoFeatures(fresh)).double()
    assert expert.features is not None
    lstm = {name: p.clone() for name, p in expert.lstm.named_parameters()}
    expert.start_from(trained)
    assert torch.equal(expert.embedding.weight, trained.embedding.weight)
    assert torch.equal(expert.features.embedding.weight, trained.embedding.weight)
    for reader, direction in ((expert.features.forward_reader, 0), (expert.features.backward_reader, 1)):
        theirs = dict(trained.reader(direction).named_parameters())
        assert all(torch.equal(p, theirs[name]) for name, p in reader.named_parameters())
    assert all(torch.equal(p, lstm[name]) for name, p in expert.lstm.named_parameters())
    words, lengths = torch.tensor([[8, 4, 4, 1]]), torch.tensor([4])
    with torch.no_grad():
        expected = ElmoFeatures(trained).double()(words, lengths)
        assert torch.equal(expert.embed(words, lengths, None)[..., D:], expected)
