"""The labelled documents of a run: read once, split into train and dev, weighed."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from mein.config import Config
from mein.data.corpus import Corpus, read_all
from mein.data.labels import Labels, refuse_textless
from mein.data.splits import empty_texts, split_dev
from mein.errors import InputError
from mein.seeds import derive_seed


@dataclass(frozen=True)
class LabeledTexts:
    """The labelled documents of a run, split, with label ids and weights; those of train have the mean 1."""

    labels: Labels
    train_texts: list[str]
    train_ids: np.ndarray
    train_weights: np.ndarray
    dev_texts: list[str]
    dev_ids: np.ndarray
    dev_weights: np.ndarray
    """What each counts for where something is chosen: its sample weight."""
    class_weights: np.ndarray
    """What each class counts for, beside that, where something is learned (Y,)."""
    prior: np.ndarray
    """Each class's share of train, by sample weights: what is said of a text that says nothing (Y,)."""

    def lessons(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """The label ids and the weights to learn from train, or from dev too, with."""
        if part == "train":
            return self.train_ids, self.train_weights
        return self.dev_ids, (self.dev_weights * self.class_weights[self.dev_ids]).astype(np.float32)

    @property
    def digest(self) -> str:
        """Equal for the same documents with the same labels, weights and split."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.train_ids, self.train_weights, self.dev_ids):
            digest.update(array.tobytes())
        if (self.dev_weights != 1.0).any():
            digest.update(self.dev_weights.tobytes())
        digest.update(json.dumps([self.train_texts, self.dev_texts]).encode("utf-8"))
        return digest.hexdigest()


def read_labeled(config: Config, corpus: Corpus) -> LabeledTexts:
    """Read the labels, check them, and keep some of them for choosing."""
    name = corpus.names.get("labeled", "the labelled documents")
    texts, values = read_all(corpus.labeled)
    labels = Labels.from_values(values, name, has_dev=corpus.dev is not None)
    refuse_textless(len(texts), empty_texts(texts), name)
    ids = labels.encode(values, name)
    if corpus.dev is not None:
        train_rows, dev_rows = np.arange(len(ids)), None
        dev_texts, dev_values = read_all(corpus.dev)
        dev_ids = labels.encode(dev_values, corpus.names.get("dev", "the dev documents"))
    else:
        train_rows, dev_rows = split_dev(ids, config.dev_fraction, derive_seed(config.seed, "dev"))
        dev_texts, dev_ids = [texts[i] for i in dev_rows], ids[dev_rows]
    if len(dev_ids) == 0:
        source = name if corpus.dev is None else corpus.names.get("dev", "the dev file")
        raise InputError(
            f"No labels are left for choosing: {source} holds too few documents; "
            "add some, or raise dev_fraction."
        )
    weights = np.ones(len(ids)) if corpus.sample_weight is None else corpus.sample_weight.astype(np.float64)
    weights = weights / weights[train_rows].mean()
    class_weights = _class_weights(config, corpus, labels, ids[train_rows], weights[train_rows])
    sums = np.bincount(ids[train_rows], weights[train_rows], minlength=len(labels.classes))
    return LabeledTexts(
        labels=labels,
        train_texts=[texts[i] for i in train_rows],
        train_ids=ids[train_rows],
        train_weights=(weights * class_weights[ids])[train_rows].astype(np.float32),
        dev_texts=dev_texts,
        dev_ids=dev_ids,
        dev_weights=np.ones(len(dev_ids), np.float32)
        if dev_rows is None
        else weights[dev_rows].astype(np.float32),
        class_weights=class_weights,
        prior=sums / sums.sum(),
    )


def _class_weights(
    config: Config, corpus: Corpus, labels: Labels, train_ids: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """What each class counts for (Y,); times the sample weights of train the mean is 1."""
    found = np.ones(len(labels.classes))
    if config.class_weight is None and corpus.class_weight is None:
        return found
    if config.class_weight is not None:
        counts = np.bincount(train_ids, minlength=len(found))
        found = len(train_ids) / (len(found) * np.maximum(counts, 1))
    if corpus.class_weight is not None:
        named = np.array([corpus.class_weight.get(label, 1.0) for label in labels.classes])
        found = found * (named / named.max())
    found /= (weights * found[train_ids]).mean()
    return found
