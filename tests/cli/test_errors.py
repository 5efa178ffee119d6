"""Every bad input through the command line: one sentence on stderr, exit code 2, nothing lost."""

import errno
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mein.errors import MeinError
from mein.runtime.run_folder import RunFolder
from tests.support.shell import TINY, Answer, mein, mein_process, refuses, write_corpus, write_csv
from tests.support.tiny import TEXTS, artefacts


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def finished(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert mein("train", *files, "--out", path, *TINY).code == 0
    return path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def train_refuses(sentence: str, tmp_path: Path, **parts: Path | str) -> None:
    """`mein train` refuses before it makes its folder, and `mein check` finds the same."""
    options = {"labeled": write_csv(tmp_path / "good.csv", TEXTS.labeled_texts, TEXTS.labeled_labels)} | parts
    words = [word for part, path in options.items() for word in (f"--{part.replace('_', '-')}", path)]
    refuses(sentence, "train", *words, "--out", tmp_path / "out", *TINY)
    assert not (tmp_path / "out").exists()
    audit = mein("check", *words)
    assert audit.code == 2, audit
    assert re.search(f"^Error: {sentence}$", audit.err, re.MULTILINE), audit.err


# Files.


def test_a_missing_file(tmp_path: Path) -> None:
    missing = tmp_path / "none.csv"
    for part in ("labeled", "unlabeled", "dev", "test"):
        train_refuses(rf"{missing} does not exist; check the path\.", tmp_path, **{part: missing})


def test_a_truncated_archive(tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(TEXTS.unlabeled_texts).encode())
    path = put(tmp_path / "raw.txt.gz", whole[: len(whole) // 2])
    train_refuses(
        rf"{path} is truncated or not gzip data \(.*\); fetch or compress it again\.",
        tmp_path,
        unlabeled=path,
    )


def test_another_encoding(tmp_path: Path) -> None:
    path = put(tmp_path / "raw.txt", "fine\ncaf\u00e9\n".encode("latin-1"))
    sentence = rf"{path} is not UTF-8: byte 0xe9 in line 2 \(offset 8\); re-encode it, .*iconv.*\."
    train_refuses(sentence, tmp_path, unlabeled=path)


def test_a_missing_column(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", b"id,headline,kind\n1,one,x\n")
    found = rf"{path} has no column 'headlin' among 'id', 'headline', 'kind'; did you mean 'headline'\?"
    train_refuses(found, tmp_path, labeled=path, text_column="headlin", label_column="kind")
    guess = rf"{path} has no column that looks like the label among 'id', 'headline', 'kind'; set .*\."
    train_refuses(guess, tmp_path, labeled=path, text_column="headline")


def test_an_empty_file(tmp_path: Path) -> None:
    path = put(tmp_path / "none.csv", b"")
    for part in ("labeled", "unlabeled", "test"):
        train_refuses(rf"{path} is empty; give a source with documents\.", tmp_path, **{part: path})


# Labels.


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", ""], r"row 2 has no label; fill it in, or move the document to the unlabeled text\."),
        (["a", "nan"], r"row 2 has no label; fill it in, .*\."),
        (
            ["1", "1.5"],
            r"row 2 has the label 1\.5, a fractional number; write labels as .* strings\.",
        ),
        (
            ["a"] * 3,
            r"holds the single class 'a' \(3 documents\); add documents of at least one other class\.",
        ),
    ],
)
def test_labels_that_teach_nothing(tmp_path: Path, labels: list[str], sentence: str) -> None:
    path = write_csv(tmp_path / "bad.csv", [f"text {i}" for i in range(len(labels))], labels)
    train_refuses(rf"{path} {sentence}", tmp_path, labeled=path)


def test_classes_of_one_document(tmp_path: Path) -> None:
    """Experts that learn by gradients are refused them; in folds, some must have more than one."""
    path = write_csv(tmp_path / "bad.csv", ["one", "two", "three"], ["a", "a", "b"])
    words = ("train", "--labeled", path, "--out", tmp_path / "out", *TINY)
    refuses(rf"{path} holds one example of 'b'; add examples or drop the class\.", *words)
    path = write_csv(tmp_path / "bad.csv", ["one", "two"], ["a", "b"])
    sentence = (
        rf"{path} holds one text of each class, which leaves none to evaluate on: "
        r"add other texts, or give test documents\."
    )
    refuses(sentence, *words, "--set", "expert.kind=linear")
    refuses(sentence, "check", "--labeled", path)


def test_labels_of_empty_texts_alone(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "bad.csv", ["", " "] * 4, ["a", "a", "b", "b"] * 2)
    train_refuses(
        rf"No document of {path} holds any text: name the column that does \(--text-column\), or add some\.",
        tmp_path,
        labeled=path,
    )


@pytest.mark.parametrize("part", ["dev", "test"])
def test_empty_texts_alone_to_evaluate_on(tmp_path: Path, finished: Path, part: str) -> None:
    path = write_csv(tmp_path / "bad.csv", ["", " "], ["positive", "negative"])
    sentence = rf"No document of {path} holds any text: name the column that does .*, or add some\."
    train_refuses(sentence, tmp_path, **{part: path})
    refuses(sentence, "evaluate", finished, path)


def test_text_and_label_from_one_column(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", TEXTS.labeled_texts, TEXTS.labeled_labels)
    sentence = (
        rf"{path} has its text and its label in one column, 'label': name another one for either "
        r"\(--text-column NAME, --label-column NAME\)\."
    )
    train_refuses(sentence, tmp_path, labeled=path, text_column="label")


def test_null_and_float_labels_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "label": ["x", None]}), path)
    train_refuses(rf"{path} row 2 has no label; fill it in, .*\.", tmp_path, labeled=path)
    pq.write_table(pa.table({"text": ["one", "two"], "label": [1.5, 2.0]}), path)
    train_refuses(rf"{path} row 1 has the label 1\.5, a fractional number; .*\.", tmp_path, labeled=path)


