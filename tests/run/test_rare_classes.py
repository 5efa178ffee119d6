"""A class of one document: trained on where dev is given apart, refused where dev must be split off."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.data.corpus import Corpus, source_of_lists
from mein.errors import InputError
from mein.run.documents import read_labeled
from mein.runtime.progress import Quiet
from paper.cells import VARIANTS, Cell
from paper.column import run_column
from paper.experiment import Experiment
from paper.lines import correct_of, read_lines
from tests.support import tiny

TEXTS, LABELS = tiny.TEXTS.labeled_texts, [str(label) for label in tiny.TEXTS.labeled_labels]
RARE = "a rare bird that one document is about"
TRAIN_LABELS = ["rare", *LABELS[:40]]
DEV = (TEXTS[40:], LABELS[40:])  # without the rare class


def labeled(dev: tuple[list[str], list[str]] | None) -> Corpus:
    return Corpus(
        labeled=source_of_lists([RARE, *TEXTS[:40]], TRAIN_LABELS),
        dev=None if dev is None else source_of_lists(*dev),
        names={"labeled": "train.csv", "dev": "dev.csv"},
    )


def test_one_document_is_enough_where_dev_is_given() -> None:
    found = read_labeled(tiny.config(), labeled(DEV))
    assert found.labels.classes == (*sorted(set(LABELS)), "rare")
    assert found.labels.decode(found.train_ids) == TRAIN_LABELS
    assert found.labels.decode(found.dev_ids) == DEV[1]


def test_one_document_is_refused_where_dev_is_split_off() -> None:
    with pytest.raises(InputError, match=r"train.csv holds one example of 'rare'; add examples or drop"):
        read_labeled(tiny.config(), labeled(None))


def test_a_class_of_dev_that_training_lacks_is_still_refused() -> None:
    with pytest.raises(InputError, match=r"dev.csv holds 'new' \(1 document\), which training lacks"):
        read_labeled(tiny.config(), labeled(([*DEV[0], "x"], [*DEV[1], "new"])))


def test_all_variants_of_an_expert_come_out(tmp_path: Path) -> None:
    """As on R52: a class with one document in train, none in dev, one in test."""
    parts = {
        "train": {"text": [RARE, *TEXTS[:40]], "label": TRAIN_LABELS},
        "dev": {"text": DEV[0], "label": DEV[1]},
        "test": {"text": [RARE, *tiny.TEXTS.test_texts], "label": ["rare", *LABELS[:40]]},
        "unlabeled": {"text": tiny.TEXTS.unlabeled_texts},
    }
    (tmp_path / "data/rare").mkdir(parents=True)
    for name, columns in parts.items():
        pq.write_table(pa.table(columns), tmp_path / f"data/rare/{name}.parquet")
    settings = tiny.SETTINGS | {"imitators.windows": [1, 2, 3, 4], "fine_tuning.epochs": 1}
    work, results = tmp_path / "work", tmp_path / "results"
    experiment = Experiment(tmp_path / "data", work, results, "small", settings, Quiet())
    run_column(experiment, [Cell("rare", "lstm", variant, 0) for variant in VARIANTS])
    lines = read_lines(results)
    assert {line["variant"] for line in lines} == set(VARIANTS)
    assert all(correct_of(line).shape == (41,) for line in lines)
