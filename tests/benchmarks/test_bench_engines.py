"""What `python -m benchmarks engines` makes of the seconds that it measured."""

from typing import Any

import pytest

from benchmarks import scale
from benchmarks import scale as engines
from tests.support.shell import benchmarks


def test_engines_are_compared_turn_by_turn_and_split_into_fixed_and_growing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plain: 2 s and 4 s a million; Ray: 5 s and 3 s a million, in the second turn a second more."""
    sizes: list[int] = []
    turns = iter([0.0, 0.0, 0.0, 1.0] * 2)

    def turn(folder: Any, workers: int, engine: str, address: str | None) -> dict[str, float]:
        assert (workers, address) == (2, "auto")
        fixed, slope = (2.0, 4.0) if engine == "processes" else (5.0, 3.0)
        return dict.fromkeys(engines.STEPS, fixed + slope * sizes[-1] / 1e6 + next(turns))

    monkeypatch.setattr(scale, "make_small_run", lambda folder: None)
    monkeypatch.setattr(scale, "write_generated", lambda folder, documents: sizes.append(documents))
    monkeypatch.setattr(engines, "_turn", turn)
    found = engines.bench_engines([1_000_000, 3_000_000], 2, 2, "auto")
    first = found["results"][0]["steps"]["label"]
    assert first["seconds"]["ray"] == {"median": 8.5, "lowest": 8.0, "highest": 9.0}
    assert first["slower"]["lowest"] == pytest.approx(8 / 6)
    assert first["slower"]["highest"] == pytest.approx(9 / 6)
    assert found["lines"]["encode"]["processes"] == {"fixed": 2.0, "a_million": 4.0}
    assert found["lines"]["encode"]["ray"] == pytest.approx({"fixed": 5.5, "a_million": 3.0})


def test_a_step_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.scale.make_small_run", lambda folder: None)
    monkeypatch.setattr("benchmarks.scale.write_generated", lambda folder, documents: (folder).mkdir())
    answer = benchmarks("engines", "--documents", "1000")
    assert answer.code == 2
    assert "Error: `mein store encode` failed with code 2: " in answer.err