@pytest.mark.parametrize("part", ["dev", "test"])
def test_a_class_that_training_lacks_is_found_before_training(tmp_path: Path, part: str) -> None:
    path = write_csv(tmp_path / "new.csv", ["one", "two"], ["positive", "mixed"])
    sentence = (
        rf"{path} holds 'mixed' \(1 document\), which training lacks "
        r"\(it knows 'negative', 'positive'\); add such documents .*\."
    )
    train_refuses(sentence, tmp_path, **{part: path})


def test_several_problems_are_a_sentence_each(tmp_path: Path) -> None:
    bad = write_csv(tmp_path / "bad.csv", ["one", "two"], ["a", "a"])
    answer = mein("check", "--labeled", bad, "--unlabeled", tmp_path / "none.txt")
    assert answer.code == 2
    assert [line[:6] for line in answer.err.splitlines()] == ["Error:", "Error:"], answer.err
    assert "No problems found" not in answer.out


# What is allowed.


def test_empty_documents_are_counted_kept_and_get_the_prior(tmp_path: Path) -> None:
    labels = ["a"] * 12 + ["b"] * 4
    texts = [f"some {word} words" for word in "abcdefghijklmnop"]
    train = write_csv(tmp_path / "train.csv", [*texts, "", " ", "", " "], [*labels, "a", "a", "a", "b"])
    answer = mein("train", "--labeled", train, "--out", tmp_path / "run", *TINY)
    assert answer.code == 0, answer
    assert "4 documents are empty: they are kept, and get each class's share in training." in answer.out
    assert f"{train} holds 4 empty documents, which are kept." in mein("check", "--labeled", train).out
    new = write_csv(tmp_path / "new.csv", ["", "!"])
    assert mein("predict", tmp_path / "run", new, "--out", tmp_path / "out.parquet").code == 0
    prior = json.loads((tmp_path / "run/labels.json").read_text(encoding="utf-8"))["prior"]
    assert pq.read_table(tmp_path / "out.parquet")["probability"][0].as_py() == pytest.approx(max(prior))
    assert "The run knows no word" in mein("explain", tmp_path / "run", "").out


def test_without_unlabeled_text_it_is_the_plain_expert(tmp_path: Path, files: list[str]) -> None:
    words = [*files[:2], *files[4:]]
    answer = mein("train", *words, "--out", tmp_path / "run", *TINY)
    assert answer.code == 0, answer
    assert "There is no unlabeled text: this is the plain expert." in answer.out
    assert "Weights: none, since there are no imitators." in answer.out
    assert "\nexpert " in answer.out
    assert "\nmixture " not in answer.out
    assert "training gives the plain expert" in mein("check", *words).out
    assert "expert" in mein("evaluate", tmp_path / "run", files[5]).out


# Run folders.


