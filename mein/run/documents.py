"""The documents of a run: the labeled ones, split and weighted; the unlabeled ones, as a stream."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from mein.config import Config
from mein.data.corpus import Corpus, DocumentStream
from mein.data.labels import Labels, none_to_evaluate_on, refuse_textless
from mein.data.splits import KnownTexts, empty_texts, only_texts, split_dev, text_key
from mein.errors import InputError
from mein.runtime.device import choose_device
from mein.runtime.seeds import derive_seed, numpy_generator
from mein.training.linear import folds_of

NO_TEXTS = KnownTexts()
FOLDS = 5
HELD_OUT_DOCUMENTS = 2_000  # unlabeled documents on which stage 2 is validated: a tenth, at most this many


@dataclass(frozen=True)
class ClassWeight:
    """What classes weigh: by name, balanced, or both."""

    named: np.ndarray
    """(Y,), all 1 where no class is named."""
    is_balanced: bool

    def of(self, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What each class counts for (Y,) over documents with sample weights (n,), whose sum it keeps."""
        if not self.is_balanced and (self.named == 1).all():
            return np.ones(len(self.named))
        found = self.named / self.named.max()
        if self.is_balanced:
            counts = np.bincount(ids, weights, minlength=len(found))
            found = weights.sum() / (len(found) * np.where(counts > 0, counts, 1)) * found
        total = (weights * found[ids]).sum()
        kept: np.ndarray = found * (weights.sum() / total) if total > 0 else found
        return kept


