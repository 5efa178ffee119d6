"""Fixtures that several files share, and one thread for each test process: small networks lose by sharing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
# A shell ignores Ctrl-C for what it starts in the background, and so would children that tests stop by it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Shards of few documents, and a cache of remote files of one's own."""
    from mein.run import steps
    from tests.support.stepping import SHARD

    monkeypatch.setattr(steps, "SHARD_DOCUMENTS", SHARD)
    monkeypatch.setenv("MEIN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bucket() -> Iterator[Any]:
    """An object storage in memory, empty again afterwards."""
    import fsspec

    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def unsynced() -> Iterator[None]:
    """Nobody pulls the plug here, so files need not reach the disk, which is half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield
