"""Before line 1 of Algorithm 1: the folder is the run's, vocabularies are learned, text is encoded."""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from mein.config import Config
from mein.data.corpus import Corpus, DocumentStream, in_chunks
from mein.data.labels import in_number
from mein.data.soft_labels import SoftLabels, SoftLabelTable
from mein.data.splits import empty_texts
from mein.errors import ConfigError, InputError, MeinError, RunError
from mein.evaluation.systems import control_names
from mein.model.artefacts import (
    ESTIMATOR,
    HUB,
    WRITTEN,
    load_indexer,
    refuse_other_artefacts,
    remember_hub,
    save_indexer,
)
from mein.model.build import digest_of_language_model, open_reader, open_soft_labels, words_of_language_model
from mein.run.documents import HeldOut, Split, UnlabeledTexts, check_sources, held_out_rows
from mein.run.seen_labels import have_seen, log_probs_in
from mein.run.state import SEEN, Run
from mein.run.user_fits import UserClassifier
from mein.run.warm_start import digest_of_previous_run, refuse_other_previous_run
from mein.runtime import ranks
from mein.runtime.device import choose_device
from mein.runtime.processes import cores
from mein.runtime.progress import Reporter, Task, as_clock
from mein.runtime.run_folder import RunFolder
from mein.store.store import Store
from mein.store.writing import Spread, write_store
from mein.text.indexer import Indexer, Reader, learn_vocabularies
from mein.text.ragged import packed_size
from mein.training.loop import Runtime

SHARD_DOCUMENTS, SHARD_CHARACTERS = 10_000, 64_000_000  # whichever is reached first
SLOW_SHARD_DOCUMENTS = 1_000  # about a minute of a small language model on one core, which a kill may lose


NO_CLASSIFIER = (
    "expert.kind is 'user', which takes a classifier from Python: "
    "give MeinClassifier(expert=...) one, or set expert.kind to linear."
)


def prepare(
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
    controls: Sequence[str] | None = None,
    soft_labels: SoftLabels | None = None,
    expert: UserClassifier | None = None,
    spread: Spread | None = None,
) -> Run:
    """A run before its first line, in a folder that the caller holds; with `resume`, one that is there.

    spread: an engine that encodes the text on other machines.
    """
    labeled = check_sources(config, corpus)
    if config.expert.traits.reads == "clones" and expert is None:
        raise ConfigError(NO_CLASSIFIER)
    if config.expert.traits.reads == "probabilities":
        soft_labels = open_soft_labels(config, labeled.labels.classes, soft_labels)
        _refuse_unknown_texts(soft_labels, labeled, corpus)
    words_of_language_model(config)  # refuses one that does not fit, before the folder is taken
    refuse_other_previous_run(config, corpus, labeled)
    device = choose_device(config.runtime.device)
    unlabeled = UnlabeledTexts(corpus.unlabeled, corpus.test_survey.known)
    if isinstance(soft_labels, SoftLabelTable):
        unlabeled.check = soft_labels
    with ranks.first_goes_ahead():
        is_new = folder.claim(identity_of(config, corpus, soft_labels), resume)
        if not is_new:
            refuse_other_artefacts(folder)
        try:
            refuse_other_documents(labeled, corpus, folder)
            if expert is None:
                reader = open_reader(config, folder, labeled.labels.classes, device, soft_labels)
            else:
                reader = expert.fit(config, labeled, folder, reporter)
            remember_hub(folder)
            counts = encode_parts(config, labeled, unlabeled, folder, reporter, reader, spread)
        except MeinError:
            if is_new and not (folder / "vocabularies.json").exists():
                shutil.rmtree(folder / HUB, ignore_errors=True)
                folder.release("labels.json", "test.json", ESTIMATOR, WRITTEN)
            raise
    runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
    indexer = load_indexer(config, folder, reader if expert is None else expert.reader)
    controls = control_names() if controls is None else controls
    return Run(config, corpus, labeled, counts, indexer, runtime, device, controls)


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


def _refuse_unknown_texts(soft_labels: SoftLabels, labeled: Split, corpus: Corpus) -> None:
    """Look up every labeled and test document in a table of soft labels before anything is trained."""
    if isinstance(soft_labels, SoftLabelTable):
        soft_labels([*labeled.train_texts, *labeled.dev_texts])
        soft_labels.refuse_unknown(corpus.test_survey.keys, corpus.names.get("test", "the test documents"))


