"""The bench of labeling: its arithmetic, and that all are asked about the same documents."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.use import LINEAR, bench_predict, linear_model
from mein.errors import InputError
from mein.model.model import Model
from tests.support.reviews import LABELS, NEW, RAW, TEXTS, tiny
from tests.support.shell import benchmarks, write_csv


@pytest.fixture(scope="module")
def model() -> Model:
    fitted: Model = tiny().fit(TEXTS, LABELS, unlabeled=RAW).model_
    return fitted


def test_ratios_are_times_over_those_of_the_linear_model(model: Model) -> None:
    found = bench_predict(model, NEW, threads=1, repeats=1)
    assert list(found["systems"]) == ["mixture", "expert", "imitators", LINEAR]
    assert found["documents"] == len(NEW)
    seconds = {name: rate["seconds"]["median"] for name, rate in found["systems"].items()}
    for name, ratio in found["ratio"].items():
        assert ratio["median"] == pytest.approx(seconds[name] / seconds[LINEAR])
        rate = found["systems"][name]["documents_per_second"]["median"]
        assert rate == pytest.approx(len(NEW) / seconds[name])


def test_without_imitators_they_are_not_measured() -> None:
    found = bench_predict(tiny().fit(TEXTS, LABELS).model_, NEW, threads=1, repeats=1)
    assert list(found["systems"]) == ["mixture", "expert", LINEAR]


def test_the_linear_model_labels_and_needs_no_second_class() -> None:
    for labels in (np.array([label == "positive" for label in LABELS]), np.zeros(len(TEXTS), int)):
        assert np.asarray(linear_model(TEXTS, labels)(NEW)).shape == (len(NEW), 2)


def test_nothing_to_measure_is_refused(model: Model) -> None:
    with pytest.raises(InputError, match="There is no text to measure; give a file with at least"):
        bench_predict(model, [], threads=1)


def test_the_shell_gives_json_and_a_table(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    documents = write_csv(tmp_path / "in.csv", NEW)
    words = [
        "predict",
        tmp_path / "run",
        "--documents",
        documents,
        "--repeats",
        "1",
        "--threads",
        "1",
    ]
    answer = benchmarks(*words)
    assert answer.code == 0, answer
    assert json.loads(answer.out)["documents"] == len(NEW)
    assert LINEAR in answer.err
    assert max(map(len, answer.err.splitlines())) <= 80
