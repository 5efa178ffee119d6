"""The cost of a training: its formula by hand, and that measuring measures."""

from itertools import count

import pytest

from mein.config import load_config
from mein.run.forecast import REFERENCE_SECONDS, Amounts, forecast, imitations, measured, measured_pace

SMALL = load_config("small")
AMOUNTS = Amounts(labeled=100, classes=2, labeled_pieces=10.0, unlabeled=1_000, pieces=20.0, evaluated=50)


def test_seconds_by_hand() -> None:
    """A step takes 0.01 s, everything else twice as long as on the machine of the constants.

    900 documents x 20 pieces in batches of 512 are 35.16 steps an epoch; 5 epochs for the last imitators and
    those of 5 folds: 1,054.7 steps. The 100 held-out documents are scored 6 times by each of 6: 140.6 steps.
    """
    found = forecast(SMALL, AMOUNTS, step=lambda batch: 0.01 if batch == 512 else 1.0, pace=2.0)
    assert found.seconds == pytest.approx(
        {
            "start": 2 * 4.0,
            "text": 2 * 1.2e-6 * (1_000 + 20_000 + 500),
            "features": 2 * 2e-6 * (1_000 + 20_000),
            "fits": 2 * 3 * (0.03 + 3.3e-8 * 100**2 + 3e-11 * 100**3),
            "lexicon": 2 * 8e-7 * 6 * 1_000,
            "labeling": 2 * 1e-8 * 52 * (20_000 + 4 * 500 + 5 * 18_000),
            "encoder": 0.0,
            "imitators": 0.01 * (1_054.6875 + 0.4 * 140.625),
        }
    )
    assert found.total == pytest.approx(19.55, abs=0.01)
    assert found.is_complete


def test_bytes_by_hand() -> None:
    """Imitators: 879 pieces x 64, windows of 3 + 5 + 7 + 9 pieces x 64 x 64, 3 x 64 for each output.

    1,000 n-grams of labeled text, and as many frequent ones of 20,000 unlabeled pieces, in 150 dimensions.
    """
    found = forecast(SMALL, AMOUNTS, step=lambda batch: 0.01, pace=1.0)
    assert found.memory_bytes == 560e6 + 130 * 21_000 + 8 * 100 * (8 * 100 + 150 * 2)
    text = 8 * 21_000 + 1_100 * (4 * 2 + 16)
    networks = 6 * (879 * 64 + 24 * 4_096 + 4 * 3 * 64) + 2_000 * 150 + 4 * (2_000 + 879) * 5
    assert found.disk_bytes == pytest.approx(2e6 + 5.5 * text + 4 * (networks + 7 * 50 * 2 * 2))


def test_an_encoder_reads_every_document_once() -> None:
    without = forecast(SMALL, AMOUNTS, step=lambda batch: 0.01, pace=1.0)
    encoded = Amounts(100, 2, 10.0, 1_000, 20.0, 50, features=384, encoder_seconds=0.02)
    found = forecast(load_config("frozen"), encoded, step=lambda batch: 0.01, pace=1.0)
    assert found.seconds["encoder"] == pytest.approx(1_150 * 0.02)
    assert found.disk_bytes - without.disk_bytes == pytest.approx(5.5 * 1_100 * 2 * 384)
    assert found.memory_bytes - without.memory_bytes == pytest.approx(700e6)
    unknown = Amounts(100, 2, 10.0, 1_000, 20.0, 50, features=384, encoder_seconds=None)
    assert not forecast(load_config("frozen"), unknown, step=lambda batch: 0.01, pace=1.0).is_complete


def test_folds_read_some_of_much_text_in_fewer_epochs() -> None:
    """98,000 documents of 20 pieces: folds read 40,000 of them, 800,000 pieces, in half of 5 epochs."""
    last, folds = imitations(SMALL, Amounts(100, 2, 10.0, 100_000, 20.0))
    assert (last.documents, last.epochs, last.sets) == (98_000, 5, 1)
    assert (folds.documents, folds.epochs, folds.sets) == (40_000, 3, 5)


def test_nothing_is_imitated_without_unlabeled_text_or_folds() -> None:
    assert imitations(SMALL, Amounts(100, 2, 10.0)) == []
    average = load_config("small", overrides={"expert.kind": "average"})
    assert len(imitations(average, AMOUNTS)) == 1
    assert not forecast(average, AMOUNTS, lambda batch: 0.01, 1.0).is_complete


def test_a_step_is_measured_by_the_given_clock_once_for_each_size() -> None:
    """The clock advances by 0.02 s whenever it is read: before and after a step."""
    ticks = count()
    step = measured(SMALL, AMOUNTS, clock=lambda: 0.02 * next(ticks))
    assert step(512) == pytest.approx(0.02)
    assert (reads := next(ticks)) > 2
    step(512)
    assert next(ticks) == reads + 1
    step(64)
    assert next(ticks) > reads + 2


def test_the_pace_is_that_of_the_reference_step() -> None:
    ticks = count()
    pace = measured_pace(SMALL, clock=lambda: 3 * REFERENCE_SECONDS * next(ticks))
    assert pace == pytest.approx(3.0)
