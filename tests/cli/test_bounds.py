"""Values beyond every bound, and paths that cannot be used: one sentence, soon, and nothing left behind."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mein.config import Config, is_section, load_config
from mein.errors import ConfigError, InputError
from mein.runtime.files import expanded, refuse_irregular
from mein.serve.schema import ServeSettings, make_settings
from tests.support.shell import TINY, mein, refuses, write_csv

DEEP = 5_000
SECTIONS = list(filter(is_section, Config.model_fields))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with labeled documents, and a home folder inside."""
    texts = [f"{word} film {n}" for n in range(20) for word in ("good", "bad")]
    write_csv(tmp_path / "labeled.csv", texts, ["pos", "neg"] * 20)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (f"seed={'[' * DEEP}", r"{0}'seed=\[{{94}} \.\.\.: nested too deeply; give sections of settings\."),
        (
            f"seed={'9' * DEEP}",
            r"{0}'seed=9{{94}} \.\.\.: a number has too many digits; give a smaller one\.",
        ),
        (
            f"seed=[-{'9' * DEEP}]",
            r"{0}'seed=\[-9{{92}} \.\.\.: a number has too many digits; give a smaller one\.",
        ),
        (f"seed=0x{'f' * DEEP}", r"Setting seed is a value that is too large to show, but .*"),
        (f"seed={'[' * 300}{']' * 300}", r"Setting seed is \[{{100}} \.\.\., but should be .*"),
        (
            "expert_training.epochs=1e20",
            r"Setting expert_training\.epochs is 1e\+20, but should be a smaller number\.",
        ),
        (f"{'a.' * DEEP}a=1", r"Unknown setting 'a\.a.* \.\.\.: write section\.name.*"),
        ("exp\udcff=1", r"Unknown setting 'exp\\udcff': give a name such as 'expert\.kind'\."),
        ("expert.\udcff=1", r"Unknown setting '\\udcff': give a name such as 'expert\.kind'\."),
    ],
    ids=["levels", "digits", "digits inside", "hexadecimal", "list", "size", "name", "key", "inner key"],
)
def test_settings_that_are_too_deep_or_too_long_are_refused(here: Path, given: str, sentence: str) -> None:
    train = ("train", "--labeled", "labeled.csv", "--out", "new", "--preset", "small", "--set")
    refuses(sentence.format("Cannot read the setting "), *train, given)
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        ("train --labeled labeled.csv --seed", f"0 to {2**63 - 1}"),
        ("train --labeled labeled.csv --seeds", "1 to 10000"),
        ("demo --seed", f"0 to {2**63 - 1}"),
        ("predict run labeled.csv --out new.csv --fragments", "0 to 10000"),
        ("explain run good --top", "0 to 10000"),
        ("store label store --by run --workers", "1 to 10000"),
        ("serve run --port", "0 to 65535"),
    ],
)
def test_every_number_of_an_option_has_an_upper_bound(here: Path, words: str, bounds: str) -> None:
    option = words.split()[-1]
    for number in ("9" * DEEP, "9" * 19):
        start = f"'{number}'"[:100]
        refuses(rf"{option} {start}( \.\.\.)?: give a whole number from {bounds}\.", *words.split(), number)


KINDS: dict[str, Any] = {"Config": Config, **{s: type(getattr(Config(), s)) for s in SECTIONS}}
NUMBERS = [
    (f"{section}.{name}".removeprefix("Config."), bounds)
    for section, settings in KINDS.items()
    for name, field in settings.model_json_schema()["properties"].items()
    for bounds in [field, *field.get("anyOf", ())]
    if bounds.get("type") in ("integer", "number")
]


