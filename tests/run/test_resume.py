"""A run that was killed, at any moment and however often, ends with the very files of one that was not."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from mein.config import as_toml
from mein.data.formats import open_writer
from mein.errors import RunError
from mein.runtime.tensors import load_tensors, save_tensors
from tests.support import killing, tiny
from tests.support.killing import STEPS, Death, live_and_die, step_of

ALWAYS, NEVER = 0, 1e9  # seconds between checkpoints: one at every step, or only where an epoch ends


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never killed; its diary beside it counts its moments."""
    path = tmp_path_factory.mktemp("unbroken") / "run"
    assert live_and_die(path, path.parent / "reference", None, runtime__checkpoint_seconds=ALWAYS) == 0
    return path


def assert_same_run(path: Path, unbroken: Path) -> None:
    found, wanted = tiny.artefacts(path), tiny.artefacts(unbroken)
    assert sorted(found) == sorted(wanted)  # nothing missing, no temporary file left over
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert tiny.timeless_metrics(path) == tiny.timeless_metrics(unbroken)


def deaths_of(step: str, moments: int, kills: int, draw: random.Random) -> list[Death]:
    """Deaths in one step: the first surely in it, the others wherever chance and the clock want them."""
    deaths = [Death(step, at=draw.randint(1, moments // 2), torn=draw.random() < 0.4)]
    for _ in range(kills - 1):
        is_outside, is_torn = draw.random() < 0.5, draw.random() < 0.4
        at, wait = draw.randint(1, moments), draw.uniform(0.0, 0.03)
        deaths.append(Death(step, at=at, torn=is_torn, outside=is_outside, wait=wait))
    return deaths


def kill_in_every_step(path: Path, unbroken: Path, seed: int, kills: int, every: float) -> None:
    """One run that dies `kills` times in each step, and is resumed each time."""
    print(f"the moments of death come from seed {seed}")  # shown by pytest where the test fails
    draw = random.Random(seed)
    moments = Counter(killing.moments(unbroken.parent / "reference"))
    diary, hit = path.parent / "diary", set()
    for step in STEPS:
        for death in deaths_of(step, moments[step], kills, draw):
            code = live_and_die(path, diary, death, runtime__checkpoint_seconds=every)
            print(death, "->", step_of(path))
            assert code == -signal.SIGKILL
            hit.add(step_of(path))
    assert hit >= set(STEPS)
    assert live_and_die(path, diary, None, runtime__checkpoint_seconds=every) == 0
    assert_same_run(path, unbroken)


def test_killed_twice_in_every_step_with_a_checkpoint_at_each_batch(tmp_path: Path, unbroken: Path) -> None:
    kill_in_every_step(tmp_path / "run", unbroken, seed=1, kills=2, every=ALWAYS)


def test_killed_in_every_step_with_checkpoints_between_epochs_only(tmp_path: Path, unbroken: Path) -> None:
    kill_in_every_step(tmp_path / "run", unbroken, seed=2, kills=1, every=NEVER)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 112))
def test_killed_over_and_over(tmp_path: Path, unbroken: Path, seed: int) -> None:
    every = (ALWAYS, 0.02, NEVER)[seed % 3]
    kill_in_every_step(tmp_path / "run", unbroken, seed, kills=5, every=every)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_single_moment(tmp_path: Path, unbroken: Path, step: str) -> None:
    """Each moment of a step that a file is touched at, whole and torn; the long way round."""
    for at in range(1, Counter(killing.moments(unbroken.parent / "reference"))[step] + 1):
        path, diary = tmp_path / f"run-{at}", tmp_path / "diary"
        death = Death(step, at, torn=at % 2 == 0)
        assert live_and_die(path, diary, death, runtime__checkpoint_seconds=ALWAYS) == -signal.SIGKILL
        assert live_and_die(path, diary, None, runtime__checkpoint_seconds=ALWAYS) == 0
        assert_same_run(path, unbroken)


WORST_MOMENTS = [
    (Death("preparing", what="open .config.json", at=2, torn=True), ".config.json.*.tmp"),
    (Death("preparing", what="os.rename .vocabularies.json"), "pieces.model"),
    (Death("preparing", what="os.rename .prepared.json"), "encoded/unlabeled/store.json"),
    (Death("expert", what="open .expert.checkpoint", at=6, torn=True), ".expert.checkpoint*.tmp"),
    (Death("labeling", what="os.remove expert.checkpoint"), "expert.checkpoint.safetensors"),
    (Death("labeling", what="open .expert-of-all.checkpoint", at=6), "expert-of-all.checkpoint.safetensors"),
    (Death("labeling", what="os.rename .expert-of-all.safetensors"), "expert-of-all.checkpoint.safetensors"),
    (Death("labeling", what="open .shard-00000.expert", torn=True), "encoded/*/.shard*.tmp"),
    (Death("imitators", what="open metrics.jsonl", torn=True), "metrics.jsonl"),
    (Death("imitators", what="os.rename .imitators.safetensors"), "imitators.checkpoint.safetensors"),
    (Death("closed", what="log", at=3), "closed.checkpoint.safetensors"),  # an epoch logged, not yet saved
    (Death("mixture", what="os.rename .mixture.safetensors"), "mixture-of-train.safetensors"),
    (Death("judging", what="os.remove mixture.checkpoint"), "mixture.checkpoint.safetensors"),
    (Death("judging", what="open metrics.jsonl", at=4, torn=True), "predictions.parquet"),
]
"""Each with what it must leave behind to be the moment that is meant."""


def test_killed_at_the_worst_moments(tmp_path: Path, unbroken: Path) -> None:
    path, diary = tmp_path / "run", tmp_path / "diary"
    for death, leaves in WORST_MOMENTS:
        print(death)
        assert live_and_die(path, diary, death, runtime__checkpoint_seconds=ALWAYS) == -signal.SIGKILL
        assert step_of(path) == death.step
        assert list(path.glob(leaves)) != []
        for whole in path.glob("*.safetensors"):
            load_tensors(whole)  # half a file can never be seen under a file's name
    assert live_and_die(path, diary, None, runtime__checkpoint_seconds=ALWAYS) == 0
    assert_same_run(path, unbroken)


def test_soft_labels_that_are_damaged_or_gone_are_computed_again(tmp_path: Path, unbroken: Path) -> None:
    """Killed when all is labeled and imitators learn; each part's labels then suffer another harm."""
    path, diary = tmp_path / "run", tmp_path / "diary"
    death = Death("imitators", what="open metrics.jsonl")
    assert live_and_die(path, diary, death, runtime__checkpoint_seconds=ALWAYS) == -signal.SIGKILL
    flipped, cut, lost = (
        path / f"encoded/{part}/shard-00000.expert.parquet" for part in ("unlabeled", "held_out", "train")
    )
    whole = flipped.read_bytes()
    flipped.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
    os.truncate(cut, 100)
    lost.unlink()
    assert live_and_die(path, diary, None, runtime__checkpoint_seconds=ALWAYS) == 0
    assert_same_run(path, unbroken)


def test_the_command_line_survives_a_kill(tmp_path: Path, unbroken: Path) -> None:
    """`mein train`, killed from outside in stage 2; the files are those of the run through Python."""
    path = tmp_path / "run"
    (tmp_path / "tiny.toml").write_text(as_toml(tiny.config()), encoding="utf-8")
    parts = {
        "labeled": (tiny.TEXTS.labeled_texts, tiny.TEXTS.labeled_labels),
        "unlabeled": ([*tiny.TEXTS.unlabeled_texts, *tiny.TEXTS.test_texts[:3]], None),
        "test": (tiny.TEXTS.test_texts, tiny.TEXTS.test_labels),
    }
    command = [sys.executable, "-c", "from mein.cli.main import main; main()", "train", "--out", str(path)]
    command += ["--config", str(tmp_path / "tiny.toml"), "--set", "runtime.checkpoint_seconds=0"]
    for part, (texts, labels) in parts.items():
        columns = {"text": texts} if labels is None else {"text": texts, "label": labels}
        with open_writer(tmp_path / f"{part}.csv") as writer:
            writer.write(pa.table(columns))
        command += [f"--{part}", str(tmp_path / f"{part}.csv")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None and step_of(path) != "imitators":
            time.sleep(0.001)
        time.sleep(random.Random(3).uniform(0, 0.05))
        child.kill()
    assert child.returncode == -signal.SIGKILL
    subprocess.run([*command, "--resume"], env=environment, stdout=subprocess.DEVNULL, check=True)
    found, wanted = tiny.artefacts(path), tiny.artefacts(unbroken)
    for name in ("config.json", "done"):  # one names the files, the other holds its checksum
        assert found.pop(name) != wanted.pop(name)
    assert found == wanted
    assert tiny.timeless_metrics(path) == tiny.timeless_metrics(unbroken)


@pytest.fixture
def finished(tmp_path: Path, unbroken: Path) -> Path:
    shutil.copytree(unbroken, tmp_path / "finished")
    return tmp_path / "finished"


def test_resuming_a_finished_run_changes_nothing(finished: Path, unbroken: Path) -> None:
    tiny.run(finished, resume=True)
    assert_same_run(finished, unbroken)
    assert (finished / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()


def test_a_folder_that_holds_a_run_is_not_trained_in_again(finished: Path) -> None:
    with pytest.raises(
        RunError, match=r"already holds a run: choose another --out, or continue it with --re"
    ):
        tiny.run(finished)


def test_other_settings_are_refused_and_another_machine_is_not(finished: Path) -> None:
    with pytest.raises(RunError, match=r"holds another run: its config\.seed is 0, not 5; choose another"):
        tiny.run(finished, resume=True, seed=5)
    with pytest.raises(RunError, match=r"its config\.imitators\.windows is \[1, 2\], not \[1, 3\]"):
        tiny.run(finished, resume=True, imitators__windows=[1, 3])
    tiny.run(finished, resume=True, runtime__checkpoint_seconds=7)


def test_other_labels_are_refused(finished: Path) -> None:
    labels = tiny.TEXTS.labeled_labels
    other = replace(tiny.TEXTS, labeled_labels=[*labels[1:], labels[0]])
    with pytest.raises(RunError, match=r"The labeled documents are not those that the run in .* began with"):
        tiny.run(finished, tiny.corpus(other), resume=True)


def test_other_test_documents_are_refused(finished: Path) -> None:
    """Else raw text that holds the new ones would stay in."""
    other = replace(tiny.TEXTS, test_texts=[*tiny.TEXTS.test_texts[:-1], "another text"])
    with pytest.raises(RunError, match=r"The test documents are not those that the run in .* began with: re"):
        tiny.run(finished, tiny.corpus(other), resume=True)


def test_a_checkpoint_of_another_shape_is_refused(finished: Path) -> None:
    """Also where copying alone would broadcast it."""
    tensors, _ = load_tensors(finished / "expert.safetensors")
    tensors = {f"now.expert.{name}": tensor for name, tensor in tensors.items()}
    tensors["now.expert.output.bias"] = tensors["now.expert.output.bias"][:1]
    save_tensors(finished / "closed.checkpoint.safetensors", tensors, {})
    for name in ("done", "closed.safetensors", "closed-of-train.safetensors"):
        (finished / name).unlink()
    with pytest.raises(RunError, match=r"closed\.checkpoint\.safetensors belongs to another network than"):
        tiny.run(finished, resume=True)
