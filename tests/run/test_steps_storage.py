"""Storage that refuses writes, or is slow: one sentence, nothing half-written; the same command goes on."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import mein, refuses
from tests.support.stepping import SHARD, content, make_stores

pytestmark = pytest.mark.usefixtures("small_shards")
URL = "memory://bucket/store"
FILES = {"encode": 7, "label": 7}  # shards and a manifest: what each step writes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, its documents, and a store after each step."""
    folder = tmp_path_factory.mktemp("home")
    make_stores(folder, SHARD, encoded="encode", labeled="label")
    return folder


def words_of(step: str, home: Path) -> tuple[object, ...]:
    if step == "encode":
        return (
            "store",
            "encode",
            "--like",
            home / "run",
            "--text",
            home / "raw.csv",
            "--out",
            URL,
            "--workers",
            1,
        )
    return ("store", "label", URL, "--by", home / "run", "--workers", 1)


def files_of(bucket: Any) -> dict[str, bytes]:
    return {str(path).rsplit("/", 1)[-1]: bucket.cat_file(path) for path in bucket.find("/bucket/store")}


def before(step: str, home: Path, bucket: Any) -> None:
    """What a step finds."""
    for name, file in content(home / "encode").items() if step == "label" else ():
        bucket.pipe_file(f"/bucket/store/{name}", file)


def wrapped(bucket: Any, name: str, deed: Callable[[int], None]) -> Callable[..., Any]:
    """A method of the storage that first does a deed, which gets the number of earlier calls."""
    method, asked = getattr(type(bucket), name), []

    def call(self: Any, *words: Any, **options: Any) -> Any:
        asked.append(words)
        deed(len(asked) - 1)
        return method(self, *words, **options)

    return call


@pytest.mark.parametrize("step", FILES)
@pytest.mark.parametrize("written", [0, 3, 6])
def test_a_storage_that_refuses_to_write_is_reported(
    step: str, written: int, home: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some file on, the manifest the last."""

    def refuse(asked: int) -> None:
        if asked >= written:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    before(step, home, bucket)
    there = len(files_of(bucket))
    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "put_file", wrapped(bucket, "put_file", refuse))
        refuses(
            rf"{URL}/\S+ cannot be written \(.*Read-only file system\): check the connection and the "
            "permissions, and run the same command again.",
            *words_of(step, home),
        )
    assert files_of(bucket).items() <= content(home / step).items()
    assert len(files_of(bucket)) == there + written
    assert mein(*words_of(step, home)).code == 0
    assert files_of(bucket) == content(home / step)


@pytest.mark.parametrize("step", FILES)
def test_a_slow_storage_changes_nothing(
    step: str, home: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(step, home, bucket)
    for name in ("put_file", "get_file", "cat_file", "ls", "exists"):
        monkeypatch.setattr(type(bucket), name, wrapped(bucket, name, lambda asked: time.sleep(0.02)))
    assert mein(*words_of(step, home)).code == 0
    assert files_of(bucket) == content(home / step)
