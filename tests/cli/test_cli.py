"""The commands as a user meets them: what they print, write and return, at 80 columns."""

import contextlib
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from mein import __version__
from mein.cli.main import app
from mein.config import COMMON, json_schema, load_config
from mein.data.demo import demo_corpus
from mein.errors import UsageError
from tests.support.shell import (
    TINY,
    Answer,
    fits,
    mein,
    mein_process,
    python,
    refuses,
    unexplained,
    write_corpus,
    write_csv,
)
from tests.support.tiny import TEXTS, artefacts

COMMANDS = (
    *("demo", "init", "check", "train"),
    *("evaluate", "predict", "explain", "report", "serve"),
    *("pretrain", "export", "store", "completion"),
)
STEPS = ("encode", "label", "train")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def trained(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, mein("train", *files, "--out", path, *TINY)


@pytest.fixture(scope="module")
def run(trained: tuple[Path, Answer]) -> Path:
    return trained[0]


# Help.


def test_there_are_the_commands_that_users_of_a_classifier_need() -> None:
    group: Any = typer.main.get_command(app)
    assert tuple(group.list_commands(None)) == COMMANDS
    assert tuple(group.commands["store"].commands) == STEPS


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("command", ["", *COMMANDS, *(f"store {step}" for step in STEPS)])
def test_help_fits_and_explains_every_option(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    answer = mein(*command.split(), "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: {' '.join(['mein', *command.split()])} ")
    assert unexplained(answer.out, width) == []
    assert not re.search(r"<\w+>|\[default|\[required|<=x|x>=", answer.out)  # typer's own
    assert ("\nExamples:\n  mein " in answer.out) == (command not in ("", "store"))


def test_every_number_has_a_parser_of_ours() -> None:
    """typer's own sentence about a number names no remedy, and its bounds would show in the help."""
    group: Any = typer.main.get_command(app)
    commands = [*group.commands.values(), *group.commands["store"].commands.values()]
    params = [param for command in commands for param in command.params]
    assert len(params) > 80
    assert [param.name for param in params if param.metavar in ("N", "P") and not is_parsed(param)] == []
    assert [param.name for param in params if param.metavar is None and not param.is_flag] == []


def is_parsed(param: Any) -> bool:
    """Whether a parameter refuses what is no number in our own sentence."""
    with contextlib.suppress(TypeError):
        try:
            param.process_value(typer.Context(typer.main.get_command(app)), "x")
        except UsageError:
            return True
    return False


def test_the_help_has_headings() -> None:
    for command, headings in {
        "": ["Start:", "Use:", "More:", "Options:"],
        "train": ["Data:", "Model:", "Run:", "Ray (many machines):", "Options:", "Examples:"],
    }.items():
        lines = mein(*command.split(), "--help").out.splitlines()
        assert [line for line in lines if re.fullmatch(r"\S.*:", line)] == headings


def test_the_version_and_no_words_at_all() -> None:
    assert mein("--version") == Answer(0, f"mein {__version__}\n", "")
    for words in ((), ("store",)):
        answer = mein(*words)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"Usage: {' '.join(['mein', *words])} COMMAND")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    answer = mein("completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert "_MEIN_COMPLETE" in answer.out


def test_the_shell_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the script asks for after `mein tr` and a tab."""
    monkeypatch.setenv("_MEIN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "mein tr")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert mein_process().out.split() == ["train"]


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys; from mein.cli.main import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    assert python(code, "train", "--help").out.endswith("False\n")


# Training.

SEEDS = ["report.html", "seed-4", "seed-5", "seeds.json"]


def test_train_shows_stages_table_gates_and_verdict(trained: tuple[Path, Answer]) -> None:
    path, answer = trained
    assert answer.code == 0, answer
    assert answer.err == ""
    order = [
        "Learning the vocabularies",
        "Stage 1",
        "Stage 2",
        "Stage 3",
        "40 test documents",
        "Weights: expert ",
    ]
    steps = [f"see {path}/report.html", f"mein explain {path}", f"mein predict {path}"]
    places = [
        answer.out.index(words)
        for words in ["Checked the data: no problems.", *order, "The imitators ", *steps]
    ]
    assert places == sorted(places)
    for system in ("TF-IDF", "expert", "expert, fine-tuned", "random imitators", "imitators only", "mixture"):
        assert re.search(rf"^{system}.* \d+\.\d ", answer.out, re.MULTILINE), system


def test_a_log_has_no_bars_and_no_line_a_batch(trained: tuple[Path, Answer]) -> None:
    assert not re.search(r"[\x1b\r━]", trained[1].out)
    table = trained[1].out.index("40 test documents")
    assert len(trained[1].out[:table].splitlines()) < 30
    assert fits(trained[1].out[trained[1].out.index("Stage 1") : table])


def test_train_reports_the_overlap_with_the_test_set(tmp_path: Path, trained: tuple[Path, Answer]) -> None:
    path, answer = trained
    assert "3 unlabeled documents are also in the test set: they are left out." in answer.out
    data = [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    (counts,) = [line for line in data if line["stage"] == "data"]
    assert (counts["removed"], counts["train_in_test"]) == (3, 0)


def test_train_reports_what_it_does_not_remove(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", TEXTS.labeled_texts, TEXTS.labeled_labels)
    raw = write_csv(tmp_path / "raw.csv", [*TEXTS.unlabeled_texts, TEXTS.test_texts[0].upper()])
    known = [*TEXTS.test_texts[:30], *(text + " " for text in TEXTS.labeled_texts)]
    test = write_csv(tmp_path / "test.csv", known, [*TEXTS.test_labels[:30], *TEXTS.labeled_labels])
    words = ["--labeled", train, "--unlabeled", raw, "--test", test]
    answer = mein("train", *words, "--out", tmp_path / "run", *TINY)
    assert answer.code == 0, answer
    assert "1 unlabeled document is also in the test set: it is left out." in answer.out
    assert "60 training documents are also in the test set: its error will look too good." in answer.out
    assert "20 dev documents are also in the test set: its error will look too good." in answer.out
    notes = mein("check", *words).out
    assert "80 test documents are also in the training part." in notes
    assert "1 test document is also in the unlabeled part." in notes


def test_seeds_give_mean_and_spread(tmp_path: Path, files: list[str]) -> None:
    words = ["train", *files, "--out", str(tmp_path / "runs"), *TINY, "--seed", "4", "--seeds", "2"]
    answer = mein(*words)
    assert answer.code == 0, answer
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == SEEDS
    figures = json.loads((tmp_path / "runs/seeds.json").read_text(encoding="utf-8"))
    first, second = figures["mixture"]["errors"]
    assert figures["mixture"]["mean"] == pytest.approx((first + second) / 2)
    assert figures["mixture"]["spread"] == pytest.approx(abs(first - second) / 2**0.5)
    assert 0 <= figures["expert"]["p_value"] <= 1
    assert figures["mixture"]["p_value"] is None
    table = answer.out[answer.out.index("2 seeds") :]
    assert f"mixture {figures['mixture']['mean']:.2f}" in re.sub(" +", " ", table)
    shutil.rmtree(tmp_path / "runs/seed-5")
    assert mein(*words, "--resume").code == 0
    assert json.loads((tmp_path / "runs/seeds.json").read_text(encoding="utf-8")) == figures


def test_a_finished_run_resumes_to_the_same_table(
    run: Path, files: list[str], trained: tuple[Path, Answer]
) -> None:
    before = artefacts(run)
    again = mein("train", *files, "--out", run, *TINY, "--resume")
    table = trained[1].out.index("40 test documents")
    assert again.out.strip() == trained[1].out[table:].strip()
    assert artefacts(run) == before


def test_without_a_test_file_dev_is_evaluated(tmp_path: Path, files: list[str]) -> None:
    answer = mein("train", *files[:4], "--out", tmp_path / "run", *TINY)
    assert "20 dev documents (no --test)" in answer.out


# The other commands.


def test_demo_trains_on_the_embedded_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mein.data.demo.demo_corpus", lambda seed: demo_corpus(seed, 80, 120, 40))
    monkeypatch.setattr(
        "mein.config.load_config",
        lambda preset, overrides: load_config(preset, overrides=overrides | {"expert_training.epochs": 1}),
    )
    answer = mein("demo", "--out", tmp_path / "demo", "--seed", "3")
    assert answer.code == 0, answer
    assert "40 test documents" in answer.out
    assert (tmp_path / "demo/done").exists()


def test_init_writes_what_train_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    answer = mein("init", path, "--preset", "paper")
    assert answer.out == f"Wrote {path}; use it with `mein train --config {path} ...`.\n"
    assert load_config(file=path) == load_config("paper")
    assert path.read_text(encoding="utf-8").count(" = ") == 1 + len(COMMON)
    assert mein("init", tmp_path / "all.toml", "--preset", "paper", "--all").code == 0
    assert load_config(file=tmp_path / "all.toml") == load_config("paper")
    assert "preset" not in tomllib.loads((tmp_path / "all.toml").read_text(encoding="utf-8"))


def test_init_prints_the_schema_and_writes_nothing(tmp_path: Path) -> None:
    answer = mein("init", tmp_path / "a.toml", "--schema")
    assert (answer.code, json.loads(answer.out)) == (0, json_schema())
    assert not (tmp_path / "a.toml").exists()


def test_check_shows_the_data_at_80_columns(files: list[str]) -> None:
    answer = mein("check", *files)
    assert (answer.code, answer.err) == (0, "")
    table = answer.out[: answer.out.index("\n- ")]
    assert fits(table), table
    rows = re.sub(" +", " ", table).splitlines()
    assert [row for row in rows if re.match("training 80 2 ", row)], table
    assert [row for row in rows if re.fullmatch("unlabeled 123( [0-9]+){5}", row.strip())], table
    assert [row for row in rows if re.fullmatch("negative [0-9]+ [0-9]+", row)], table
    assert answer.out.endswith("No problems found.\n")


def test_check_survives_huge_figures_and_many_long_classes(tmp_path: Path) -> None:
    classes = [f"a class with quite a long name, number {i:03}" for i in range(40)] * 2
    path = write_csv(tmp_path / "train.csv", [f"text {i}" for i in range(80)], classes)
    answer = mein("check", "--labeled", path)
    assert answer.code == 0, answer
    assert fits(answer.out[: answer.out.index("\n- ")])
    assert "... and 28 more between" in answer.out


def test_check_shows_the_rarest_classes_too_and_quotes_what_looks_alike(tmp_path: Path) -> None:
    labels = [name for n in range(2, 20) for name in [f"class {n:02}"] * n] + ["odd "] * 30 + ["odd"] * 25
    path = write_csv(tmp_path / "train.csv", [f"text {i}" for i in range(len(labels))], labels)
    table, notes = mein("check", "--labeled", path).out.split("\n- ", 1)
    rows = [
        re.sub(" +", " ", row).strip() for row in table.splitlines() if re.search("odd|class .. |more", row)
    ]
    assert rows[:3] == ["'odd ' 30", "odd 25", "class 19 19"]
    assert rows[6:8] == ["... and 8 more between", "class 07 7"]
    assert rows[-1] == "class 02 2"
    assert len(rows) == 13
    assert "The labels 'odd', 'odd ' differ in case or spaces only: they are 2 classes." in notes


def test_evaluate_prints_a_table_or_json(run: Path, files: list[str]) -> None:
    answer = mein("evaluate", run, files[5])
    assert answer.code == 0, answer
    assert f"40 documents of {files[5]}" in re.sub(r"\s*\n", "", answer.out).replace("of/", "of /")
    result = json.loads(mein("evaluate", run, files[5], "--json").out)
    assert set(result) == {"run", "systems", "verdict"}
    rows = result["systems"]
    assert [row["system"] for row in rows][-1] == "mixture"
    verdict = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    (evaluated,) = [line for line in verdict if line.get("system") == "mixture"]
    assert rows[-1]["error"] == pytest.approx(evaluated["error"])


def test_columns_named_in_training_are_known_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    write_csv(path, TEXTS.labeled_texts, TEXTS.labeled_labels)
    path.write_text(
        path.read_text(encoding="utf-8").replace("text,label", "opinion,kind", 1),
        encoding="utf-8",
        newline="",
    )
    columns = ["--text-column", "opinion", "--label-column", "kind"]
    assert mein("train", "--labeled", path, "--out", tmp_path / "run", *TINY, *columns).code == 0
    assert mein("evaluate", tmp_path / "run", path).code == 0
    assert mein("predict", tmp_path / "run", path, "--out", tmp_path / "out.csv").code == 0


def test_raw_text_s_own_column_is_found_and_reported_by_every_command(tmp_path: Path) -> None:
    odd, raw = (
        write_csv(tmp_path / "odd.csv", TEXTS.labeled_texts, TEXTS.labeled_labels),
        tmp_path / "raw.csv",
    )
    content = odd.read_text(encoding="utf-8").replace("text,label", "opinion,label", 1)
    odd.write_text(content, encoding="utf-8", newline="")
    write_csv(raw, TEXTS.unlabeled_texts)
    run, named = tmp_path / "run", ["--text-column", "opinion"]
    brief = ["--set", "expert.kind=lm-lstm", "--set", "pretraining.epochs=1", "--set", "pretraining.lanes=4"]
    commands = [
        ["train", "--labeled", odd, "--unlabeled", raw, "--out", run, *TINY, *named],
        ["store", "encode", "--like", run, "--text", raw, "--out", tmp_path / "store", "--workers", 1],
        ["pretrain", "--text", odd, "--text", raw, "--out", tmp_path / "lm", *TINY, *brief, *named],
    ]
    for command in commands:
        answer = mein(*command)
        assert answer.code == 0, answer
        assert answer.out.count(f"{raw} lacks the column 'opinion': 'text' is taken for the text.") == 1
    sentence = r".*raw\.csv has no column 'words' among 'text'; set columns\.text to its name .*"
    refuses(sentence, *commands[1], "--text-column", "words")  # about this very text


def test_predict_keeps_the_other_columns(run: Path, files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    answer = mein("predict", run, files[5], "--out", out)
    assert answer == Answer(0, f"Labeled 40 documents in {out}.\n", "")
    assert pq.read_table(out).column_names == ["text", "label", "predicted_label", "probability"]


def test_explain_shows_parts_that_add_up(run: Path) -> None:
    text = TEXTS.test_texts[0]
    answer = mein("explain", run, text, "--top", "5")
    assert answer.code == 0, answer
    whole, *parts = map(float, re.findall(r"[+-]\d+\.\d\d(?= )", answer.out.splitlines()[1] + " "))
    assert whole == pytest.approx(sum(parts), abs=0.02)
    assert fits(answer.out[answer.out.index("\n") :])
    explanation = json.loads(mein("explain", run, text, "--json").out)
    assert {"label", "probability", "log_odds", "expert", "imitators", "fragments"} <= set(explanation)
    shown = answer.out.count("positive") + answer.out.count("negative")
    assert shown == 2 + 5 or "No fragment moved it" in answer.out


def test_brackets_are_not_taken_for_markup(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "a[bold]:smile:.toml"
    assert mein("init", path).out.startswith(f"Wrote {path}; ")
    assert mein("explain", run, "[bold]lovely[/bold] [/]").code == 0
