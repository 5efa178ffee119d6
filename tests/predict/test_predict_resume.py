"""predict_file killed at any moment: with resume it ends with the same bytes and labels nothing twice."""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mein.data import tables
from mein.errors import InputError, RunError
from mein.model.loading import load_model
from mein.model.model import Model
from mein.predict.predict import Predictor, Wanted, predict_file
from mein.runtime.progress import Quiet
from mein.runtime.tensors import FORMAT_VERSION
from tests.support.reviews import LABELS, NEW, RAW, TEXTS, tiny

WANTED = Wanted(all_probabilities=True, fragments=2, abstain_below=0.6)
SIZES = {"mein.predict.predict.CHUNK_ROWS": 12, "mein.data.tables.CHUNK_ROWS": 5}
CHUNKS_OF_ALL = 3  # 40 documents in batches of 5, at least 12 in a chunk: 15, 15, 10
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


class Doomed:
    """A reporter and audit hook that counts what happens to a folder's files, and dies at a moment."""

    def __init__(self, folder: Path, at: int | None) -> None:
        self.folder, self.at, self.seen = str(folder), at, 0

    def moment(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and str(arguments[0]).startswith(self.folder):
            self.moment()

    def log(self, line: str) -> None:
        pass

    def advance(self, documents: int, note: str = "") -> None:
        self.moment()

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator["Doomed"]:
        yield self


def live(run: Path, folder: Path, ending: str, at: int | None) -> None:
    """Label until the end or death: what the child does."""
    torch.set_num_threads(1)
    tables.CHUNK_ROWS, sys.modules["mein.predict.predict"].CHUNK_ROWS = 5, 12  # type: ignore[attr-defined]
    model, doomed = load_model(run, "cpu"), Doomed(folder, at)
    sys.addaudithook(doomed)
    predict_file(model, str(folder / "in.csv"), folder / f"out{ending}", WANTED, doomed, resume=True)
    (folder.parent / "moments").write_text(str(doomed.seen), encoding="utf-8")


def live_apart(run: Path, folder: Path, ending: str, at: int | None) -> int:
    """The exit code of a child that lives."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=live, args=(run, folder, ending, at))
    child.start()
    child.join(timeout=60)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


@pytest.fixture(scope="module")
def model() -> Model:
    fitted: Model = tiny().fit(TEXTS, LABELS, unlabeled=RAW).model_
    return fitted


@pytest.fixture(scope="module")
def run(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "run"
    model.save(path)
    return path


@pytest.fixture
def labeled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents each chunk had that was labeled in this process, in small chunks."""
    for name, size in SIZES.items():
        monkeypatch.setattr(name, size)
    found: list[int] = []
    ask = Predictor.__call__

    def count(self: Predictor, texts: list[str]) -> Any:
        found.append(len(texts))
        return ask(self, texts)

    monkeypatch.setattr(Predictor, "__call__", count)
    return found


def write_source(folder: Path, texts: list[str] = NEW) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "in.csv"
    lines = [f"{number},{text}" for number, text in enumerate(texts)]
    path.write_text("\n".join(["id,text", *lines]) + "\n", encoding="utf-8")
    return path


def stop_after(parts: int, model: Model, source: Path, target: Path, wanted: Wanted = WANTED) -> None:
    """Leave what a kill leaves after so many parts."""

    class Stop(Doomed):
        def moment(self) -> None:
            self.seen += 1
            if self.seen == parts:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_file(model, str(source), target, wanted, Stop(Path("/nowhere"), None))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl.gz"])
def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    run: Path, ending: str, tmp_path: Path, labeled: list[int]
) -> None:
    write_source(tmp_path / "whole")
    assert live_apart(run, tmp_path / "whole", ending, None) == 0
    expected = (tmp_path / "whole" / f"out{ending}").read_bytes()
    moments = int((tmp_path / "moments").read_text(encoding="utf-8"))
    assert moments > 3 * CHUNKS_OF_ALL
    model = load_model(run, "cpu")
    for at in range(1, moments + 1, 1 if ending == ".csv" else 7):
        folder = tmp_path / f"killed-{at}"
        source, out = write_source(folder), folder / f"out{ending}"
        assert live_apart(run, folder, ending, at) == -signal.SIGKILL
        kept = len(list(folder.glob("*.parts/*.arrow")))
        is_over = out.exists() and out.read_bytes() == expected
        labeled.clear()
        assert predict_file(model, str(source), out, WANTED, resume=True) == len(NEW)
        assert out.read_bytes() == expected
        assert len(labeled) == CHUNKS_OF_ALL - kept or is_over
        assert sorted(path.name for path in folder.iterdir()) == ["in.csv", out.name]


