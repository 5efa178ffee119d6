"""`mein pretrain`: a language model, or a transformer pre-trained further, from raw text.

A language model is an artefact in a folder of its own, or inside a run. A transformer is left in a folder
that other programs can load as well:

config.json, model.safetensors ...  what transformers writes for an encoder and a tokenizer; config.json last
1_Pooling/config.json               how its states become features
pretraining/                        the run folder that it comes from: settings, metrics, encoded text
"""

import shutil
from pathlib import Path

import torch

from mein.config import Config, refuse_large_rate
from mein.data.corpus import DocumentStream
from mein.errors import ConfigError, RunError
from mein.hub import HubTokenizer, fetch_masked, load_masked, save_encoder
from mein.hub.fetch import CONFIG, WEIGHTS
from mein.model.artefacts import HUB, load_indexer, seal
from mein.model.build import ADAPTED
from mein.run.prepare import encode_raw
from mein.run.warm_start import language_model
from mein.runtime import ranks
from mein.runtime.device import choose_device
from mein.runtime.progress import Quiet, Reporter
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_facts
from mein.store.store import Store
from mein.training.language_model import STAGE
from mein.training.loop import Runtime
from mein.training.masked import MASKED_STAGE, train_masked_model


def pretrain(
    config: Config,
    source: DocumentStream,
    name: str,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
) -> float:
    """Train a language model on the source's text, in a folder; its perplexity on held-out text."""
    reporter = reporter if ranks.is_first() else Quiet()
    with folder.held():
        identity = config.model_dump(mode="json", exclude={"runtime"})
        with ranks.first_goes_ahead():
            folder.claim({"config": identity, "data": {"text": name}}, resume)
            encode_raw(config, source, folder, reporter)
        runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
        stores = [Store.open(folder / f"encoded/{part}") for part in ("unlabeled", "held_out")]
        words = load_indexer(config, folder).words
        device = choose_device(config.runtime.device)
        language_model(config, words, stores[:1], stores[1], runtime, device)
        if ranks.is_first() and not folder.is_done:
            folder.write_json("labels.json", {"classes": [], "prior": []})
            seal(folder)
        return float(load_facts(folder / f"{STAGE}.safetensors")["perplexity"])


def adapt(
    config: Config, source: DocumentStream, name: str, out: Path, reporter: Reporter, *, resume: bool = False
) -> float:
    """Pre-train the expert's encoder further on the source's text, in `out`; its held-out perplexity."""
    refuse_large_rate(config, "pretraining")
    if config.expert.frozen_layers is not None:
        raise ConfigError("Pre-training trains all layers of a transformer: leave expert.frozen_layers out.")
    reporter = reporter if ranks.is_first() else Quiet()
    folder = RunFolder(out / ADAPTED)
    if ranks.is_first():
        _refuse_unknown_files(out)
    with folder.held():
        identity = config.model_dump(mode="json", exclude={"runtime"})
        with ranks.first_goes_ahead():
            folder.claim({"config": identity, "data": {"text": name}}, resume)
            tokenizer = _fetched_tokenizer(config, folder)
            encode_raw(config, source, folder, reporter, tokenizer)
        if ranks.exists(folder / "done"):
            _refuse_missing_model(out)
        else:
            runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
            _pretrain_encoder(
                config, tokenizer.max_length, out, runtime, choose_device(config.runtime.device)
            )
        folder.drop(f"{MASKED_STAGE}.checkpoint.safetensors")
        return min(float(line["perplexity"]) for line in folder.metrics(MASKED_STAGE))


def _fetched_tokenizer(config: Config, folder: RunFolder) -> HubTokenizer:
    """Fetch the model into the folder; a model that is refused does not claim the folder."""
    assert config.expert.model is not None
    try:
        fetch_masked(config.expert.model, folder / HUB, config.expert.layers)
        return HubTokenizer(folder / HUB, config.words.max_length, reads_on=True)
    except ConfigError:
        shutil.rmtree(folder / HUB, ignore_errors=True)
        folder.drop("config.json")
        raise


def _refuse_missing_model(out: Path) -> None:
    """Refuse a finished folder that has lost its model."""
    if not (out / CONFIG).is_file() or not any((out / name).is_file() for name in WEIGHTS):
        raise RunError(f"{out} was finished, but its model is gone: restore it, or choose another --out.")


def _pretrain_encoder(
    config: Config, longest: int | None, out: Path, runtime: Runtime, device: torch.device
) -> None:
    """Train, leave the encoder in `out`, and mark the run as finished."""
    folder = runtime.folder
    model, vocabulary = load_masked(folder / HUB, config.seed)
    text, held_out = (Store.open(folder / f"encoded/{part}") for part in ("unlabeled", "held_out"))
    runtime.reporter.log("The transformer learns from the text (*: the best epoch so far)")
    settings = config.pretraining
    train_masked_model(model.to(device), vocabulary, text, held_out, longest, settings, runtime, config.seed)
    if ranks.is_first():
        save_encoder(model, folder / HUB, out)
        folder.write_json("labels.json", {"classes": [], "prior": []})
        seal(folder)
    ranks.barrier()  # the first may still be writing


def _refuse_unknown_files(out: Path) -> None:
    """Refuse a folder that holds files, unless it is one that `adapt` began."""
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if names and ADAPTED not in names:
        raise RunError(
            f"{out} exists and is not what `mein pretrain` leaves of a transformer (it holds {names[0]!r}): "
            "choose an empty folder for --out."
        )
