"""Line 1 for a classifier from Python: its clones are fitted in folds and on all labels, before encoding.

What they predict for each document is in its row of the store, so that the rest of a run needs no text.
"""

from typing import Any

import numpy as np
import torch

from mein.config import Config
from mein.data.soft_labels import SoftLabels
from mein.model.user import UserReader, fitted, is_estimator, refuse_no_classifier, weights_name, why_not_kept
from mein.run.documents import Split, numbered_folds
from mein.run.linear_fits import ViewFits, fold_weights, match_of
from mein.run.state import Run
from mein.runtime.progress import Reporter
from mein.runtime.run_folder import RunFolder
from mein.text.ragged import concatenate

OWN = "own"


class UserClassifier:
    """A classifier from Python, and its clone that learned from all labels, once a run has fitted it."""

    def __init__(self, expert: Any) -> None:
        """expert: an unfitted scikit-learn classifier over texts, or a factory."""
        refuse_no_classifier(expert)
        self.expert = expert
        self.reader: UserReader | None = None
        """What reads with that clone only, as all predictions do."""

    @property
    def last(self) -> SoftLabels | None:
        """That clone."""
        return None if self.reader is None else self.reader.predict[0]

    @property
    def name(self) -> str:
        """What to call it in one line."""
        of = type(self.expert) if is_estimator(self.expert) else self.expert
        return getattr(of, "__name__", type(of).__name__)

    def fit(self, config: Config, labeled: Split, folder: RunFolder, reporter: Reporter) -> UserReader:
        """What reads texts with the clone of all labels, kept in the folder if it can be, and each fold's."""
        reason, is_weighted = why_not_kept(self.expert), (labeled.train_weights != 1).any()
        if is_weighted and is_estimator(self.expert) and weights_name(self.expert) is None:
            reporter.log(f"The fit of {self.name} takes no sample_weight: all labeled texts count alike.")
        reporter.log(f"Stage 1: {self.name} learns from all labels, and from those outside each fold")
        fold, Y = numbered_folds(labeled, config.seed), len(labeled.labels.classes)
        last = self._fitted(labeled, np.zeros(len(fold), bool))
        self.reader = UserReader(Y, [last])
        reason = self.reader.save(folder.path) if reason is None else reason
        if reason is not None:
            reporter.log(f"{self.name} is not saved: {reason}. The classifier predicts in this process only.")
        clones = [last, *(self._fitted(labeled, fold == k) for k in range(int(fold.max()) + 1))]
        size = 4 * Y * len(clones)
        reporter.log(f"The predictions of {len(clones)} fits take {size:,} bytes a document on disk")
        return UserReader(Y, clones)

    def _fitted(self, labeled: Split, held: np.ndarray) -> SoftLabels:
        """What it learns from the labels outside a fold."""
        weights = np.where(held, 0.0, labeled.weights_without(held))
        return fitted(
            self.expert,
            labeled.train_texts,
            labeled.train_ids,
            weights,
            labeled.labels.classes,
            labeled.prior,
        )


def user_fits(run: Run, fold: np.ndarray) -> ViewFits:
    """What the clones predict for the labeled documents; fold (n,): -1 for those that always teach."""
    words = run.store("train").words()
    n, Y = len(fold), run.classes
    rows = words.values.reshape(n, -1, Y).astype(np.float64)  # the last clone's, and each fold's
    own = rows[np.arange(n), np.where(fold < 0, 0, fold + 1)]

    def tables(weights: np.ndarray, k: int) -> dict[str, torch.Tensor]:
        return {
            "clone": torch.tensor(0 if k < 0 else k + 1),
            "scale": torch.tensor(float(weights[0])),
            "bias": torch.zeros(Y),
        }

    weights, match = fold_weights(run, fold), np.array([match_of(_logits_of_held_out(run))])
    return ViewFits((OWN,), (0,), tables, own[None], run.labeled.train_ids, weights, fold, match)


def _logits_of_held_out(run: Run) -> np.ndarray:
    """log p (K + 1, m, Y) of the held-out unlabeled documents, by the last clone last; m may be 0."""
    if not run.has_imitators:
        return np.zeros((1, 0, run.classes))
    store = run.store("held_out")
    words = concatenate(store.words(n) for n in range(store.shard_count))
    rows = words.values.reshape(len(words), -1, run.classes).astype(np.float64)
    return np.roll(rows.transpose(1, 0, 2), -1, axis=0)
