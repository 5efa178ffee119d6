"""The cost of scale is computed from measured rates, in proportion."""

import json
from pathlib import Path

import pytest

from benchmarks.scale import costs_page
from mein.errors import InputError


def write_scale(folder: Path) -> None:
    rates = {"encode": 7_200.0, "label": 3_600.0, "imitate": 1_800.0}
    steps = {step: {"documents_per_second": rate} for step, rate in rates.items()}
    found = {
        "documents": 1_000,
        "workers": 2,
        "steps": steps,
        "tokens": {"pieces": 12_000, "words": 9_000},
        "bytes_per_document": {"raw": 60.0, "encoded": 30.0, "labels": 10.0},
    }
    small = {**found, "documents": 10, "steps": {step: {"documents_per_second": 1.0} for step in rates}}
    (folder / "bench-scale.json").write_text(json.dumps({"results": [found, small]}))


def test_hours_storage_and_money_by_hand(tmp_path: Path) -> None:
    """3,600, 1,800 and 900 documents a second a core: a million take 77, 154 and 309 core-hours / 1,000."""
    write_scale(tmp_path)
    page = costs_page(tmp_path)
    assert "12 pieces each" in page
    assert "| 1,000,000 | 0.077 | 0.15 | 0.31 | 1 core | 0.1 | 0.027 | 0.002 | imitate |" in page
    assert "| 100,000,000 | 7.7 | 15 | 31 | 3 cores | 10 | 2.7 | 0.2 | imitate |" in page
    assert "has not been measured yet" in page


def test_a_gpu_is_listed_beside_the_cores(tmp_path: Path) -> None:
    write_scale(tmp_path)
    pipeline = {
        "hardware": {"cores": 16},
        "device": "a GPU",
        "documents": 3_600,
        "pieces": 36_000,
        "epochs": 10,
        "encoding_processes": 4,
        "seconds": {"encoding": 1.0, "labeling": 1.0, "imitators": 10.0},
        "bytes_per_document": {"encoded": 40.0, "labels": 3.0},
        "step": {"pieces": 1_000, "gradient_bytes": 5_000_000},
    }
    (tmp_path / "bench-pipeline.json").write_text(json.dumps(pipeline))
    page = costs_page(tmp_path)
    assert "encode 900 documents per second and core, label 3,600 documents per second and GPU" in page
    assert "| 1,000,000 | 0.31 | 0.077 | 0.077 | 1 core, 1 GPU |" in page
    assert "40 bytes to a labeling process, and 3 back" in page
    # 12.5 GB are 1,250 steps of twice 5 MB, of 100 documents each; a GPU does 3,600 documents a second
    assert "is full at 125,000 documents per second, 34.7 times the rate of one GPU" in page
    assert "has not been measured yet" not in page


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds neither bench-scale\.json nor bench-pipeline\.json"):
        costs_page(tmp_path)
    (tmp_path / "bench-scale.json").write_text("[]")
    with pytest.raises(InputError, match=r"bench-scale\.json is no result of a bench"):
        costs_page(tmp_path)
