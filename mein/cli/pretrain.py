"""mein pretrain."""

from collections.abc import Sequence
from pathlib import Path

from mein.cli.console import log, open_console
from mein.cli.run_train import Settings, show_columns, show_vocabularies
from mein.config import Config, load_config, merged
from mein.data.readers import read_documents
from mein.errors import ConfigError
from mein.experts.kinds import KINDS
from mein.mixture.inference import choose_device
from mein.run.pretrain import adapt, pretrain
from mein.run.steps import texts_of
from mein.runtime.progress import Terminal
from mein.runtime.run_folder import RunFolder


def run_pretraining(paths: Sequence[str], out: Path, settings: Settings, resume: bool) -> None:
    """Train a language model on the texts of some files, or let a transformer read them; say what to do."""
    console = open_console()
    config = _config_of(settings)
    choose_device(config.runtime.device)
    show_vocabularies(out, resume, console)
    for path in paths:
        next(read_documents(path, config.columns, labeled=False, may_guess=True))
        show_columns(path, config.columns, console)
    texts = texts_of(paths, config.columns)
    name, terminal = ", ".join(paths), Terminal(console)
    if config.expert.traits.has_encoder:
        found = adapt(config, texts, name, out, terminal, resume=resume)
        what, use = "transformer", f"--preset {config.expert.kind} --set expert.model={out}"
    else:
        found = pretrain(config, texts, name, RunFolder(out), terminal, resume=resume)
        what, use = "language model", f"--lm {out}"
    log(console, f"Perplexity on held-out text: {found:.1f}.", "bold")
    log(console, f"The {what} is in {out}: use it with `mein train {use} ...`.")


def _config_of(settings: Settings) -> Config:
    """The settings; an expert that cannot learn from raw text is lm-lstm, unless --set names another."""
    preset, file, overrides = settings
    expert = merged(preset, file, overrides).get("expert")
    kind = KINDS.get(str(expert.get("kind"))) if isinstance(expert, dict) else None
    if kind is None or not kind.has_encoder:
        overrides = {"expert.kind": "lm-lstm", **overrides}
    config = load_config(preset, file, overrides)
    traits, is_started = config.expert.traits, config.expert.language_model is not None
    if not traits.has_encoder and (not traits.has_language_model or is_started):
        raise ConfigError(
            f"expert.kind is {config.expert.kind!r}: to train a language model set it to lm-lstm or "
            "elmo-lstm, and leave expert.language_model out."
        )
    return config
