"""What `python -m benchmarks scale` generates, and how it makes ratios of what it measured."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import scale


def test_documents_are_generated_as_a_stream_and_always_the_same() -> None:
    chunks = scale.generated_documents(25_000)
    first = next(chunks)
    assert [len(first), *(len(chunk) for chunk in chunks)] == [10_000, 10_000, 5_000]
    assert first == next(scale.generated_documents(10_000))
    words = [len(text.split()) for text in first]
    assert 8 < sum(words) / len(words) < 40
    assert len(set(first)) > 5_000


def test_raw_files_hold_every_document_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "FILE_DOCUMENTS", 20_000)
    scale.write_generated(tmp_path / "raw", 30_000)
    scale.write_generated(tmp_path / "raw", 25_000)  # what was there before goes
    files = sorted((tmp_path / "raw").iterdir())
    assert [pq.ParquetFile(file).metadata.num_rows for file in files] == [20_000, 5_000]
    written = [text for file in files for text in pq.read_table(file)["text"].to_pylist()]
    assert written == [text for chunk in scale.generated_documents(25_000) for text in chunk]


def found(documents: int, workers: int, rate: float, peak: float) -> dict[str, object]:
    took = {"documents_per_second": rate, "process_megabytes": [peak, 1.0]}
    return {"documents": documents, "workers": workers, "steps": dict.fromkeys(scale.STEPS, took)}


def test_ratios_compare_what_differs_in_one_thing_alone() -> None:
    results = [found(10, 1, 100.0, 50.0), found(10, 2, 190.0, 40.0)]
    results += [found(90, 1, 95.0, 52.0), found(90, 2, 171.0, 44.0)]
    ratios = scale.ratios(results)
    assert ratios["growth"]["encode"] == pytest.approx(52 / 50)
    assert ratios["pace"]["label"] == pytest.approx(171 / 190)
    assert ratios["speed_up"]["imitate"] == pytest.approx(171 / 95)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_steps_are_measured() -> None:
    figures = scale.bench_scale([12_000], [1])
    (result,) = figures["results"]
    for step in scale.STEPS:
        assert result["steps"][step]["documents_per_second"] > 10
        assert 50 < result["steps"][step]["process_megabytes"][0] < 3_000
    assert 20 < result["bytes_per_document"]["encoded"] < 2_000
    assert figures["growth"] == figures["pace"] == figures["speed_up"] == dict.fromkeys(scale.STEPS, 1.0)
