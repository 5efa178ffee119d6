"""Tokens a second of imitators in training, beside plain modules and the experts, in one run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mein.bench.encode import spread
from mein.bench.experts import BATCHES, Sizes, batch_of, device_name, our_step, timed
from mein.bench.hardware import hardware
from mein.imitators.projected import projected_loss
from mein.imitators.reference import Imitators, ImitatorsConfig, average_windows, imitation_loss
from mein.inference import Evidence
from mein.text.batches import PieceBatch, by_tokens, pack_pieces
from mein.text.ragged import Ragged, offsets_of

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
        steps = {"plain float32": (PLAIN_TOKENS, plain_step(settings, device, PLAIN_TOKENS))}
        steps |= {f"ours {tokens}": (tokens, fast_step(settings, device, tokens)) for tokens in budgets}
        if device.type == "cuda" and windows == (1, 2, 3, 4):
            steps["plain bfloat16"] = (budgets[0], plain_step(settings, device, budgets[0], casts=True))
            steps["plain compiled"] = (
                budgets[0],
                plain_step(settings, device, budgets[0], casts=True, compiles=True),
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


def plain_step(
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
    """Pieces a second from documents in memory to alpha in memory: ours beside plain modules."""
    imitators = _imitators(config, device)
    pieces, _ = _documents(tokens, 0)
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
    """Bytes a second that the device's memory reads and writes, by copying far more than caches hold."""
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
    """Documents on a device, and the expert's word on them."""
    pieces, p = _documents(tokens, number)
    probs = torch.from_numpy(np.stack([p, 1.0 - p], axis=1)).to(device)
    return pack_pieces(pieces, gap, device), probs


def _documents(tokens: int, number: int) -> tuple[Ragged, np.ndarray]:
    """Documents whose pieces are as frequent as those of film reviews: 18,500 distinct of 262,144; p (n,)."""
    random = np.random.default_rng(number)
    shares = 1.0 / (np.arange(1, VOCABULARY) + 2.7)
    values = random.choice(VOCABULARY - 1, tokens, p=shares / shares.sum()) + 1
    documents = max(1, tokens // LENGTH)
    pieces = Ragged(values.astype(np.int32), offsets_of(np.full(documents, tokens // documents)))
    return pieces, random.random(documents, dtype=np.float32)
