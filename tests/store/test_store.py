"""The store: what the encoder gave, on disk, complete or not at all, however often it was killed."""

import errno
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mein.errors import RunError
from mein.store import files, worker
from mein.store import writing as workers
from mein.store.files import Shard
from mein.store.place import Folder, Place
from mein.store.store import Store
from mein.store.worker import ShardJob
from mein.store.writing import write_store
from mein.text.config import PiecesConfig, WordsConfig
from mein.text.indexer import LONGEST_PIECES, Indexer, learn_vocabularies
from mein.text.ragged import ragged

TEXTS = [f"The battery number {i} died after {i % 7} weeks." * (i % 3) for i in range(50)]


def learn(texts: list[str]) -> Indexer:
    config = PiecesConfig(vocabulary_size=120, min_count=1)
    return learn_vocabularies([texts], WordsConfig(), config)[0]


ENCODER = learn(TEXTS)


def write(path: Path, texts: list[str] = TEXTS, size: int = 8, processes: int = 1) -> Store:
    return write_store(path, ENCODER, [texts], shard_documents=size, workers=processes)


def read(store: Store) -> tuple[list[list[int]], list[list[int]]]:
    numbers = range(store.shard_count)
    words = [row for shard in numbers for row in store.words(shard).to_lists()]
    return words, [row for shard in numbers for row in store.pieces(shard).to_lists()]


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != ".lock"}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.text(alphabet="The batry☃.\n", max_size=30), max_size=4), max_size=5),
    st.integers(1, 5),
    st.none() | st.integers(1, 40),
)
def test_a_store_holds_what_the_indexer_gives(
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[list[str]],
    size: int,
    characters: int | None,
) -> None:
    path = tmp_path_factory.mktemp("store")
    store = write_store(path, ENCODER, chunks, shard_documents=size, workers=1, shard_characters=characters)
    texts = [text for chunk in chunks for text in chunk]
    assert read(store) == ENCODER.encode(texts)
    assert len(store) == len(texts) == sum(store.shard_lengths)
    assert max(store.shard_lengths, default=0) <= size


def test_the_manifest_counts(tmp_path: Path) -> None:
    words, pieces = read(write(tmp_path))
    manifest = json.loads((tmp_path / "store.json").read_text(encoding="utf-8"))
    assert manifest["documents"] == 50
    assert [shard["documents"] for shard in manifest["shards"]] == [8] * 6 + [2]
    assert [shard["words"] for shard in manifest["shards"]][:1] == [sum(map(len, words[:8]))]
    assert manifest["words"] == sum(map(len, words))
    assert manifest["pieces"] == sum(map(len, pieces)) == sum(s["pieces"] for s in manifest["shards"])
    for shard in manifest["shards"]:
        whole = (tmp_path / shard["file"]).read_bytes()
        assert (shard["bytes"], shard["sha256"]) == (len(whole), hashlib.sha256(whole).hexdigest())


def test_parallel_equals_serial_byte_for_byte(tmp_path: Path) -> None:
    write(tmp_path / "serial")
    write(tmp_path / "parallel", processes=2)
    assert content(tmp_path / "parallel") == content(tmp_path / "serial")


def test_values_are_mapped_not_copied(tmp_path: Path) -> None:
    values = write(tmp_path).pieces(0).values
    assert values.dtype == np.int32
    assert not values.flags.owndata
    assert not values.flags.writeable


def test_shards_end_where_their_text_is_long(tmp_path: Path) -> None:
    texts = ["a", "b" * 100, "c", "d", "e"]
    store = write_store(tmp_path, ENCODER, [texts], shard_documents=2, workers=1, shard_characters=50)
    assert store.shard_lengths == (2, 2, 1)
    long = write_store(tmp_path / "long", ENCODER, [texts], shard_documents=9, workers=1, shard_characters=50)
    assert long.shard_lengths == (2, 3)


