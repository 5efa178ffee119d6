"""Readers and experts that take long: what they read is shown, and kept, a few documents at a time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mein.config import Config
from mein.model.loading import load_model
from mein.predict.predict import Wanted, predict_file
from mein.run.pipeline import train_and_evaluate
from mein.runtime.progress import QUIET
from mein.store.store import Store
from mein.text.ragged import parted
from tests.support import tiny
from tests.support.hub_models import build
from tests.support.recording import Recording

TRAIN, DEV, RAW, TEST = 60, 20, 120, 40


class SlowTeacher:
    """Predicts the same for every document, and is stopped by Ctrl-C before too many."""

    def __init__(self, most: int = 10_000) -> None:
        self.asked: list[int] = []
        self.most = most

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        if sum(self.asked) + len(texts) > self.most:
            raise KeyboardInterrupt
        self.asked.append(len(texts))
        return np.tile([0.25, 0.75], (len(texts), 1))


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mein.run.prepare.SLOW_SHARD_DOCUMENTS", 25)
    monkeypatch.setattr("mein.data.corpus.CHUNK_DOCUMENTS", 10)


def taught() -> Config:
    return tiny.config(expert__kind="given")


def test_a_slow_reader_reads_small_shards_and_reports_them(few_at_a_time: None, tmp_path: Path) -> None:
    reporter, soft_labels = Recording(), SlowTeacher()
    train_and_evaluate(taught(), tiny.corpus(), tmp_path, reporter, soft_labels=soft_labels)
    assert reporter.steps["encoding train"] == [10] * 6
    assert reporter.steps["encoding dev"] == [10] * 2
    assert sum(reporter.steps["encoding"]) == RAW
    assert max(reporter.steps["encoding"]) <= 10
    assert reporter.steps["encoding test"] == [10] * 4
    assert soft_labels.asked[:8] == [25, 25, 10, 20, 25, 25, 25, 25]  # train, dev, unlabeled
    store = Store.open(tmp_path / "encoded/train")
    assert store.shard_count == 3
    assert len(store.words()) == len(store.pieces()) == TRAIN
    assert store.words().to_lists() == [row for shard in range(3) for row in store.words(shard).to_lists()]


def test_what_a_slow_reader_has_read_before_a_stop_is_kept(few_at_a_time: None, tmp_path: Path) -> None:
    stopped = SlowTeacher(most=TRAIN - 1)
    with pytest.raises(KeyboardInterrupt):
        train_and_evaluate(taught(), tiny.corpus(), tmp_path / "run", QUIET, soft_labels=stopped)
    resumed, unbroken = SlowTeacher(), SlowTeacher()
    train_and_evaluate(taught(), tiny.corpus(), tmp_path / "run", QUIET, resume=True, soft_labels=resumed)
    train_and_evaluate(taught(), tiny.corpus(), tmp_path / "other", QUIET, soft_labels=unbroken)
    assert stopped.asked == [25, 25]
    assert stopped.asked + resumed.asked == unbroken.asked
    files = [(tmp_path / name / "mixture.safetensors").read_bytes() for name in ("run", "other")]
    assert files[0] == files[1]


def test_a_quick_reader_has_train_and_dev_in_one_shard_each(few_at_a_time: None, tmp_path: Path) -> None:
    reporter = Recording()
    train_and_evaluate(tiny.config(), tiny.corpus(), tmp_path, reporter, controls=())
    assert Store.open(tmp_path / "encoded/train").shard_count == 1


def test_an_expert_reports_how_much_of_dev_and_test_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mein.runtime.device.BATCH_TOKENS", 200)
    reporter = Recording()
    train_and_evaluate(tiny.config(), tiny.corpus(), tmp_path, reporter, controls=())
    assert sum(reporter.steps["expert on test"]) % TEST == 0
    assert len(reporter.steps["expert on test"]) >= 4
    assert sum(reporter.steps["expert on dev"]) % DEV == 0
    assert len(reporter.steps["expert on dev"]) >= 4


@pytest.mark.parametrize(("imitators_only", "chunks"), [(False, [7, 7, 6]), (True, [20])])
def test_an_encoder_labels_fewer_documents_at_a_time(
    imitators_only: bool, chunks: list[int], frozen_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mein.predict.predict.SLOW_CHUNK_ROWS", 7)
    texts = tiny.TEXTS.test_texts[:20]
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    reporter, model = Recording(), load_model(frozen_run, "cpu")
    wanted = Wanted(imitators_only=imitators_only, all_probabilities=True)
    predict_file(model, str(tmp_path / "in.txt"), tmp_path / "out.parquet", wanted, reporter)
    assert reporter.steps["predicting"] == chunks


@pytest.fixture(scope="module")
def frozen_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the extra mein[transformers] is not installed")
    path = tmp_path_factory.mktemp("frozen")
    model = build("Bert", path / "bert", classes=2)
    tiny.run(path / "run", expert__kind="frozen", expert__model=str(model))
    return path / "run"


def test_a_frozen_encoder_is_slow(few_at_a_time: None, frozen_run: Path, tmp_path: Path) -> None:
    reporter = Recording()
    config = load_model(frozen_run, "cpu").config
    train_and_evaluate(config, tiny.corpus(), tmp_path / "run", reporter, controls=())
    assert Store.open(tmp_path / "run/encoded/train").shard_count == 4
    whole, cut = (Store.open(path / "encoded/train") for path in (frozen_run, tmp_path / "run"))
    (some, words), (all_at_once, same_words) = (parted(store.words(), 32) for store in (cut, whole))
    np.testing.assert_allclose(some, all_at_once, atol=1e-3)  # float16
    assert words.to_lists() == same_words.to_lists()
