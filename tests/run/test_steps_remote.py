"""Stores at URLs: the same files as in a folder, read through a cache that is bounded and proves them."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mein.errors import DamagedFile, RunError
from mein.run import steps
from mein.runtime.files import cache_folder
from mein.store import place as cache
from mein.store.files import EXPERT_COLUMN
from mein.store.place import Remote, place_of
from mein.store.store import Store
from tests.support.shell import mein, refuses
from tests.support.stepping import SHARD, content, make_run, pieces_of

pytestmark = pytest.mark.usefixtures("small_shards")
URL = "memory://bucket/store"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its documents, and a labeled store."""
    folder = tmp_path_factory.mktemp("home")
    make_run(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "SHARD_DOCUMENTS", SHARD)
        make_store(folder, folder / "store")
    return folder


def make_store(home: Path, at: object) -> None:
    words = ("--like", home / "run", "--text", home / "raw.csv", "--out", at, "--workers", 1)
    assert mein("store", "encode", *words).code == 0
    answer = mein("store", "label", at, "--by", home / "run", "--workers", 1)
    assert answer.code == 0, answer
    shutil.rmtree(cache_folder() / "shards", ignore_errors=True)


def remote_content(memory: Any) -> dict[str, bytes]:
    return {str(path).rsplit("/", 1)[-1]: memory.cat_file(path) for path in memory.find("/bucket/store")}


def test_a_store_at_a_url_has_the_files_of_one_in_a_folder(home: Path, tmp_path: Path, bucket: Any) -> None:
    make_store(home, URL)
    assert remote_content(bucket) == content(home / "store")
    assert pieces_of(Store.open(URL)) == pieces_of(Store.open(home / "store"))
    words = ("--like", home / "run", "--set", "imitator_training.epochs=1")
    assert mein("store", "train", URL, *words, "--out", tmp_path / "there").code == 0
    assert mein("store", "train", home / "store", *words, "--out", tmp_path / "here").code == 0
    for name in ("imitators", "mixture"):
        there, here = (tmp_path / place / f"{name}.safetensors" for place in ("there", "here"))
        assert there.read_bytes() == here.read_bytes()


def test_a_stopped_step_at_a_url_goes_on(home: Path, bucket: Any) -> None:
    make_store(home, URL)
    for name in ("store.json", "labels.json", "shard-00001.arrow", "shard-00003.expert.parquet"):
        bucket.rm_file(f"/bucket/store/{name}")
    bucket.pipe_file("/bucket/store/shard-00002.arrow", b"half")
    before = bucket.modified("/bucket/store/shard-00000.arrow")
    words = ("--like", home / "run", "--text", home / "raw.csv", "--out", URL, "--workers", 1)
    assert mein("store", "encode", *words).code == 0
    assert bucket.modified("/bucket/store/shard-00000.arrow") == before
    assert mein("store", "label", URL, "--by", home / "run", "--workers", 1).code == 0
    assert remote_content(bucket) == content(home / "store")


def test_a_file_url_is_a_folder(home: Path) -> None:
    assert str(place_of(f"file://{home}/store")) == f"{home}/store"
    assert len(Store.open(f"file://{home}/store")) == 139


def test_shards_are_fetched_once_and_old_ones_make_room(
    home: Path, tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(home, URL)
    store = Store.open(URL)
    size = store.shards[0].bytes
    monkeypatch.setattr(cache, "CACHE_BYTES", int(2.5 * size))
    fetched: list[str] = []
    whole = Remote._download

    def counted(self: Remote, name: str, path: Path) -> None:
        fetched.append(name)
        whole(self, name, path)

    monkeypatch.setattr(Remote, "_download", counted)
    for shard in (0, 0, 1, 1, 2, 3, 3):
        store.pieces(shard)
        held = sum(file.stat().st_size for file in (tmp_path / "cache/shards").iterdir())
        assert held <= 2.5 * size
    assert fetched == [f"shard-{shard:05d}.arrow" for shard in range(4)]
    store.pieces(0)
    assert fetched[4:] == ["shard-00000.arrow"]  # it had made room


def test_a_damaged_copy_is_fetched_again_and_a_damaged_shard_is_named(
    home: Path, tmp_path: Path, bucket: Any
) -> None:
    make_store(home, URL)
    expected = Store.open(URL).pieces(0).to_lists()
    (copy,) = (tmp_path / "cache/shards").iterdir()
    copy.chmod(0o644)
    os.truncate(copy, 100)
    cache._verified.cache_clear()  # as in another process
    assert Store.open(URL).pieces(0).to_lists() == expected
    path = "/bucket/store/shard-00001.arrow"
    bucket.pipe_file(path, bucket.cat_file(path)[:-1] + b"?")
    with pytest.raises(DamagedFile, match=r"memory://bucket/store/shard-00001\.arrow is damaged; restore it"):
        Store.open(URL).pieces(1)
    words = ("store", "train", URL, "--like", home / "run", "--out", tmp_path / "out")
    answer = mein(*words, "--quarantine")
    assert answer.code == 0, answer
    assert "25 documents are lost" in answer.out
    assert bucket.exists("/bucket/store/quarantine/shard-00001.arrow")
    bucket.rm_file("/bucket/store/shard-00002.arrow")
    with pytest.raises(DamagedFile, match=r"shard-00002\.arrow is missing; restore it"):
        Store.open(URL).place.fetch("shard-00002.arrow", "0" * 64)


def test_labels_that_are_damaged_or_gone_at_a_url_are_made_again_whatever_the_cache_holds(
    home: Path, bucket: Any
) -> None:
    make_store(home, URL)
    store = Store.open(URL)
    for shard in range(store.shard_count):
        store.column(EXPERT_COLUMN, shard)  # now the cache has them all
    bucket.rm_file("/bucket/store/shard-00001.expert.parquet")
    bucket.pipe_file("/bucket/store/shard-00002.expert.parquet", b"half")
    answer = mein("store", "label", URL, "--by", home / "run", "--workers", 1)
    assert answer.code == 0, answer
    assert answer.out.count("are damaged or missing: they are made again.") == 2
    assert remote_content(bucket) == content(home / "store")


def test_a_storage_that_fails_is_reported_in_one_sentence(
    home: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(home, URL)

    def broken(*words: Any, **options: Any) -> None:
        raise TimeoutError("the bucket does not answer")

    monkeypatch.setattr(type(bucket), "get_file", broken)
    monkeypatch.setattr(type(bucket), "put_file", broken)
    store = Store.open(URL)
    with pytest.raises(
        RunError, match=r"00\.arrow cannot be read \(the bucket does not answer\): check the con"
    ):
        store.pieces(0)
    with (
        pytest.raises(
            RunError, match=r"bucket/store/x cannot be written \(the bucket does not answer\): che"
        ),
        store.place.writing("x") as path,
    ):
        path.write_bytes(b"x")
    assert not bucket.exists("/bucket/store/x")
    # a storage that fails is not a damaged file: nothing is set aside
    words = ("store", "label", URL, "--by", home / "run", "--quarantine")
    refuses(r"memory://bucket/store/shard-00000\.arrow cannot be read .*", *words)
    assert not bucket.exists("/bucket/store/quarantine")


def test_an_unknown_kind_of_url_is_named(home: Path) -> None:
    words = ("store", "encode", "--like", home / "run", "--text", home / "raw.csv", "--out")
    refuses(
        r"gopher://store starts with gopher://, which fsspec does not know; use a lo.*",
        *words,
        "gopher://store",
    )
    refuses(
        r"memory://empty/store holds no finished store .*",
        "store",
        "label",
        "memory://empty/store",
        "--by",
        home / "run",
    )
