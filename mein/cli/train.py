"""mein train, mein pretrain, as the shell knows them."""

from typing import Annotated

import typer

from mein.cli.options import (
    Address,
    ConfigFile,
    Dev,
    Engine,
    FromRun,
    LabelColumn,
    Labeled,
    LanguageModel,
    Out,
    Preset,
    Processes,
    Resume,
    Seed,
    Set,
    SoftLabelFile,
    Test,
    TextColumn,
    Unlabeled,
    absolute,
)

Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Train so many times; gives mean and spread.")]


def train(
    labeled: Labeled,
    out: Out,
    unlabeled: Unlabeled = None,
    dev: Dev = None,
    test: Test = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Seed = None,
    seeds: Seeds = 1,
    resume: Resume = False,
    lm: LanguageModel = None,
    soft_labels: SoftLabelFile = None,
    from_run: FromRun = None,
    engine: Engine = "processes",
    address: Address = None,
    processes: Processes = None,
) -> None:
    """Train a classifier and judge it beside its controls.

    Settings come from the defaults, then the preset, then the config, then --set: the last word wins.
    """
    from mein.cli.run_train import run_training
    from mein.config import parse_overrides
    from mein.model.pretrained import settings_of_language_model

    taught_by = from_run and str(from_run.resolve())
    named = {"columns.text": text_column, "columns.label": label_column, "expert.from_run": taught_by}
    given = {name: value for name, value in (named | {"seed": seed}).items() if value is not None}
    chosen = parse_overrides(set_)
    if lm is not None:
        given["expert.language_model"] = str(lm.resolve())
        chosen = settings_of_language_model(lm) | chosen
    if soft_labels is not None:
        given |= {"expert.kind": "given", "expert.model": absolute(soft_labels)}
    paths, settings = (labeled, unlabeled, dev, test), (preset, config, chosen | given)
    run_training(paths, out, settings, seeds, resume, (engine, address), processes)


def pretrain(
    text: Annotated[
        list[str],
        typer.Option("--text", metavar="FILE", help="Raw documents; repeatable; no label is read."),
    ],
    out: Out,
    text_column: TextColumn = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Seed = None,
    resume: Resume = False,
) -> None:
    """Train a language model on raw text, for `mein train --lm`.

    With --preset transformer or frozen, expert.model itself reads the text, as a masked language model: give
    `mein train` the folder that is left as its expert.model.

    Give it the training documents, labeled and not, and neither dev nor test.
    """
    from mein.cli.pretrain import run_pretraining
    from mein.config import parse_overrides

    named = {"columns.text": text_column, "seed": seed}
    given = {name: value for name, value in named.items() if value is not None}
    run_pretraining(text, out, (preset, config, parse_overrides(set_) | given), resume)