@pytest.mark.parametrize(("name", "bounds"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_every_number_has_an_upper_bound(name: str, bounds: dict[str, Any]) -> None:
    assert {"maximum", "exclusiveMaximum"} & bounds.keys()
    for beyond in (10**20, 1e300, float("inf"), float("nan")):
        with pytest.raises(
            ConfigError, match=f"^Setting {re.escape(name)} is {re.escape(repr(beyond))}, but "
        ):
            load_config("small", overrides={name: beyond})


@pytest.mark.parametrize("name", ServeSettings.model_fields)
def test_every_limit_of_a_server_has_an_upper_bound(name: str) -> None:
    for beyond, shown in ((10**20, str(10**20)), (16**DEEP, "a value that is too large to show")):
        with pytest.raises(
            ConfigError,
            match=f"^The setting {name} is {shown}, but input should be (less than|a valid number)",
        ):
            make_settings({name: beyond})


@pytest.mark.parametrize("device", ["meta", "mps", "xla", "cuda:9999", "cdua"])
def test_a_device_that_no_network_runs_on_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=f"^Unknown device '{device}': choose auto, cpu, cuda or cuda:1"):
        load_config("small", overrides={"runtime.device": device})


def test_too_little_memory_is_a_sentence(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 TB"
    )
    monkeypatch.setattr("mein.run.algorithm.train", Mock(side_effect=full))
    sentence = "The memory of this machine is too small for these settings: choose smaller sizes or batches."
    refuses(f"(.|\n)*{sentence}", "train", "--labeled", "labeled.csv", "--out", "new", *TINY)


def test_paths_in_settings_are_expanded(here: Path) -> None:
    settings = {"expert.kind": "transformer", "expert.model": "~/bert"}
    assert load_config("transformer", overrides=settings).expert.model == f"{here}/home/bert"
    with pytest.raises(ConfigError, match="but should be UTF-8"):
        load_config("transformer", overrides={"expert.model": "bad\udcff"})


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("deep.toml", f"seed = {'[' * DEEP}", "the config deep.toml: nested too deeply; .*"),
        ("deep.json", "[" * 100_000, "the config deep.json: nested too deeply; .*"),
        ("dotted.toml", f"{'a.' * DEEP}a = 1", "the settings: nested too deeply; .*"),
        ("nested.json", '{"a":' * 700 + "1" + "}" * 700, "the settings: nested too deeply; .*"),
        (
            "digits.json",
            f'{{"seed": {"9" * DEEP}}}',
            "the config digits.json: a number has too many digits; .*",
        ),
        ("digits.toml", f"seed = {'9' * DEEP}", "the config digits.toml: a number has too many digits; .*"),
    ],
)
def test_a_config_that_is_too_deep_is_refused(here: Path, name: str, content: str, sentence: str) -> None:
    (here / name).write_text(content, encoding="utf-8")
    refuses(f"Cannot read {sentence}", "train", "--labeled", "labeled.csv", "--out", "new", "--config", name)
    assert not (here / "new").exists()


def test_nested_folders_do_not_end_in_a_recursion(here: Path) -> None:
    out = Path(*["a"] * 1_200)
    answer = mein("train", "--labeled", "labeled.csv", "--out", out, *TINY)
    is_done = (out / "done").exists()
    subprocess.run(["rm", "-rf", "a"], check=True)  # pytest's own cleaning recurses
    assert (answer.code, answer.err, is_done) == (0, "", True)


@pytest.mark.parametrize("out", ["bad\udcff", "a/b/" + "n" * 300, "labeled.csv/new"])
def test_a_start_that_fails_leaves_nothing_behind(here: Path, out: str) -> None:
    before = sorted(here.rglob("*"))
    refuses(".{1,500}", "train", "--labeled", "labeled.csv", "--out", out, *TINY)
    assert sorted(here.rglob("*")) == before


def test_the_home_folder_is_expanded_once_and_everywhere(here: Path) -> None:
    write_csv(here / "home/labeled.csv", ["good film", "bad film"] * 20, ["pos", "neg"] * 20)
    answer = mein("train", "--labeled", "~/labeled.csv", "--test", "~/label*.csv", "--out", "~/run", *TINY)
    assert answer.code == 0, answer
    for words in (
        ("predict", "~/run", "~/labeled.csv", "--out", "~/labels.csv"),
        ("report", "~/run", "--out", "~/page.html"),
        ("explain", "~/run", "good", "--html", "~/text.html"),
        ("init", "~/mein.toml", "--preset", "small"),
    ):
        assert mein(*words).code == 0, words
    made = {path.name for path in (here / "home").iterdir()}
    assert made == {"labeled.csv", "run", "labels.csv", "page.html", "text.html", "mein.toml"}
    assert sorted(path.name for path in here.iterdir()) == ["home", "labeled.csv"]


