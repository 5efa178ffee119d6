"""Tokens per second of experts and imitators, in training and labeling, beside plain float32 PyTorch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.encode import spread
from benchmarks.measure import hardware
from mein.experts.config import ExpertConfig
from mein.experts.embedding import WordEmbedding
from mein.experts.gpu_lstm import Captures, can_capture
from mein.experts.lstm import LSTMExpert
from mein.imitators.config import ImitatorsConfig
from mein.imitators.projected import projected_loss
from mein.imitators.reference import Imitators, average_windows, imitation_loss
from mein.mixture.inference import Evidence, expert_logits
from mein.text.batches import PieceBatch, WordBatch, by_tokens, pack_pieces, pad_words
from mein.text.ragged import Ragged, offsets_of
from mein.training.config import Optimization
from mein.training.imitation_batches import fetched
from mein.training.loop import Stage, StageState, take_step
from mein.training.objectives import Adversarial, LabeledBatch, Objective, Plain, Randomness, Virtual
from mein.training.stages import shapes_read

TRAININGS = ("plain", "adv", "vat")
BATCHES = 8  # different ones, in turn


@dataclass(frozen=True)
class Sizes:
    """What is measured; the defaults are the paper's."""

    documents: int = 32
    tokens: int = 256
    vocabulary: int = 87_000
    embedding_dim: int = 256
    hidden_dim: int = 1_024
    steps: int = 30
    repeats: int = 5
    labeled: int = 8_192


