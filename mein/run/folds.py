"""Few labels: all of them teach, in folds, and what weighs the components was predicted out of fold.

Inside a fold are the linear expert, the lexicon, class weights, and imitators that learned from that fold's
teacher. What needs no labels (idf, latent dimensions, word vectors) sees all text but test. C, the weights of
views, and the teacher's two weights of a fold are chosen by predictions for the other folds.
"""

import math
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import log_softmax

from mein.data.labels import listed
from mein.evaluation import baseline
from mein.evaluation.systems import (
    CLOSED_GATES,
    ENCODER,
    EXPERT,
    IMITATORS_ONLY,
    MIXTURE,
    RANDOM_IMITATORS,
    SYSTEMS,
    TFIDF,
)
from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.gates import Weights
from mein.mixture.inference import imitator_alpha
from mein.mixture.lexicon import Lexicon, learn_lexicon
from mein.mixture.mixture import random_alpha
from mein.mixture.second_level import Examples, fit_weights, scale_of
from mein.model.artefacts import ArtefactContent, leave
from mein.model.build import build_expert, build_imitators
from mein.run.documents import FOLDS, numbered_folds
from mein.run.linear_fits import (
    FEATURES,
    FITS,
    MOST_DOCUMENTS,
    ViewFits,
    fold_weights,
    learned_fits,
    match_of,
)
from mein.run.state import UNLABELED_PARTS, Run, initializing
from mein.run.teacher import Teacher, label_documents
from mein.run.user_fits import user_fits
from mein.runtime import ranks
from mein.runtime.seeds import derive_seed
from mein.runtime.tensors import load_tensors
from mein.store.store import Store
from mein.store.writing import drawn_from_few_shards, write_excerpt
from mein.text.ragged import concatenate, parted
from mein.training.linear import Reduced
from mein.training.stages import center_evidence, train_imitators

COMPONENTS = "folds"
EPOCHS = 0.4  # of stage 2's, for the imitators of a fold: with all, errors are 1% lower (log/),
AFFORDABLE = 400_000  # so that text of up to this many pieces has all of them
SCORED_DOCUMENTS = 500  # held out, on which a fold's imitators are validated


def fold_numbers(run: Run) -> np.ndarray:
    """The fold of each labeled document (n,), by its text and the seed; -1 for those that always teach."""
    return run.once("folds", partial(numbered_folds, run.labeled, run.config.seed))


def fits_of(run: Run) -> ViewFits:
    """The fits of all folds, and the last ones, on all labels."""
    learned = user_fits if run.config.expert.traits.reads == "clones" else learned_fits
    return run.once("fits", partial(learned, run, fold_numbers(run)))


def fit_expert(run: Run, expert: Expert) -> Weights:
    """Line 1: the expert in folds, and once on all labels, which is what it keeps."""
    if run.config.expert.traits.reads != "clones":  # these were fitted before text was encoded
        run.log("Stage 1: the linear expert learns from all labels, and from those outside each fold")
    fits, rows = fits_of(run), fold_numbers(run) >= 0
    note_singletons(run)
    expert.load_state_dict(fits.expert_of(-1))
    z = fits.expert_out_of_fold()[None, rows]
    a = fit_weights(z, fits.labels[rows], fits.weights[-1, rows])
    return Weights(np.zeros(0), temperature=float(1 / a[0]))


def note_singletons(run: Run) -> None:
    """Name the classes that always teach: nothing tells how well those are recognized."""
    classes, ids = run.labeled.labels.classes, run.labeled.train_ids
    held = set(ids[fold_numbers(run) >= 0].tolist())
    single = [str(name) for y, name in enumerate(classes) if y not in held]
    if single:
        run.log(f"{listed(single)}: one text each, which teaches but is in no fold; add some to weigh them.")


def lexicon_of_fold(run: Run, k: int) -> Lexicon:
    """The lexicon of the documents that are not in a fold."""
    return run.once(f"lexicon {k}", partial(_lexicon_of_fold, run, k))