class Counted:
    """Chunks that know how far they were read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[list[str]]:
        for text in TEXTS:
            self.read += 1
            yield [text]


def test_text_is_read_only_a_few_shards_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, most = Counted(), [0]

    def watched(indexer: Indexer, place: Place, job: ShardJob) -> Shard:
        written = len(list(tmp_path.glob("shard-*.arrow")))
        most[0] = max(most[0], chunks.read - 4 * written)
        return worker.write_shard(indexer, place, job)

    monkeypatch.setattr(workers, "write_shard", watched)
    write_store(tmp_path, ENCODER, chunks, shard_documents=4, workers=1)
    assert most[0] <= 2 * 4


def test_a_finished_store_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path)
    chunks = Counted()
    store = write_store(tmp_path, ENCODER, chunks, shard_documents=8, workers=1)
    assert (chunks.read, len(store)) == (0, 50)


def test_a_store_of_other_vocabularies_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path)
    other = learn(["something else"])
    with pytest.raises(RunError, match="holds a store that was encoded with other vocabularies; r"):
        write_store(tmp_path, other, [TEXTS], shard_documents=8, workers=1)


def test_complete_shards_are_kept_and_the_others_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    expected = content(tmp_path)
    for name in ("store.json", "shard-00002.arrow"):
        (tmp_path / name).unlink()
    (tmp_path / ".shard-00002.arrow.1.tmp").write_bytes(b"half")
    (tmp_path / "shard-00007.arrow").write_bytes(b"of a longer stream")
    damaged = tmp_path / "shard-00004.arrow"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    written = []

    def watched(indexer: Indexer, place: Place, job: ShardJob) -> Shard:
        written.append(job.file)
        return worker.write_shard(indexer, place, job)

    monkeypatch.setattr(workers, "write_shard", watched)
    write(tmp_path)
    assert written == ["shard-00002.arrow", "shard-00004.arrow"]
    assert content(tmp_path) == expected


def test_shards_of_other_vocabularies_texts_or_sizes_are_not_kept(tmp_path: Path) -> None:
    for texts, size in ((["x"] * 50, 8), (TEXTS, 7)):
        write(tmp_path, texts, size)
        (tmp_path / "store.json").unlink()
    learned = learn(["other words", *TEXTS])
    write_store(tmp_path, learned, [TEXTS], shard_documents=8, workers=1)
    (tmp_path / "store.json").unlink()
    assert read(write(tmp_path)) == ENCODER.encode(TEXTS)


def test_a_shard_of_other_texts_of_the_same_size_is_not_kept(tmp_path: Path) -> None:
    write(tmp_path, TEXTS[::-1])
    (tmp_path / "store.json").unlink()
    turned = [text[::-1] for text in TEXTS[::-1]]
    assert read(write(tmp_path, turned)) == ENCODER.encode(turned)


KILLED = """
import sys, time
from pathlib import Path
from tests.store.test_store import ENCODER, TEXTS
from mein.store.writing import write_store

def chunks():
    for text in TEXTS:
        time.sleep(0.01)
        print(flush=True)
        yield [text]

if __name__ == "__main__":
    write_store(Path(sys.argv[1]), ENCODER, chunks(), shard_documents=4, workers=int(sys.argv[2]))
