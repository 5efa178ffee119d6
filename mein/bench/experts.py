"""Tokens a second in training and in labelling: our experts beside a plain float32 loop, in one run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mein.bench.encode import spread
from mein.bench.hardware import hardware
from mein.experts.captured import Captures, can_capture
from mein.experts.config import ExpertConfig
from mein.experts.embedding import WordEmbedding
from mein.experts.lstm import LSTMExpert
from mein.experts.perturb import PerturbationConfig
from mein.inference import expert_logits
from mein.text.batches import WordBatch, pad_words
from mein.text.ragged import Ragged, offsets_of
from mein.training.fetching import fetched
from mein.training.labelled import Labelled, Randomness
from mein.training.loop import OptimizationConfig, take_step
from mein.training.objectives import Objective, objective_loss
from mein.training.shapes import shapes_read
from mein.training.standing import Stage, Standing

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
    labelled: int = 8_192


def bench_experts(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Rates of every training, ours and plain, with their ratio; labelling; the share of waiting."""
    figures: dict[str, Any] = {"hardware": hardware(), "device": device_name(device), "sizes": vars(sizes)}
    figures["training"] = {training: _compare(training, sizes, device) for training in TRAININGS}
    figures["labelling"] = _labelling(sizes, device)
    figures["waiting"] = _waiting(sizes, device)
    return figures


def _compare(training: str, sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Tokens a second, forward + backward + update; ours and plain by turns."""
    batches = [batch_of(sizes, device, number) for number in range(BATCHES)]
    steps = {"ours": our_step(training, sizes, batches), "plain": plain_step(training, sizes, batches)}
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
        return _documents(sizes, step % BATCHES), np.zeros((0, sizes.documents, 2), np.float32)

    objective = Objective(training, PerturbationConfig(), draw if training == "vat" else None)
    if can_capture(device):
        shapes = shapes_read(expert, objective, [sizes.tokens], sizes.documents, sizes.documents)
        expert.captures = Captures(expert.lstm, shapes, has_state=False)

    def loss(batch: WordBatch, step: int) -> Tensor:
        labelled = Labelled(batch, alpha, labels, weights)
        return objective_loss(expert, gates, labelled, objective, Randomness(0, "bench", step))

    named = {name: p for name, p in expert.named_parameters() if p.requires_grad}
    stage = Stage("bench", named, sizes.documents, lambda epoch: iter(()), list, loss, dict)
    optimizer = torch.optim.Adam(list(named.values()), lr=1e-3, fused=True)
    standing = Standing()

    def step(number: int) -> None:
        take_step(stage, batches[number % BATCHES], standing, OptimizationConfig(), optimizer)
        standing.step += 1

    return step


def plain_step(training: str, sizes: Sizes, batches: list[WordBatch]) -> Callable[[int], None]:
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


def _labelling(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Tokens a second forward only, from word numbers in memory to logits in memory."""
    expert = _expert("plain", sizes).to(device)
    words = _documents(sizes, 0, sizes.labelled)
    expert_logits(expert, words)
    seconds = []
    for _ in range(sizes.repeats):
        started = time.perf_counter()
        expert_logits(expert, words)
        seconds.append(time.perf_counter() - started)
    return {"tokens_per_second": spread([sizes.labelled * sizes.tokens / s for s in seconds])}


def _waiting(sizes: Sizes, device: torch.device) -> dict[str, float]:
    """How much longer a step takes when its batch is padded and sent just then: the time spent waiting."""
    ready = [batch_of(sizes, device, number) for number in range(BATCHES)]
    fresh = list(ready)
    documents = [_documents(sizes, number) for number in range(BATCHES)]
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


def _documents(sizes: Sizes, number: int, count: int | None = None) -> Ragged:
    """Word numbers as frequent as in text: by Zipf's law."""
    documents = sizes.documents if count is None else count
    uniform = np.random.default_rng(number).random(documents * sizes.tokens)
    values = (sizes.vocabulary - 1) ** uniform  # log-uniform: p(rank) ~ 1 / rank
    return Ragged(values.astype(np.int32), offsets_of(np.full(documents, sizes.tokens)))


def batch_of(sizes: Sizes, device: torch.device, number: int) -> WordBatch:
    """A batch of made-up documents, on its device."""
    return pad_words(_documents(sizes, number), device)


def _labels(sizes: Sizes, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    labels = torch.arange(sizes.documents, device=device) % 2
    alpha = torch.zeros(0, sizes.documents, 2, device=device)
    return labels, torch.ones(sizes.documents, device=device), alpha, torch.zeros(0, device=device)


def timed(step: Callable[[int], None], steps: int, device: torch.device) -> float:
    """Seconds that so many steps take, the device's work included."""
    wait_for(device)
    started = time.perf_counter()
    for number in range(steps):
        step(number)
    wait_for(device)
    return time.perf_counter() - started


def wait_for(device: torch.device) -> None:
    """Until a device has done all that it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """The GPU's own name, or cpu."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