def _lexicon_of_fold(run: Run, k: int) -> Lexicon:
    labeled, is_held = run.labeled, fold_numbers(run) == k
    rest = np.flatnonzero(~is_held)
    return learn_lexicon(
        run.store("train").pieces().take(rest),
        labeled.train_ids[rest],
        labeled.weights_without(is_held)[rest],
        run.classes,
        run.indexer.pieces.size,
    )


def lexicon_out_of_fold(run: Run) -> np.ndarray:
    """Its log p(y | X) (n, Y) of each labeled document, by the lexicon of the other folds; 0 without one."""
    return run.once("lexicon out of fold", partial(_lexicon_out_of_fold, run))


def _lexicon_out_of_fold(run: Run) -> np.ndarray:
    fold, pieces = fold_numbers(run), run.store("train").pieces()
    found = np.zeros((len(fold), run.classes))
    for k in range(int(fold.max()) + 1 if run.has_lexicon else 0):
        held = np.flatnonzero(fold == k)
        found[held] = lexicon_of_fold(run, k).log_probs(pieces.take(held))
    return found


def weights_of_teacher(run: Run, without: int | None = None) -> tuple[float, float]:
    """The gate of the lexicon in a teacher, and tau; fitted without the labels of a fold, if one is named."""
    fold, labeled = fold_numbers(run), run.labeled
    rows = np.flatnonzero((fold >= 0) & (fold != without))
    parts = np.stack([fits_of(run).expert_out_of_fold(), lexicon_out_of_fold(run)])[:, rows]
    weights = labeled.weights_without(fold == without)  # None is no fold
    a, lexicon = fit_weights(parts, labeled.train_ids[rows], weights[rows])
    return float(lexicon / a), float(1 / a)


def out_of_fold(run: Run, imitators: Imitators) -> None:
    """Leave the logits of every component for each labeled document, by what has not seen its label."""

    def learned() -> ArtefactContent:
        fits, fold = fits_of(run), fold_numbers(run)
        pieces = run.store("train").pieces()
        alpha = np.zeros((len(imitators.windows), len(fold), run.classes))
        for k in range(int(fold.max()) + 1 if run.has_imitators else 0):
            held = np.flatnonzero(fold == k)
            own = imitators_of_fold(run, k, fits)
            of_held = imitator_alpha(own, pieces.take(held), run.classes)
            alpha[:, held] = of_held / _scales(run, own)[:, None, None]
        arrays = {
            "views": fits.out_of_fold,
            "lexicon": lexicon_out_of_fold(run),
            "alpha": alpha,
            "fold": fold,
        }
        arrays["scales"] = _scales(run, imitators) if run.has_imitators else np.zeros(0)
        arrays["floors"] = np.array(fits.floors, np.int64)
        arrays["match"] = np.append(fits.match, _match_of_lexicon(run))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}, {}

    leave(run.folder, COMPONENTS, learned)
    if ranks.is_first():  # also where an earlier process was killed right here
        for k in range(FOLDS):
            run.folder.drop(f"{_of_fold(k)}.safetensors")
            for part in UNLABELED_PARTS:
                shutil.rmtree(run.folder / _excerpt_name(k, part), ignore_errors=True)
    ranks.barrier()


def _match_of_lexicon(run: Run) -> float:
    """What the lexicon of all labels is multiplied by: its weight is of the smaller logits of folds."""
    if not run.has_lexicon:
        return 1.0
    store = run.store("held_out")
    pieces = concatenate(store.pieces(n) for n in range(store.shard_count))
    of_folds = [lexicon_of_fold(run, k) for k in range(int(fold_numbers(run).max()) + 1)]
    return match_of(np.stack([lexicon.log_probs(pieces) for lexicon in (*of_folds, run.lexicon)]))


