"""--engine ray: the same files as the plain steps write, whatever dies on the way."""

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mein.engines import steps as ray_encode
from mein.engines import steps as ray_label
from mein.run import steps
from tests.support import tiny
from tests.support.ray_clusters import encode_slowly, kill_worker, label_slowly, meanwhile, small_cluster
from tests.support.shell import mein, refuses
from tests.support.stepping import LEFT, content, make_stores, probabilities

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray itself
SHARD = 3


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SHARD_DOCUMENTS", SHARD)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with small_cluster(nodes=1) as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its documents, and a labeled store that plain processes wrote."""
    folder = tmp_path_factory.mktemp("home")
    make_stores(folder, SHARD, encoded="encoded", labeled="store")
    return folder


def test_a_worker_lost_in_encoding_and_in_labeling_leaves_no_trace(
    home: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.chdir(home)  # workers must find relative paths as well
    monkeypatch.setattr(ray_encode, "encode_shard", encode_slowly)
    monkeypatch.setattr(ray_label, "label_shard", label_slowly)

    def lose(pattern: str, title: str) -> bool:
        return any(store.glob(pattern)) and kill_worker(cluster, title)

    on_ray = ("--engine", "ray", "--address", cluster.address, "--workers", 2)
    with meanwhile(lambda: lose("shard-*.arrow", "ray::encode_slowly")) as deaths:
        answer = mein("store", "encode", "--like", "run", "--text", "raw.csv", "--out", store, *on_ray)
    assert (answer.code, answer.err) == (0, ""), answer
    assert len(deaths) == 1, "nobody was lost"
    manifest = (store / "store.json").read_text(encoding="utf-8")
    (store / "store.json").write_text(manifest.replace("raw.csv", str(home / "raw.csv")), encoding="utf-8")
    assert content(store) == content(home / "encoded")
    with meanwhile(lambda: lose("*.parquet", "ray::label_slowly")) as deaths:
        answer = mein("store", "label", store, "--by", "run", *on_ray)
    assert (answer.code, answer.err) == (0, ""), answer
    assert len(deaths) == 1, "nobody was lost"
    assert content(store) == content(home / "store")
    assert len(probabilities(store)) == len(LEFT)


def test_a_training_that_lost_a_process_has_the_same_weights(
    home: Path, cluster: Any, tmp_path: Path
) -> None:
    words: list[object] = ["--labeled", home / "train.csv", "--test", home / "test.csv"]
    words += ["--config", home / "tiny.toml", "--set", "runtime.checkpoint_seconds=0"]
    assert mein("train", *words, "--out", tmp_path / "plain").code == 0
    own = tmp_path / "run"

    def lose() -> bool:
        is_learning = (own / "expert.checkpoint.safetensors").exists()
        return is_learning and kill_worker(cluster, "ray::RayTrainWorker")

    on_ray = ("--engine", "ray", "--address", cluster.address, "--processes", 1)
    with meanwhile(lose) as deaths:
        answer = mein("train", *words, "--out", own, *on_ray)
    assert (answer.code, answer.err) == (0, ""), answer
    assert len(deaths) == 1, "nobody was lost"
    assert tiny.artefacts(own) == tiny.artefacts(tmp_path / "plain")
    assert tiny.timeless_metrics(own) == tiny.timeless_metrics(tmp_path / "plain")


def test_what_ray_cannot_do_is_one_sentence(home: Path, cluster: Any) -> None:
    label = ("store", "label", home / "store", "--by", home / "run")
    refuses("Unknown engine 'dask': choose one of processes, ray.", *label, "--engine", "dask")
    refuses("--address a:1 needs --engine ray: give both, or neither.", *label, "--address", "a:1")
    refuses(
        r"There is no Ray cluster at 127.0.0.1:9 \(.*\): check --address, or remove it for a local one.",
        *(*label, "--engine", "ray", "--address", "127.0.0.1:9"),
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        patch("ray.init", side_effect=ConnectionError("no header")),
    ):
        address = f"127.0.0.1:{door.getsockname()[1]}"
        refuses(
            rf"{address} answers but refuses the connection \(no header\): check --address, and set "
            r"RAY_AUTH_MODE=token if the cluster requires a token \(`ray get-auth-token`\).",
            *(*label, "--engine", "ray", "--address", address),
        )
    with patch.dict(sys.modules, {"ray": None}):
        refuses(
            r"--engine ray needs the package ray \(.*\): pip install '\.\[ray\]'", *label, "--engine", "ray"
        )
    refuses(
        r"memory://nowhere is not shared with .*, a machine of the cluster: give a folder that all of them "
        "mount, or a URL such as s3://bucket/store.",
        *("store", "encode", "--like", home / "run", "--text", home / "raw.csv", "--out", "memory://nowhere"),
        *("--engine", "ray", "--address", cluster.address),
    )


def test_errors_on_the_cluster_are_the_same_as_without_it(home: Path, cluster: Any, tmp_path: Path) -> None:
    on_ray = ("--engine", "ray", "--address", cluster.address)
    store = shutil.copytree(home / "encoded", tmp_path / "store")
    shard = store / "shard-00004.arrow"
    shard.write_bytes(shard.read_bytes()[:-100])
    refuses(f"{shard} is damaged.*", "store", "label", store, "--by", home / "run", *on_ray)
    assert not (store / "labels.json").exists()
    words = ("train", "--config", home / "tiny.toml", "--labeled", home / "train.csv", "--out", home / "run")
    refuses(
        ".* already holds a run: choose another --out, or continue it with --resume.",
        *(*words, *on_ray),
    )
