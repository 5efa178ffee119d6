"""Few labels: networks that learn by gradients learn again, from all labels, for the steps that dev chose.

They predict new text. Those that have not seen dev (`expert`, and the artefacts of train) teach the imitators
and are evaluated on dev where there is no test set. Gates, temperature, and imitators stay: after as many
steps as before, the temperature still fits (log/).
"""

from collections.abc import Callable

import numpy as np
import torch

from mein.evaluation.systems import EXPERT
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.gates import FreeGates, Weights
from mein.model.artefacts import EXPERT_OF_ALL, ArtefactContent, fill, of_train, restore
from mein.run.state import Run, evidence_on, objective_of
from mein.run.warm_start import prepare_start, stage_1, training_part
from mein.runtime.tensors import load_facts, load_tensors
from mein.text.ragged import concatenate
from mein.training.stages import LabeledPart, fine_tune, train_expert

PARTS = ("train", "dev")


def expert_of_all(run: Run, new_expert: Callable[[Run], Expert]) -> ArtefactContent:
    """An expert that learns from all labels, from its own start, in as many steps as dev chose."""
    weights = _weights(run, EXPERT)
    expert = new_expert(run).to(run.device)
    if weights.epochs is None:  # the expert of another run, in which it did not learn again
        restore(run.folder, EXPERT, expert)
        return expert.state_dict(), weights.to_facts()
    prepare_start(run, expert)
    if weights.epochs:
        alpha = np.zeros((0, sum(run.counts[part] for part in PARTS), run.classes), np.float32)
        part = training_part(run, _all_labels(run, alpha))
        epochs = _epochs(run, weights.epochs, part)
        run.log(f"The expert learns again, from all labels, as long as before (epochs: {epochs})")
        how, objective = stage_1(run.config).of_epochs(epochs), objective_of(run, expert, None, EXPERT)
        settings = (how, objective, run.runtime, run.config.seed)
        train_expert(expert, part, None, *settings, name=EXPERT_OF_ALL)
    run.kept[EXPERT_OF_ALL] = expert.state_dict()
    return run.kept[EXPERT_OF_ALL], weights.to_facts()


def tune_on_all(run: Run, system: str, imitators: Imitators, expert: Expert) -> Weights:
    """Theta of a system, from the expert of all labels; gates and temperature are those that dev chose."""
    weights = _weights(run, of_train(system))
    path = run.folder / f"{EXPERT_OF_ALL}.safetensors"
    fill(expert, run.once(EXPERT_OF_ALL, lambda: load_tensors(path)[0]), path)
    if weights.epochs:
        pieces = concatenate(run.store(part).pieces() for part in PARTS)
        alpha = evidence_on(run, imitators, system, pieces, "train and dev")
        part, name = _all_labels(run, alpha), f"{system}-of-all"
        objective = objective_of(run, expert, imitators, system)
        how = run.config.fine_tuning.resolved(run.config.expert.traits)
        settings = (
            how.of_epochs(_epochs(run, weights.epochs, part)),
            objective,
            run.runtime,
            run.config.seed,
        )
        fine_tune(name, expert, fixed_gates(weights).to(run.device), part, None, *settings)
        run.folder.drop(f"{name}.checkpoint.safetensors")
    return weights


def _weights(run: Run, name: str) -> Weights:
    return Weights.from_facts(load_facts(run.folder / f"{name}.safetensors"))


def fixed_gates(weights: Weights) -> FreeGates:
    """Gates that stay as they are."""
    values = weights.gates if weights.lexicon is None else np.append(weights.gates, weights.lexicon)
    gates = FreeGates(len(values))
    with torch.no_grad():
        gates.lam.copy_(torch.from_numpy(values))
    gates.lam.requires_grad_(False)
    return gates


def _epochs(run: Run, chosen: int, part: LabeledPart) -> int:
    """Epochs over all labels with about as many steps as the chosen ones over those of train."""
    return max(1, round(chosen * (len(part) - run.counts["dev"]) / len(part)))


def _all_labels(run: Run, alpha: np.ndarray) -> LabeledPart:
    """Train and dev, as one part to learn from, with evidence (I, n, Y)."""
    ids, weights = zip(*map(run.labeled.examples, PARTS), strict=True)
    words = concatenate(run.store(part).words() for part in PARTS)
    return LabeledPart(words, np.concatenate(ids), np.concatenate(weights), alpha)