@dataclass(frozen=True)
class Split:
    """The labeled documents of a run, split, with label ids and weights; the mean of train's is 1,
    except whole numbers in folds."""

    labels: Labels
    train_texts: list[str]
    train_ids: np.ndarray
    train_weights: np.ndarray
    dev_texts: list[str]
    dev_ids: np.ndarray
    dev_weights: np.ndarray
    """The sample weight of each document in validation."""
    class_weights: np.ndarray
    """The weight of each class in training (Y,), times the sample weight."""
    class_weight: ClassWeight
    """What those were found by."""
    sample_weights: np.ndarray
    """The sample weight of each document in training, where it teaches in folds."""
    prior: np.ndarray
    """Each class's share of train, by sample weights: the prediction for an empty text (Y,)."""

    def examples(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """The label ids and the weights to learn from train, or from dev too, with."""
        if part == "train":
            return self.train_ids, self.train_weights
        return self.dev_ids, (self.dev_weights * self.class_weights[self.dev_ids]).astype(np.float32)

    def weights_without(self, held: np.ndarray) -> np.ndarray:
        """The weight of each document of train (n,) where the labels of those held out (n,) are not known."""
        taught = ~held
        of_classes = self.class_weight.of(self.train_ids[taught], self.sample_weights[taught])
        found: np.ndarray = (self.sample_weights * of_classes[self.train_ids]).astype(np.float32)
        return found

    @property
    def is_folded(self) -> bool:
        """Whether all documents teach, in folds, so that dev is the same documents."""
        return self.dev_texts is self.train_texts

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


def read_labeled(config: Config, corpus: Corpus) -> Split:
    """Read the labels, check them, and keep some of them for validation."""
    name = corpus.names.get("labeled", "the labeled documents")
    texts, values = corpus.labeled_documents
    is_folded = config.expert.traits.is_fitted
    labels = Labels.from_values(values, name, once_is_enough=is_folded or corpus.dev is not None)
    refuse_textless(len(texts), empty_texts(texts), name)
    ids = labels.encode(values, name)
    if corpus.dev is not None:
        train_rows, dev_rows = np.arange(len(ids)), None
        dev_texts, dev_values = corpus.dev_documents
        dev_ids = labels.encode(dev_values, corpus.names.get("dev", "the dev documents"))
    elif is_folded:
        keys = [text_key(text) for text in texts]
        if corpus.test is None and only_texts(keys, ids.tolist()) == set(keys):
            raise none_to_evaluate_on(name)
        train_rows = dev_rows = np.arange(len(ids))
        dev_texts, dev_ids = texts, ids
    else:
        train_rows, dev_rows = split_dev(ids, config.dev_fraction, derive_seed(config.seed, "dev"))
        dev_texts, dev_ids = [texts[i] for i in dev_rows], ids[dev_rows]
    _refuse_useless(dev_texts, name, corpus)
    weights = np.ones(len(ids)) if corpus.sample_weight is None else corpus.sample_weight.astype(np.float64)
    if not is_folded or (weights % 1).any():  # in folds, whole numbers count like repeated documents
        weights = weights / weights[train_rows].mean()
    class_weight = _class_weight(config, corpus, labels)
    class_weights = class_weight.of(ids[train_rows], weights[train_rows])
    sums = np.bincount(ids[train_rows], weights[train_rows], minlength=len(labels.classes))
    sums[sums == 0] = 1  # subtle: a class that weighs nothing is not impossible
    return Split(
        labels=labels,
        train_texts=texts if dev_texts is texts else [texts[i] for i in train_rows],
        train_ids=ids[train_rows],
        train_weights=(weights * class_weights[ids])[train_rows].astype(np.float32),
        dev_texts=dev_texts,
        dev_ids=dev_ids,
        dev_weights=np.ones(len(dev_ids), np.float32)
        if dev_rows is None
        else weights[dev_rows].astype(np.float32),
        class_weights=class_weights,
        class_weight=class_weight,
        sample_weights=weights[train_rows],
        prior=sums / sums.sum(),
    )


def _refuse_useless(dev_texts: Sequence[str], name: str, corpus: Corpus) -> None:
    """Refuse to validate on no document, or on documents without text."""
    if not dev_texts:
        source = name if corpus.dev is None else corpus.names.get("dev", "the dev file")
        raise InputError(
            f"No labels are left for validation: {source} holds too few documents; "
            "add some, or raise dev_fraction."
        )
    if corpus.dev is not None:
        refuse_textless(len(dev_texts), empty_texts(dev_texts), corpus.names.get("dev", "the dev documents"))


def _class_weight(config: Config, corpus: Corpus, labels: Labels) -> ClassWeight:
    named = {} if corpus.class_weight is None else corpus.class_weight
    of_classes = np.array([named.get(label, 1.0) for label in labels.classes], np.float64)
    return ClassWeight(of_classes, is_balanced=config.class_weight is not None)


def check_sources(config: Config, corpus: Corpus) -> Split:
    """Find what would stop a run before a folder is made for it; the labeled documents.

    Of the test labels only the names of the classes are used here.
    """
    choose_device(config.runtime.device)
    labeled = read_labeled(config, corpus)
    if corpus.test is not None:
        name = corpus.names.get("test", "the test documents")
        survey = corpus.test_survey
        labeled.labels.refuse_unseen(survey.labels, name)
        refuse_textless(len(survey.keys), survey.empty, name)
    return labeled


def numbered_folds(labeled: Split, seed: int) -> np.ndarray:
    """The fold of each labeled document (n,), by its text and the seed; -1 for those that always teach."""
    keys = [text_key(text) for text in labeled.train_texts]
    salt = str(derive_seed(seed, "folds")).encode()
    digests = [hashlib.blake2b(salt + key.encode("utf-8", "surrogatepass")).digest() for key in keys]
    order = sorted(range(len(keys)), key=lambda row: (digests[row], int(labeled.train_ids[row])))
    return folds_of(keys, labeled.train_ids, FOLDS, order)


class UnlabeledTexts:
    """The unlabeled documents as a stream that can be read again, less those of the test set.

    `in_test` and `empty` count what the last complete pass met.
    """

    def __init__(self, source: DocumentStream | None, test: KnownTexts = NO_TEXTS) -> None:
        self.source = source
        self.test = test
        self.check: Callable[[list[str]], object] | None = None
        """Refuses texts that cannot be learned from, in the first pass."""
        self.in_test = self.empty = 0

    def __iter__(self) -> Iterator[list[str]]:
        self.in_test = self.empty = 0
        for chunk in () if self.source is None else self.source():
            texts = chunk.texts
            self.empty += empty_texts(texts)
            if self.test.prints:
                is_known = self.test.among(texts)
                self.in_test += int(is_known.sum())
                texts = [text for text, known in zip(texts, is_known, strict=True) if not known]
            if self.check is not None:
                self.check(texts)
            yield texts
        self.check = None


class HeldOut:
    """A stream less the documents in some rows, which are kept in memory as they pass."""

    def __init__(self, chunks: Iterable[Sequence[str]], rows: np.ndarray) -> None:
        self.chunks, self.rows = chunks, rows
        self.texts: list[str] = []
        self.is_read = False

    def __iter__(self) -> Iterator[list[str]]:
        self.texts, first = [], 0
        for chunk in self.chunks:
            is_held_out = np.isin(np.arange(first, first + len(chunk)), self.rows)
            first += len(chunk)
            self.texts += compress(chunk, is_held_out)
            yield list(compress(chunk, ~is_held_out))
        self.is_read = True


def held_out_rows(documents: int, seed: int) -> np.ndarray:
    """Which unlabeled documents stage 2 is validated on."""
    count = held_out_count(documents)
    return numpy_generator(seed, "held out").choice(documents, count, replace=False)


def held_out_count(documents: int) -> int:
    """The number of unlabeled documents to hold out: a tenth, at least 1, at most 2,000."""
    return max(1, min(documents // 10, HELD_OUT_DOCUMENTS))
