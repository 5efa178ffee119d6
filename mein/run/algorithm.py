"""One run: Algorithm 1, with each line's artefact on disk, so that a killed run goes on where it stood."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from mein.config import Config
from mein.data.corpus import Corpus
from mein.data.soft_labels import SoftLabels, SoftLabelTable
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.gates import is_worse, open_gates
from mein.mixture.inference import choose_device
from mein.mixture.mixture import Gates
from mein.model.artefacts import load_indexer, restore
from mein.model.build import build_expert, build_imitators, open_reader, open_soft_labels
from mein.model.model import mixed_logits
from mein.model.pretrained import digest_of_language_model, words_of_language_model
from mein.run.prepare import prepare, read_labeled, refuse_unknown_texts
from mein.run.state import (
    UNLABELED_PARTS,
    Run,
    drawing,
    evidence,
    facts,
    labeled_part,
    learned_lexicon,
    objective_of,
)
from mein.run.teacher import label_documents, learned_teacher
from mein.run.warm_start import (
    VECTORS,
    digest_of_previous_run,
    prepare_start,
    refuse_other_previous_run,
    stage_1,
    training_part,
)
from mein.runtime import ranks
from mein.runtime.progress import Reporter
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import save_tensors
from mein.store.writing import Spread
from mein.training.loop import Runtime
from mein.training.scores import center_evidence
from mein.training.stages import fine_tune, train_expert, train_imitators

CONTROLS = ("closed", "random")
Network = TypeVar("Network", bound=torch.nn.Module)


def train_run(
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
    controls: Sequence[str] = CONTROLS,
    soft_labels: SoftLabels | None = None,
) -> Run:
    """Algorithm 1 in a folder that the caller holds; with `resume`, go on where a killed run stood."""
    run = prepared_run(config, corpus, folder, reporter, resume=resume, soft_labels=soft_labels)
    expert = learned_expert(run)  # line 1
    imitators = learned_imitators(run, expert)  # line 2
    tune_mixture_and_controls(run, imitators, controls)  # line 3
    return run


def prepared_run(
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
    soft_labels: SoftLabels | None = None,
    spread: Spread | None = None,
) -> Run:
    """A run before its first line: vocabularies and encoded text; spread: who encodes it, if not we."""
    labeled = read_labeled(config, corpus)
    if config.expert.traits.reads == "probabilities":
        soft_labels = open_soft_labels(config, labeled.labels.classes, soft_labels)
        refuse_unknown_texts(soft_labels, labeled, corpus)
    words_of_language_model(config)  # refuses one that does not fit, before the folder is taken
    refuse_other_previous_run(config, corpus, labeled)
    device = choose_device(config.runtime.device)
    with ranks.first_goes_ahead():
        folder.claim(identity_of(config, corpus, soft_labels), resume)
        reader = open_reader(config, folder, labeled.labels.classes, device, soft_labels)
        counts = prepare(config, corpus, labeled, folder, reporter, reader, spread)
    runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
    indexer = load_indexer(config, folder, reader)
    return Run(config, corpus, labeled, counts, indexer, runtime, device)


def identity_of(config: Config, corpus: Corpus, soft_labels: SoftLabels | None = None) -> dict[str, Any]:
    """What makes a run the run it is: settings, less those of the machine, and what it is made from.

    Data goes by its name, a teacher's table and the language model to start from by their content.
    """
    identity: dict[str, Any] = {
        "config": config.model_dump(mode="json", exclude={"runtime"}),
        "data": corpus.names,
    }
    if isinstance(soft_labels, SoftLabelTable):
        identity["soft_labels"] = soft_labels.digest
    if config.expert.language_model is not None:
        identity["language_model"] = digest_of_language_model(config)
    if config.expert.from_run is not None:
        identity["from_run"] = digest_of_previous_run(config)
    return identity


def learned_expert(run: Run) -> Expert:
    """Theta', from expert.safetensors or from the labels."""
    expert = _new_expert(run)
    path = run.folder / "expert.safetensors"
    if not ranks.exists(path):
        train_part, dev_part = training_part(run, labeled_part(run, "train")), labeled_part(run, "dev")
        prepare_start(run, expert)
        if run.config.expert.traits.learns:
            run.runtime.reporter.log("Stage 1: the expert learns from the labels (*: the best epoch so far)")
            objective = objective_of(run, expert, None, "expert")
            settings = (stage_1(run.config), objective, run.runtime, run.config.seed)
            with run.folder.timed("expert"):
                train_expert(expert, train_part, dev_part, *settings)
        z = run.dev_logits(expert)
        save_tensors(path, expert.state_dict(), facts(run, z))
    run.folder.drop(f"{VECTORS}.safetensors")
    return _settled(run, expert, "expert")


