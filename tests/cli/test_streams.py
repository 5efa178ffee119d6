"""What scripts need: stdin and stdout, JSON alone on stdout, a quiet command, and one that tells more."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mein.cli.train import default_out
from tests.support.shell import ROOT, TINY, mein, mein_process, refuses, write_corpus, write_csv
from tests.support.tiny import TEXTS

CODE = "from mein.cli.main import main; main()"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def run(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert mein("train", *files, "--out", path, *TINY, "-q").code == 0
    return path


def piped(stdin: bytes, *words: object) -> "subprocess.CompletedProcess[bytes]":
    """The command line as a process, between two pipes."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CODE, *map(str, words)]
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, check=False)


def labels(jsonl: bytes) -> list[str]:
    return [json.loads(line)["label"] for line in jsonl.decode("utf-8").splitlines()]


@pytest.fixture(scope="module")
def expected(run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The labels of the test texts, through files."""
    folder = tmp_path_factory.mktemp("expected")
    texts = write_csv(folder / "in.csv", TEXTS.test_texts)
    assert mein("predict", run, texts, "--out", folder / "out.jsonl").code == 0
    return labels((folder / "out.jsonl").read_bytes())


# Streams.


def test_predict_reads_stdin_and_writes_stdout(run: Path, expected: list[str]) -> None:
    lines = "".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(TEXTS.test_texts))
    done = piped(lines.encode("utf-8"), "predict", run, "-", "--out", "-")
    assert done.returncode == 0, done
    assert labels(done.stdout) == expected
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == list(range(40))
    assert done.stderr == b"Labeled 40 documents in standard output.\n"


def test_a_stream_has_the_format_that_is_named(run: Path, expected: list[str], tmp_path: Path) -> None:
    texts = "\n".join(" ".join(text.split()) for text in TEXTS.test_texts)
    done = piped(texts.encode("utf-8"), "predict", run, "-", "-o", "-", "--format", "txt", "-q")
    assert (labels(done.stdout), done.stderr) == (expected, b"")  # lines in, jsonl out
    table = write_csv(tmp_path / "in.csv", TEXTS.test_texts)
    done = piped(b"", "predict", run, table, "-o", "-", "--format", "csv")
    assert done.stdout.startswith(b'"text","label","probability"\n')
    zipped = piped(gzip.compress(table.read_bytes()), "predict", run, "-", "-o", "-", "--format", "csv.gz")
    assert gzip.decompress(zipped.stdout) == done.stdout
    done = piped(table.read_bytes(), "predict", run, "-", "-o", tmp_path / "out.jsonl", "--format", "csv")
    assert done.stdout == b"Labeled 40 documents in " + str(tmp_path).encode() + b"/out.jsonl.\n"
    assert labels((tmp_path / "out.jsonl").read_bytes()) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.jsonl"]


def test_a_damaged_stream_is_refused_in_one_sentence(run: Path) -> None:
    done = piped(b'{"text": "fine"}\n{"text": ', "predict", run, "-", "-o", "-")
    assert done.returncode == 2
    assert re.fullmatch(rb"Error: standard input .*line 2.*\n", done.stderr)
    done = piped(b"", "predict", run, "-", "-o", "-")
    assert done.stderr == b"Error: standard input is empty; give a source with documents.\n"


def test_a_broken_pipe_ends_quietly(run: Path, tmp_path: Path) -> None:
    texts = write_csv(tmp_path / "in.csv", TEXTS.test_texts * 500)
    command = f"{sys.executable} -c '{CODE}' predict {run} {texts} -o - -q | head -n 1"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, env=environment, check=False)
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "closed", "sentence"),
    [
        ("- -o b.csv", "<&-", "Standard input is closed: name a file, or pipe documents in."),
        ("a.csv -o -", ">&-", "Standard output is closed: name a file by --out."),
    ],
)
def test_a_closed_stream_is_refused(
    run: Path, tmp_path: Path, words: str, closed: str, sentence: str
) -> None:
    write_csv(tmp_path / "a.csv", TEXTS.test_texts)
    command = f"{sys.executable} -c '{CODE}' predict {run} {words} {closed}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, shell=True, capture_output=True, env=environment, cwd=tmp_path, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (2, f"Error: {sentence}\n")


STREAMS = {
    ". -o b.csv --format csv": r"--format 'csv' is for stdin and stdout: remove it\.",
    "- -o b.csv --format xml": r"--format 'xml' is unknown: choose csv, tsv, jsonl, parquet, or txt, .*\.",
    "- -o b.csv --format parquet": r"Standard input cannot be parquet: give the file by its path\.",
    "- -o b.csv --resume": r"--resume cannot continue a stream: remove it, or name FILE and --out\.",
    ". -o - --json": r"--json and --out - would both write to stdout: remove one of them\.",
}


@pytest.mark.parametrize("words", STREAMS)
def test_what_streams_cannot_do_is_refused(words: str, run: Path) -> None:
    refuses(STREAMS[words], "predict", run, *words.split())


# JSON.


def test_train_gives_json_alone_on_stdout(files: list[str], tmp_path: Path) -> None:
    answer = mein("train", *files, "-o", tmp_path / "run", *TINY, "--json")
    result = json.loads(answer.out)
    assert set(result) == {"run", "systems", "verdict"}
    assert result["run"] == str(tmp_path / "run")
    evaluated = json.loads(mein("evaluate", result["run"], files[5], "--json").out)
    assert result["systems"][1:] == evaluated["systems"]  # without the baseline, which a run does not keep
    effect = evaluated["verdict"].partition("% error. ")[2]
    assert effect
    assert result["verdict"].endswith(effect)
    assert "TF-IDF" in result["verdict"]
    assert "TF-IDF" not in evaluated["verdict"]
    assert "imitators" in result["verdict"]
    assert "Stage 1" in answer.err
    again = mein("train", *files, "-o", tmp_path / "run", *TINY, "--json", "--resume", "-q")
    assert (json.loads(again.out), again.err) == (result, "")


def test_train_gives_the_figures_of_seeds_as_json(files: list[str], tmp_path: Path) -> None:
    answer = mein("train", *files, "-o", tmp_path / "runs", *TINY, "--json", "--seeds", "2", "-q")
    result = json.loads(answer.out)
    assert result["seeds"] == json.loads((tmp_path / "runs/seeds.json").read_text(encoding="utf-8"))


def test_check_gives_json_with_problems_too(files: list[str], tmp_path: Path) -> None:
    answer = mein("check", *files, "--json")
    audit = json.loads(answer.out)
    assert (answer.code, answer.err) == (0, "No problems found.\n")
    assert set(audit) == {"parts", "overlaps", "notes", "problems", "uses", "takes", "would_help"}
    assert audit["parts"]["labeled"]["documents"] == 80
    assert audit["problems"] == []
    lonely = write_csv(tmp_path / "lonely.csv", ["a", "b", "c"], ["x", "x", "x"])
    answer = mein("check", "--labeled", lonely, "--json")
    assert answer.code == 2
    (problem,) = json.loads(answer.out)["problems"]
    assert answer.err == f"Error: {problem}\n"


def test_predict_gives_its_speed_as_json(run: Path, files: list[str], tmp_path: Path) -> None:
    result = json.loads(mein("predict", run, files[5], "-o", tmp_path / "out.csv", "--json").out)
    assert result["documents"] == 40
    assert result["documents_per_second"] == pytest.approx(40 / result["seconds"])


# More and less.


def test_quiet_prints_errors_only(run: Path, files: list[str], tmp_path: Path) -> None:
    for words in (
        ["train", *files, "-o", tmp_path / "run", *TINY],
        ["train", *files, "-o", tmp_path / "runs", *TINY, "--seeds", 2],
        ["check", *files],
        ["evaluate", run, files[5]],
        ["predict", run, files[5], "-o", tmp_path / "out.csv"],
    ):
        answer = mein(*words, "-q")
        assert (answer.code, answer.out, answer.err) == (0, "", ""), words
    refuses(r"nope\.csv does not exist; check the path\.", "check", "--labeled", "nope.csv", "-q")


def test_verbose_shows_device_and_times(files: list[str], tmp_path: Path) -> None:
    answer = mein("train", *files, "-o", tmp_path / "run", *TINY, "-v")
    first = next(line for line in answer.out.splitlines() if "torch" in line)
    assert re.fullmatch(r" *0:00  mein \S+, torch \S+, device cpu, \d+ threads", first)
    assert re.search(r"^ *\d+:\d\d  Stage 1", answer.out, re.MULTILINE)
    assert re.search(r"^ *\d+:\d\d    encoding train: \d+ docs in \d+\.\d s$", answer.out, re.MULTILINE)


# A default for --out.


@pytest.mark.parametrize(
    ("labeled", "out"),
    [
        ("train.csv", "runs/train"),
        ("data/train.jsonl.gz", "runs/train"),
        ("reviews/", "runs/reviews"),
        ("data/reviews/*.parquet", "runs/reviews"),
        ("s3://bucket/train.csv?version=1", "runs/train"),
        ("../../", "runs/run"),
        ("*", "runs/run"),
    ],
)
def test_a_run_is_named_after_the_labeled_documents(labeled: str, out: str) -> None:
    assert str(default_out(labeled)) == out


def test_the_default_folder_is_refused_where_it_holds_a_run(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = mein("train", *files, *TINY)
    assert answer.code == 0, answer
    assert (tmp_path / "runs/train/done").exists()
    assert "  mein predict runs/train new.csv --out labeled.csv\n" in answer.out
    refuses(
        r"runs/train already holds a run: choose another --out, or continue it with --resume\.",
        *("train", *files, *TINY, "-q"),
    )


def test_the_next_steps_can_be_pasted(files: list[str], tmp_path: Path) -> None:
    """A folder with a space is quoted, and the command works."""
    answer = mein("train", *files, "-o", tmp_path / "a run", *TINY)
    (line,) = re.findall(r"^  (mein explain .*)$", answer.out, re.MULTILINE)
    assert line == f"mein explain '{tmp_path}/a run' \"a text\""
    assert mein_process("explain", tmp_path / "a run", "a text").code == 0
