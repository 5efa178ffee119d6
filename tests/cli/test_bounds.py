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


def test_settings_that_are_too_deep_or_too_long_are_refused(here: Path) -> None:
    train = ("train", "--labeled", "labeled.csv", "--out", "new", "--preset", "small")
    beyond = r"Cannot read the setting 'seed=.{94} \.\.\.: it is nested too deeply, or has too many digits\."
    refuses(beyond, *train, "--set", f"seed={'[' * DEEP}")
    refuses(beyond, *train, "--set", f"seed={'9' * DEEP}")
    refuses(
        "Setting seed is a value that is too large to show, but .*", *train, "--set", f"seed=0x{'f' * DEEP}"
    )
    refuses(
        r"Setting seed is \[{100} \.\.\., but should be .*", *train, "--set", f"seed={'[' * 300}{']' * 300}"
    )
    refuses(r"Unknown setting 'a\.a.* \.\.\.: write section\.name.*", *train, "--set", f"{'a.' * DEEP}a=1")
    assert not (here / "new").exists()


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
    ("name", "content"),
    [
        ("deep.toml", f"seed = {'[' * DEEP}"),
        ("deep.json", "[" * 100_000),
        ("dotted.toml", f"{'a.' * DEEP}a = 1"),
        ("nested.json", '{"a":' * 700 + "1" + "}" * 700),
        ("digits.json", f'{{"seed": {"9" * DEEP}}}'),
    ],
)
def test_a_config_that_is_too_deep_is_refused(here: Path, name: str, content: str) -> None:
    (here / name).write_text(content, encoding="utf-8")
    sentence = (
        rf"(The config {name} cannot be parsed|The settings are nested too deeply|Unknown setting).{{,300}}"
    )
    refuses(sentence, "train", "--labeled", "labeled.csv", "--out", "new", "--config", name)
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
    sentence = r"mein\.toml is no regular file: choose another path\."
    refuses(sentence, "train", "--labeled", "labeled.csv", "--out", "new", "--config", "mein.toml")


def test_an_empty_store_is_refused(here: Path) -> None:
    refuses("The path of the store is empty: give a folder or a URL.", "store", "label", "", "--by", "home")


def test_paths_are_expanded_as_they_are_given(here: Path) -> None:
    assert expanded("~/a*.csv") == f"{here}/home/a*.csv"
    assert expanded(Path("~/run")) == here / "home/run"
    assert expanded("s3://bucket/~/a.csv") == "s3://bucket/~/a.csv"
    with pytest.raises(InputError, match=r"^'bad\\udcff' is not UTF-8: rename the file or folder\.$"):
        expanded("bad\udcff")


def test_a_device_is_no_output() -> None:
    with pytest.raises(InputError, match=r"^/dev/null is no regular file: choose another path\.$"):
        refuse_irregular(Path("/dev/null"))
