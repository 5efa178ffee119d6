"""Steps that are killed, stopped, started twice, or given damaged shards and full disks."""

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.run import steps
from mein.store.place import place_of
from mein.store.store import Store
from tests.store.test_store import children_of
from tests.support.shell import ROOT, mein, refuses
from tests.support.stepping import SHARD, content, live, make_run, until_done

STEPS = ("encode", "label", "imitate")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "SHARD_DOCUMENTS", SHARD)


def words_of(step: str, home: Path, folder: Path) -> tuple[object, ...]:
    """The command of a step whose store is folder/store and whose run, for imitate, folder/large."""
    store, run = folder / "store", home / "run"
    return {
        "encode": (
            "store",
            "encode",
            "--like",
            run,
            "--text",
            home / "raw.csv",
            "--out",
            store,
            "--workers",
            1,
        ),
        "label": ("store", "label", store, "--by", run, "--workers", 1),
        "imitate": (
            *("store", "train", store, "--like", run, "--out", folder / "large"),
            *("--set", "runtime.checkpoint_seconds=0"),
        ),
    }[step]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its documents, and what undisturbed steps leave in home/steps."""
    folder = tmp_path_factory.mktemp("home")
    make_run(folder)
    for step in STEPS:
        assert live(folder, 0, False, *words_of(step, folder, folder / "steps")) == 0
        shutil.copytree(folder / "steps", folder / f"after-{step}")
    return folder


def start_of(step: str, home: Path, folder: Path) -> None:
    """What a step finds."""
    if step != "encode":
        before = STEPS[STEPS.index(step) - 1]
        shutil.copytree(home / f"after-{before}", folder, dirs_exist_ok=True)


def assert_undisturbed(step: str, home: Path, folder: Path) -> None:
    wanted, found = content(home / f"after-{step}"), content(folder)
    link = "large/encoded/unlabeled/store.json"  # names its store
    config = ("large/config.json", "large/done")  # so does the first, and the second holds its checksum
    for name in (link, *config):
        assert (name in found) == (name in wanted)
        found.pop(name, None), wanted.pop(name, None)
    assert sorted(found) == sorted(wanted)  # nothing missing, nothing half-written left
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.mark.parametrize("step", STEPS)
def test_a_step_killed_over_and_over_ends_like_one_that_was_not(
    step: str, home: Path, tmp_path: Path
) -> None:
    """Its next death is always a few changes of files further on, so that it must make progress."""
    draws = random.Random(step)
    start_of(step, home, tmp_path / "steps")
    furthest = count(4, 12 if step == "imitate" else 4)
    deaths = until_done(
        tmp_path / "steps",
        lambda: max(1, next(furthest) - draws.randrange(3)),
        *words_of(step, home, tmp_path / "steps"),
    )
    assert deaths >= 3
    assert_undisturbed(step, home, tmp_path / "steps")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_killed_at_many_changes_of_files(step: str, home: Path, tmp_path: Path) -> None:
    for at in count(1, 13 if step == "imitate" else 1):  # which has hundreds
        folder = tmp_path / str(at)
        start_of(step, home, folder)
        if live(folder, at, at % 2 == 0, *words_of(step, home, folder)) == 0:
            assert at > 10
            return
        assert live(folder, 0, False, *words_of(step, home, folder)) == 0
        assert_undisturbed(step, home, folder)
        shutil.rmtree(folder)


def process(*words: object, limit: int | None = None) -> "subprocess.Popen[str]":
    """The command line as a process group of its own, with small shards, and no file over a limit."""
    code = f"""
