"""A transformer that has read raw text, as an artefact: a folder that everybody's programs can read.

config.json, model.safetensors ...  what transformers writes for an encoder and a tokenizer; config.json last
1_Pooling/config.json               how its states become features
pretraining/                        the run folder that it comes from: settings, metrics, encoded text
"""

import shutil
from pathlib import Path

import torch

from mein import ranks
from mein.artefacts import seal
from mein.building import ADAPTED, HUB
from mein.config import Config, refuse_large_rate
from mein.data.corpus import Source
from mein.errors import ConfigError, RunError
from mein.hub import HubTokenizer, fetch_masked, load_masked, save_encoder
from mein.hub.source import CONFIG, WEIGHTS
from mein.inference import choose_device
from mein.prepare import prepare_raw
from mein.progress import Reporter, Silence
from mein.text.store import Store
from mein.training.folder import RunFolder
from mein.training.loop import Runtime
from mein.training.masked import STAGE, train_masked_model


def adapt(
    config: Config, source: Source, name: str, out: Path, reporter: Reporter, *, resume: bool = False
) -> float:
    """Let the expert's encoder read the source's text, and leave it in `out`; its held-out perplexity."""
    refuse_large_rate(config, "pretraining")
    if config.expert.frozen_layers is not None:
        raise ConfigError("All layers of a transformer read raw text: leave expert.frozen_layers out.")
    reporter = reporter if ranks.is_first() else Silence()
    folder = RunFolder(out / ADAPTED)
    if ranks.is_first():
        _refuse_strangers(out)
    with folder.held():
        identity = config.model_dump(mode="json", exclude={"runtime"})
        with ranks.first_goes_ahead():
            folder.claim({"config": identity, "data": {"text": name}}, resume)
            tokenizer = _fetched_tokenizer(config, folder)
            prepare_raw(config, source, folder, reporter, tokenizer)
        if ranks.exists(folder / "done"):
            _refuse_loss(out)
        else:
            runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
            _read_on(config, tokenizer.max_length, out, runtime, choose_device(config.runtime.device))
        folder.drop(f"{STAGE}.checkpoint.safetensors")
        return min(float(line["perplexity"]) for line in folder.metrics(STAGE))


def _fetched_tokenizer(config: Config, folder: RunFolder) -> HubTokenizer:
    """Bring the model into the folder; what is refused here does not take the folder."""
    assert config.expert.model is not None
    try:
        fetch_masked(config.expert.model, folder / HUB, config.expert.layers)
        return HubTokenizer(folder / HUB, config.words.max_length, reads_on=True)
    except ConfigError:
        shutil.rmtree(folder / HUB, ignore_errors=True)
        folder.drop("config.json")
        raise


def _refuse_loss(out: Path) -> None:
    """Refuse a finished folder that has lost its model."""
    if not (out / CONFIG).is_file() or not any((out / name).is_file() for name in WEIGHTS):
        raise RunError(f"{out} was finished, but its model is gone: restore it, or choose another --out.")


def _read_on(config: Config, longest: int | None, out: Path, runtime: Runtime, device: torch.device) -> None:
    """Train, leave the encoder in `out`, and mark the run as finished."""
    folder = runtime.folder
    model, vocabulary = load_masked(folder / HUB, config.seed)
    text, held_out = (Store.open(folder / f"encoded/{part}") for part in ("unlabeled", "held_out"))
    runtime.reporter.say("The transformer learns from the text (*: the best epoch so far)")
    settings = config.pretraining
    train_masked_model(model.to(device), vocabulary, text, held_out, longest, settings, runtime, config.seed)
    if ranks.is_first():
        save_encoder(model, folder / HUB, out)
        folder.write_json("labels.json", {"classes": [], "prior": []})
        seal(folder)
    ranks.barrier()  # the first may still be writing


def _refuse_strangers(out: Path) -> None:
    """Refuse a folder in which something lies, unless a run of ours lies there too."""
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if names and ADAPTED not in names:
        raise RunError(
            f"{out} exists and is not what `mein pretrain` leaves of a transformer (it holds {names[0]!r}): "
            "choose an empty folder for --out."
        )
