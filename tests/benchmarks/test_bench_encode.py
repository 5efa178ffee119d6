"""The benches of encoding: their arithmetic, what they run, and what they count."""

import sys
from pathlib import Path

import pytest

from benchmarks import measure as memory
from benchmarks.encode import bench_encode, rates, take_turns
from benchmarks.measure import bench_memory, generated, peak_memory, spelled
from mein.errors import InputError, MeinError

TEXTS = [f"The battery {i} died after {i % 7} weeks." for i in range(60)]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured through /proc")


def test_rates_are_work_over_time() -> None:
    found = rates([2.0, 4.0, 1.0], documents=100, megabytes=8.0)
    assert found["seconds"] == {"median": 2.0, "lowest": 1.0, "highest": 4.0}
    assert found["documents_per_second"] == {"median": 50.0, "lowest": 25.0, "highest": 100.0}
    assert found["megabytes_per_second"] == {"median": 4.0, "lowest": 2.0, "highest": 8.0}


def test_both_sides_run_in_turns() -> None:
    order: list[str] = []
    first, second = take_turns(lambda: order.append("ours"), lambda: order.append("theirs"), 3)
    assert order == ["ours", "theirs"] * 3
    assert (len(first), len(second)) == (3, 3)


def test_both_are_measured_on_the_same_text() -> None:
    found = bench_encode(TEXTS, workers=2, repeats=1)
    assert found["documents"] == 60
    assert found["megabytes"] == sum(map(len, TEXTS)) / 1e6
    ours, theirs = (found[side]["seconds"]["median"] for side in ("mein", "sentencepiece"))
    assert found["ratio"]["median"] == pytest.approx(theirs / ours)
    assert found["hardware"]["cores"] >= 1


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(InputError, match="There is no text to measure; give a file with at least"):
        bench_encode([], workers=1)


def test_generated_documents_are_a_stream_of_the_right_length() -> None:
    chunks = list(generated(2_500))
    assert [len(chunk) for chunk in chunks] == [1_000, 1_000, 500]
    assert chunks == list(generated(2_500))
    words = {word for chunk in chunks for text in chunk for word in text.split()}
    assert 4_000 < len(words) < 7_000  # sqrt(pi * 300 * 30,000) = 5,317


def test_every_rank_is_spelled_differently() -> None:
    assert len({spelled(rank) for rank in range(20_000)}) == 20_000


@on_linux
def test_peaks_of_a_process_and_its_children_are_added() -> None:
    child = "import time; taken = bytearray(100_000_000); time.sleep(0.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{child}']); {child}"
    alone = peak_memory([sys.executable, "-c", child])
    both = peak_memory([sys.executable, "-c", parent])
    assert 100 < alone["peak_megabytes"] < 150
    assert len(both["process_megabytes"]) == 2
    assert 1.8 < both["peak_megabytes"] / alone["peak_megabytes"] < 2.3


@on_linux
def test_a_measured_process_that_fails_is_reported() -> None:
    with pytest.raises(
        MeinError, match=r"The measured process failed with code 1: ZeroDivisionError: division by zero$"
    ):
        peak_memory([sys.executable, "-c", "1 / 0"])


@on_linux
def test_memory_of_encoding_is_measured_at_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SHARD_DOCUMENTS", 100)
    found = bench_memory([100, 300], workers=1)
    assert [row["documents"] for row in found["encode"]] == [100, 300]
    first, second = (row["peak_megabytes"] for row in found["encode"])
    assert 20 < first < 500
    assert found["growth"]["encode"] == second / first


def test_encoding_of_generated_text_makes_a_store(tmp_path: Path) -> None:
    memory.encode_generated(50, 1, tmp_path)
    assert (tmp_path / "store.json").exists()
