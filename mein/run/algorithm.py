"""Algorithm 1, one artefact per line, so that a killed run continues behind the last complete one."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np

from mein.evaluation.systems import IMITATORS_ONLY, MIXTURE
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.gates import GATES, Weights
from mein.model.artefacts import EXPERT_OF_ALL, leave, of_train
from mein.model.build import build_expert, build_imitators
from mein.model.model import mixed_logits
from mein.run.folds import drop_fits, fit_expert, out_of_fold, weigh, weights_of_teacher
from mein.run.refit import expert_of_all, tune_on_all
from mein.run.seen_labels import neutral_weights
from mein.run.state import (
    UNLABELED_PARTS,
    Run,
    calibrated,
    evidence,
    has_lexicon,
    initializing,
    labeled_part,
    objective_of,
)
from mein.run.teacher import label_documents, learned_teacher
from mein.run.warm_start import VECTORS, prepare_start, stage_1, training_part
from mein.runtime import ranks
from mein.training.stages import center_evidence, fine_tune, train_expert, train_imitators

CLOSED = Weights(np.zeros(0))  # of an expert by itself


def train(run: Run) -> None:
    """Algorithm 1. Each line leaves an artefact; a line whose artefact is complete is skipped."""
    of_both = (EXPERT_OF_ALL, *map(of_train, run.systems)) if run.is_refitted else ()
    if run.has("expert", "imitators", *run.lexicons, *run.systems, *of_both):
        run.folder.drop(f"{MIXTURE}.checkpoint.safetensors")  # of a kill right behind the last line
        if run.is_folded:
            drop_fits(run)
        return
    expert = learned_expert(run)  # line 1: Theta'
    imitators = learned_imitators(run, expert)  # line 2: Phi
    run.learn_lexicons()
    if run.is_folded:
        out_of_fold(run, imitators)
    if run.has_imitators:
        how = "weighted by predictions out of fold" if run.is_folded else "tuned on the labels"
        run.log(f"Stage 3: the mixture and its controls are {how}")
    for system in run.systems:  # line 3: Theta and Lambda, and the same with other evidence
        tuned(run, system, expert, imitators)
    if run.is_folded:
        drop_fits(run)


def learned_expert(run: Run) -> Expert:
    """Theta', by the labels."""
    expert: Expert = run.artefact("expert", partial(new_expert, run), partial(learn_from_labels, run))
    if run.is_refitted:
        leave(run.folder, EXPERT_OF_ALL, partial(expert_of_all, run, new_expert))
    run.folder.drop(f"{VECTORS}.safetensors")
    return expert


def learned_imitators(run: Run, expert: Expert) -> Imitators:
    """Phi, by what the expert predicts for unlabeled text."""
    learn = partial(imitate, run, expert)
    imitators: Imitators = run.artefact("imitators", partial(new_imitators, run), learn)
    return imitators


def tuned(run: Run, system: str, expert: Expert, imitators: Imitators) -> Expert:
    """Theta of a system, from Theta' and the labels; its gates are in the artefact."""
    start, learn = partial(deepcopy, expert), partial(tune, run, system, expert, imitators)
    if run.is_refitted:
        run.artefact(of_train(system), start, learn)
        learn = partial(tune_on_all, run, system, imitators)
    network: Expert = run.artefact(system, start, learn)
    return network


def new_expert(run: Run) -> Expert:
    """An expert before it has learned anything from labels."""
    with initializing(run, "expert"):
        return build_expert(run.config, run.folder, run.indexer, run.classes)


def new_imitators(run: Run) -> Imitators:
    """Imitators before stage 2; none where there is no unlabeled text."""
    with initializing(run, "imitators"):
        return build_imitators(run.config, run.indexer.pieces.size, run.classes, run.has_imitators)


