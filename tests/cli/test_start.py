"""How soon a command can answer: what it imports, not how long that takes on a busy machine."""

from pathlib import Path

import pytest

from tests.support.shell import TINY, Answer, mein, python, write_csv

HEAVY = ("torch", "transformers", "ray", "fastapi", "sklearn", "scipy", "pyarrow", "numpy", "sentencepiece")
PROBE = f"""
import sys
from mein.cli.main import main
try:
    main()
finally:
    print("imported:", *(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with labeled documents, a folder that is no run, and a run that was never finished."""
    write_csv(tmp_path / "labeled.csv", ["good film", "bad film"], ["pos", "neg"])
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/note.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped/config.json").write_text('{"mein": 3, "config": {}}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = "train --labeled labeled.csv --out new"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train --labeled labeld.csv --out new", "labeld.csv does not exist; check the path."),
        (f"{TRAIN} --set imitators.windos=1", "Unknown setting 'imitators.windos': did you mean"),
        (
            f"{TRAIN} --set expert.mlp_dropout=2",
            "Setting expert.mlp_dropout is 2, but should be less than 1.",
        ),
        (f"{TRAIN} --set seed", "Cannot read the setting 'seed': write key=value."),
        (f"{TRAIN} --set runtime.device=cdua", "Unknown device 'cdua': choose auto, cpu, cuda or cuda:1."),
        (f"{TRAIN} --preset smal", "Unknown preset 'smal': choose one of small, full, "),
        (f"{TRAIN} --config mine.toml", "Cannot read the config mine.toml (No such file or directory)"),
        (f"{TRAIN} --from-run lost", "There is no run folder lost: give the one that `mein train --out`"),
        (
            "train --labeled labeled.csv --out papers",
            "papers exists and is not a run of mein (it holds 'note",
        ),
        (
            "train --labeled labeled.csv --out stopped",
            "stopped already holds a run: choose another --out, or",
        ),
        (
            "train --labeled labeled.csv --out labeled.csv",
            "Cannot write labeled.csv: Not a directory: choose",
        ),
        (
            "demo --out papers",
            "papers exists and is not a run of mein (it holds 'note.txt'): choose an empty",
        ),
        ("init labeled.csv", "labeled.csv already exists: remove it, or choose another name."),
        ("evaluate lost labeled.csv", "There is no run folder lost: give the one that `mein train --out`"),
        ("predict stopped labeled.csv --out x.csv", "The run in stopped is not finished: continue it with"),
        ("explain papers text", "papers is not a run of mein: config.json is missing; give the folder that"),
        ("report lost", "There is no run folder lost: give the one that `mein train --out` wrote."),
        ("serve lost", "There is no run folder lost: give the one that `mein train --out` wrote."),
        ("export lost --out new", "There is no run folder lost: give the one that `mein train --out` wrote."),
    ],
)
def test_a_refusal_does_not_wait_for_torch(here: Path, line: str, sentence: str) -> None:
    answer = python(PROBE, *line.split())
    assert answer.code == 2
    assert answer.err.startswith(f"Error: {sentence}"), answer.err
    assert answer.err.splitlines()[1:] == ["imported:"]
    assert not (here / "new").exists()


def test_the_version_does_not_wait_for_anything(here: Path) -> None:
    answer = python(PROBE, "--version")
    assert answer.err == "imported:\n"


@pytest.mark.parametrize(
    "words", [("predict", "run", "labeled.csv", "--out", "x.csv"), ("explain", "run", "good")]
)
def test_a_run_without_lstm_or_transformer_needs_no_extra(here: Path, words: tuple[str, ...]) -> None:
    write_csv(
        here / "train.csv",
        [f"{word} film {n}" for n in range(20) for word in ("good", "bad")],
        ["pos", "neg"] * 20,
    )
    trained: Answer = mein("train", "--labeled", "train.csv", "--out", "run", *TINY)
    assert trained.code == 0, trained
    answer = python(PROBE, *words)
    assert answer.code == 0, answer
    imported = answer.err.partition("imported:")[2].split()
    assert "torch" in imported
    assert not {"transformers", "ray", "fastapi", "sklearn"} & set(imported)
