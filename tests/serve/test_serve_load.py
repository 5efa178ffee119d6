"""Under load a server answers at least three times what a loop over the model does, in flat memory."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
from benchmarks.use import Load, bench_serve
from mein.data.demo import demo_corpus
from tests.support import tiny

TEXTS = demo_corpus(seed=5, labeled=10, unlabeled=2_000, test=10).unlabeled_texts
# An LSTM and imitators of a shape like that of `--preset small`: they take as long as a real run's.
SMALL: dict[str, Any] = {
    "expert__embedding_dim": 64,
    "expert__hidden_dim": 64,
    "expert__mlp_dim": 32,
    "imitators__windows": [1, 2, 3, 4],
    "imitators__embedding_dim": 32,
    "imitators__channels": 32,
}


@pytest.mark.slow
def test_many_clients_get_more_than_a_loop_would(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", **SMALL)
    singly = bench_serve(tmp_path / "run", TEXTS, Load(clients=32, seconds=3.0, repeats=3))
    assert singly["ratio"]["median"] > 2.0, singly  # HTTP costs as much as the model does
    found = bench_serve(tmp_path / "run", TEXTS, Load(clients=32, seconds=3.0, repeats=4, texts=4))
    assert found["requests"] > 1_000
    assert found["ratio"]["median"] > 3.0, found
    assert found["p50_milliseconds"]["median"] < found["p99_milliseconds"]["median"]
    first, *_, last = found["server_megabytes"]
    assert last < 1.05 * first + 5, found["server_megabytes"]


def test_the_figures_mean_what_their_names_state(tmp_path: Path) -> None:
    tiny.run(tmp_path / "run")
    found = bench_serve(tmp_path / "run", TEXTS[:40], Load(clients=4, seconds=0.2, repeats=1, texts=2))
    assert found["clients"] == 4
    assert found["texts_per_request"] == 2
    loop, server = (found[f"{who}_texts_per_second"]["median"] for who in ("loop", "server"))
    assert found["ratio"]["median"] == pytest.approx(server / loop)
    assert 0 < found["p50_milliseconds"]["median"] <= found["p99_milliseconds"]["median"]
    assert found["hardware"]["cores"] >= 1