def bench_experts(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Rates of every training, mein and plain, with their ratio; labeling; the share of waiting."""
    figures: dict[str, Any] = {"hardware": hardware(), "device": device_name(device), "sizes": vars(sizes)}
    figures["training"] = {training: _compare(training, sizes, device) for training in TRAININGS}
    figures["labeling"] = _labeling(sizes, device)
    figures["waiting"] = _waiting(sizes, device)
    return figures


def _compare(training: str, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Tokens per second, forward + backward + update; mein and plain in turns."""
    batches = [batch_of(sizes, device, number) for number in range(BATCHES)]
    steps = {"ours": our_step(training, sizes, batches), "plain": plain_expert_step(training, sizes, batches)}
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        timed(step, BATCHES, device)
    for _ in range(sizes.repeats):
        for name, step in steps.items():
            seconds = timed(step, sizes.steps, device)
            rates[name].append(sizes.steps * sizes.documents * sizes.tokens / seconds)
    ratios = [ours / plain for ours, plain in zip(rates["ours"], rates["plain"], strict=True)]
    return {
        **{f"{name}_tokens_per_second": spread(values) for name, values in rates.items()},
        "ratio": spread(ratios),
    }


def our_step(training: str, sizes: Sizes, batches: list[WordBatch]) -> Callable[[int], None]:
    """The step of our own loop: bfloat16 on a GPU, fused Adam, nothing waits for the device."""
    device = batches[0].words.device
    expert = _expert(training, sizes).to(device)
    labels, weights, alpha, gates = _labels(sizes, device)

    def draw(step: int) -> tuple[Ragged, np.ndarray]:
        return _word_documents(sizes, step % BATCHES), np.zeros((0, sizes.documents, 2), np.float32)

    objectives: dict[str, Objective] = {
        "plain": Plain(),
        "adv": Adversarial(5.0),
        "vat": Virtual(draw, 5.0, sizes.documents),
    }
    objective = objectives[training]
    if can_capture(device):
        shapes = shapes_read(expert, objective, [sizes.tokens], sizes.documents)
        expert.captures = Captures(expert.lstm, shapes, has_state=False)

    def loss(batch: WordBatch, step: int) -> Tensor:
        labeled = LabeledBatch(batch, alpha, labels, weights)
        return objective.loss(expert, gates, labeled, Randomness(0, "bench", step))

    named = {name: p for name, p in expert.named_parameters() if p.requires_grad}
    stage = Stage("bench", named, sizes.documents, lambda epoch: iter(()), list, loss, dict)
    optimizer = torch.optim.Adam(list(named.values()), lr=1e-3, fused=True)
    state = StageState()

    def step(number: int) -> None:
        take_step(stage, batches[number % BATCHES], state, Optimization(), optimizer)
        state.step += 1

    return step


def plain_expert_step(training: str, sizes: Sizes, batches: list[WordBatch]) -> Callable[[int], None]:
    """The textbook's step in float32: torch's modules and optimizer as they come."""
    device = batches[0].words.device
    expert = _expert(training, sizes).to(device)
    labels = _labels(sizes, device)[0]
    optimizer = torch.optim.Adam(expert.parameters(), lr=1e-3)

    def logits_of(embedded: Tensor) -> Tensor:
        _, (h, _) = expert.lstm(embedded)
        z: Tensor = expert.output(functional.relu(expert.hidden(h[-1])))
        return z

    def step(number: int) -> None:
        optimizer.zero_grad()
        words = batches[number % BATCHES].words
        embedded = functional.dropout(expert.embedding(words), 0.5)
        z = logits_of(embedded)
        loss = functional.cross_entropy(z, labels)
        if training == "adv":
            (g,) = torch.autograd.grad(loss, embedded, retain_graph=True)
            loss = loss + functional.cross_entropy(logits_of(embedded + _to_norm(g, 5.0)), labels)
        elif training == "vat":
            others = functional.dropout(expert.embedding(batches[(number + 1) % BATCHES].words), 0.5)
            p = functional.softmax(logits_of(others).detach(), -1)
            d = _to_norm(torch.randn_like(others), 0.1).requires_grad_()
            (g,) = torch.autograd.grad(_kl(p, logits_of(others.detach() + d)), d)
            loss = loss + _kl(p, logits_of(others + _to_norm(g, 5.0)))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(expert.parameters(), 5.0)
        optimizer.step()

    return step


def _to_norm(direction: Tensor, norm: float) -> Tensor:
    length = direction.square().sum(dim=(1, 2), keepdim=True).sqrt()
    return norm * direction / length.clamp_min(1e-12)


def _kl(p: Tensor, logits: Tensor) -> Tensor:
    divergence: Tensor = functional.kl_div(functional.log_softmax(logits, -1), p, reduction="batchmean")
    return divergence


def _labeling(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Tokens per second forward only, from word numbers in memory to logits in memory."""
    expert = _expert("plain", sizes).to(device)
    words = _word_documents(sizes, 0, sizes.labeled)
    expert_logits(expert, words)
    seconds = []
    for _ in range(sizes.repeats):
        started = time.perf_counter()
        expert_logits(expert, words)
        seconds.append(time.perf_counter() - started)
    return {"tokens_per_second": spread([sizes.labeled * sizes.tokens / s for s in seconds])}


def _waiting(sizes: Sizes, device: torch.device) -> dict[str, float]:
    """How much longer a step takes when its batch is padded and sent just then: the time spent waiting."""
    ready = [batch_of(sizes, device, number) for number in range(BATCHES)]
    fresh = list(ready)
    documents = [_word_documents(sizes, number) for number in range(BATCHES)]
    step_ready, step_fresh = our_step("plain", sizes, ready), our_step("plain", sizes, fresh)

    def fetch(number: np.ndarray) -> WordBatch:
        return pad_words(documents[int(number[0])].take(np.arange(sizes.documents)), device)

    def epoch(_: int) -> None:
        plan = (np.array([step % BATCHES]) for step in range(sizes.steps))
        for step, (number, batch) in enumerate(fetched(plan, fetch)):
            fresh[int(number[0])] = batch
            step_fresh(step)

    shares = []
    for _ in range(sizes.repeats + 1):
        at_best = timed(step_ready, sizes.steps, device)
        with_data = timed(epoch, 1, device)
        shares.append(max(0.0, 1.0 - at_best / with_data))
    return spread(shares[1:])


def _expert(training: str, sizes: Sizes) -> LSTMExpert:
    config = ExpertConfig.model_validate(
        {"training": training, "embedding_dim": sizes.embedding_dim, "hidden_dim": sizes.hidden_dim}
    )
    frequencies = 1.0 / torch.arange(1.0, sizes.vocabulary + 1.0) if training != "plain" else None
    torch.manual_seed(0)
    expert = LSTMExpert(config, sizes.vocabulary, 2, frequencies)
    assert isinstance(expert.embedding, WordEmbedding)
    return expert


def _word_documents(sizes: Sizes, number: int, count: int | None = None) -> Ragged:
    """Word numbers as frequent as in text: by Zipf's law."""
    documents = sizes.documents if count is None else count
    uniform = np.random.default_rng(number).random(documents * sizes.tokens)
    values = (sizes.vocabulary - 1) ** uniform  # log-uniform: p(rank) ~ 1 / rank
    return Ragged(values.astype(np.int32), offsets_of(np.full(documents, sizes.tokens)))


def batch_of(sizes: Sizes, device: torch.device, number: int) -> WordBatch:
    """A batch of made-up documents, on its device."""
    return pad_words(_word_documents(sizes, number), device)


def _labels(sizes: Sizes, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    labels = torch.arange(sizes.documents, device=device) % 2
    alpha = torch.zeros(0, sizes.documents, 2, device=device)
    return labels, torch.ones(sizes.documents, device=device), alpha, torch.zeros(0, device=device)


def timed(step: Callable[[int], None], steps: int, device: torch.device) -> float:
    """Seconds of `count` steps, the device's work included."""
    wait_for(device)
    started = time.perf_counter()
    for number in range(steps):
        step(number)
    wait_for(device)
    return time.perf_counter() - started


def wait_for(device: torch.device) -> None:
    """Wait until a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """The GPU's own name, or cpu."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


VOCABULARY = 20_000
LENGTH = 256
PLAIN_TOKENS = 8_192  # 32 documents of 256, the paper's batch
WINDOWS = ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5))
PAPER = {(1,): 555_613, (1, 2): 236_065, (1, 2, 3): 122_076, (1, 2, 3, 4): 75_393}  # on a V100


def bench_imitators(
    device: torch.device, budgets: Sequence[int], repeats: int, config: ImitatorsConfig
) -> dict[str, Any]:
    """Rates by windows and batch; ratios are of runs that followed each other."""
    figures: dict[str, Any] = {"hardware": hardware(), "device": device_name(device), "rows": []}
    for windows in WINDOWS:
        settings = config.model_copy(update={"windows": windows})
        steps = {"plain float32": (PLAIN_TOKENS, plain_imitator_step(settings, device, PLAIN_TOKENS))}
        steps |= {f"ours {tokens}": (tokens, fast_step(settings, device, tokens)) for tokens in budgets}
        if device.type == "cuda" and windows == (1, 2, 3, 4):
            steps["plain bfloat16"] = (
                budgets[0],
                plain_imitator_step(settings, device, budgets[0], casts=True),
            )
            steps["plain compiled"] = (
                budgets[0],
                plain_imitator_step(settings, device, budgets[0], casts=True, compiles=True),
            )
        rates = _in_turns(steps, device, repeats)
        row = {name: spread(values) for name, values in rates.items()}
        best = f"ours {budgets[-1]}"
        pairs = zip(rates[best], rates["plain float32"], strict=True)
        ratio = spread([ours / plain for ours, plain in pairs])
        figures["rows"].append(
            {"windows": windows, "paper": PAPER.get(windows), "tokens_per_second": row, "ratio": ratio}
        )
    figures["alpha"] = alpha_rates(device, budgets[-1], repeats, config)
    figures["experts"] = _experts(device, repeats)
    figures["floor"] = {tokens: floor(config, device, tokens) for tokens in budgets}
    figures["bandwidth"] = bandwidth(device, repeats)
    for tokens, found in figures["floor"].items():  # of the config's own windows
        (row,) = [row for row in figures["rows"] if tuple(row["windows"]) == tuple(config.windows)]
        rate = row["tokens_per_second"][f"ours {tokens}"]["median"]
        found["share_reached"] = rate * found["bytes_per_token"] / figures["bandwidth"]["median"]
    return figures


def fast_step(config: ImitatorsConfig, device: torch.device, tokens: int) -> Callable[[int], None]:
    """Our step: each distinct piece projected once, loss and gradients in one pass."""
    imitators = _imitators(config, device)
    optimizer = torch.optim.Adam(imitators.parameters(), lr=1e-3, fused=True)
    batches = [_batch(tokens, imitators.gap, device, number) for number in range(2)]

    def step(number: int) -> None:
        batch, probs = batches[number % len(batches)]
        optimizer.zero_grad()
        projected_loss(imitators, batch.pieces, batch.document, probs).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def plain_imitator_step(
    config: ImitatorsConfig, device: torch.device, tokens: int, *, casts: bool = False, compiles: bool = False
) -> Callable[[int], None]:
    """The textbook's step: Embedding and Conv1d, torch's own Adam."""
    imitators = _imitators(config, device)
    optimizer = torch.optim.Adam(imitators.parameters(), lr=1e-3)
    batches = [_batch(tokens, imitators.gap, device, number) for number in range(2)]
    network: Callable[[Tensor], Tensor] = torch.compile(imitators) if compiles else imitators

    def step(number: int) -> None:
        batch, probs = batches[number % len(batches)]
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=casts):
            log_probs = network(batch.pieces)
        imitation_loss(probs, log_probs.float(), batch.document).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def alpha_rates(device: torch.device, tokens: int, repeats: int, config: ImitatorsConfig) -> dict[str, Any]:
    """Pieces per second from documents in memory to alpha in memory: mein beside plain modules."""
    imitators = _imitators(config, device)
    pieces, _ = _piece_documents(tokens, 0)
    evidence = Evidence(imitators, 2)

    @torch.no_grad()
    def plain(number: int) -> None:
        for rows in by_tokens(pieces.lengths, np.arange(len(pieces)), PLAIN_TOKENS, None):
            batch = pack_pieces(pieces.take(rows), imitators.gap, device)
            average_windows(imitators(batch.pieces), batch.document, batch.lengths).cpu()

    def ours(number: int) -> None:
        evidence.alpha(pieces)

    steps: dict[str, tuple[int, Callable[[int], None]]]
    steps = {"plain float32": (tokens, plain), "ours": (tokens, ours)}
    rates = _in_turns(steps, device, repeats, warm=1, count=1)
    ratio = spread([fast / slow for fast, slow in zip(rates["ours"], rates["plain float32"], strict=True)])
    return {**{name: spread(values) for name, values in rates.items()}, "ratio": ratio}


