"""An option of a command is one declaration: its flag, its help, and the setting that it sets."""

import json
from pathlib import Path
from typing import Annotated, get_type_hints

import typer
from typer.testing import CliRunner

import mein.cli.main
from mein.cli.options import FromRun, Seed, Set, Sets, settings_given
from mein.config import Config, is_section, load_config, parse_overrides


def toy(
    windows: Annotated[
        str | None,
        typer.Option(help="Window widths, such as 1+2."),
        Sets("imitators.windows", lambda text: [int(c) for c in text.split("+")]),
    ] = None,
    seed: Seed = None,
    from_run: FromRun = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
) -> None:
    """Print three settings."""
    given = settings_given(toy, locals())
    config = load_config("small", overrides=parse_overrides(set_) | given)
    print(json.dumps([config.imitators.windows, config.seed, config.expert.from_run]))


def answer(*words: str) -> list[object]:
    """What the toy command prints."""
    app = typer.Typer()
    app.command()(toy)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found: list[object] = json.loads(result.output)
    return found


def test_a_new_option_sets_an_existing_setting_by_its_declaration_only() -> None:
    assert answer("--windows", "1+2") == [[1, 2], 0, None]


def test_an_option_that_is_not_given_sets_nothing() -> None:
    assert answer("--set", "seed=3", "--set", "imitators.windows=[4]") == [[4], 3, None]


def test_an_option_wins_over_set() -> None:
    assert answer("--set", "seed=3", "--seed", "7")[1] == 7


def test_a_path_is_kept_absolute(tmp_path: Path) -> None:
    words = ("--from-run", str(tmp_path / "x" / ".." / "run"), "--set", "expert.kind=average")
    assert answer(*words)[2] == str(tmp_path / "run")


def test_every_option_that_sets_something_names_a_setting() -> None:
    names = {
        f"{section}.{name}" if is_section(section) else section
        for section, field in Config.model_fields.items()
        for name in (type(field.default).model_fields if is_section(section) else [section])
    }
    marks = [
        mark
        for command in mein.cli.main.app.registered_commands
        for hint in get_type_hints(command.callback, include_extras=True).values()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Sets)
    ]
    assert len(marks) >= 5
    assert {name for mark in marks for name in (mark.setting, *mark.also)} <= names
