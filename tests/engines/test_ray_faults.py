"""--engine ray while processes, whole machines and the command itself are killed, at random moments."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mein.engines import steps as ray_encode
from mein.engines import steps as ray_label
from mein.run import steps
from mein.runtime.tensors import load_tensors
from paper.cells import OWNED
from tests.support.ray_clusters import (
    encode_slowly,
    kill_node,
    kill_worker,
    label_slowly,
    meanwhile,
    small_cluster,
)
from tests.support.shell import ROOT, mein, paper
from tests.support.stepping import LEFT, content, make_stores, probabilities
from tests.support.tiny import SETTINGS

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # those of Ray itself
    pytest.mark.timeout(900),
]
SHARD = 2
STEPS = ("encode", "label", "train")
TITLES = {"encode": "ray::encode_slowly", "label": "ray::label_slowly", "train": "ray::RayTrainWorker"}
ARTEFACTS = ("expert", "imitators", "closed", "random", "mixture")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SHARD_DOCUMENTS", SHARD)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, its documents, and stores in every state, made without Ray."""
    folder = tmp_path_factory.mktemp("home")
    make_stores(folder, SHARD, encoded="encode", labeled="label")
    return folder


@pytest.fixture
def cluster() -> Iterator[Any]:
    with small_cluster(nodes=3) as found:
        yield found


def command(home: Path, out: Path, step: str) -> list[object]:
    """A step that makes `out`, less the engine; labeling begins with a copy of the encoded store."""
    run, raw = home / "run", home / "raw.csv"
    if step == "encode":
        return ["store", "encode", "--like", run, "--text", raw, "--out", out]
    if step == "label":
        if not out.exists():
            shutil.copytree(home / "encode", out)
        return ["label", out, "--by", run]
    words = ["train", "--config", home / "tiny.toml", "--set", "runtime.checkpoint_seconds=0", "--out", out]
    words += ["--labeled", home / "train.csv", "--test", home / "test.csv", "--unlabeled", raw]
    return [*words, "--processes", 2, *(["--resume"] if (out / "config.json").exists() else [])]


def is_the_same(home: Path, out: Path, step: str) -> None:
    """A store has the same bytes, a run the same weights to rounding, as without Ray and without deaths."""
    if step != "train":
        assert content(out) == content(home / step)
        assert step == "encode" or len(probabilities(out)) == len(LEFT)
        return
    for name in ARTEFACTS:
        ours, theirs = (load_tensors(path / f"{name}.safetensors")[0] for path in (out, home / "run"))
        for key, tensor in theirs.items():
            np.testing.assert_allclose(ours[key], tensor, atol=1e-4, err_msg=f"{name}.{key}")


def after(out: Path, files: int, deed: Callable[[], bool]) -> Callable[[], bool]:
    """The deed once there are so many files."""
    return lambda: out.exists() and sum(1 for _ in out.rglob("*.*")) >= files and deed()


def drawn(step: str, seed: int) -> int:
    """How many files there are at the moment to strike: those of the start, and some that the step makes."""
    first, more = {"encode": (3, 40), "label": (80, 40), "train": (14, 6)}[step]
    return first + random.Random(f"{step} {seed}").randrange(more)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("victim", ["worker", "node"])
def test_a_loss_changes_nothing(
    home: Path,
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    seed: int,
    victim: str,
) -> None:
    monkeypatch.setattr(ray_encode, "encode_shard", encode_slowly)
    monkeypatch.setattr(ray_label, "label_shard", label_slowly)

    def lose() -> bool:
        return kill_worker(cluster, TITLES[step]) if victim == "worker" else kill_node(cluster, TITLES[step])

    out = tmp_path / "out"
    words = command(home, out, step)
    with meanwhile(after(out, drawn(step, seed), lose)) as deaths:
        answer = mein(*words, "--engine", "ray", "--address", cluster.address)
    assert (answer.code, answer.err) == (0, ""), answer
    assert deaths, "nobody was lost"
    is_the_same(home, out, step)


@pytest.mark.parametrize("step", STEPS)
def test_a_command_that_was_killed_goes_on(home: Path, cluster: Any, tmp_path: Path, step: str) -> None:
    out, deaths = tmp_path / "out", 0
    code = (
        f"import mein.run.steps as s; s.SHARD_DOCUMENTS = {SHARD}\n"
        "import mein.engines.steps as e, mein.engines.steps as l, tests.support.ray_clusters as t\n"
        "e.encode_shard, l.label_shard = t.encode_slowly, t.label_slowly\n"
        "from mein.cli.main import main; main()"
    )
    for seed in range(2):
        words = [*command(home, out, step), "--engine", "ray", "--address", cluster.address]
        child = subprocess.Popen([sys.executable, "-c", code, *map(str, words)], cwd=ROOT)
        is_due = after(out, drawn(step, seed), lambda: True)
        while child.poll() is None and not is_due():
            time.sleep(0.01)
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        deaths += child.wait() == -signal.SIGKILL
    assert deaths, "the command was never killed"
    before = {file: file.stat().st_mtime_ns for file in out.glob("shard-*")}
    answer = mein(*command(home, out, step), "--engine", "ray", "--address", cluster.address)
    assert answer.code == 0, answer
    is_the_same(home, out, step)
    rewritten = [file.name for file, time_ in before.items() if file.stat().st_mtime_ns != time_]
    assert len(rewritten) <= 3, rewritten  # by tasks of the dead command, which outlive it a moment


def test_a_grid_gives_the_same_runs_as_without_ray(home: Path, cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "data/toy").mkdir(parents=True)
    for name, part in (("train", "train"), ("test", "test"), ("test", "dev"), ("raw", "unlabeled")):
        pd.read_csv(home / f"{name}.csv", keep_default_na=False).to_parquet(
            tmp_path / f"data/toy/{part}.parquet"
        )
    words = [
        "run",
        "--datasets",
        "toy",
        "--experts",
        "lstm",
        "--preset",
        "small",
        "--data",
        tmp_path / "data",
    ]
    for key, value in SETTINGS.items():
        words += [] if key in OWNED else ["--set", f"{key}={json.dumps(value)}"]
    plain = paper(*words, "--work", tmp_path / "plain", "--results", tmp_path / "results")
    assert plain.code == 0, plain
    on_ray = ("--engine", "ray", "--address", cluster.address)
    answer = paper(*words, "--work", tmp_path / "ray", "--results", tmp_path / "results-ray", *on_ray)
    assert (answer.code, answer.err) == (0, ""), answer
    found = sorted(
        file.relative_to(tmp_path / "plain") for file in tmp_path.glob("plain/**/mixture.safetensors")
    )
    assert len(found) == 3  # our gates, with a lexicon, the paper's
    for file in found:
        assert (tmp_path / "ray" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes(), file
