"""The steps in small: a finished run, raw text, shards of few documents, and children that die."""

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import torch

from mein.config import as_toml
from mein.data.demo import demo_corpus
from mein.run import steps
from mein.store.store import Store
from tests.support import tiny
from tests.support.shell import mein, write_csv

SHARD = 25  # documents
RAW = [
    *demo_corpus(seed=8, labeled=4, unlabeled=138, test=4).unlabeled_texts,
    "",
    *tiny.TEXTS.test_texts[:2],
]
LEFT = RAW[:139]  # less the two of the test set


def make_run(folder: Path) -> Path:
    """A finished run in folder/run, its documents beside it, and raw.csv."""
    train = write_csv(folder / "train.csv", tiny.TEXTS.labeled_texts, tiny.TEXTS.labeled_labels)
    test = write_csv(folder / "test.csv", tiny.TEXTS.test_texts, tiny.TEXTS.test_labels)
    write_csv(folder / "raw.csv", RAW)
    (folder / "tiny.toml").write_text(as_toml(tiny.config()), encoding="utf-8")
    words = ["--config", folder / "tiny.toml", "--labeled", train, "--test", test]
    answer = mein("train", *words, "--unlabeled", folder / "raw.csv", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"


def make_stores(folder: Path, shard: int, encoded: str, labeled: str) -> None:
    """A finished run, and of its raw text two stores: one encoded, one labeled too, by one process."""
    run = make_run(folder)
    with patch.object(steps, "SHARD_DOCUMENTS", shard):
        words = ("--like", run, "--text", folder / "raw.csv", "--workers", 1)
        assert mein("store", "encode", *words, "--out", folder / encoded).code == 0
        shutil.copytree(folder / encoded, folder / labeled)
        assert mein("store", "label", folder / labeled, "--by", run, "--workers", 1).code == 0


def content(path: Path) -> dict[str, bytes]:
    """Every file of a folder of any depth, without locks and what a clock or a command line wrote."""
    not_compared = (".lock", "metrics.jsonl", "report.html", "provenance.json", "README.md")
    files = (file for file in path.rglob("*") if file.is_file() and file.name not in not_compared)
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def probabilities(store: Path) -> np.ndarray:
    """Every row of every label file (n, Y), read by Parquet alone."""
    tables = [pq.read_table(file).to_pandas() for file in sorted(store.glob("*.parquet"))]
    return np.concatenate([table.to_numpy() for table in tables])


def pieces_of(store: Store) -> list[list[int]]:
    """The pieces of every document."""
    return [row for shard in range(store.shard_count) for row in store.pieces(shard).to_lists()]


class Doom:
    """Dies by SIGKILL before the n-th time that a file below a folder is made, renamed or removed."""

    def __init__(self, folder: Path, at: int, torn: bool) -> None:
        self.folder, self.at, self.torn, self.seen = folder, at, torn, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.remove") or not isinstance(arguments[0], str | Path):
            return
        file = Path(arguments[0])
        is_read = event == "open" and arguments[1] in ("r", "rb", None) and not file.name.endswith(".tmp")
        if is_read or self.folder not in file.parents:
            return
        self.seen += 1
        if self.seen == self.at:
            if self.torn and file.exists():
                os.truncate(file, file.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


def _live(folder: Path, at: int, torn: bool, words: tuple[str, ...]) -> None:
    torch.set_num_threads(1)
    sys.addaudithook(Doom(folder, at, torn))
    with patch.object(steps, "SHARD_DOCUMENTS", SHARD):
        answer = mein(*words)
    if answer.code:
        sys.exit(answer.err)


def live(folder: Path, at: int, torn: bool, *words: object) -> int | None:
    """Run a command in a child that dies at its n-th change below a folder; its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=_live, args=(folder, at, torn, tuple(map(str, words))))
    child.start()
    child.join(timeout=120)
    return child.exitcode


def until_done(folder: Path, moments: Callable[[], int], *words: object) -> int:
    """Run a command again and again, each time until a moment of its own, to its end; how often it died."""
    deaths = 0
    while (code := live(folder, moments(), deaths % 2 == 1, *words)) == -signal.SIGKILL:
        deaths += 1
    assert code == 0, code
    return deaths
