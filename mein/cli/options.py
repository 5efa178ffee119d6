"""The options that commands of the shell share: one name, one meaning."""

import os
from pathlib import Path
from typing import Annotated

import typer

Labeled = Annotated[str, typer.Option(metavar="FILE", help="Labeled documents: a file, folder, glob or URL.")]
Unlabeled = Annotated[str | None, typer.Option(metavar="FILE", help="Raw documents, without labels.")]
Dev = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labeled documents to choose by; else some are split off.")
]
Test = Annotated[
    str | None, typer.Option(metavar="FILE", help="Labeled documents to judge by, once, at the end.")
]
TextColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column with the text; else guessed.")
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column with the label; else guessed.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="small (a CPU), full (a GPU), frozen, transformer, paper ...; else what fits."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A config of `mein init`, or a run's config.json."),
]
Set = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Such as imitators.windows=[1,2]; repeatable.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="All randomness comes from it.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="The run folder to make.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
LanguageModel = Annotated[
    Path | None, typer.Option("--lm", metavar="FOLDER", help="A language model of `mein pretrain`.")
]
SoftLabelFile = Annotated[
    str | None,
    typer.Option("--soft-labels", metavar="FILE", help="Documents with a teacher's column `probabilities`."),
]
FromRun = Annotated[
    Path | None,
    typer.Option("--from-run", metavar="RUN", help="Also learn what a finished run says of raw text."),
]

EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="processes, or ray: many machines.")
]
Address = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a Ray cluster; else a local one is started.")
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="To train in, on Ray; else one a GPU, or a machine."),
]


def absolute(path: str) -> str:
    """A path or glob that means the same from everywhere; a URL as it is."""
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - Path would eat a glob's signs