def refuse_other_documents(labeled: Split, corpus: Corpus, folder: RunFolder) -> None:
    """Write labels.json and test.json; where they are there, the documents must be those of their run."""
    content = {
        "classes": list(labeled.labels.classes),
        "prior": labeled.prior.tolist(),
        "documents": labeled.digest,
    }
    _remember(folder, "labels.json", content, "labeled")
    began_without = (folder / "prepared.json").exists() and not (folder / "test.json").exists()
    if corpus.test is not None and not began_without:  # a run of `mein store train` has no such digest
        _remember(folder, "test.json", {"documents": corpus.test_survey.digest}, "test")


def _remember(folder: RunFolder, name: str, content: dict[str, Any], which: str) -> None:
    if not (folder / name).exists():
        folder.write_json(name, content)
    elif folder.read_json(name) != content:
        raise RunError(
            f"The {which} documents are not those that the run in {folder.path} began with: "
            "restore them, or choose another --out."
        )


def encode_parts(
    config: Config,
    labeled: Split,
    unlabeled: UnlabeledTexts,
    folder: RunFolder,
    reporter: Reporter,
    reader: Reader | None = None,
    spread: Spread | None = None,
) -> dict[str, int]:
    """Leave words.txt, pieces.model and the stores in the folder; skip what is there.

    Returns how many documents each part holds, and how many are empty or in the test set as well.
    """
    if (folder / "prepared.json").exists():
        return folder.read_json("prepared.json")
    own_dev = [] if labeled.is_folded else labeled.dev_texts
    read = (labeled.train_texts, own_dev, unlabeled)
    indexer, seen = _vocabularies(config, *read, folder, reporter, reader)
    counts = {"train": len(labeled.train_texts), "dev": len(own_dev)}
    if reader is not None and config.expert.traits.reads == "features":
        documents = sum(counts.values()) + seen["unlabeled"]
        reporter.log(cost_of_features(str(config.expert.model), reader, labeled.train_texts, documents))
    encode_labeled(folder, indexer, labeled, reporter)
    counts["silent"] = _count_unknown(config, folder) if reader is None else 0
    if seen["unlabeled"]:
        counts |= _encode_unlabeled(config, folder, indexer, unlabeled, seen["unlabeled"], reporter, spread)
    counts |= {name: seen[name] for name in ("removed", "empty")}
    for part, texts in (("train", labeled.train_texts), ("dev", own_dev)):
        counts[f"{part}_in_test"] = int(unlabeled.test.among(texts).sum())
    if config.expert.traits.reads == "probabilities" and seen["unlabeled"]:
        parts = ("dev", "held_out", "unlabeled")
        of_dev, *others = (log_probs_in(Store.open(folder / f"encoded/{part}")) for part in parts)
        counts[SEEN] = len(of_dev) * have_seen(of_dev, labeled.dev_ids, np.concatenate(others))
    for note in notes(counts):
        reporter.log(note)
    folder.rewind("data", 0)
    folder.record("data", **counts)
    folder.write_json("prepared.json", counts)
    return counts


SAMPLE_DOCUMENTS, SAMPLE_SECONDS = 32, 0.2  # on which an encoder is timed: at least so many, or so long


def cost_of_features(model: str, reader: Reader, texts: Sequence[str], documents: int) -> str:
    """One line about what an encoder is going to take, timed on some of the texts that it is to encode."""
    assert reader.size is not None
    mean = sum(map(len, texts)) / len(texts)
    alike = sorted(texts, key=lambda text: abs(len(text) - mean))  # hardly padded in one batch, as later
    sample = alike[:SAMPLE_DOCUMENTS]
    reader(sample[:2])  # a first call takes longer
    while (seconds := _seconds_of(reader, sample)) < SAMPLE_SECONDS and len(sample) < documents:
        sample = 2 * sample  # a GPU is quick only where there is enough to do
    megabytes = 4e-6 * packed_size(reader.size) * documents
    clock = as_clock(seconds / len(sample) * documents)
    which = in_number("each of {n} {documents}", documents)
    return (
        f"{model}: {reader.size:,} features of {which}, {megabytes:,.1f} MB on disk, about {clock} to encode"
    )