def drop_fits(run: Run) -> None:
    """Remove what only the expert was made of, once all systems are complete."""
    run.kept.clear()
    if ranks.is_first():
        for name in (FEATURES, FITS):
            run.folder.drop(f"{name}.safetensors")
    ranks.barrier()


def _of_fold(k: int) -> str:
    return f"imitators-fold-{k + 1}"


def imitators_of_fold(run: Run, k: int, fits: ViewFits) -> Imitators:
    """Imitators that learned from the expert of a fold, on some of the unlabeled text.

    Networks of their own: folds that share an embedding tell each other the labels (log/).
    """

    def new() -> Imitators:
        with initializing(run, _of_fold(k)):
            return build_imitators(run.config, run.indexer.pieces.size, run.classes, has_imitators=True)

    def learn(imitators: Imitators) -> Weights:
        run.log(f"Fold {k + 1} of {FOLDS}: imitators learn from the expert that has not seen it")
        expert = build_expert(run.config, run.folder, run.indexer, run.classes)
        expert.load_state_dict(fits.expert_of(k))
        unlabeled, held_out = (_excerpt(run, part, k) for part in UNLABELED_PARTS)
        by, classes = f"fold {k + 1} of {run.folder.identity}", run.labeled.labels.classes
        teacher = Teacher(expert.to(run.device))
        if run.has_lexicon:
            gate, tau = weights_of_teacher(run, without=k)
            teacher = Teacher(teacher.expert, lexicon_of_fold(run, k).with_gate(gate).logits, tau)
        label_documents(teacher, [unlabeled, held_out], classes, by, run.runtime.reporter)
        settings = run.config.imitator_training.resolved(run.config.optimizer)
        pieces = sum(int(unlabeled.pieces(n).lengths.sum()) for n in range(unlabeled.shard_count))
        settings = replace(settings, epochs=epochs_of_fold(pieces, settings.epochs))
        machine = (run.runtime, run.config.seed)
        train_imitators(imitators, unlabeled, held_out, settings, *machine, name=_of_fold(k))
        center_evidence(imitators, run.store("held_out"))
        return Weights(np.zeros(0))

    imitators: Imitators = run.artefact(_of_fold(k), new, partial(learn))
    return imitators


def epochs_of_fold(pieces: float, epochs: int) -> int:
    """Epochs of a fold's imitators on this many pieces, where the last ones have `epochs`."""
    return math.ceil(min(1.0, max(EPOCHS, AFFORDABLE / max(1.0, pieces))) * epochs)


def _excerpt_name(k: int, part: str) -> str:
    return f"encoded/fold-{k + 1}-{part}"


def _excerpt(run: Run, part: str, k: int) -> Store:
    """Some documents of a part, for a fold to label and to learn from."""
    store, path = run.store(part), run.folder / _excerpt_name(k, part)
    wanted = MOST_DOCUMENTS if part == "unlabeled" else SCORED_DOCUMENTS
    if ranks.is_first() and not (path / "store.json").exists():
        seed = derive_seed(run.config.seed, "fold", k, part)
        rows = drawn_from_few_shards(store, min(wanted, len(store)), seed)
        write_excerpt(path, store, rows, is_labeled=False)
    ranks.barrier()
    return Store.open(path)


def _scales(run: Run, imitators: Imitators) -> np.ndarray:
    """The scale of each imitator's alpha over unlabeled documents (I,): those of folds are matched by it."""
    store = run.store("held_out")
    parts = [imitator_alpha(imitators, store.pieces(n), run.classes) for n in range(store.shard_count)]
    return np.array([scale_of(alpha) for alpha in np.concatenate(parts, axis=1)])