def test_an_output_that_is_no_regular_file_stays(here: Path) -> None:
    assert mein("train", "--labeled", "labeled.csv", "--out", "run", *TINY).code == 0
    for name, *words in (
        ("pipe.csv", "predict", "run", "labeled.csv", "--out"),
        ("pipe.html", "report", "run", "--out"),
        ("pipe2.html", "explain", "run", "good", "--html"),
        ("pipe", "train", "--labeled", "labeled.csv", *TINY, "--out"),
        ("pipe2", "export", "run", "--out"),
    ):
        os.mkfifo(name)
        assert mein(*words, name).code == 2, words
        assert Path(name).is_fifo()
    (here / "folder.csv").mkdir()
    refuses(
        r"folder\.csv is a folder: give the path of a file\.",
        *("predict", "run", "labeled.csv", "--out", "folder.csv"),
    )
    assert [path.name for path in here.iterdir() if path.suffix == ".parts"] == []


def test_a_config_that_is_a_pipe_is_not_waited_for(here: Path) -> None:
    os.mkfifo("mein.toml")
    sentence = r"{} is no regular file: choose another path\."
    train = ("train", "--labeled", "labeled.csv", "--out", "new", "--config")
    refuses(sentence.format(r"mein\.toml"), *train, "mein.toml")
    refuses(sentence.format("/dev/null"), *train, "/dev/null")  # as /dev/zero, which has no end


@pytest.mark.parametrize(
    "words",
    [
        "train --labeled pipe.csv --out new",
        "train --labeled labeled.csv --unlabeled pipe.csv --out new",
        "train --labeled labeled.csv --soft-labels pipe.csv --out new",
        "pretrain --text labeled.csv --text pipe.csv --out new",
    ],
)
def test_documents_that_are_a_pipe_are_refused_at_once(here: Path, words: str) -> None:
    os.mkfifo("pipe.csv")
    refuses(r"pipe\.csv is no regular file: choose another path\.", *words.split(), "--preset", "small")
    assert not (here / "new").exists()


def test_a_pipe_of_the_shell_is_read(here: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"seed = -1")
    os.close(write)
    train = ("train", "--labeled", "labeled.csv", "--out", "new", "--config", f"/dev/fd/{read}")
    refuses("Setting seed is -1, but should be greater than or equal to 0.", *train)
    os.close(read)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["store", "label", "", "--by", "home"], "STORE"),
        (["train", "--labeled", "labeled.csv", "--out", ""], "--out FOLDER"),
        (["train", "--labeled", "labeled.csv", "--soft-labels", ""], "--soft-labels FILE"),
        (["train", "--labeled", "labeled.csv", "--config="], "--config FILE"),
        (["pretrain", "--text", "labeled.csv", "--text", "", "--out", "new"], "--text FILE"),
        (["predict", "run", "labeled.csv", "-o", ""], "--out FILE"),
        (["report", "run", ""], r"RUN\.\.\."),
        (["explain", "run", "good", "--html", ""], "--html FILE"),
    ],
)
def test_an_empty_path_is_refused(here: Path, words: list[str], name: str) -> None:
    refuses(rf"{name} is empty: give a path\.", *words)


def test_paths_are_expanded_as_they_are_given(here: Path) -> None:
    assert expanded("~/a*.csv") == f"{here}/home/a*.csv"
    assert expanded(Path("~/run")) == here / "home/run"
    assert expanded("s3://bucket/~/a.csv") == "s3://bucket/~/a.csv"
    with pytest.raises(InputError, match=r"^'bad\\udcff' is not UTF-8: rename the file or folder\.$"):
        expanded("bad\udcff")


def test_a_device_is_no_output() -> None:
    with pytest.raises(InputError, match=r"^/dev/null is no regular file: choose another path\.$"):
        refuse_irregular(Path("/dev/null"))