def _seconds_of(reader: Reader, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    reader(texts)
    return time.perf_counter() - started


def encode_raw(config: Config, source: DocumentStream, folder: RunFolder, reporter: Reporter) -> None:
    """The same for unlabeled text only: leave vocabularies and two stores, `unlabeled` and `held_out`."""
    if (folder / "prepared.json").exists():
        return
    texts = UnlabeledTexts(source)
    indexer, seen = _vocabularies(config, [], [], texts, folder, reporter, None)
    counts = _encode_unlabeled(config, folder, indexer, texts, seen["unlabeled"], reporter)
    folder.write_json("prepared.json", counts)


def encode_labeled(folder: RunFolder, indexer: Indexer, labeled: Split, reporter: Reporter) -> None:
    """Train and dev, each a store, of a single shard where that is quick."""
    parts = {"train": labeled.train_texts} | ({} if labeled.is_folded else {"dev": labeled.dev_texts})
    for part, texts in parts.items():
        with reporter.task(f"encoding {part}", len(texts)) as task:
            path, documents = folder / f"encoded/{part}", shard_documents(indexer, max(1, len(texts)))
            write_store(path, indexer, counted([texts], task), shard_documents=documents, workers=1)


def shard_documents(indexer: Indexer, usual: int) -> int:
    """How many documents make a shard: few where a reader is slow."""
    is_slow = indexer.reader is not None and indexer.reader.is_slow
    return SLOW_SHARD_DOCUMENTS if is_slow else usual


def counted(chunks: Iterable[Sequence[str]], task: Task) -> Iterator[Sequence[str]]:
    """The same documents, some at a time; a task is advanced once the next are wanted."""
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


def notes(counts: dict[str, int]) -> list[str]:
    """What a user should know about the documents before believing a result."""
    leaked = " {documents} {are} also in the test set: "
    sentences = {
        "silent": "{n} training {documents} {hold} no word that the expert knows.",
        "empty": "{n} {documents} {are} empty: {they} {are} kept, and {get} each class's share in training.",
        "removed": "{n} unlabeled" + leaked + "{they} {are} left out.",
        "train_in_test": "{n} training" + leaked + "its error will look too good.",
        "dev_in_test": "{n} dev" + leaked + "its error will look too good.",
        SEEN: "The soft labels were made with these labels: on dev they are hardly ever wrong, but unsure of "
        "other texts. No gate is fitted. Give the classifier unfitted as expert=, or other dev labels.",
    }
    return [in_number(text, counts[name]) for name, text in sentences.items() if counts.get(name)]


def seen_labels_notes(folder: RunFolder) -> list[str]:
    """The note about soft labels that have seen the labels, if they have: a run reports it, Python warns."""
    counts = folder.read_json("prepared.json")
    return notes({name: counts.get(name, 0) * (name == SEEN) for name in counts})


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
        "removed": unlabeled.in_test,
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
    """Encode the unlabeled text into two stores, in one pass: `unlabeled` to learn from, and `held_out`."""
    held_out = HeldOut(_same_number(unlabeled, documents, folder), held_out_rows(documents, config.seed))

    def write(part: str, chunks: Iterable[Sequence[str]], task: Task) -> Store:
        return write_store(
            folder / f"encoded/{part}",
            indexer,
            counted(chunks, task),
            shard_documents=shard_documents(indexer, SHARD_DOCUMENTS),
            shard_characters=SHARD_CHARACTERS,
            workers=config.runtime.workers or cores(),
            spread=spread,
        )

    with reporter.task("encoding", documents) as task:
        learned_from = write("unlabeled", held_out, task)
        if not held_out.is_read:  # the store was complete before
            for _ in held_out:
                pass
        validated_on = write("held_out", [held_out.texts], task)
    return {"held_out": len(validated_on), "unlabeled": len(learned_from)}


def _same_number(
    chunks: Iterable[Sequence[str]], documents: int, folder: RunFolder
) -> Iterator[Sequence[str]]:
    """The unlabeled documents, which must be as many as the vocabularies were learned from."""
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        yield chunk
    if seen != documents:  # refused before the store is finished, so that the restored text can go on
        raise RunError(
            f"The unlabeled text is not what the run in {folder.path} began with: its number of "
            f"documents is {seen:,}, not {documents:,}; restore it, or choose another --out."
        )
