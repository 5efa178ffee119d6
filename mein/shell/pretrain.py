"""mein pretrain."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from mein.config import load_config
from mein.data.readers import Documents, read_documents
from mein.errors import ConfigError
from mein.inference import choose_device
from mein.pretrain import pretrain
from mein.progress import Terminal
from mein.shell.console import open_console, say
from mein.shell.train import Settings, refuse_resuming_nothing
from mein.training.folder import RunFolder


def run_pretraining(paths: Sequence[str], out: Path, settings: Settings, resume: bool) -> None:
    """Train a language model on the texts of some files, and say how to use it."""
    console = open_console()
    config = load_config(*settings)
    if not config.expert.has_language_model or config.expert.language_model is not None:
        raise ConfigError(
            f"expert.kind is {config.expert.kind!r}: to train a language model set it to lm-lstm or "
            "elmo-lstm, and leave expert.language_model out."
        )
    choose_device(config.runtime.device)
    refuse_resuming_nothing(out, resume)
    for path in paths:
        next(read_documents(path, config.columns, labeled=False))

    def texts() -> Iterator[Documents]:
        for path in paths:
            yield from read_documents(path, config.columns, labeled=False)

    name = ", ".join(paths)
    found = pretrain(config, texts, name, RunFolder(out), Terminal(console), resume=resume)
    say(console, f"Perplexity on held-out text: {found:.1f}.", "bold")
    say(console, f"The language model is in {out}: use it with `mein train --lm {out} ...`.")