import resource, sys
from mein.run import steps
limit = {limit}
if limit is not None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
steps.SHARD_DOCUMENTS = {SHARD}
from mein.cli.main import main
main()
"""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )


def wait_for(happened: Callable[[], bool], child: "subprocess.Popen[str]") -> None:
    while child.poll() is None and not happened():
        time.sleep(0.002)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_stops_a_step_and_shows_how_to_continue(home: Path, tmp_path: Path) -> None:
    """With two processes that label; the same command then ends as if nothing had happened."""
    start_of("label", home, tmp_path)
    words = ("store", "label", tmp_path / "store", "--by", home / "run", "--workers", 2)
    child = process(*words)
    wait_for(lambda: len(children_of(child.pid)) == 2, child)
    time.sleep(0.5)  # they are loading the expert
    started = time.monotonic()
    os.killpg(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert time.monotonic() - started < 10
    assert child.returncode == 130, errors
    assert errors.strip().startswith("Stopped. Run the same command again to continue;")
    assert "Traceback" not in errors
    assert mein(*words).code == 0
    assert_undisturbed("label", home, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", STEPS)
def test_processes_killed_from_outside_at_any_time(step: str, home: Path, tmp_path: Path) -> None:
    """The driver alone dies; its workers, who notice, may be in the middle of a shard."""
    draws = random.Random(step)
    start_of(step, home, tmp_path)
    words = [2 if word == 1 else word for word in words_of(step, home, tmp_path)]
    for _ in range(5):
        child = process(*words)
        time.sleep(draws.uniform(2.0, 9.0))
        child.kill()
        child.communicate(timeout=60)
    time.sleep(2)  # the workers see that they are alone
    child = process(*words)
    _, errors = child.communicate(timeout=300)
    assert child.returncode == 0, errors
    assert_undisturbed(step, home, tmp_path)


@pytest.mark.parametrize("step", STEPS)
def test_a_second_step_on_the_same_folder_refuses(step: str, home: Path, tmp_path: Path) -> None:
    start_of(step, home, tmp_path)
    held = tmp_path / ("large" if step == "imitate" else "store")
    with place_of(held).held():
        refuses(rf"Another process is working in {held}: wait.*", *words_of(step, home, tmp_path))
    assert mein(*words_of(step, home, tmp_path)).code == 0


def test_a_full_disk_is_reported_and_leaves_no_incomplete_file(home: Path, tmp_path: Path) -> None:
    child = process(*words_of("encode", home, tmp_path), limit=8_000)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 2, errors
    assert "shard-00000.arrow: it is larger than the system allows: raise the limit (ulimit -f)" in errors
    assert errors.count("\n") == 1
    assert content(tmp_path / "store") == {}
    assert mein(*words_of("encode", home, tmp_path)).code == 0
    assert_undisturbed("encode", home, tmp_path)


def confined(
    folder: Path, size: int, is_read_only: bool, *words: object
) -> "subprocess.CompletedProcess[str]":
    """A command whose folder is a disk of so many bytes, with what is in it now and then what was left."""
    there, back = (shlex.quote(str(path)) for path in (folder, folder.parent / "back"))
    code = (
        f"from mein.run import steps; steps.SHARD_DOCUMENTS = {SHARD}; from mein.cli.main import main; main()"
    )
    command = shlex.join([sys.executable, "-c", code, *map(str, words)])
    script = f"""
        cp -r {there} {back} && mount -t tmpfs -o size={size} tmpfs {there} || exit 99
        cp -r {back}/. {there}
        {f"mount -o remount,ro {there}" if is_read_only else ""}
        {command}
        code=$?
        rm -r {back} && cp -r {there} {back}
        exit $code
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode in (1, 99):
        pytest.skip(f"this system mounts nothing: {done.stderr}")
    shutil.rmtree(folder)
    (folder.parent / "back").rename(folder)
    return done


