"""python -m benchmarks: help, JSON for programs, tables for people."""

import json
from pathlib import Path

import pytest

from benchmarks.imitation import bench_imitation
from tests.support.shell import benchmarks, fits, unexplained, write_csv
from tests.support.tiny import TEXTS

NAMES = [
    "encode",
    "memory",
    "experts",
    "imitators",
    "imitate",
    "pipeline",
    "predict",
    "scale",
    "engines",
    "costs",
    "ranks",
    "serve",
    "few-labels",
    *(f"few-labels {name}" for name in ("suite", "labels", "raw", "pack", "page")),
]


@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_fits_and_explains_every_option(name: str) -> None:
    answer = benchmarks(*name.split(), "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: python -m benchmarks {name}")
    assert unexplained(answer.out) == []


def test_bench_encode_gives_json_and_a_table(tmp_path: Path) -> None:
    documents = write_csv(tmp_path / "raw.csv", TEXTS.unlabeled_texts)
    words = ["encode", "--documents", documents, "--workers", "1", "--repeats", "1"]
    answer = benchmarks(*words)
    assert answer.code == 0, answer
    assert json.loads(answer.out)["documents"] == 120
    assert "sentencepiece" in answer.err
    assert fits(answer.err)
    assert benchmarks(*words, "--out", tmp_path / "encode.json").out == ""
    assert json.loads((tmp_path / "encode.json").read_text(encoding="utf-8"))["documents"] == 120


def test_bench_memory_measures_encoding_and_stage_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def peaks(counts: list[int]) -> list[dict[str, float]]:
        return [{"documents": count, "peak_megabytes": 100.0 + i} for i, count in enumerate(counts)]

    monkeypatch.setattr(
        "benchmarks.__main__.bench_memory",
        lambda counts, workers: {"encode": peaks(counts), "growth": {"encode": 1.01}},
    )
    monkeypatch.setattr("benchmarks.__main__.bench_imitation", peaks)
    answer = benchmarks("memory", "--documents", "200000", "2000000")
    figures = json.loads(answer.out)
    assert [peak["documents"] for peak in figures["stage_2"]] == [200_000, 2_000_000]
    assert figures["growth"] == {"encode": 1.01, "stage_2": 1.01}
    assert "2,000,000 docs" in answer.err


def test_stage_2_is_measured_in_a_process_of_its_own() -> None:
    (peak,) = bench_imitation([300])
    assert peak["documents"] == 300
    assert peak["peak_megabytes"] > 50