def floor(config: ImitatorsConfig, device: torch.device, tokens: int) -> dict[str, float]:
    """What a token costs at least: bytes that must move, and operations, for the windows of a config.

    A position gathers 2c+1 projected rows of N numbers for each window. On a GPU the way back reads g_j
    and a bit a channel for each of them, and where in the stream it is; on a CPU it reads rows again.
    The projection and its gradients (three products of U distinct pieces) are shared by all positions.
    """
    imitators = _imitators(config, device)
    batch, _ = _batch(tokens, imitators.gap, device, 0)
    U, D, N = len(torch.unique(batch.pieces)), config.embedding_dim, config.channels
    slices = sum(2 * c + 1 for c in config.windows)
    row, back = (2 * N, N // 8 + 4) if device.type == "cuda" else (4 * N, 4 * N)
    return {
        "distinct_pieces": U,
        "gathered_bytes_per_token": slices * row,
        "bytes_per_token": slices * row + len(config.windows) * back + slices * (back + 4),
        "operations_per_token": 3 * 2 * U * D * N * slices / tokens + 2 * slices * N,
        "plain_operations_per_token": 3 * 2 * D * N * slices,
    }


def bandwidth(device: torch.device, repeats: int) -> dict[str, float]:
    """Bytes per second that the device's memory reads and writes, by copying far more than caches hold."""
    count = 2**28 if device.type == "cuda" else 2**25
    source = torch.ones(count, device=device)
    target = torch.empty_like(source)

    def copy(number: int) -> None:
        target.copy_(source)

    timed(copy, 2, device)
    return spread([2 * 4 * count * 5 / timed(copy, 5, device) for _ in range(repeats)])


def _in_turns(
    steps: dict[str, tuple[int, Callable[[int], None]]],
    device: torch.device,
    repeats: int,
    warm: int = 2,
    count: int | None = None,
) -> dict[str, list[float]]:
    """Rates by turns, of `count` steps each; none: ten on a GPU."""
    rates: dict[str, list[float]] = {name: [] for name in steps}
    count = count or (10 if device.type == "cuda" else 1)
    for _, step in steps.values():
        timed(step, warm, device)
    for _ in range(repeats):
        for name, (tokens, step) in steps.items():
            rates[name].append(count * tokens / timed(step, count, device))
    return rates


def _experts(device: torch.device, repeats: int) -> dict[str, Any]:
    """Our experts at the paper's batch, which imitators are compared with; on a GPU only."""
    if device.type != "cuda":
        return {}
    sizes = Sizes()
    batches = [batch_of(sizes, device, number) for number in range(BATCHES)]
    found = {}
    for training in ("plain", "adv", "vat"):
        step = our_step(training, sizes, batches)
        timed(step, BATCHES, device)
        seconds = [timed(step, sizes.steps, device) for _ in range(repeats)]
        found[training] = spread([sizes.steps * sizes.documents * sizes.tokens / s for s in seconds])
    return found


def _imitators(config: ImitatorsConfig, device: torch.device) -> Imitators:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Imitators(config, VOCABULARY, 2).to(device)


def _batch(tokens: int, gap: int, device: torch.device, number: int) -> tuple[PieceBatch, Tensor]:
    """Documents on a device, and the expert's probabilities for them."""
    pieces, p = _piece_documents(tokens, number)
    probs = torch.from_numpy(np.stack([p, 1.0 - p], axis=1)).to(device)
    return pack_pieces(pieces, gap, device), probs


def _piece_documents(tokens: int, number: int) -> tuple[Ragged, np.ndarray]:
    """Documents whose pieces are as frequent as those of film reviews: 18,500 distinct of 262,144; p (n,)."""
    random = np.random.default_rng(number)
    shares = 1.0 / (np.arange(1, VOCABULARY) + 2.7)
    values = random.choice(VOCABULARY - 1, tokens, p=shares / shares.sum()) + 1
    documents = max(1, tokens // LENGTH)
    pieces = Ragged(values.astype(np.int32), offsets_of(np.full(documents, tokens // documents)))
    return pieces, random.random(documents, dtype=np.float32)