"""


def start_writer(path: Path, processes: int) -> "subprocess.Popen[bytes]":
    script = path.with_name("killed.py")
    script.write_text(KILLED, encoding="utf-8")
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, str(script), str(path), str(processes)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def read_lines(process: "subprocess.Popen[bytes]", lines: int) -> None:
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline(), "the process has ended"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_write_resumes_to_identical_bytes(tmp_path: Path, processes: int) -> None:
    write(tmp_path / "whole", size=4)
    path = tmp_path / "killed"
    for lines in (5, 30):
        process = start_writer(path, processes)
        read_lines(process, lines)
        process.kill()
        process.communicate(timeout=60)
        assert not (path / "store.json").exists()
    write(path, size=4, processes=processes)
    assert content(path) == content(tmp_path / "whole")


def children_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8")
    return [int(child) for child in children.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_parent(tmp_path: Path, sign: signal.Signals) -> None:
    process = start_writer(tmp_path / "store", 2)
    while not list((tmp_path / "store").glob("shard-*.arrow")):
        read_lines(process, 1)
    children = children_of(process.pid)
    assert len(children) == 2
    if sign == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, sign)  # as a terminal does it
    _, errors = process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert errors.count(b"Traceback") == (sign == signal.SIGINT), errors.decode()


def kill_itself(folder: str, place: str) -> "subprocess.Popen[bytes]":
    code = "import os, sys; sys.stdin.buffer.read(1); os.kill(os.getpid(), 9)"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize("length", [1, 3_000_000])  # the pipe holds less than the second
def test_a_worker_that_dies_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(workers, "_start", kill_itself)
    with pytest.raises(RunError, match=r"A process that encodes text died \(exit code -9\), possibly"):
        write(tmp_path, ["x" * length] * 6, size=1, processes=2)


def test_a_script_without_a_guard_may_encode_in_parallel(tmp_path: Path) -> None:
    script = KILLED.replace('if __name__ == "__main__":', "if True:")
    arguments = [sys.executable, "-", str(tmp_path / "store"), "2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(arguments, input=script.encode(), check=True, env=environment, capture_output=True)
    assert read(Store.open(tmp_path / "store")) == ENCODER.encode(TEXTS)


@given(st.lists(st.text(st.characters() | st.just("\ud800")), max_size=4))
def test_a_job_arrives_as_it_was_sent(texts: list[str]) -> None:
    job = ShardJob("a b.arrow", texts, "1")
    stream = io.BytesIO()
    worker.send(job, stream)
    worker.send(job, stream)
    stream.truncate(stream.tell() - 1)
    stream.seek(0)
    assert worker.receive(stream) == job
    assert worker.receive(stream) is None  # cut short
    assert worker.receive(stream) is None


def test_an_error_in_a_worker_reaches_the_caller(tmp_path: Path) -> None:
    tmp_path.joinpath("shard-00003.arrow").mkdir()  # in the way
    tmp_path.joinpath("shard-00003.arrow", "file").touch()
    with pytest.raises(RunError, match=r"Cannot write .*shard-00003\.arrow: Is a directory"):
        write(tmp_path, processes=2)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_is_reported_and_leaves_no_incomplete_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "whole")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"shard-00000\.arrow: the disk is full: free some sp"):
            write(tmp_path / "store")
    assert not (tmp_path / "store").exists()
    write(tmp_path / "store")
    assert content(tmp_path / "store") == content(tmp_path / "whole")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_write_that_the_disk_refuses_is_reported(tmp_path: Path) -> None:
    temporary = tmp_path / f".shard-00000.arrow.{os.getpid()}.tmp"
    temporary.symlink_to("/dev/full")
    with (
        pytest.raises(RunError, match=r"shard-00000\.arrow: the disk is full"),
        Folder(tmp_path).writing("shard-00000.arrow") as path,
    ):
        files.write_arrays(path, {"words": ragged([[1] * 100_000])}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match=r"Cannot write .*file/store: Not a directory: choose a fol"):
        write(tmp_path / "file" / "store")


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "shard-00001.arrow"
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RunError, match=r"shard-00001\.arrow is damaged; restore it from a co"):
            Store.open(tmp_path).words(1)
    path.unlink()
    with pytest.raises(RunError, match=r"shard-00001\.arrow is missing; restore it"):
        Store.open(tmp_path).pieces(1)


def test_a_changed_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    expected = read(write(tmp_path, size=50))
    path = tmp_path / "shard-00000.arrow"
    whole = path.read_bytes()
    draws, noticed = random.Random(0), 0
    for _ in range(2000):
        changed = bytearray(whole)
        changed[draws.randrange(len(whole))] ^= 1 << draws.randrange(8)
        path.write_bytes(changed)
        try:
            assert read(Store.open(tmp_path)) == expected  # padding, or a spare field
        except RunError:
            noticed += 1
    assert noticed > 1000


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, r"holds no finished store \(store\.json is missing\); encode the text again"),
        ("{", r"store\.json is damaged; restore it"),
        ("[]", r"store\.json is damaged; restore it"),
        ('{"version": 3}', r"store\.json has version 3, but this mein reads up to 2; update mein"),
        ('{"version": 1, "shards": [7]}', r"shard-00000\.arrow holds 8 documents where .* lists 7"),
    ],
)
def test_a_bad_manifest_is_named(tmp_path: Path, manifest: str | None, message: str) -> None:
    write(tmp_path)
    (tmp_path / "store.json").unlink()
    if manifest is not None:
        (tmp_path / "store.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(RunError, match=message):
        Store.open(tmp_path).words(0)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(8, dtype=np.int64),
        np.linspace(0, 1, 8, dtype=np.float32),
        np.arange(24, dtype=np.float32).reshape(8, 3),
        np.asfortranarray(np.arange(16, dtype=np.int64).reshape(8, 2)),
    ],
)
def test_columns_come_back_as_written(tmp_path: Path, array: np.ndarray) -> None:
    store = write(tmp_path, TEXTS[:16])
    assert not store.has_column("expert", 0)
    store.write_column("expert", 0, array[::-1])
    assert store.column("expert", 0).tolist() == array[::-1].tolist()
    store.write_column("expert", 0, array)
    found = store.column("expert", 0)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    assert store.has_column("expert", 0)
    assert not store.has_column("expert")
    store.write_column("expert", 1, array)
    assert Store.open(tmp_path).has_column("expert")
    assert read(store) == ENCODER.encode(TEXTS[:16])


def test_columns_of_another_encoding_do_not_survive(tmp_path: Path) -> None:
    write(tmp_path).write_column("expert", 0, np.zeros(8, np.int64))
    (tmp_path / "store.json").unlink()
    store = write_store(tmp_path, learn(["else"]), [TEXTS], shard_documents=8, workers=1)
    assert not store.has_column("expert", 0)


def test_a_damaged_or_missing_column_is_named(tmp_path: Path) -> None:
    store = write(tmp_path)
    with pytest.raises(RunError, match=r"shard-00000\.expert\.arrow is missing"):
        store.column("expert", 0)
    (tmp_path / "shard-00000.expert.arrow").write_bytes(b"ARROW1")
    with pytest.raises(RunError, match=r"shard-00000\.expert\.arrow is damaged"):
        store.column("expert", 0)


def test_lists_beyond_32_bits_are_large_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LIST_LIMIT", 3)
    store = write(tmp_path)
    assert "large_list" in str(files.read_batch(tmp_path / "shard-00000.arrow").schema)
    assert read(store) == ENCODER.encode(TEXTS)


def test_a_huge_document_and_a_million_empty_ones(tmp_path: Path) -> None:
    huge = "battery died. " * 3_600_000  # 50 MB
    store = write(tmp_path / "huge", [huge])
    assert store.words(0).lengths.tolist() == [WordsConfig().max_length]  # its end
    assert store.pieces(0).lengths.tolist() == [LONGEST_PIECES]  # its beginning
    store = write(tmp_path / "empty", [""] * 1_000_000, size=500_000)
    assert (len(store), store.shard_count) == (1_000_000, 2)
    assert store.words(1).lengths.tolist() == [1] * 500_000
    assert store.pieces(1).lengths.sum() == 0