def on_disk(folder: Path) -> int:
    """Bytes of the pages that the files of a folder fill."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return sum(-(-size // 4096) * 4096 for size in sizes)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="mounts disks of its own")
@pytest.mark.parametrize("is_read_only", [False, True], ids=["full", "read-only"])
@pytest.mark.parametrize("step", STEPS)
def test_a_disk_that_is_full_or_read_only_is_reported_and_unchanged(
    step: str, is_read_only: bool, home: Path, tmp_path: Path
) -> None:
    """At half of what the step writes; the same command on a better disk ends as if nothing had happened."""
    folder = tmp_path / "disk"
    folder.mkdir()
    start_of(step, home, folder)
    before = content(folder)
    first, last = on_disk(folder), on_disk(home / f"after-{step}")
    size = last * 2 if is_read_only else (first + last) // 2
    done = confined(folder, size, is_read_only, *words_of(step, home, folder))
    assert done.returncode == 2, done
    sentence = (
        "the disk is read-only: choose a folder" if is_read_only else "the disk is full: free some space"
    )
    assert re.fullmatch(rf"Error: Cannot write {folder}.*: {sentence}.*\n", done.stderr), done.stderr
    if is_read_only:
        assert content(folder) == before
    if step != "imitate":  # whose checkpoints come and go
        assert content(folder).items() <= content(home / f"after-{step}").items()
        assert is_read_only or content(folder) != before
    assert [file.name for file in folder.rglob("*.tmp")] == []
    assert mein(*words_of(step, home, folder)).code == 0
    assert_undisturbed(step, home, folder)


def test_a_folder_that_cannot_be_written_is_named(home: Path, tmp_path: Path) -> None:
    words = ("store", "encode", "--like", home / "run", "--text", home / "raw.csv")
    refuses(
        r"Cannot write /proc/store: .*: choose a folder that can be written to\.",
        *words,
        "--out",
        "/proc/store",
    )


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_a_damaged_shard_is_named_and_set_aside_on_request(
    home: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    start_of("imitate", home, tmp_path)
    store = tmp_path / "store"
    harm(store / "shard-00002.arrow")
    words = words_of("imitate", home, tmp_path)
    refuses(r".*shard-00002\.arrow is (damaged|missing); restore it from a copy or make it again; .*", *words)
    shutil.rmtree(tmp_path / "large", ignore_errors=True)
    answer = mein(*words, "--quarantine")
    assert answer.code == 0, answer
    assert f"shard-00002.arrow is damaged: set aside in {store}/quarantine." in answer.out
    assert "25 documents are lost to this store." in answer.out
    assert len(Store.open(store)) == 139 - 25
    aside = {file.name for file in (store / "quarantine").iterdir()}
    is_there = harm is not Path.unlink
    assert aside == {"shard-00002.expert.parquet", *(["shard-00002.arrow"] if is_there else [])}
    assert mein("store", "label", store, "--by", home / "run").code == 0  # and it is a whole store


@pytest.mark.parametrize("harm", [flip, cut])
def test_labeling_never_uses_a_damaged_shard(
    home: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    start_of("label", home, tmp_path)
    store = tmp_path / "store"
    harm(store / "shard-00004.arrow")
    words = words_of("label", home, tmp_path)
    refuses(r".*shard-00004\.arrow is damaged; restore it from a copy or make it again; .*", *words)
    assert not (store / "shard-00004.expert.parquet").exists()
    assert not (store / "labels.json").exists()
    answer = mein(*words, "--quarantine")
    assert answer.code == 0, answer
    assert len(Store.open(store)) == 139 - 25
    assert sum(1 for _ in store.glob("*.parquet")) == 5


def test_damaged_labels_are_named_and_made_again_on_request(home: Path, tmp_path: Path) -> None:
    start_of("imitate", home, tmp_path)
    flip(tmp_path / "store/shard-00001.expert.parquet")
    refuses(r".*shard-00001\.expert\.parquet is damaged.*", *words_of("imitate", home, tmp_path))
    words = words_of("label", home, tmp_path)
    answer = mein(*words, "--quarantine")
    assert "The labels of shard-00001.arrow are damaged: set aside, to be made again." in answer.out, answer
    shutil.rmtree(tmp_path / "store/quarantine")
    shutil.rmtree(tmp_path / "large", ignore_errors=True)
    assert_undisturbed("label", home, tmp_path)


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_labels_that_are_damaged_or_gone_are_made_again(
    home: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    start_of("imitate", home, tmp_path)
    store = tmp_path / "store"
    harm(store / "shard-00001.expert.parquet")
    remedy = rf"`mein store label {store} --by RUN` makes it again, or `mein train --resume` in a run\."
    words = words_of("imitate", home, tmp_path)
    refuses(rf".*shard-00001\.expert\.parquet is damaged or missing: {remedy}", *words)
    shutil.rmtree(tmp_path / "large", ignore_errors=True)
    answer = mein(*words_of("label", home, tmp_path))
    sentence = "The labels of shard-00001.arrow are damaged or missing: they are made again."
    assert sentence in answer.out.replace("\n", " "), answer
    assert_undisturbed("label", home, tmp_path)
    assert sentence not in mein(*words_of("label", home, tmp_path)).out


def test_a_run_that_learns_from_a_store_leaves_its_damaged_labels_alone(home: Path, tmp_path: Path) -> None:
    """They may be another's, and a run sees the store less the rows that it holds out."""
    start_of("imitate", home, tmp_path)
    words = words_of("imitate", home, tmp_path)
    assert mein(*words).code == 0
    whole = (tmp_path / "large/imitators.safetensors").read_bytes()
    for name in ("done", "imitators.safetensors", "mixture.safetensors"):
        (tmp_path / "large" / name).unlink()
    flip(tmp_path / "store/shard-00001.expert.parquet")
    before = content(tmp_path / "store")
    refuses(
        r".*shard-00001\.expert\.parquet is damaged or missing: `mein store label .* makes it again, .*",
        *words,
    )
    assert content(tmp_path / "store") == before
    assert mein(*words_of("label", home, tmp_path)).code == 0
    assert mein(*words).code == 0
    assert (tmp_path / "large/imitators.safetensors").read_bytes() == whole


