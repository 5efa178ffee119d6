"""Several processes train what one trains, to rounding; a lost one costs nothing; errors are one sentence."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale import bench_ranks
from mein.experts.embedding import PartGenerator, drawn_like
from mein.imitators.config import ImitatorsConfig
from mein.imitators.projected import projected_log_probs
from mein.imitators.reference import Imitators
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors
from mein.training.parallel import share_of, window_groups
from tests.support.killing import STEPS, step_of
from tests.support.rank_runs import KINDS, train_all

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
CLOSE = 1e-5  # of a tensor's norm: Adam makes much of an element whose gradient is nothing but rounding


def torchrun(processes: int, *words: object, restarts: int = 0) -> subprocess.Popen[str]:
    """Processes that run a module together."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--max-restarts={restarts}"]
    command += [f"--nproc-per-node={processes}", "-m", *map(str, words)]
    return subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, encoding="utf-8", text=True)


def finish(launched: subprocess.Popen[str]) -> str:
    """Wait for processes that must end well."""
    _, errors = launched.communicate(timeout=240)
    assert launched.returncode == 0, errors
    return errors


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of every kind by one process."""
    path = tmp_path_factory.mktemp("alone")
    train_all(path)
    return path


def assert_same_weights(path: Path, wanted: Path) -> None:
    """Of every network, gates included, and the same losses on the way."""
    names = sorted(file.name for file in wanted.glob("*.safetensors"))
    assert "mixture.safetensors" in names
    assert sorted(file.name for file in path.glob("*.safetensors")) == names
    for name in names:
        (found, facts), (expected, expected_facts) = (
            load_tensors(folder / name) for folder in (path, wanted)
        )
        for tensor, value in expected.items():
            if not value.is_floating_point():
                assert found[tensor].equal(value), (name, tensor)
            elif value.numel() and not tensor.endswith("key.bias"):  # it moves no attention: rounding alone
                difference = (found[tensor] - value).norm() / value.norm().clamp_min(1e-30)
                assert difference < CLOSE, (name, tensor, difference)
        gates = expected_facts.get("gates", [])
        near = 1e-3 * max(map(abs, gates), default=0.0)  # a small one beside a large one matters little
        assert facts.get("gates", []) == pytest.approx(gates, abs=near)
    for stage in ("language_model", "expert", "imitators", "closed", "random", "mixture"):
        found_losses, losses = (losses_of(folder, stage) for folder in (path, wanted))
        assert found_losses == pytest.approx(losses, rel=10 * CLOSE)


def losses_of(path: Path, stage: str) -> list[float]:
    """Of each epoch; before the first there is none."""
    return [line["loss"] for line in RunFolder(path).metrics(stage) if line["epoch"]]


@pytest.mark.parametrize(("processes", "kinds"), [(2, [*KINDS]), (3, ["plain", "vat", "lm"])])
def test_several_processes_train_what_one_trains(
    tmp_path: Path, alone: Path, processes: int, kinds: list[str]
) -> None:
    finish(torchrun(processes, "tests.support.rank_runs", tmp_path, *kinds))
    for kind in kinds:
        assert_same_weights(tmp_path / kind, alone / kind)


def kill_a_rank(launched: subprocess.Popen[str], path: Path, step: str, draw: random.Random) -> None:
    """End one rank by SIGKILL some moment after a step has begun; nothing where all is over before."""
    while launched.poll() is None and list(STEPS).index(step) > _number(path):
        time.sleep(0.001)
    time.sleep(draw.uniform(0.0, 0.1))
    children = Path(f"/proc/{launched.pid}/task/{launched.pid}/children")
    ranks = children.read_text(encoding="utf-8").split() if launched.poll() is None else []
    if ranks:
        os.kill(int(draw.choice(ranks)), signal.SIGKILL)


def _number(path: Path) -> int:
    """Of the step that a run is in."""
    return [*STEPS, "over"].index(step_of(path))


def test_a_run_that_lost_a_rank_goes_on_with_another_number(tmp_path: Path, alone: Path) -> None:
    launched = torchrun(2, "tests.support.rank_runs", tmp_path, "plain")
    kill_a_rank(launched, tmp_path / "plain", "imitators", random.Random(1))
    _, errors = launched.communicate(timeout=120)
    assert launched.returncode != 0, errors
    assert step_of(tmp_path / "plain") != "over"
    finish(torchrun(3, "tests.support.rank_runs", tmp_path, "plain"))
    assert_same_weights(tmp_path / "plain", alone / "plain")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["plain", "vat", "lm"])
def test_a_rank_is_killed_in_every_step(tmp_path: Path, alone: Path, kind: str) -> None:
    """At a random moment each, by turns with 2 and 3 processes; the last life is whole."""
    draw = random.Random(kind)
    for number, step in enumerate(STEPS):
        launched = torchrun(2 + number % 2, "tests.support.rank_runs", tmp_path, kind)
        kill_a_rank(launched, tmp_path / kind, step, draw)
        launched.communicate(timeout=120)
    train_all(tmp_path, kind)  # one process
    assert_same_weights(tmp_path / kind, alone / kind)


@pytest.mark.slow
def test_torchrun_starts_again_by_itself(tmp_path: Path, alone: Path) -> None:
    launched = torchrun(2, "tests.support.rank_runs", tmp_path, "plain", restarts=2)
    kill_a_rank(launched, tmp_path / "plain", "expert", random.Random(2))
    finish(launched)
    assert_same_weights(tmp_path / "plain", alone / "plain")


def test_an_error_is_one_sentence_and_no_process_hangs(tmp_path: Path) -> None:
    launched = torchrun(2, "mein", "train", "--labeled", tmp_path / "none.csv", "--out", tmp_path / "run")
    _, errors = launched.communicate(timeout=60)
    assert launched.returncode != 0
    assert len([line for line in errors.splitlines() if line.startswith("Error:")]) == 1, errors
    assert "none.csv" in errors
    assert "mein/" not in errors  # no traceback of ours


costs = st.lists(st.integers(0, 500), min_size=1, max_size=40)


@given(costs, st.integers(1, 7))
def test_shares_are_the_batch(costs: list[int], processes: int) -> None:
    """Every row counts once, and no share has more than its part and the dearest row."""
    shares = [share_of(np.array(costs), number, processes) for number in range(processes)]
    counted = np.concatenate([share.rows for share in shares if share.counts])
    assert sorted(counted.tolist()) == list(range(len(costs)))
    assert sum(share.part for share in shares) == pytest.approx(1.0)
    for share in shares:
        assert len(share.rows) > 0
        assert sum(costs[row] for row in share.rows) <= sum(costs) / processes + max(costs)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 9))
def test_groups_of_windows_are_all_windows(windows: list[int], processes: int) -> None:
    groups = window_groups(windows, processes)
    assert sorted(place for group in groups for place in group) == list(range(len(windows)))
    assert processes % len(groups) == 0


def test_the_paper_s_windows_are_two_even_groups() -> None:
    """(3 + 9) and (5 + 7) kernel slices; in four groups the largest would have 9 of 24."""
    assert [sorted(group) for group in window_groups((1, 2, 3, 4), 2)] == [[0, 3], [1, 2]]
    assert len(window_groups((1, 2, 3, 4), 4)) == 2
    assert len(window_groups((1, 2, 3, 4), 3)) == 3


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("rows", [[0, 2, 3], [1], [4]])
def test_a_part_gets_the_draws_that_it_gets_in_the_full_batch(is_transposed: bool, rows: list[int]) -> None:
    """Also where the numbers lie in memory word by word, as an LSTM's outputs do."""

    def batch(documents: int) -> torch.Tensor:
        if is_transposed:
            return torch.zeros(7, documents, 3).transpose(0, 1)
        return torch.zeros(documents, 7, 3)

    def drawn(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return drawn_like(like, generator, lambda room: room.normal_(generator=generator))

    whole = drawn(batch(5), torch.Generator().manual_seed(8))
    part = drawn(batch(len(rows)), PartGenerator(torch.device("cpu"), rows, 5).manual_seed(8))
    assert torch.equal(part, whole[rows])


def test_some_imitators_predict_what_they_predict_among_all() -> None:
    config = ImitatorsConfig(windows=(1, 2, 3), embedding_dim=4, channels=5)
    imitators = Imitators(config, 9, 2)
    pieces = torch.tensor([0, 0, 0, 5, 3, 8, 3, 0, 0, 0])
    some = imitators.only([2, 0])
    assert torch.equal(some(pieces), imitators(pieces)[[2, 0]])
    assert torch.allclose(projected_log_probs(some, pieces), imitators(pieces)[[2, 0]], atol=1e-6)
    own = {id(parameter) for parameter in imitators.parameters()}
    assert all(id(parameter) in own for parameter in some.parameters())


@pytest.mark.slow
def test_the_bench_measures_both_steps_by_number_of_processes() -> None:
    found = bench_ranks(48, [1, 2], 1, ImitatorsConfig(windows=(1, 2), embedding_dim=2, channels=3))
    for step in ("imitators", "labeling"):
        one, two = (found[step]["documents_per_second"][count]["median"] for count in (1, 2))
        assert found[step]["ratio"][2]["median"] == pytest.approx(two / one)
