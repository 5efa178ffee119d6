"""From the folder of a finished run to its classifier, and to what that is compared with."""

from pathlib import Path

import numpy as np
import torch

from mein.config import Config, make_config
from mein.data.labels import Labels
from mein.data.soft_labels import SoftLabels
from mein.errors import ConfigError, RunError
from mein.evaluation.systems import MIXTURE, SYSTEMS
from mein.mixture.inference import choose_device
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN, load_lexicon
from mein.model.artefacts import SEALED, damaged, load_indexer, restore, verify
from mein.model.build import HUB, build_expert, build_imitators, open_reader
from mein.model.model import Model
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import load_tensors


def load_model(path: Path, device: str = "auto", soft_labels: SoftLabels | None = None) -> Model:
    """The classifier that a finished run left in its folder; a function that taught it must come along."""
    folder = RunFolder(path)
    config = read_config(folder)
    if not folder.is_done:
        raise RunError(f"The run in {path} is not finished: continue it with `mein train --resume`.")
    verify(folder, "done", SEALED)
    return load_variant(folder, config, MIXTURE, choose_device(device), soft_labels)


def read_config(folder: RunFolder) -> Config:
    """The configuration of a run."""
    if not folder.path.is_dir():
        raise RunError(f"There is no run folder {folder.path}: give the one that `mein train --out` wrote.")
    content = folder.read_json("config.json")
    try:
        return make_config(content["config"])
    except (KeyError, TypeError, ValueError, ConfigError) as problem:
        raise RunError(
            f"{folder / 'config.json'} is damaged or of another version of mein ({problem}): "
            "restore it from a copy, or use that version."
        ) from problem


def load_variant(
    folder: RunFolder,
    config: Config,
    name: str,
    device: torch.device,
    soft_labels: SoftLabels | None = None,
    *,
    knows_dev: bool = True,
) -> Model:
    """The mixture, or what it is compared with; its lexicon knows dev's labels too, unless it must not."""
    labels, prior = read_labels(folder)
    reader = open_reader(config, folder, labels.classes, device, soft_labels)
    indexer = load_indexer(config, folder, reader)
    is_taught = any(key.startswith("outputs.") for key in load_tensors(folder / "imitators.safetensors")[0])
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and then replaced
        expert = build_expert(config, folder, indexer, len(labels.classes))
        imitators = build_imitators(config, indexer.pieces.size, len(labels.classes), is_taught)
    facts = restore(folder, name, expert)
    imitator_facts = restore(folder, "imitators", imitators)
    gates, lexicon = np.array(facts["gates"]), None
    if SYSTEMS[name].uses_lexicon and is_taught and config.mixture.uses_lexicon:
        lexicon = load_lexicon(folder / (LEXICON if knows_dev else LEXICON_OF_TRAIN)).with_gate(gates[-1])
        gates = gates[:-1]
    return Model(
        config=config,
        labels=labels,
        prior=prior,
        indexer=indexer,
        expert=expert.to(device),
        imitators=imitators.to(device),
        gates=gates,
        temperature=facts["temperature"],
        imitator_temperature=imitator_facts["temperature"],
        hub=folder / HUB if (folder / HUB).exists() else None,
        lexicon=lexicon,
    )


def read_labels(folder: RunFolder) -> tuple[Labels, np.ndarray]:
    """The classes and the share of each in training (Y,)."""
    content = folder.read_json("labels.json")
    try:
        labels, prior = Labels(tuple(content["classes"])), np.array(content["prior"], np.float64)
    except (KeyError, TypeError, ValueError) as problem:
        raise damaged(folder / "labels.json") from problem
    if prior.shape != (len(labels.classes),):
        raise damaged(folder / "labels.json")
    return labels, prior
