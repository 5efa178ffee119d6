"""The benches of experts and imitators measure both sides of every ratio, and name the machine."""

from pathlib import Path

import pytest
import torch

from benchmarks.imitation import bench_imitate
from benchmarks.networks import WINDOWS, Sizes, bench_experts, bench_imitators, floor
from benchmarks.pipeline import bench_pipeline
from mein.data.corpus import source_of_lists
from mein.imitators.config import ImitatorsConfig
from mein.runtime.progress import Quiet
from tests.support import tiny

CPU = torch.device("cpu")


def test_experts_are_measured_beside_the_plain_loop() -> None:
    sizes = Sizes(2, 5, 50, embedding_dim=4, hidden_dim=8, steps=1, repeats=1, labeled=4)
    found = bench_experts(sizes, CPU)
    assert found["device"] == "cpu"
    assert list(found["training"]) == ["plain", "adv", "vat"]
    for one in found["training"].values():
        rates = (one[f"{who}_tokens_per_second"]["median"] for who in ("ours", "plain"))
        ours, plain = rates
        assert one["ratio"]["median"] == pytest.approx(ours / plain)
    assert 0.0 <= found["waiting"]["median"] <= 1.0


def test_imitators_are_measured_for_every_set_of_windows() -> None:
    config = ImitatorsConfig(embedding_dim=2, channels=3)
    found = bench_imitators(CPU, [256], 1, config)
    assert [row["windows"] for row in found["rows"]] == list(WINDOWS)
    for row in found["rows"]:
        rates = {name: rate["median"] for name, rate in row["tokens_per_second"].items()}
        assert row["ratio"]["median"] == pytest.approx(rates["ours 256"] / rates["plain float32"])
    assert 0.0 < found["floor"][256]["share_reached"] < 1.0
    alpha = {name: rate["median"] for name, rate in found["alpha"].items()}
    assert alpha["ratio"] == pytest.approx(alpha["ours"] / alpha["plain float32"])


def test_the_floor_by_hand() -> None:
    """c = 1 gathers 3 rows of 4 numbers of 4 bytes; a plain token costs 3 products of 2 x 5 x 4, 3 times."""
    found = floor(ImitatorsConfig(windows=(1,), embedding_dim=5, channels=4), CPU, 512)
    assert found["gathered_bytes_per_token"] == 3 * 4 * 4
    assert found["bytes_per_token"] == 3 * 16 + 16 + 3 * (16 + 4)
    assert found["plain_operations_per_token"] == 3 * 2 * 5 * 4 * 3


def test_the_time_to_the_plain_loop_s_kl_is_reported(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("imitate") / "run"
    tiny.run(path)
    found = bench_imitate(path, CPU)
    assert found["documents"] > 100
    ours = found["ours"]
    assert ours["reached"] == (ours["kl"] <= found["plain"]["kl"])
    assert (found["times_sooner"] is not None) == ours["reached"]
    assert 0.0 < ours["share_of_waiting"] < 1.0


def test_the_way_from_raw_text_to_imitators_is_timed_step_by_step(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run")
    texts = tiny.TEXTS.unlabeled_texts
    found = bench_pipeline(tmp_path / "run", source_of_lists(texts), 2, CPU, Quiet())
    steps = ("encoding", "labeling", "imitators")
    assert found["documents"] == len(texts)
    assert found["seconds"]["total"] == pytest.approx(sum(found["seconds"][step] for step in steps))
    assert sum(found["share"].values()) == pytest.approx(1.0)
    assert min(found["bytes_per_document"].values()) > 0