def test_killed_again_and_again_it_comes_to_its_end(run: Path, tmp_path: Path) -> None:
    """Each life gets as far as its first part and a little further."""
    folder = tmp_path / "often"
    write_source(folder)
    write_source(tmp_path / "once")
    assert live_apart(run, tmp_path / "once", ".csv", None) == 0
    lives = [live_apart(run, folder, ".csv", at) for at in (9, 12, 15, 18, None)]
    assert lives[-1] == 0
    assert -signal.SIGKILL in lives
    assert (folder / "out.csv").read_bytes() == (tmp_path / "once" / "out.csv").read_bytes()


def test_what_may_differ_when_resuming(model: Model, tmp_path: Path, labeled: list[int]) -> None:
    """Abstaining and columns of classes are no matter of labeling."""
    source, out = write_source(tmp_path), tmp_path / "out.csv"
    stop_after(2, model, source, out)
    labeled.clear()
    predict_file(model, str(source), out, Wanted(fragments=2), resume=True)
    assert labeled == [10]
    assert out.read_text(encoding="utf-8").startswith('"id","text","label","probability","fragments"\n')


@pytest.mark.parametrize("changed", ["source", "model", "imitators_only", "fragments", "text_column"])
def test_parts_of_another_labeling_are_refused(
    model: Model, changed: str, tmp_path: Path, labeled: list[int]
) -> None:
    source, out, wanted = write_source(tmp_path), tmp_path / "out.csv", WANTED
    stop_after(1, model, source, out)
    if changed == "source":
        write_source(tmp_path, [*NEW[:-1], "lovely"])
    elif changed == "model":
        model = replace(model, gates=model.gates + 1e-9)
    else:
        values: dict[str, Any] = {"imitators_only": True, "fragments": 1, "text_column": "text"}
        wanted = replace(wanted, **{changed: values[changed]})
    with pytest.raises(
        RunError, match=rf"out.csv.parts belongs to another prediction \({changed} differs\): repeat"
    ):
        predict_file(model, str(source), out, wanted, resume=True)
    labeled.clear()
    predict_file(model, str(source), out, wanted)  # anew
    assert sum(labeled) == len(NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def flip_a_bit(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 4
    part.write_bytes(content)


def take_the_next(part: Path) -> None:
    part.write_bytes(part.with_name("000001.arrow").read_bytes())


def swap_with_the_next(part: Path) -> None:
    other = part.with_name("000001.arrow")
    first, second = part.read_bytes(), other.read_bytes()
    part.write_bytes(second)
    other.write_bytes(first)


def take_from(output: str) -> Callable[[Path], object]:
    return lambda part: part.write_bytes((part.parents[1] / f"{output}.parts" / part.name).read_bytes())


HARMS: dict[str, Callable[[Path], object]] = {
    "bit": flip_a_bit,
    "zeroed": lambda part: part.write_bytes(bytes(part.stat().st_size)),
    "truncated": lambda part: part.write_bytes(part.read_bytes()[:-100]),
    "emptied": lambda part: part.write_bytes(b""),
    "appended": lambda part: part.write_bytes(part.read_bytes() + b"0123456789"),
    "another place": take_the_next,
    "another model": take_from("other.csv"),
    "another source": take_from("foreign.csv"),
    "swapped": swap_with_the_next,
}


@pytest.mark.parametrize("harm", list(HARMS))
def test_a_part_that_is_not_what_was_written_is_labeled_again(
    model: Model, harm: str, tmp_path: Path, labeled: list[int]
) -> None:
    texts = [NEW[n % len(NEW)] for n in range(45)]  # in threes of 15, so that parts fit in each other's place
    source, out = write_source(tmp_path, texts), tmp_path / "out.csv"
    predict_file(model, str(source), tmp_path / "expected.csv", WANTED)
    stop_after(2, model, source, out)
    stop_after(2, replace(model, gates=model.gates + 2.0), source, tmp_path / "other.csv")
    stop_after(2, model, write_source(tmp_path / "foreign", texts[::-1]), tmp_path / "foreign.csv")
    HARMS[harm](tmp_path / "out.csv.parts" / "000000.arrow")
    labeled.clear()
    lines = Lines()
    assert predict_file(model, str(source), out, WANTED, lines, resume=True) == 45
    assert out.read_bytes() == (tmp_path / "expected.csv").read_bytes()
    harmed = [0, 1] if harm == "swapped" else [0]
    assert labeled == [15] * (len(harmed) + 1)  # the harmed ones and the one that was still to come
    assert lines.logged == [
        f"{tmp_path}/out.csv.parts/{number:06}.arrow is damaged or belongs elsewhere: "
        "predicting its documents again"
        for number in harmed
    ]


def test_a_part_that_is_a_pipe_is_not_waited_for(model: Model, tmp_path: Path, labeled: list[int]) -> None:
    source, out = write_source(tmp_path), tmp_path / "out.csv"
    stop_after(2, model, source, out)
    part = tmp_path / "out.csv.parts/000000.arrow"
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(InputError, match=r"out\.csv\.parts/000000\.arrow is no regular file: choose"):
        predict_file(model, str(source), out, WANTED, resume=True)


class Lines(Quiet):
    """A reporter that keeps what is logged."""

    def __init__(self) -> None:
        self.logged: list[str] = []

    def log(self, line: str) -> None:
        self.logged.append(line)


def test_what_was_done_is_not_thrown_away_by_mistake(
    model: Model, tmp_path: Path, labeled: list[int]
) -> None:
    source, out = write_source(tmp_path), tmp_path / "out.csv"
    stop_after(2, model, source, out)
    with pytest.raises(
        RunError, match=r"out.csv.parts holds 2 parts of this prediction.*: add --resume to continue, or"
    ):
        predict_file(model, str(source), out, WANTED)
    assert len(list(tmp_path.glob("*.parts/*.arrow"))) == 2


def test_a_folder_of_somebody_else_is_left_alone(model: Model, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "thesis.txt").write_text("mine", encoding="utf-8")
    for resume in (False, True):
        with pytest.raises(
            RunError, match=r"out.csv.parts is not a folder of mein .*holds 'thesis.txt'\): choose"
        ):
            predict_file(model, str(source), tmp_path / "out.csv", resume=resume)
    assert (tmp_path / "out.csv.parts" / "thesis.txt").exists()


def test_what_somebody_put_beside_the_parts_is_left(model: Model, tmp_path: Path) -> None:
    """Also where parts are dropped because they belong to another prediction."""
    source, out = write_source(tmp_path), tmp_path / "out.csv"
    parts = tmp_path / "out.csv.parts"
    parts.mkdir()
    (parts / "manifest.json").write_text(
        f'{{"mein": {FORMAT_VERSION}, "model": "another"}}', encoding="utf-8"
    )
    for name in ("thesis.arrow", "thesis.txt", "000000.arrow"):
        (parts / name).write_text("mine", encoding="utf-8")
    assert predict_file(model, str(source), out) == len(NEW)
    assert sorted(path.name for path in parts.iterdir()) == ["thesis.arrow", "thesis.txt"]


def test_two_at_once_are_refused(model: Model, tmp_path: Path) -> None:
    source, out = write_source(tmp_path), tmp_path / "out.csv"

    class Second(Doomed):
        def moment(self) -> None:
            with pytest.raises(RunError, match=r"Another process is working in .*out.csv.parts"):
                predict_file(model, str(source), out, resume=True)

    assert predict_file(model, str(source), out, Wanted(), Second(Path("/nowhere"), None)) == len(NEW)


def test_resuming_nothing_is_starting(model: Model, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    assert predict_file(model, str(source), tmp_path / "out.csv", resume=True) == len(NEW)


def test_a_mistake_in_the_source_leaves_no_parts(model: Model, tmp_path: Path, labeled: list[int]) -> None:
    source = write_source(tmp_path, [*NEW, "too,many"])
    with pytest.raises(InputError, match=r"in.csv is malformed in line 42"):
        predict_file(model, str(source), tmp_path / "out.csv")
    assert labeled != []
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_format_that_is_unfit_leaves_the_parts_for_another(
    model: Model, tmp_path: Path, labeled: list[int]
) -> None:
    rows = [{"text": text, "zip": 10001 + number} for number, text in enumerate(NEW)]
    rows[-1]["zip"] = "00501"
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"cannot take string values in the column 'zip', which began as int64; write to .jsonl, "
        r"whose rows may differ \(finished parts are kept: rename \S+/out.parquet.parts to NEW.parts, after",
    ):
        predict_file(model, str(source), tmp_path / "out.parquet")
    assert len(labeled) == CHUNKS_OF_ALL
    (tmp_path / "out.parquet.parts").rename(tmp_path / "out.csv.parts")
    labeled.clear()
    assert predict_file(model, str(source), tmp_path / "out.csv", resume=True) == len(NEW)
    assert labeled == []
    lines = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert [lines[1].split(",")[1], lines[-1].split(",")[1]] == ["10001", '"00501"']
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.csv"]


def test_models_that_differ_have_other_fingerprints(model: Model) -> None:
    twin = replace(model)
    assert twin.fingerprint == model.fingerprint
    others = [
        replace(model, temperature=model.temperature * 1.001),
        replace(model, imitator_temperature=7.0),
        replace(model, gates=model.gates * 2),
        replace(model, prior=model.prior[::-1].copy()),
        tiny(random_state=3).fit(TEXTS, LABELS, unlabeled=RAW).model_,
    ]
    assert len({one.fingerprint for one in [model, *others]}) == 1 + len(others)


def test_the_manifest_is_for_people_too(model: Model, tmp_path: Path, labeled: list[int]) -> None:
    source, out = write_source(tmp_path), tmp_path / "out.csv"
    stop_after(1, model, source, out)
    manifest = json.loads((tmp_path / "out.csv.parts" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["source"]["name"] == str(source)
    assert manifest["source"]["bytes"] == source.stat().st_size
    assert manifest["fragments"] == 2