def test_labels_that_are_gone_are_asked_for_again_on_request(home: Path, tmp_path: Path) -> None:
    start_of("imitate", home, tmp_path)
    (tmp_path / "store/shard-00001.expert.parquet").unlink()
    words = (*words_of("imitate", home, tmp_path), "--quarantine")
    refuses(r".*is not completely labeled: label it with `mein store label .*store --by .*run`\.", *words)
    assert mein(*words_of("label", home, tmp_path), "--quarantine").code == 0
    assert_undisturbed("label", home, tmp_path)


def test_another_s_labels_are_never_removed(home: Path, tmp_path: Path) -> None:
    start_of("imitate", home, tmp_path)
    store = tmp_path / "store"
    theirs, ours = (store / f"shard-0000{shard}.expert.parquet" for shard in (1, 2))
    pq.write_table(pa.table({"positive": [0.3] * 25, "negative": [0.7] * 25}), theirs)
    whole = theirs.read_bytes()
    cut(ours)
    answer = mein(*words_of("label", home, tmp_path))
    assert "1 shards were labeled by another teacher: kept unchanged." in answer.out, answer
    assert theirs.read_bytes() == whole
    assert ours.read_bytes() == (home / "after-label/store" / ours.name).read_bytes()
    cut(theirs)
    refuses(rf".*{theirs.name} is damaged or not a Parquet file .*", *words_of("label", home, tmp_path))
    assert theirs.read_bytes() == whole[:-100]


def test_damaged_labels_of_one_expert_are_not_made_by_another(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_of("imitate", home, tmp_path)
    (tmp_path / "store/shard-00001.expert.parquet").unlink()
    monkeypatch.setattr(steps, "author_of", lambda folder, config: "another")
    before = content(tmp_path / "store")
    sentence = r".*shard-00001.* is damaged or missing, .* the soft labels of another expert: .*"
    refuses(sentence, *words_of("label", home, tmp_path))
    assert content(tmp_path / "store") == before


def test_a_file_of_other_make_in_a_shard_s_place_is_not_used(home: Path, tmp_path: Path) -> None:
    start_of("imitate", home, tmp_path)
    shard = tmp_path / "store/shard-00003.arrow"
    shutil.copyfile(shard.with_suffix(".expert.parquet"), shard)
    refuses(r".*shard-00003\.arrow is damaged; .*", *words_of("imitate", home, tmp_path))


def test_raw_text_of_another_schema_is_named(home: Path, tmp_path: Path) -> None:
    labels = home / "after-label/store/shard-00000.expert.parquet"
    words = ("store", "encode", "--like", home / "run", "--text", labels, "--out", tmp_path / "store")
    answer = mein(*words)
    assert answer.code == 2
    assert "negative" in answer.err
    assert not (tmp_path / "store").exists()
