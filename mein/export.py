"""A run's transformer, as the labels tuned it, in a folder that everybody's programs can read."""

from pathlib import Path

from mein.artefacts import restore
from mein.building import HUB
from mein.errors import ConfigError, RunError
from mein.hub import leave, load_transformer
from mein.hub.leaving import TEMPORARY
from mein.steps import FinishedRun


def export_transformer(path: Path, out: Path) -> None:
    """Leave the expert of a finished run in an empty folder: network, head, names of classes, tokenizer."""
    run = FinishedRun.open(path)
    kind = run.config.expert.kind
    if kind != "transformer":
        raise ConfigError(
            f"The expert of {path} is {kind!r}, which Hugging Face does not know: "
            "export a run of --preset transformer."
        )
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - {TEMPORARY}):
        raise RunError(f"{out} is there and no empty folder: empty it, or choose another --out.")
    classes = [str(label) for label in run.labels.classes]
    expert = load_transformer(run.folder / HUB, len(classes), run.config.seed)
    restore(run.folder, "expert", expert)
    config = expert.network.config
    config.id2label = dict(enumerate(classes))  # type: ignore[union-attr]
    config.label2id = {name: number for number, name in enumerate(classes)}  # type: ignore[union-attr]
    leave(expert.network, expert.network.state_dict(), run.folder / HUB, out)
