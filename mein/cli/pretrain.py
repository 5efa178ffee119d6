"""mein pretrain: a language model from unlabeled text. One module per command."""

from typing import TYPE_CHECKING

from mein.cli.console import Output
from mein.cli.options import (
    ConfigFile,
    IsQuiet,
    IsVerbose,
    Out,
    Preset,
    RawText,
    Resume,
    Seed,
    Set,
    TextColumn,
    settings_given,
)
from mein.cli.train import GivenSettings
from mein.cli.training import note_columns, note_whether_new
from mein.errors import ConfigError

if TYPE_CHECKING:
    from mein.config import Config


def pretrain(
    text: RawText,
    out: Out,
    text_column: TextColumn = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Seed = None,
    resume: Resume = False,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
) -> None:
    """Train a language model on unlabeled text, for many runs.

    Use the training documents, labeled and unlabeled, but neither dev nor test. Labels are not read.

    Examples:
      mein pretrain --text train.csv --text raw.jsonl.gz --out runs/lm
      mein train --labeled train.csv --set expert.language_model=runs/lm
    """
    from mein.config import parse_overrides

    given = settings_given(pretrain, locals())
    settings = _config_of(GivenSettings(preset, config, parse_overrides(set_) | given))
    from mein.data.readers import read_documents  # what takes seconds to import waits for what is refused
    from mein.run.pretrain import pretrain as train_language_model
    from mein.run.steps import texts_of
    from mein.runtime.device import choose_device
    from mein.runtime.run_folder import RunFolder

    output = Output(quiet, verbose)
    choose_device(settings.runtime.device)
    note_whether_new(out, resume, output)
    for path in text:
        next(read_documents(path, settings.columns, labeled=False, may_guess=True))
        note_columns(path, settings.columns, output)
    texts = texts_of(text, settings.columns)
    name, reporter = ", ".join(text), output.reporter
    found = train_language_model(settings, texts, name, RunFolder(out), reporter, resume=resume)
    output.log(f"Perplexity on held-out text: {found:.1f}.", "bold")
    use = f"`mein train --set expert.language_model={out} ...`"
    output.log(f"The language model is in {out}: use it with {use}.")


def _config_of(settings: GivenSettings) -> "Config":
    """The settings; an expert that cannot learn from raw text is lm-lstm, unless --set names another."""
    from mein.config import load_config, merged
    from mein.experts.config import KINDS

    preset, file, overrides = settings.preset, settings.file, settings.overrides
    expert = merged(preset, file, overrides).get("expert")
    kind = KINDS.get(str(expert.get("kind"))) if isinstance(expert, dict) else None
    if kind is None or not kind.has_encoder:
        overrides = {"expert.kind": "lm-lstm", **overrides}
    config = load_config(preset, file, overrides)
    traits, is_started = config.expert.traits, config.expert.language_model is not None
    if traits.has_encoder:
        raise ConfigError(
            f"expert.kind is {config.expert.kind!r}: mein pre-trains no transformer. Use "
            "scripts/adapt.py of the checkout, and pass its folder to `mein train` as expert.model."
        )
    if not traits.has_language_model or is_started:
        raise ConfigError(
            f"expert.kind is {config.expert.kind!r}: to train a language model, set it to lm-lstm or "
            "elmo-lstm, and remove expert.language_model."
        )
    return config
