"""Options that several commands share: name, help, and the setting that each one sets, if any.

An option of one command is declared in that command's signature. To give a setting an option of its own, mark
the option with Sets: `device: Annotated[str | None, typer.Option(), Sets("runtime.device")] = None`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mein.errors import UsageError, shown
from mein.runtime.files import absolute


def option(
    metavar: str,
    meaning: str,
    heading: str | None = None,
    *,
    names: str = "",
    parser: Callable[[str], Any] | None = None,
) -> Any:
    """An option with a value; without names, it has that of its parameter."""
    return typer.Option(*names.split(), metavar=metavar, help=meaning, rich_help_panel=heading, parser=parser)


def flag(names: str, meaning: str, heading: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(*names.split(), help=meaning, rich_help_panel=heading)


def argument(metavar: str, meaning: str) -> Any:
    """A value without a name."""
    return typer.Argument(metavar=metavar, help=meaning)


def whole(name: str, least: int, most: int = 10_000) -> Callable[[str], int]:
    """A parser of an option whose value is a whole number within bounds."""
    return _number(name, int, least, most, f"a whole number from {least} to {most}")


def share(name: str) -> Callable[[str], float]:
    """A parser of an option whose value is a probability."""
    return _number(name, float, 0, 1, "a probability from 0 to 1")


def _number(name: str, kind: type[float], least: float, most: float, wish: str) -> Callable[[str], Any]:
    def parse(text: str) -> float:
        with suppress(ValueError):
            if least <= (number := kind(text)) <= most:
                return number
        raise UsageError(f"{name} {shown(str(text))}: give {wish}.")

    return parse


def resolved(path: Path) -> str:
    """A path without links, as a run's config keeps it."""
    return str(path.resolve())


@dataclass(frozen=True)
class Sets:
    """Marks an option as an abbreviation of `--set SETTING=VALUE`; `also` is set with it."""

    setting: str
    convert: Callable[[Any], Any] | None = None
    also: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, value: Any) -> dict[str, Any]:
        """The settings that a given value stands for."""
        return {self.setting: value if self.convert is None else self.convert(value), **self.also}


def settings_given(command: Callable[..., None], values: Mapping[str, Any]) -> dict[str, Any]:
    """What the options of a command set: those that were given and are marked with Sets."""
    given: dict[str, Any] = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Sets)]
        for mark in marks if values.get(name) is not None else ():
            given |= mark.settings(values[name])
    return given


LARGEST_SEED = 2**63 - 1

# Headings of help, in the order of `mein train --help`.

DATA, MODEL, RUN, RAY = "Data", "Model", "Run", "Ray (many machines)"

# Documents.

Labeled = Annotated[str, option("FILE", "Labeled documents: a file, folder, glob, or URL.", DATA)]
Unlabeled = Annotated[str | None, option("FILE", "Unlabeled documents.", DATA)]
Dev = Annotated[
    str | None, option("FILE", "Labeled validation documents. Default: part of --labeled, or folds.", DATA)
]
Test = Annotated[str | None, option("FILE", "Labeled test documents, evaluated once, after training.", DATA)]
RawText = Annotated[
    list[str], option("FILE", "Unlabeled documents: a file, folder, glob, or URL. Repeatable.", DATA)
]
TextColumn = Annotated[
    str | None, option("NAME", "Column with the text. Default: guessed.", DATA), Sets("columns.text")
]
LabelColumn = Annotated[
    str | None, option("NAME", "Column with the label. Default: guessed.", DATA), Sets("columns.label")
]

# Runs and output.

RunPath = Annotated[Path, argument("RUN", "Run folder.")]
Out = Annotated[Path, option("FOLDER", "Run folder to create.", RUN, names="--out -o")]
Resume = Annotated[bool, flag("--resume", "Continue a run that was stopped.", RUN)]
AsJson = Annotated[bool, flag("--json", "Print JSON on stdout, all else on stderr.")]
IsQuiet = Annotated[bool, flag("--quiet -q", "Print errors only.")]
IsVerbose = Annotated[bool, flag("--verbose -v", "Also print times, and in training the device.")]

# Settings.

Preset = Annotated[
    str | None,
    option(
        "NAME",
        "small, full, frozen, transformer, paper, and others. Default: full with a GPU, small without.",
        MODEL,
    ),
]
ConfigFile = Annotated[
    Path | None, option("FILE", "Config file from `mein init`, or a run's config.json.", MODEL)
]
Set = Annotated[
    list[str],
    option("KEY=VALUE", "Setting, such as imitators.windows=[1,2]. Repeatable.", MODEL, names="--set"),
]
Seed = Annotated[
    int | None,
    option("N", "Seed of all randomness. Default: 0.", RUN, parser=whole("--seed", 0, LARGEST_SEED)),
    Sets("seed"),
]
Encoder = Annotated[
    str | None,
    option(
        "NAME",
        "Hugging Face encoder as the expert, frozen except with --preset transformer: a folder, a name on "
        "the hub, or auto (all-MiniLM-L6-v2, 91 MB, at a fixed commit).",
        MODEL,
    ),
]
SoftLabelFile = Annotated[
    str | None,
    option("FILE", "A teacher's probabilities: a table with a column `probabilities` or `label`.", MODEL),
    Sets("expert.model", absolute, also={"expert.kind": "given"}),
]
FromRun = Annotated[
    Path | None,
    option("RUN", "Self-training round: also learn a finished run's predictions.", MODEL),
    Sets("expert.from_run", resolved),
]

# Ray.

EngineName = Annotated[
    str, option("NAME", "processes (this machine) or ray (a cluster). Default: processes.", RAY)
]
Address = Annotated[
    str | None, option("ADDRESS", "Address of a Ray cluster. Default: start a local one.", RAY)
]
Processes = Annotated[
    int | None,
    option(
        "N",
        "Training processes on Ray. Default: one per GPU or machine.",
        RAY,
        parser=whole("--processes", 1),
    ),
]
