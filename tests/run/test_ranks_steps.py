"""mein store encode and mein store label by several processes, of which one is killed at a random moment."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.runtime.test_ranks import finish, torchrun
from tests.support.small_steps import SHARD
from tests.support.stepping import LEFT, content, make_stores, probabilities

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = ("encode", "label")
SHARDS = -(-len(LEFT) // SHARD)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, its documents, and a store as one process leaves it after each step."""
    folder = tmp_path_factory.mktemp("home")
    make_stores(folder, SHARD, encoded="encode", labeled="label")
    return folder


def words_of(step: str, home: Path, store: Path) -> list[object]:
    if step == "encode":
        return [
            "store",
            "encode",
            "--like",
            home / "run",
            "--text",
            home / "raw.csv",
            "--out",
            store,
            "--workers",
            1,
        ]
    if not store.exists():
        shutil.copytree(home / "encode", store)
    return ["store", "label", store, "--by", home / "run", "--workers", 1]


def kill_a_rank(launched: subprocess.Popen[str], store: Path, step: str, draw: random.Random) -> bool:
    """SIGKILL one rank when a random number of the step's files is there; whether it was in time."""
    files, pattern = draw.randrange(SHARDS), "shard-*.arrow" if step == "encode" else "*.parquet"
    while launched.poll() is None and sum(1 for _ in store.glob(pattern)) < files:
        time.sleep(0.001)
    time.sleep(draw.uniform(0.0, 0.01))
    children = Path(f"/proc/{launched.pid}/task/{launched.pid}/children")
    ranks = children.read_text(encoding="utf-8").split() if launched.poll() is None else []
    if ranks:
        os.kill(int(draw.choice(ranks)), signal.SIGKILL)
    return bool(ranks)


def is_the_same(home: Path, store: Path, step: str) -> None:
    """The bytes of one process that nobody disturbed; every document labeled once."""
    assert content(store) == content(home / step)
    assert step == "encode" or len(probabilities(store)) == len(LEFT)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_lost_ranks_is_finished_by_any_number(step: str, home: Path, tmp_path: Path) -> None:
    store, draw = tmp_path / "store", random.Random(step)
    failures = 0
    for processes in (2, 3, 2):
        launched = torchrun(processes, "tests.support.small_steps", *words_of(step, home, store))
        was_killed = kill_a_rank(launched, store, step, draw)
        _, errors = launched.communicate(timeout=120)
        assert launched.returncode == 0 or was_killed, errors
        failures += launched.returncode != 0
    assert failures, "no rank was lost"
    finish(torchrun(3, "tests.support.small_steps", *words_of(step, home, store)))
    is_the_same(home, store, step)


@pytest.mark.parametrize("step", STEPS)
def test_torchrun_starts_a_step_again_by_itself(step: str, home: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    launched = torchrun(2, "tests.support.small_steps", *words_of(step, home, store), restarts=2)
    assert kill_a_rank(launched, store, step, random.Random(f"{step} again"))
    finish(launched)
    is_the_same(home, store, step)
