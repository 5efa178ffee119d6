"""Before line 1: labels, split, vocabularies, encoded parts.

The labeled documents of a run: read once, split into train and dev, weighed.

The unlabeled documents of a run as streams that can be read again, here or in another process.

Before Algorithm 1: from documents to vocabularies and encoded parts in the run folder.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from mein.config import Config
from mein.data.corpus import Corpus, Source, in_chunks, read_all
from mein.data.labels import Labels, in_number, refuse_textless
from mein.data.soft_labels import SoftLabels, SoftLabelTable
from mein.data.splits import KnownTexts, empty_texts, split_dev
from mein.errors import InputError, RunError
from mein.model.artefacts import load_indexer, save_indexer
from mein.model.pretrained import words_of_language_model
from mein.runtime.processes import cores
from mein.runtime.progress import Reporter, Task
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import derive_seed, numpy_generator
from mein.store.store import Store
from mein.store.writing import Spread, write_store
from mein.text.indexer import Indexer, Reader, learn_vocabularies


@dataclass(frozen=True)
class Split:
    """The labeled documents of a run, split, with label ids and weights; those of train have the mean 1."""

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

    def examples(self, part: str) -> tuple[np.ndarray, np.ndarray]:
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


def read_labeled(config: Config, corpus: Corpus) -> Split:
    """Read the labels, check them, and keep some of them for choosing."""
    name = corpus.names.get("labeled", "the labeled documents")
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
    return Split(
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


class UnlabeledTexts:
    """The unlabeled documents as a stream that can be read again, less those of the test set.

    `in_test` and `empty` count what the last whole reading met.
    """

    def __init__(self, config: Config, source: Source | None, test: KnownTexts) -> None:
        self.source = source
        self.removes = config.removes_test_overlap
        self.test = test
        self.in_test = self.empty = 0

    def __iter__(self) -> Iterator[list[str]]:
        self.in_test = self.empty = 0
        for chunk in () if self.source is None else self.source():
            texts = chunk.texts
            self.empty += empty_texts(texts)
            if self.test.prints:
                is_known = self.test.among(texts)
                self.in_test += int(is_known.sum())
                if self.removes:
                    texts = [text for text, known in zip(texts, is_known, strict=True) if not known]
            yield texts


@dataclass(frozen=True)
class Chosen:
    """The documents of a stream that are held out, or the others."""

    chunks: Iterable[Sequence[str]]
    held_out: np.ndarray
    is_held_out: bool

    def __iter__(self) -> Iterator[list[str]]:
        first = 0
        for chunk in self.chunks:
            is_out = np.isin(np.arange(first, first + len(chunk)), self.held_out)
            first += len(chunk)
            yield [text for text, out in zip(chunk, is_out, strict=True) if out == self.is_held_out]


def known_texts(test: Source | None) -> KnownTexts:
    """Those of the test set, which unlabeled text must not hold."""
    return KnownTexts() if test is None else KnownTexts.of(chunk.texts for chunk in test())


def digest_of_texts(source: Source) -> str:
    """Equal for the same texts in the same order."""
    digest = hashlib.blake2b(digest_size=16)
    for chunk in source():
        for text in chunk.texts:
            content = text.encode("utf-8", "surrogatepass")
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
    return digest.hexdigest()


SHARD_DOCUMENTS, SHARD_CHARACTERS = 10_000, 64_000_000  # whichever is reached first
SLOW_SHARD_DOCUMENTS = 1_000  # about a minute of a small language model on one core, which a kill may lose
HELD_OUT_DOCUMENTS = 2_000  # unlabeled documents on which stage 2 is judged, a tenth at most, but one


def prepare(
    config: Config,
    corpus: Corpus,
    labeled: Split,
    folder: RunFolder,
    reporter: Reporter,
    reader: Reader | None = None,
    spread: Spread | None = None,
) -> dict[str, int]:
    """Leave words.txt, pieces.model, labels.json and the stores in the folder; skip what is there.

    Returns how many documents each part holds, and how many are empty or in the test set as well.
    """
    _refuse_other_documents(labeled, corpus, folder)
    if (folder / "prepared.json").exists():
        return folder.read_json("prepared.json")
    test = known_texts(corpus.test)
    unlabeled = UnlabeledTexts(config, corpus.unlabeled, test)
    read = (labeled.train_texts, labeled.dev_texts, unlabeled)
    indexer, seen = _vocabularies(config, *read, folder, reporter, reader)
    counts = {"train": len(labeled.train_texts), "dev": len(labeled.dev_texts)}
    encode_labeled(folder, indexer, labeled, reporter)
    counts["silent"] = _count_unknown(config, folder) if reader is None else 0
    if seen["unlabeled"]:
        documents = seen["unlabeled"]
        counts |= _encode_unlabeled(config, folder, indexer, unlabeled, documents, reporter, spread)
    counts |= {name: seen[name] for name in ("removed", "unlabeled_in_test", "empty")}
    for part, texts in (("train", labeled.train_texts), ("dev", labeled.dev_texts)):
        counts[f"{part}_in_test"] = int(test.among(texts).sum())
    for note in notes(counts):
        reporter.log(note)
    folder.rewind("data", 0)
    folder.record("data", **counts)
    folder.write_json("prepared.json", counts)
    return counts


def encode_labeled(folder: RunFolder, indexer: Indexer, labeled: Split, reporter: Reporter) -> None:
    """Train and dev, each a store, of a single shard where that is quick."""
    for part, texts in (("train", labeled.train_texts), ("dev", labeled.dev_texts)):
        with reporter.task(f"encoding {part}", len(texts)) as task:
            path, documents = folder / f"encoded/{part}", shard_documents(indexer, max(1, len(texts)))
            write_store(path, indexer, counted([texts], task), shard_documents=documents, workers=1)


def shard_documents(indexer: Indexer, usual: int) -> int:
    """How many documents make a shard: few where a reader is slow."""
    is_slow = indexer.reader is not None and indexer.reader.is_slow
    return SLOW_SHARD_DOCUMENTS if is_slow else usual


def counted(chunks: Iterable[Sequence[str]], task: Task) -> Iterator[Sequence[str]]:
    """The same documents, some at a time; a task hears of them once the next are wanted."""
    for texts in chain.from_iterable(map(in_chunks, chunks)):
        yield texts
        task.advance(len(texts))


def _count_unknown(config: Config, folder: RunFolder) -> int:
    """How many training documents are nothing but their end to the expert; refuse where most are."""
    lengths = Store.open(folder / "encoded/train").words().lengths
    silent = int((lengths <= 1).sum())
    if config.expert.language_model is not None and silent > len(lengths) / 2:
        raise InputError(
            f"{silent} of {len(lengths)} training documents hold no word that the language model in "
            f"{config.expert.language_model} knows: pre-train one on text like them."
        )
    return silent


def refuse_unknown_texts(soft_labels: SoftLabels, labeled: Split, corpus: Corpus) -> None:
    """Look up every document, also of the test set, in a teacher's table before anything is trained."""
    if not isinstance(soft_labels, SoftLabelTable):
        return
    sources = [source for source in (corpus.unlabeled, corpus.test) if source is not None]
    raw = (chunk.texts for source in sources for chunk in source())
    for texts in chain([labeled.train_texts, labeled.dev_texts], raw):
        soft_labels(texts)