def test_the_output_folder_holds_another_run(copy: Path, files: list[str]) -> None:
    before = artefacts(copy)
    refuses(
        rf"{copy} already holds a run: choose another --out, or continue it with --resume\.",
        *("train", *files, "--out", copy, *TINY),
    )
    refuses(
        rf"{copy} holds another run: its config\.seed is 0, not 1; choose another --out, or resume .*\.",
        *("train", *files, "--out", copy, *TINY, "--seed", "1", "--resume"),
    )
    refuses(
        rf"{copy} holds a single run: choose another --out for 2 seeds\.",
        *("train", *files, "--out", copy, *TINY, "--seeds", "2"),
    )
    assert artefacts(copy) == before


def test_the_output_folder_holds_something_else(tmp_path: Path, files: list[str]) -> None:
    put(tmp_path / "thesis.tex", b"years of work")
    refuses(
        rf"{tmp_path} exists and is not a run of mein \(it holds 'thesis.tex'\): choose an empty folder.*\.",
        *("train", *files, "--out", tmp_path, *TINY),
    )
    refuses(
        rf"Cannot write {tmp_path}/thesis.tex: Not a directory: choose a folder that can be written to\.",
        *("train", *files, "--out", tmp_path / "thesis.tex", *TINY),
    )


def test_resuming_without_a_run_starts_one_and_reports_it(tmp_path: Path, files: list[str]) -> None:
    """A run that was stopped before it had a folder, and a script that always passes --resume."""
    started = mein("train", *files, "--out", tmp_path / "new", *TINY, "--resume")
    assert started.code == 0
    assert f"No run to resume in {tmp_path}/new: starting a new one." in " ".join(
        (started.out + started.err).split()
    )
    again = mein("train", *files, "--out", tmp_path / "new", *TINY, "--resume")
    assert "There is no run" not in again.out + again.err


def test_a_second_process_in_the_same_folder(copy: Path, files: list[str]) -> None:
    with RunFolder(copy).held():
        refuses(
            rf"Another process is working in {copy}: wait for it, or choose another --out\.",
            *("train", *files, "--out", copy, *TINY, "--resume"),
        )


@pytest.mark.parametrize(
    ("version", "remedy"), [(9, "upgrade mein"), (1, "train again in another folder, .*")]
)
def test_a_run_of_another_version(copy: Path, version: int, remedy: str) -> None:
    content = json.loads((copy / "done").read_text(encoding="utf-8"))
    put(copy / "done", json.dumps(content | {"mein": version}).encode("utf-8"))
    for words in (
        ["explain", copy, "fine"],
        ["evaluate", copy, "x.csv"],
        ["predict", copy, "x.csv", "--out", "y.csv"],
    ):
        refuses(rf"{copy}/done has format {version}, this mein reads 3: {remedy}\.", *words)


@pytest.mark.parametrize(
    "name",
    [
        "mixture.safetensors",
        "imitators.safetensors",
        "words.txt",
        "pieces.model",
        "config.json",
        "labels.json",
        "vocabularies.json",
    ],
)
def test_a_flipped_bit_anywhere_is_noticed(copy: Path, name: str) -> None:
    whole = (copy / name).read_bytes()
    places = np.random.default_rng(0).integers(0, 8 * len(whole), size=20)
    for place in map(int, places):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        put(copy / name, bytes(flipped))
        refuses(
            rf"{copy}/{name} (is damaged|has version|has format|does not fit).*\.", "explain", copy, "fine"
        )


