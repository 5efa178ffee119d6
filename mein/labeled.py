"""The labelled documents of a run: read once, split into train and dev, weighed."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from mein.config import Config
from mein.data.corpus import Corpus, read_all
from mein.data.labels import Labels
from mein.data.splits import split_dev
from mein.errors import InputError
from mein.seeds import derive_seed


@dataclass(frozen=True)
class LabeledTexts:
    """The labelled documents of a run, split, with label ids and weights."""

    labels: Labels
    train_texts: list[str]
    train_ids: np.ndarray
    train_weights: np.ndarray
    dev_texts: list[str]
    dev_ids: np.ndarray

    @property
    def digest(self) -> str:
        """Equal for the same documents with the same labels, weights and split."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.train_ids, self.train_weights, self.dev_ids):
            digest.update(array.tobytes())
        digest.update(json.dumps([self.train_texts, self.dev_texts]).encode("utf-8"))
        return digest.hexdigest()


def read_labeled(config: Config, corpus: Corpus) -> LabeledTexts:
    """Read the labels, check them, and keep some of them for choosing."""
    name = corpus.names.get("labeled", "the labelled documents")
    texts, values = read_all(corpus.labeled)
    labels = Labels.from_values(values, name, has_dev=corpus.dev is not None)
    ids = labels.encode(values, name)
    if corpus.dev is not None:
        train_rows = np.arange(len(ids))
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
    weights = np.ones(len(ids)) if corpus.sample_weight is None else corpus.sample_weight
    weights = weights * _class_weights(config, ids[train_rows], len(labels.classes))[ids]
    train_weights = weights[train_rows].astype(np.float32)
    train_texts = [texts[i] for i in train_rows]
    return LabeledTexts(labels, train_texts, ids[train_rows], train_weights, dev_texts, dev_ids)


def _class_weights(config: Config, train_ids: np.ndarray, classes: int) -> np.ndarray:
    if config.class_weight is None:
        return np.ones(classes)
    counts = np.bincount(train_ids, minlength=classes)
    return len(train_ids) / (classes * np.maximum(counts, 1))