def notes(counts: dict[str, int]) -> list[str]:
    """What a user should know about the documents before believing a result."""
    leaked = " {documents} {are} also in the test set: "
    sentences = {
        "silent": "{n} training {documents} {hold} no word that the expert knows.",
        "empty": "{n} {documents} {are} empty: {they} {are} kept, and {get} each class's share in training.",
        "removed": "{n} unlabeled" + leaked + "{they} {are} left out.",
        "unlabeled_in_test": "{n} unlabeled" + leaked + "{they} {are} kept, as asked.",
        "train_in_test": "{n} training" + leaked + "its error will look too good.",
        "dev_in_test": "{n} dev" + leaked + "its error will look too good.",
    }
    return [in_number(text, counts[name]) for name, text in sentences.items() if counts[name]]


def _refuse_other_documents(labeled: Split, corpus: Corpus, folder: RunFolder) -> None:
    """Write labels.json and test.json; where they are there, the documents must be those of their run."""
    content = {
        "classes": list(labeled.labels.classes),
        "prior": labeled.prior.tolist(),
        "documents": labeled.digest,
    }
    _remember(folder, "labels.json", content, "labeled")
    began_without = (folder / "prepared.json").exists() and not (folder / "test.json").exists()
    if corpus.test is not None and not began_without:  # an older version's run, or one on another's text
        _remember(folder, "test.json", {"documents": digest_of_texts(corpus.test)}, "test")