@pytest.mark.parametrize("name", ["config.json", "labels.json", "vocabularies.json", "done"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"mein": 3}'])
def test_a_damaged_json_file(copy: Path, name: str, content: bytes | None) -> None:
    whole = (copy / name).read_bytes()
    put(copy / name, whole[: len(whole) // 2] if content is None else content)
    named = "(done|config.json)" if name == "done" else name
    refuses(rf"{copy}/{named} is damaged.*: restore it from a copy.*\.", "explain", copy, "fine")


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    refuses(
        rf"There is no run folder {tmp_path}/x: give the one that .* wrote\.", "explain", tmp_path / "x", "a"
    )
    refuses(
        rf"{tmp_path} is not a run of mein: config.json is missing; give the folder that .* wrote\.",
        *("explain", tmp_path, "a"),
    )


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, finished: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # as /dev/null would be, by root
    refuses(
        r".*/pipe is no regular file: choose another path\.", "report", finished, "--out", tmp_path / "pipe"
    )
    assert (tmp_path / "pipe").is_fifo()


def test_a_run_that_is_not_finished(copy: Path) -> None:
    (copy / "done").unlink()
    sentence = rf"The run in {copy} is not finished: continue it with `mein train --resume`\."
    refuses(sentence, "predict", copy, "x.csv", "--out", "y.csv")


@pytest.mark.parametrize("writes", [0, 2, 6, 11, 16])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, files: list[str], finished: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    words = ["train", *files, "--out", str(tmp_path / "run"), *TINY]
    left = iter(range(writes))

    def fsync(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fsync)
        sentence = rf"Cannot write {tmp_path}/run/.*: the disk is full: .* \(a training with --resume\)\."
        refuses(sentence, *words)
    assert list(tmp_path.rglob("*.tmp")) == []
    answer = mein(*words, "--resume")
    assert answer.code == 0, answer
    assert artefacts(tmp_path / "run") == artefacts(finished)


# Settings.


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sede=1", r"Unknown setting 'sede': did you mean 'seed'\?"),
        (
            "imitators.windwos=[1]",
            r"Unknown setting 'imitators\.windwos': did you mean 'imitators\.windows'\?",
        ),
        ("imitater.windows=[1]", r"Unknown setting 'imitater': did you mean 'imitators'\?"),
        ("hidden_dim=8", r"Unknown setting 'hidden_dim': did you mean 'expert\.hidden_dim'\?"),
        ("expert=8", r"'expert' is a section, not a setting: set what is in it, such as 'expert\.kind'\."),
        ("seed=one", r"Setting seed is 'one', but should be a valid integer\."),
        ("seed=-1", r"Setting seed is -1, but should be greater than or equal to 0\."),
        ("expert.embedding_dim=0", r"Setting expert\.embedding_dim is 0, but should be greater .* 1\."),
        ("expert.mlp_dropout=1.5", r"Setting expert\.mlp_dropout is 1\.5, but should be less than 1\."),
        ("imitators.windows=[-1]", r"Setting imitators\.windows\[0\] is -1, but should be greater .* 0\."),
        ("imitators.windows=[]", r"Setting imitators\.windows is \[\], but should have at least 1 item\."),
        ("fine_tuning.epochs=-1", r"Setting fine_tuning\.epochs is -1, but should be greater .* 0\."),
        (
            "expert_training.learning_rate=nan",
            r"Setting .*learning_rate is nan, but should be a finite number\.",
        ),
        (
            "mixture.method=o",
            r"Setting mixture\.method is 'o', but should be 'ours', 'no-lexicon' or 'paper'\.",
        ),
        ("seed", r"Cannot read the setting 'seed': write key=value\."),
        ("runtime.device=cdua", r"Unknown device 'cdua': choose auto, cpu, cuda or cuda:1\."),
        ("runtime.device=cuda:99", r"Device 'cuda:99' does not exist: torch finds \d+ GPUs .*\."),
    ],
)
def test_settings(tmp_path: Path, files: list[str], setting: str, sentence: str) -> None:
    refuses(sentence, "train", *files, "--out", tmp_path / "run", *TINY, "--set", setting)
    assert not (tmp_path / "run").exists()


def test_settings_in_a_file(tmp_path: Path, files: list[str]) -> None:
    words = ["train", *files, "--out", str(tmp_path / "run"), "--config"]
    path = tmp_path / "mein.toml"
    put(path, b"[expert]\nhiden_dim = 3\n")
    refuses(r"Unknown setting 'expert\.hiden_dim': did you mean 'expert\.hidden_dim'\?", *words, path)
    put(path, b'[expert]\nhidden_dim = "many"\n')
    refuses(r"Setting expert\.hidden_dim is 'many', but should be a valid integer\.", *words, path)
    put(path, b"[expert\n")
    refuses(rf"The config {path} cannot be parsed \(.*line 1.*\): fix it there\.", *words, path)
    put(tmp_path / "list.json", b"[1]")
    refuses(rf"The config {tmp_path}/list.json holds a list: give it .*\.", *words, tmp_path / "list.json")
    missing = tmp_path / "none.toml"
    refuses(
        rf"Cannot read the config {missing} \(No such file.*\): write one with `mein init`\.", *words, missing
    )


def test_an_unknown_preset(tmp_path: Path, files: list[str]) -> None:
    refuses(
        r"Unknown preset 'samll': choose one of small, full, paper, .*, transformer, frozen\.",
        *("train", *files, "--out", tmp_path / "run", "--preset", "samll"),
    )


def test_a_config_is_never_overwritten(tmp_path: Path) -> None:
    path = put(tmp_path / "mein.toml", b"mine")
    refuses(rf"{path} already exists: remove it, or choose another name\.", "init", path)
    assert path.read_bytes() == b"mine"


# How an error is printed.


def test_a_real_process_prints_one_sentence_and_the_rest_with_debug(tmp_path: Path) -> None:
    words = ["explain", str(tmp_path / "a[b]c"), "fine"]
    answer = mein_process(*words)
    sentence = f"There is no run folder {tmp_path}/a[b]c: give the one that `mein train --out` wrote."
    assert answer == Answer(2, "", f"Error: {sentence}\n")
    for place in (0, len(words)):
        answer = mein_process(*words[:place], "--debug", *words[place:])
        assert answer.code == 1
        assert answer.err.startswith("Traceback")
        assert answer.err.endswith(f"mein.errors.RunError: {sentence}\n")
    with pytest.raises(MeinError, match="no run folder"):
        mein(*words, "--debug")


def test_what_the_system_refuses_is_one_sentence_too(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "secret.txt")

    monkeypatch.setattr("mein.cli.train.check_and_train", denied)
    sentence = r"secret\.txt cannot be read or written \(Permission denied\): check it, or run with --debug\."
    refuses(sentence, "train", *files, "--out", tmp_path / "run")


USAGE = {
    "train --labeld x": r"`mein train` has no option '--labeld': did you mean '--labeled'\?",
    "train --xyz": r"`mein train` has no option '--xyz': see `mein train --help`\.",
    "tarin": r"`mein` has no command 'tarin': did you mean 'train'\?",
    "encode": r"`mein` has no command 'encode': did you mean 'store encode'\?",
    "xyz": r"`mein` has no command 'xyz': see `mein --help`\.",
    "store lable": r"`mein store` has no command 'lable': did you mean 'label'\?",
    "--verison": r"`mein` has no option '--verison': did you mean '--version'\?",
    "train": r"--labeled FILE is missing: `mein train` needs --labeled FILE; see `mein train --help`\.",
    "store encode --like a": (
        r"--text FILE is missing: `mein store encode` needs --like RUN, --text FILE, --out STORE; see .*\."
    ),
    "predict a": r"FILE is missing: `mein predict` needs RUN, FILE, --out FILE; see `mein predict --help`\.",
    "train --labeled": r"--labeled needs a value: give one behind it\.",
    "train --labeled x --quiet=3": r"--quiet takes no value: remove it\.",
    "predict a b c -o d": r"Surplus words 'c': see `mein predict --help`\.",
    "train --labeled x --seeds x": r"--seeds 'x': give a whole number from 1 to 10000\.",
    "train --labeled x --seeds 0": r"--seeds '0': give a whole number from 1 to 10000\.",
    "train --labeled x --seed -1": rf"--seed '-1': give a whole number from 0 to {2**63 - 1}\.",
    "predict a b -o c --abstain-below 2": r"--abstain-below '2': give a probability from 0 to 1\.",
    "predict a b -o c --abstain-below nan": r"--abstain-below 'nan': give a probability from 0 to 1\.",
    "serve a --port 70000": r"--port '70000': give a whole number from 0 to 65535\.",
    "completion csh": r"Unknown shell 'csh': choose one of bash, zsh, fish\.",
}


def test_names_of_any_sign_and_length_stay_in_one_line(tmp_path: Path, finished: Path) -> None:
    name = "a\nb\x1b[31m\u2028\u202ec.csv"
    sentence = rf"{tmp_path}/a\\nb\\x1b\[31m\\u2028\\u202ec\.csv does not exist; check the path\."
    refuses(sentence, "check", "--labeled", tmp_path / name)
    long = r"The run has no label 'a{900,1000} \.\.\. a{100,200}': choose .*"
    refuses(long, "explain", finished, "x", "--label", "a" * 9_000)
    refuses(r"The text 'a\\udcff' is not UTF-8: give it in UTF-8\.", "explain", finished, "a\udcff")


@pytest.mark.parametrize("words", USAGE)
def test_a_wrong_command_line_is_refused_in_one_sentence(words: str) -> None:
    refuses(USAGE[words], *words.split())


def test_ctrl_c_shows_how_to_continue(tmp_path: Path, files: list[str]) -> None:
    """A real signal, in the middle of a training."""
    code = "from mein.cli.main import main; main()"
    words = [
        "train",
        *map(str, files),
        "--out",
        str(tmp_path / "run"),
        *TINY,
        "--set",
        "expert_training.epochs=9999",
    ]
    words += ["--set", "expert_training.patience=none"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    while "expert epoch 1" not in child.stdout.readline():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert (
        err.strip() == "Stopped. Run the same command again to continue; add --resume to train and predict."
    )