def learn_from_labels(run: Run, expert: Expert) -> Weights:
    """Line 1: Theta' = argmin L_s."""
    if run.is_folded:
        return fit_expert(run, expert)
    train_part, dev_part = training_part(run, labeled_part(run, "train")), labeled_part(run, "dev")
    prepare_start(run, expert)
    epochs = None
    if run.config.expert.traits.learns:
        run.log("Stage 1: the expert learns from the labels (*: the best epoch so far)")
        objective = objective_of(run, expert, None, "expert")
        settings = (stage_1(run.config), objective, run.runtime, run.config.seed)
        outcome = train_expert(expert, train_part, dev_part, *settings)
        epochs = outcome.epoch if run.is_refitted else None
    if run.has_seen_labels:
        return CLOSED
    return calibrated(run, run.dev_logits(expert), replace(CLOSED, epochs=epochs))


def imitate(run: Run, expert: Expert, imitators: Imitators) -> Weights:
    """Line 2: Phi = argmin L_u, the KL divergence from the teacher's soft labels."""
    if not run.has_imitators:
        run.log("There is no unlabeled text: this is the plain expert.")
    else:
        reads_labeled, labeled = run.config.imitator_training.reads_labeled and not run.is_folded, None
        with run.folder.timed("labeling"):
            fitted = partial(weights_of_teacher, run) if run.is_folded else None
            teacher, by = learned_teacher(run, expert, fitted)
            classes, reporter = run.labeled.labels.classes, run.runtime.reporter
            unlabeled, held_out = (run.store_to_label(part, by) for part in UNLABELED_PARTS)
            is_ours = not unlabeled.labeled_by - {by}
            run.log(f"Stage 2: the imitators learn from {teacher if is_ours else 'another teacher'}")
            label_documents(teacher, [unlabeled, held_out], classes, by, reporter)
            if reads_labeled and is_ours:  # another teacher has not labeled it
                labeled = run.store_to_label("train", by)
                label_documents(teacher, [labeled], classes, by, reporter)
        settings = run.config.imitator_training.resolved(run.config.optimizer)
        train_imitators(imitators, unlabeled, held_out, settings, run.runtime, run.config.seed, labeled)
        if run.config.mixture.centers_evidence:
            center_evidence(imitators, held_out)
    together = evidence(run, imitators, IMITATORS_ONLY, "train" if run.is_folded else "dev").sum(0)
    return calibrated(run, together, CLOSED)


def tune(run: Run, system: str, start: Expert, imitators: Imitators, expert: Expert) -> Weights:
    """Line 3: Theta, Lambda = argmin L'_s, from Theta'; undone if dev error becomes worse."""
    if run.is_folded:
        return weigh(run, system, expert)
    if run.has_seen_labels:
        return neutral_weights(run, system, expert, imitators)
    train_part, dev_part = (
        labeled_part(run, part, evidence(run, imitators, system, part)) for part in ("train", "dev")
    )
    gates = GATES[run.config.mixture.method](len(dev_part.alpha))
    z, tau = run.dev_logits(expert), 1.0
    values, epochs = np.zeros(len(dev_part.alpha)), 0
    if run.has_imitators:
        tau = gates.start(z, dev_part.alpha, dev_part.labels, dev_part.weights)
        objective = objective_of(run, expert, imitators, system)
        how = run.config.fine_tuning.resolved(run.config.expert.traits)
        settings = (how, objective, run.runtime, run.config.seed)
        outcome = fine_tune(system, expert, gates.to(run.device), train_part, dev_part, *settings)
        epochs = outcome.epoch
        values = gates().detach().cpu().double().numpy()
        mixed = mixed_logits(run.dev_logits(expert), dev_part.alpha, values)
        kept = gates.accepts(mixed, z, dev_part.labels, dev_part.weights)
        if not ranks.agreed({"kept": kept})["kept"]:
            expert.load_state_dict(start.state_dict())
            values, tau, epochs = np.zeros_like(values), 1.0, 0
    logits = mixed_logits(run.dev_logits(expert), dev_part.alpha, values)
    weights = Weights.of_rows(values, has_lexicon=has_lexicon(run, system))
    return calibrated(run, logits, replace(weights, epochs=epochs if run.is_refitted else None), tau)