def learned_imitators(run: Run, expert: Expert) -> Imitators:
    """Phi, from imitators.safetensors or from what the expert says of the unlabeled text."""
    with drawing(run, "imitators"):
        pieces = run.indexer.pieces.size
        imitators = build_imitators(run.config, pieces, run.classes, run.is_taught).to(run.device)
    path = run.folder / "imitators.safetensors"
    if not ranks.exists(path):
        if run.is_taught:
            _teach(run, expert, imitators)
        else:
            run.runtime.reporter.log("There is no unlabeled text: this is the plain expert.")
        together = evidence(run, imitators, "imitators", "dev").sum(0)
        save_tensors(path, imitators.state_dict(), facts(run, together))
    return _settled(run, imitators, "imitators")


def _teach(run: Run, expert: Expert, imitators: Imitators) -> None:
    settings, labeled = run.config.imitator_training, None
    with run.folder.timed("labeling"):
        teacher, by = learned_teacher(run, expert)
        classes = run.labeled.labels.classes
        unlabeled, held_out = (run.store_to_label(part, by) for part in UNLABELED_PARTS)
        who = "another teacher says" if unlabeled.labeled_by - {by} else str(teacher)
        run.runtime.reporter.log(f"Stage 2: the imitators learn what {who}")
        label_documents(teacher, [unlabeled, held_out], classes, by, run.runtime.reporter)
        if settings.reads_labeled and unlabeled.labeled_by == {by}:  # another teacher has no word on it
            labeled = run.store_to_label("train", by)
            label_documents(teacher, [labeled], classes, by, run.runtime.reporter)
    with run.folder.timed("imitators"):
        train_imitators(imitators, unlabeled, held_out, settings, run.runtime, run.config.seed, labeled)
    if run.config.mixture.centers_evidence:
        center_evidence(imitators, held_out)


def tune_mixture_and_controls(run: Run, imitators: Imitators, controls: Sequence[str]) -> None:
    """Theta and Lambda, to mixture.safetensors; beside it those of closed gates and random vectors wanted."""
    if run.is_taught and not (run.folder / "mixture.safetensors").exists():
        run.runtime.reporter.log("Stage 3: the mixture is tuned on the labels, and so are its controls")
    if run.has_lexicon:
        learned_lexicon(run)
    for name in (*controls, "mixture") if run.is_taught else ("mixture",):
        path = run.folder / f"{name}.safetensors"
        if not ranks.exists(path):
            expert = _settled(run, _new_expert(run), "expert")
            gates, tau = np.zeros(0), 1.0
            if run.is_taught:
                with run.folder.timed(name):
                    gates, tau = _tune(run, expert, imitators, name)
            z = run.dev_logits(expert)
            logits = mixed_logits(z, evidence(run, imitators, name, "dev"), gates)
            save_tensors(path, expert.state_dict(), facts(run, logits, gates, tau))
        run.folder.drop(f"{name}.checkpoint.safetensors")


def _tune(run: Run, expert: Expert, imitators: Imitators, name: str) -> tuple[np.ndarray, float]:
    """The gates after stage 3 on Theta', and tau; ours are all 0 again where dev is worse for it."""
    train_part, dev_part = (
        labeled_part(run, part, evidence(run, imitators, name, part)) for part in ("train", "dev")
    )
    z = run.dev_logits(expert)
    gates, tau = Gates(run.config.mixture, len(dev_part.alpha)), 1.0
    if gates.kind == "free" and len(dev_part.alpha):
        opened, tau = open_gates(z, dev_part.alpha, dev_part.labels, dev_part.weights)
        gates.set(opened)
    fine_tune(
        name,
        expert,
        gates.to(run.device),
        train_part,
        dev_part,
        run.config.fine_tuning,
        objective_of(run, expert, imitators, name),
        run.runtime,
        run.config.seed,
    )
    values: np.ndarray = gates().detach().cpu().double().numpy()
    if gates.kind == "free":
        mixed = mixed_logits(run.dev_logits(expert), dev_part.alpha, values)
        if ranks.agreed({"worse": is_worse(mixed, z, dev_part.labels, dev_part.weights)})["worse"]:
            _settled(run, expert, "expert")
            return np.zeros_like(values), 1.0
    return values, tau


def _new_expert(run: Run) -> Expert:
    with drawing(run, "expert"):
        return build_expert(run.config, run.folder, run.indexer, run.classes).to(run.device)


def _settled(run: Run, network: Network, name: str) -> Network:
    """The network with the weights of its artefact, whose checkpoint is then of no more use."""
    ranks.barrier()  # the first may still be writing it
    restore(run.folder, name, network)
    run.folder.drop(f"{name}.checkpoint.safetensors")
    return network
