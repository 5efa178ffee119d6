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


# Documents.

Labeled = Annotated[
    str, typer.Option(metavar="FILE", help="Labeled documents: a file, folder, glob, or URL.")
]
Unlabeled = Annotated[str | None, typer.Option(metavar="FILE", help="Unlabeled documents.")]
Dev = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Labeled validation documents. Default: a part of --labeled."),
]
Test = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labeled test documents, evaluated once, after training.")
]
RawText = Annotated[
    list[str],
    typer.Option(
        "--text", metavar="FILE", help="Unlabeled documents: a file, folder, glob, or URL. Repeatable."
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column with the text. Default: guessed."),
    Sets("columns.text"),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column with the label. Default: guessed."),
    Sets("columns.label"),
]

# Runs.

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Run folder to create.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what was stopped.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]

# Settings.

Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="small, full, frozen, transformer, paper, ... Default: full with a GPU, small without.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Config file from `mein init`, or a run's config.json."),
]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Setting, such as imitators.windows=[1,2]. Repeatable."),
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="Seed of all randomness. Default: 0."), Sets("seed")
]
LanguageModelFolder = Annotated[
    Path | None,
    typer.Option("--lm", metavar="FOLDER", help="Language model from `mein pretrain`."),
    Sets("expert.language_model", resolved),
]
SoftLabelFile = Annotated[
    str | None,
    typer.Option(
        "--soft-labels", metavar="FILE", help="Teacher's soft labels: a table with a column `probabilities`."
    ),
    Sets("expert.model", absolute, also={"expert.kind": "given"}),
]
FromRun = Annotated[
    Path | None,
    typer.Option(
        "--from-run", metavar="RUN", help="Self-training round: also learn a finished run's predictions."
    ),
    Sets("expert.from_run", resolved),
]

# Engines.

EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="processes (this machine) or ray (a cluster).")
]
Address = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address of a Ray cluster. Default: start a local one.")
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Training processes on Ray. Default: one per GPU or machine."),
]
