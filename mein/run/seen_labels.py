"""Soft labels that have seen the labels: found by their confidence; then no gate is fitted.

Not part of teacher.py, which labels documents: this is about the labels that weigh.
"""

from dataclasses import replace

import numpy as np
from scipy.stats import binom, mannwhitneyu

from mein.experts.base import Expert
from mein.imitators.reference import Imitators
from mein.mixture.gates import Weights
from mein.mixture.inference import expert_logits
from mein.mixture.second_level import scale_of
from mein.run.state import Run, evidence_on, has_lexicon
from mein.store.store import Store

LEAST_SHARE = 5  # fewer errors than its doubt about other texts lets expect, by this factor
CHANCE, OF_BOTH = 0.05, 0.002  # that doubt is less by chance; and times that of so few errors


def have_seen(labeled: np.ndarray, labels: np.ndarray, unlabeled: np.ndarray) -> bool:
    """Whether log p (n, Y) of texts with labels (n,) are of a teacher that knew these, by those of others.

    1 - max p is a teacher's doubt, the error that it expects. One that was fitted on these labels has nearly
    no error on them, less than a fifth of its doubt about other texts, and doubts them less than others.
    An accurate teacher that has not seen them doubts both alike, whether or not it is calibrated.
    """
    n = len(labels)
    if not n or not len(unlabeled):
        return False
    doubt, usual = (1 - np.exp(log_p.max(axis=1)) for log_p in (labeled, unlabeled))
    errors, expected = int((labeled.argmax(axis=1) != labels).sum()), float(usual.mean())
    if errors > n * expected / LEAST_SHARE or np.ptp(np.append(doubt, usual)) < 1e-6:
        return False
    less_doubt = float(mannwhitneyu(doubt, usual, alternative="less").pvalue)
    return less_doubt < CHANCE and less_doubt * float(binom.cdf(errors, n, expected)) < OF_BOTH


def log_probs_in(store: Store) -> np.ndarray:
    """log p (n, Y) of given probabilities in the first shard of a store."""
    words = store.words(0)
    found: np.ndarray = words.values.reshape(len(words), -1).astype(np.float64)
    return found


def neutral_weights(run: Run, system: str, expert: Expert, imitators: Imitators) -> Weights:
    """Without labels: all imitators together have the scale of the expert, and the mean of both is taken."""
    store = run.store("held_out")
    pieces, with_lexicon = store.pieces(0), has_lexicon(run, system)
    alpha = evidence_on(run, imitators, system, pieces, "held_out")
    own = alpha[:-1] if with_lexicon else alpha
    scale = scale_of(expert_logits(expert, store.words(0)))
    gates = np.array([scale / (len(own) * scale_of(one)) for one in own])
    rows = np.append(gates, 0.0) if with_lexicon else gates  # the lexicon has learned from labels
    weights = Weights.of_rows(rows, has_lexicon=with_lexicon)
    return replace(weights, temperature=2.0 if len(own) else 1.0)
