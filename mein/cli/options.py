"""Options that several commands share: name, help, and the setting that each one sets, if any.

An option of one command is declared in that command's signature. To give a setting an option of its own, mark
the option with Sets: `device: Annotated[str | None, typer.Option(), Sets("runtime.device")] = None`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mein.cli.help import whole


def absolute(path: str | Path) -> str:
    """A path or glob that means the same from everywhere; a URL unchanged."""
    text = str(path)
    return text if "://" in text else os.path.abspath(text)  # noqa: PTH100 - Path would change a glob


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


# Headings of help, in the order of `mein train --help`.

DATA, MODEL, RUN, RAY = "Data", "Model", "Run", "Ray (many machines)"

# Documents.

Labeled = Annotated[
    str,
    typer.Option(
        metavar="FILE", rich_help_panel=DATA, help="Labeled documents: a file, folder, glob, or URL."
    ),
]
Unlabeled = Annotated[
    str | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="Unlabeled documents.")
]
Dev = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=DATA,
        help="Labeled validation documents. Default: a part of --labeled.",
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", rich_help_panel=DATA, help="Labeled test documents, evaluated once, after training."
    ),
]
RawText = Annotated[
    list[str],
    typer.Option(
        "--text",
        metavar="FILE",
        rich_help_panel=DATA,
        help="Unlabeled documents: a file, folder, glob, or URL. Repeatable.",
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=DATA, help="Column with the text. Default: guessed."),
    Sets("columns.text"),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=DATA, help="Column with the label. Default: guessed."),
    Sets("columns.label"),
]

# Runs and output.

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FOLDER", rich_help_panel=RUN, help="Run folder to create."),
]
Resume = Annotated[
    bool, typer.Option("--resume", rich_help_panel=RUN, help="Continue a run that was stopped.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, all else on stderr.")]
IsQuiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
IsVerbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print times, and in training the device.")
]

# Settings.

Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=MODEL,
        help="small, full, frozen, transformer, paper, and others. Default: full with a GPU, small without.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        rich_help_panel=MODEL,
        help="Config file from `mein init`, or a run's config.json.",
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        rich_help_panel=MODEL,
        help="Setting, such as imitators.windows=[1,2]. Repeatable.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=RUN,
        help="Seed of all randomness. Default: 0.",
        parser=whole("--seed", 0),
    ),
    Sets("seed"),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=MODEL,
        help="Hugging Face encoder as the expert, frozen except with --preset transformer: a folder or a "
        "name on the hub.",
    ),
]
SoftLabelFile = Annotated[
    str | None,
    typer.Option(
        "--soft-labels",
        metavar="FILE",
        rich_help_panel=MODEL,
        help="A teacher's probabilities: a table with a column `probabilities`.",
    ),
    Sets("expert.model", absolute, also={"expert.kind": "given"}),
]
FromRun = Annotated[
    Path | None,
    typer.Option(
        "--from-run",
        metavar="RUN",
        rich_help_panel=MODEL,
        help="Self-training round: also learn a finished run's predictions.",
    ),
    Sets("expert.from_run", resolved),
]

# Ray.

EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=RAY,
        help="processes (this machine) or ray (a cluster). Default: processes.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", rich_help_panel=RAY, help="Address of a Ray cluster. Default: start a local one."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=RAY,
        help="Training processes on Ray. Default: one per GPU or machine.",
        parser=whole("--processes", 1),
    ),
]
