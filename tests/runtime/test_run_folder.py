"""A run folder belongs to one run: claimed, held, and never mixed with anything else."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mein.errors import RunError
from mein.model.loading import load_model
from mein.report.record import read_finished
from mein.runtime.files import atomic_path, is_temporary
from mein.runtime.run_folder import RunFolder

IDENTITY: dict[str, Any] = {"config": {"seed": 1, "windows": (1, 2)}, "data": {"labeled": "a.csv"}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    with found.held():
        return found


def test_a_new_folder_is_claimed_and_claimed_again_by_the_same_run_only(folder: RunFolder) -> None:
    folder.claim(IDENTITY, resume=False)
    folder.claim(IDENTITY, resume=True)
    with pytest.raises(RunError, match=r"already holds a run: choose another --out, or continue it"):
        folder.claim(IDENTITY, resume=False)
    other = IDENTITY | {"data": {"labeled": "b.csv"}}
    with pytest.raises(RunError, match=r"its data\.labeled is 'a\.csv', not 'b\.csv'"):
        folder.claim(other, resume=True)
    more = IDENTITY | {"data": {"labeled": "a.csv", "test": "t.csv"}}
    with pytest.raises(RunError, match=r"its data\.test is None, not 't\.csv'"):
        folder.claim(more, resume=True)


def test_a_folder_of_something_else_is_refused_and_left_alone(folder: RunFolder) -> None:
    for name in ("thesis.tex", ".notes.tmp", ".expert.safetensors.12.tmp"):
        unknown = folder / name
        unknown.write_text("mine", encoding="utf-8")
        for resume in (False, True):
            with pytest.raises(RunError, match=r"is not a run of mein \(it holds '.*'\): choose an empty"):
                folder.claim(IDENTITY, resume)
        assert unknown.read_text(encoding="utf-8") == "mine"
        unknown.unlink()


def test_what_a_kill_left_is_cleared_and_nothing_else(folder: RunFolder) -> None:
    (folder / ".config.json.77.tmp").write_bytes(b"{")
    folder.claim(IDENTITY, resume=True)
    halves = [
        ".expert.checkpoint.safetensors.12.tmp",
        ".tmpbTItUh",
        "encoded/unlabeled/.shard-00000.expert.arrow.9.tmp",
    ]
    kept = ["notes.tmp", ".notes.tmp", "encoded/store.json", ".x.12a.tmp"]
    for name in (*halves, *kept):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"half")
    folder.claim(IDENTITY, resume=True)
    assert [name for name in (*halves, *kept) if (folder / name).exists()] == kept
    assert not (folder / ".config.json.77.tmp").exists()


def test_a_temporary_name_is_recognized(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "config.json") as temporary:
        temporary.write_bytes(b"{}")
        assert is_temporary(temporary.name)
        assert is_temporary(temporary.name, "config.json")
        assert not is_temporary(temporary.name, "labels.json")
    assert not is_temporary("config.json")
    assert is_temporary(".tmpbTItUh")  # what a kill leaves of a file that safetensors was writing
    assert not is_temporary(".tmpbTItUh", "config.json")
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with suppress(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_bytes(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(RunError, match=r"Cannot write .*run: Not a directory: choose a folder that can be"),
        RunFolder(tmp_path / "file" / "run").held(),
    ):
        pass


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from mein.runtime.run_folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).held():\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(
                RunError, match=r"Another process is working in .*: wait for it, or choose another"
            ),
            RunFolder(tmp_path).held(),
        ):
            pass
        other.kill()  # the system gives the lock of a dead process back
    with RunFolder(tmp_path).held():
        pass


def test_json_files_come_back_and_damage_is_reported(folder: RunFolder) -> None:
    folder.write_json("x.json", {"ä": [1, None]})
    assert folder.read_json("x.json") == {"ä": [1, None]}
    for content in ("{", "[]", "3", "", "[" * 100_000):
        (folder / "x.json").write_text(content, encoding="utf-8")
        with pytest.raises(RunError, match=r"x\.json is damaged: restore it from a copy\."):
            folder.read_json("x.json")
    (folder / "x.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(
        RunError, match=r"x\.json was written by another program, or is damaged: give the folder"
    ):
        folder.read_json("x.json")
    (folder / "x.json").write_text('{"mein": 4}', encoding="utf-8")
    with pytest.raises(RunError, match=r"x\.json has format 4, this mein reads 3: upgrade"):
        folder.read_json("x.json")
    with pytest.raises(RunError, match=r"is not a run of mein: y\.json is missing; give the folder that"):
        folder.read_json("y.json")


def test_json_that_is_a_pipe_is_not_waited_for(folder: RunFolder) -> None:
    os.mkfifo(folder / "x.json")
    with pytest.raises(RunError, match=r"x\.json is damaged: restore it from a copy\."):
        folder.read_json("x.json")


def test_a_folder_of_several_seeds_names_one_of_them(tmp_path: Path) -> None:
    for seed in (10, 9):
        (tmp_path / f"five/seed-{seed}").mkdir(parents=True)
        RunFolder(tmp_path / f"five/seed-{seed}").write_json("config.json", {})
    sentence = r"five holds the runs of several seeds: give one of them, such as .*five/seed-9\.$"
    for load in (load_model, read_finished):
        with pytest.raises(RunError, match=sentence):
            load(tmp_path / "five")


@pytest.mark.parametrize("line", ['{"stage": "a"', "[]", '{"stbge": "a"}'])
def test_damaged_metrics_are_reported(folder: RunFolder, line: str) -> None:
    folder.record("a", epoch=0)
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    for read in (folder.metrics, lambda: folder.metrics("a"), lambda: folder.rewind("a", 0)):
        with pytest.raises(RunError, match=r"metrics\.jsonl is damaged \(.*\): restore it from a copy\.$"):
            read()


def test_metrics_are_lines_of_json_in_order(folder: RunFolder) -> None:
    assert folder.metrics() == []
    folder.record("expert", epoch=0, error=1 / 3, note="größer")
    folder.record("steps", step="expert")
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == folder.metrics()
    assert folder.metrics("expert") == [{"stage": "expert", "epoch": 0, "error": 1 / 3, "note": "größer"}]


def test_rewinding_forgets_the_later_lines_of_one_stage_only(folder: RunFolder) -> None:
    for stage, epoch in (("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)):
        folder.record(stage, epoch=epoch)
    folder.rewind("a", 1)
    found = [(line["stage"], line["epoch"]) for line in folder.metrics()]
    assert found == [("a", 0), ("b", 0), ("b", 1)]
    folder.rewind("b", 9)
    assert len(folder.metrics()) == 3


@pytest.mark.parametrize("cut", [b'{"stage": "b", "x": "\xc3', b"{", b'{"stage": "b"}'])
def test_a_line_that_a_kill_cut_is_left_out_and_then_removed(folder: RunFolder, cut: bytes) -> None:
    folder.claim(IDENTITY, resume=False)
    folder.record("a", epoch=0)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(cut)
    assert folder.metrics() == [{"stage": "a", "epoch": 0}]
    folder.claim(IDENTITY, resume=True)
    folder.record("a", epoch=1)
    assert folder.metrics() == [{"stage": "a", "epoch": 0}, {"stage": "a", "epoch": 1}]
