"""What check and train say of a training: what it uses and why, what it takes, what would help more."""

import json
import re
from pathlib import Path

import pytest

from tests.support import tiny
from tests.support.shell import TINY, fits, mein, write_corpus, write_csv

pytestmark = pytest.mark.usefixtures("unsynced")

LINEAR = [*TINY, "--set", "expert.kind=linear", "--set", "mixture.method=ours"]
COSTS = r"(about|more than) \d+ (second|minute|hour)s?, [\d.]+ [GM]B of memory, [\d.]+ [GM]B of disk\.$"


def test_check_says_what_training_uses_takes_and_lacks(tmp_path: Path) -> None:
    labels = [*tiny.TEXTS.labeled_labels[:-2], "17", "17"]
    labeled = write_csv(tmp_path / "rare.csv", tiny.TEXTS.labeled_texts, labels)
    raw = write_csv(tmp_path / "raw.csv", tiny.TEXTS.unlabeled_texts)
    answer = mein("check", "--labeled", labeled, "--unlabeled", raw)
    assert answer.code == 0, answer
    assert "- labels: all 80 teach, in 5 folds" in answer.out
    assert "- imitators: 4, of 3, 5, 7, 9 pieces (120 unlabeled documents teach)" in answer.out
    assert re.search(f"^On this machine it takes {COSTS}", answer.out, re.MULTILINE)
    assert "- more labels of rare classes ('17' has 2 labels)" in answer.out
    other = mein("check", "--labeled", labeled, "--preset", "full")
    assert "- preset: full (--preset names it)" in other.out
    assert "it takes more than" in other.out, "nobody knows how long an LSTM learns"


def test_check_gives_the_same_as_data(tmp_path: Path) -> None:
    words = write_corpus(tmp_path)
    given = json.loads(mein("check", *words, "--json").out)
    assert given["uses"]["expert"] == {"value": "linear", "why": "it needs few labels"}
    assert given["takes"]["total_seconds"] == pytest.approx(sum(given["takes"]["seconds"].values()))
    assert given["would_help"]
    bad = write_csv(tmp_path / "bad.csv", ["a", "b"], ["x", "x"])
    refused = mein("check", "--labeled", bad, "--json")
    assert refused.code == 2
    assert "uses" not in json.loads(refused.out), "there would be no training"


def test_check_refuses_an_unknown_preset_before_it_reads(tmp_path: Path) -> None:
    answer = mein("check", "--labeled", tmp_path / "none.csv", "--preset", "smal")
    assert answer.code == 2
    assert "Unknown preset 'smal'" in answer.err


def test_train_says_at_its_start_what_it_uses_and_at_its_end_what_would_help(tmp_path: Path) -> None:
    answer = mein("train", *write_corpus(tmp_path), "--out", tmp_path / "run", *LINEAR)
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    assert re.fullmatch(r"Preset small \(.*\): 80 labels in 2 classes \(\d+(?: to \d+)? each\)\.", lines[1])
    assert lines[2] == "All labels teach the expert 'linear', in 5 folds."
    at = lines.index(next(line for line in lines if line.startswith("Stage 1")))
    assert "2 imitators and a lexicon on 120 unlabeled documents." in lines[3:at]
    assert any(re.fullmatch(f"Expected: {COSTS}", line) for line in lines[3:at])
    assert fits("\n".join(lines[: at - 1]))
    assert lines[-1].startswith("What would help more: ")
    assert "expert + lexicon, not tuned" in answer.out
    assert "Stage 3: the mixture and its controls are weighted by predictions out of fold" in lines
    again = mein("train", *write_corpus(tmp_path), "--out", tmp_path / "run", "--resume", *LINEAR)
    assert "Expected" not in again.out, "a part of it is done"
    assert "not tuned" in mein("evaluate", tmp_path / "run", tmp_path / "test.csv").out


def test_train_by_steps_says_how_many_labels_validate(tmp_path: Path) -> None:
    answer = mein("train", *write_corpus(tmp_path)[:2], "--out", tmp_path / "run", *TINY)
    assert answer.code == 0, answer
    assert "60 labels teach the expert 'average', 20 validate it." in answer.out
    assert "imitators on" not in answer.out
    assert "unlabeled text of the same kind (there is none)" in answer.out.splitlines()[-1]
    assert "dev log loss calibrated" in answer.out
    assert "dev log loss 0" not in answer.out
