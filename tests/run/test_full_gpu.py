"""A GPU whose memory is full: judging gets by with smaller batches; what cannot is one sentence."""

import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mein.experts.lstm import LSTMExpert
from mein.imitators.projected import Tabulated
from mein.mixture.inference import Evidence, expert_logits, imitator_alpha
from mein.runtime import device
from mein.text.batches import LEAST_BATCH_TOKENS
from mein.text.ragged import ragged
from tests.mixture.test_padding import CLASSES, TEXTS, expert_of, imitators_of
from tests.support.shell import Answer, mein

FULL = (
    "CUDA out of memory. Tried to allocate 5.90 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
    "4.08 GiB is free. Process 958 has 66.00 MiB memory in use."
)
WORDS = ragged([[*text, 1] for text in TEXTS])
PIECES = ragged(TEXTS)


class Tight(LSTMExpert):
    """An expert whose memory holds so many words at a time, padding included."""

    room: int
    read: list[int]
    refused: list[weakref.ref[Tensor]]
    problem: Callable[[], RuntimeError]

    def forward(self, words: Tensor, lengths: Tensor, dropout: torch.Generator | None = None) -> Tensor:
        if words.numel() > self.room:
            self.refused.append(weakref.ref(words))
            raise self.problem()
        self.read.append(len(words))
        return super().forward(words, lengths, dropout)


def tight(room: int, problem: type[RuntimeError] = torch.OutOfMemoryError, cause: str = FULL) -> Tight:
    expert = expert_of(torch.float32)
    expert.__class__ = Tight
    assert isinstance(expert, Tight)
    expert.room, expert.read, expert.refused, expert.problem = room, [], [], lambda: problem(cause)
    return expert


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Batches of 64 tokens, halved down to one; grows each time memory is given back."""
    monkeypatch.setattr(device, "BATCH_TOKENS", 64)
    monkeypatch.setattr("mein.text.batches.LEAST_BATCH_TOKENS", 1)
    times: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: times.append(None))
    return times


def test_there_is_room_for_smaller_batches() -> None:
    assert min(device.BATCH_TOKENS, device.GPU_BATCH_TOKENS // 8) >= 4 * LEAST_BATCH_TOKENS


@pytest.mark.parametrize(
    "cause",
    [FULL, "CUDA error: out of memory\nSearch for it", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when"],
)
def test_an_expert_reads_smaller_batches_and_none_twice(freed: list[None], cause: str) -> None:
    expected = expert_logits(expert_of(torch.float32), WORDS)
    assert freed == []
    expert = tight(room=13, problem=RuntimeError, cause=cause)  # the longest document alone
    np.testing.assert_allclose(expert_logits(expert, WORDS), expected, atol=1e-6)
    assert sum(expert.read) == len(TEXTS)
    assert len(expert.read) > 2
    assert 1 <= len(freed) <= 6


def test_a_batch_that_was_too_large_is_gone_when_memory_is_given_back(
    freed: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    expert, held = tight(room=13), []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: held.append(expert.refused[-1]() is not None))
    expert_logits(expert, WORDS)
    assert held
    assert not any(held)


def test_a_document_that_does_not_fit_alone_is_an_error(freed: list[None]) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        expert_logits(tight(room=12), WORDS)
    assert len(freed) == 6  # from 64 tokens to one


def test_any_other_error_is_raised_at_once(freed: list[None]) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        expert_logits(tight(12, RuntimeError, "mat1 and mat2 shapes cannot be multiplied"), WORDS)
    assert freed == []


def test_imitators_read_smaller_batches(freed: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    imitators = imitators_of(torch.float32)
    expected = imitator_alpha(imitators, PIECES, CLASSES)
    plain = Tabulated.log_probs

    def tight_tables(tables: Tabulated, stream: Tensor) -> Tensor:
        if stream.numel() > 30:
            raise torch.OutOfMemoryError(FULL)
        return plain(tables, stream)

    monkeypatch.setattr(Tabulated, "log_probs", tight_tables)
    np.testing.assert_allclose(imitator_alpha(imitators, PIECES, CLASSES), expected, atol=1e-6)
    assert freed


def test_predictions_of_imitators_keep_no_graph() -> None:
    few = ragged(TEXTS[:4])  # for more pieces than there are words there are tables, which have no graph
    found = list(Evidence(imitators_of(torch.float32), CLASSES).window_log_probs(few))
    assert not any(log_probs.requires_grad for _, _, log_probs in found)
    assert np.concatenate([rows for rows, _, _ in found]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (torch.OutOfMemoryError(FULL), FULL.partition(". Process")[0]),
        (torch.OutOfMemoryError(FULL.replace("Process", "Including")), FULL.partition(". Process")[0]),
        (RuntimeError("CUDA error: out of memory\nSearch for it"), "CUDA error: out of memory"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_the_shell_reports_a_full_gpu(
    problem: RuntimeError, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = mein_failing(problem, tmp_path, monkeypatch)
    assert answer.code == 2
    assert answer.err == (
        f"Error: The GPU's memory is full ({cause}): stop what else runs on it, or lower --jobs, and give "
        "the same command again (a training with --resume); or start anew with smaller batches.\n"
    )


def test_other_errors_of_torch_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        mein_failing(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), tmp_path, monkeypatch)


def mein_failing(problem: RuntimeError, path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr("mein.data.demo.demo_corpus", fail)
    return mein("demo", "--out", path / "run")