def _remember(folder: RunFolder, name: str, content: dict[str, Any], which: str) -> None:
    if not (folder / name).exists():
        folder.write_json(name, content)
    elif folder.read_json(name) != content:
        raise RunError(
            f"The {which} documents are not those that the run in {folder.path} began with: "
            "restore them, or choose another --out."
        )


def prepare_raw(
    config: Config, source: Source, folder: RunFolder, reporter: Reporter, reader: Reader | None = None
) -> None:
    """The same for text alone: leave vocabularies and two stores, `unlabeled` and `held_out`."""
    if (folder / "prepared.json").exists():
        return
    texts = UnlabeledTexts(config, source, KnownTexts())
    indexer, seen = _vocabularies(config, [], [], texts, folder, reporter, reader)
    counts = _encode_unlabeled(config, folder, indexer, texts, seen["unlabeled"], reporter)
    folder.write_json("prepared.json", counts)


def _vocabularies(
    config: Config,
    train_texts: list[str],
    dev_texts: list[str],
    unlabeled: UnlabeledTexts,
    folder: RunFolder,
    reporter: Reporter,
    reader: Reader | None,
) -> tuple[Indexer, dict[str, int]]:
    """Learn both vocabularies from train and unlabeled text; also how many of the latter there are.

    The words are a language model's own where the expert starts from one.
    """
    if (folder / "vocabularies.json").exists():
        return load_indexer(config, folder, reader), folder.read_json("vocabularies.json")
    known_words = words_of_language_model(config)
    reporter.log("Learning the vocabularies ...")
    texts = chain(in_chunks(train_texts), unlabeled)
    indexer, documents = learn_vocabularies(texts, config.words, config.pieces)
    words = indexer.words if known_words is None else known_words
    indexer = Indexer(config.words, words, indexer.pieces, reader)
    seen = {
        "unlabeled": documents - len(train_texts),
        "removed": unlabeled.in_test if unlabeled.removes else 0,
        "unlabeled_in_test": 0 if unlabeled.removes else unlabeled.in_test,
        "empty": unlabeled.empty + empty_texts([*train_texts, *dev_texts]),
    }
    save_indexer(folder, indexer, seen)
    return indexer, seen


def _encode_unlabeled(
    config: Config,
    folder: RunFolder,
    indexer: Indexer,
    unlabeled: Iterable[Sequence[str]],
    documents: int,
    reporter: Reporter,
    spread: Spread | None = None,
) -> dict[str, int]:
    """Encode the unlabeled text into two stores: what imitators learn from, and what they are judged on."""
    held_out = held_out_rows(documents, config.seed)
    workers = config.runtime.workers or cores()

    counts = {}
    with reporter.task("encoding", documents) as task:
        for part in ("held_out", "unlabeled"):
            chosen = Chosen(_same_number(unlabeled, documents, folder), held_out, part == "held_out")
            counts[part] = len(
                write_store(
                    folder / f"encoded/{part}",
                    indexer,
                    counted(chosen, task),
                    shard_documents=shard_documents(indexer, SHARD_DOCUMENTS),
                    shard_characters=SHARD_CHARACTERS,
                    workers=workers,
                    spread=spread,
                )
            )
    return counts


def _same_number(
    chunks: Iterable[Sequence[str]], documents: int, folder: RunFolder
) -> Iterator[Sequence[str]]:
    """The unlabeled documents, which must be as many as the vocabularies were learned from."""
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        yield chunk
    if seen != documents:  # told before the store is finished, so that the restored text can go on
        raise RunError(
            f"The unlabeled text is not what the run in {folder.path} began with: its number of "
            f"documents is {seen:,}, not {documents:,}; restore it, or choose another --out."
        )


def held_out_rows(documents: int, seed: int) -> np.ndarray:
    """Which unlabeled documents stage 2 is judged on."""
    count = held_out_count(documents)
    return numpy_generator(seed, "held out").choice(documents, count, replace=False)


def held_out_count(documents: int) -> int:
    """How many of so many unlabeled documents are held out: a tenth, 2,000 at most, one at least."""
    return max(1, min(documents // 10, HELD_OUT_DOCUMENTS))