def weigh(run: Run, system: str, expert: Expert) -> Weights:
    """Line 3 without gradients: the weights of a system's components, from logits out of fold.

    Those of the views make the system's own expert.
    """
    components = _load_components(run)
    examples, scales = _examples(run, system, components)
    found = examples.weights()
    matched = min(len(found), len(components["match"]))
    found[:matched] *= components["match"][:matched]  # the lexicon, if it is one, comes behind the views
    of_views, rest = np.split(found, [examples.views])
    a = float(of_views.sum()) or 1.0
    expert.load_state_dict(fits_of(run).tables(of_views / a))
    gates = rest / scales / a
    has_lexicon = SYSTEMS[system].uses_lexicon and run.has_lexicon
    weights = Weights.of_rows(
        np.append(gates[1:], gates[0]) if has_lexicon else gates, has_lexicon=has_lexicon
    )
    return Weights(weights.gates, weights.lexicon, temperature=1 / a)


def _load_components(run: Run) -> dict[str, np.ndarray]:
    tensors, _ = load_tensors(run.folder / f"{COMPONENTS}.safetensors")
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _examples(run: Run, system: str, known: dict[str, np.ndarray]) -> tuple[Examples, np.ndarray]:
    """A system's components of the documents in folds; the scales of those beside the views (J,)."""
    parts, scales = list(known["views"]), []
    if SYSTEMS[system].uses_lexicon and run.has_lexicon:
        parts.append(known["lexicon"])
        scales.append(1.0)
    match SYSTEMS[system].evidence:
        case "imitators":
            parts += list(known["alpha"])
            scales += known["scales"].tolist()
        case "random":
            count, n, Y = known["alpha"].shape
            parts += list(random_alpha(count, n, Y, run.config.seed, "dev"))
            scales += [1.0] * count
    floors = tuple(known["floors"].tolist()) if system == MIXTURE else ()
    signed = 0 if SYSTEMS[system].evidence == "none" else len(known["alpha"])
    every = _examples_of(run, np.stack(parts), known["fold"], len(known["views"]))
    return replace(every, floors=floors, signed=signed), np.array(scales)


def _examples_of(run: Run, parts: np.ndarray, fold: np.ndarray, views: int = 1) -> Examples:
    """Components (1 + J, n, Y) of all labeled documents, as examples of those in folds."""
    weights = fold_weights(run, fold)
    every = Examples(parts.astype(np.float64), run.labeled.train_ids, fold, weights, views)
    return every.take(np.flatnonzero(fold >= 0))


def log_probs_out_of_fold(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The rows of labeled documents that are in a fold, and log p(y | X) of every system on them.

    Weights and temperature of each fold are those of the others, so that no system has seen the label.
    """
    known = _load_components(run)
    fold, views = known["fold"], known["views"]

    def nested(examples: Examples) -> np.ndarray:
        found: np.ndarray = log_softmax(examples.nested(), axis=1)
        return found

    rows = np.flatnonzero(fold >= 0)
    systems = {name: log_probs[rows] for name, log_probs in _floor(run, fold).items()}
    systems[EXPERT] = nested(_examples_of(run, views, fold, len(views)))
    for name in (CLOSED_GATES, RANDOM_IMITATORS):
        if name in run.systems:
            systems[name] = nested(_examples(run, name, known)[0])
    if run.has_imitators:
        systems[IMITATORS_ONLY] = nested(_examples_of(run, known["alpha"].sum(axis=0, keepdims=True), fold))
        systems[MIXTURE] = nested(_examples(run, MIXTURE, known)[0])
    return rows, systems


def _floor(run: Run, fold: np.ndarray) -> dict[str, np.ndarray]:
    """log p(y | X) (n, Y) of the baselines on each labeled document, by fits that have not seen its fold."""
    labeled, Y = run.labeled, run.classes
    (words,) = baseline.tfidf_features(labeled.train_texts)
    features = {TFIDF: Reduced.of([words if isinstance(words, np.ndarray) else csr_array(words)]).rows}
    if run.row_size:
        features[ENCODER] = parted(run.store("train").words(), run.row_size)[0]
    examples = (labeled.train_ids, fold_weights(run, fold), fold, Y)
    return {name: baseline.log_probs_out_of_fold(x, *examples) for name, x in features.items()}
