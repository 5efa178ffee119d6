"""Before Algorithm 1: from documents to vocabularies and encoded parts in the run folder."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from mein.artefacts import load_encoder, save_encoder
from mein.building import words_of_language_model
from mein.config import Config
from mein.data.corpus import Corpus, Source, in_chunks
from mein.data.known import KnownTexts
from mein.data.labels import in_number
from mein.data.splits import empty_texts
from mein.data.teacher import Teacher, TeacherTable
from mein.errors import InputError, RunError
from mein.labeled import LabeledTexts
from mein.processes import cores
from mein.progress import Reporter, Task
from mein.seeds import numpy_generator
from mein.text.encoder import Encoder, Reader, learn_vocabularies
from mein.text.store import Store
from mein.text.writing import Spread, write_store
from mein.training.folder import RunFolder
from mein.unlabeled import Chosen, UnlabeledTexts, digest_of_texts, known_texts

SHARD_DOCUMENTS, SHARD_CHARACTERS = 10_000, 64_000_000  # whichever is reached first
SLOW_SHARD_DOCUMENTS = 1_000  # about a minute of a small language model on one core, which a kill may lose
HELD_OUT_DOCUMENTS = 2_000  # unlabelled documents on which stage 2 is judged, a tenth at most, but one


def prepare(
    config: Config,
    corpus: Corpus,
    labeled: LabeledTexts,
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
    encoder, seen = _vocabularies(config, *read, folder, reporter, reader)
    counts = {"train": len(labeled.train_texts), "dev": len(labeled.dev_texts)}
    encode_labeled(folder, encoder, labeled, reporter)
    counts["silent"] = _refuse_silence(config, folder) if reader is None else 0
    if seen["unlabeled"]:
        documents = seen["unlabeled"]
        counts |= _encode_unlabeled(config, folder, encoder, unlabeled, documents, reporter, spread)
    counts |= {name: seen[name] for name in ("removed", "unlabeled_in_test", "empty")}
    for part, texts in (("train", labeled.train_texts), ("dev", labeled.dev_texts)):
        counts[f"{part}_in_test"] = int(test.among(texts).sum())
    for remark in remarks(counts):
        reporter.say(remark)
    folder.rewind("data", 0)
    folder.record("data", **counts)
    folder.write_json("prepared.json", counts)
    return counts


def encode_labeled(folder: RunFolder, encoder: Encoder, labeled: LabeledTexts, reporter: Reporter) -> None:
    """Train and dev, each a store, of a single shard where that is quick."""
    for part, texts in (("train", labeled.train_texts), ("dev", labeled.dev_texts)):
        with reporter.task(f"encoding {part}", len(texts)) as task:
            path, documents = folder / f"encoded/{part}", shard_documents(encoder, max(1, len(texts)))
            write_store(path, encoder, counted([texts], task), shard_documents=documents, workers=1)


def shard_documents(encoder: Encoder, usual: int) -> int:
    """How many documents make a shard: few where a reader is slow."""
    is_slow = encoder.reader is not None and encoder.reader.is_slow
    return SLOW_SHARD_DOCUMENTS if is_slow else usual


def counted(chunks: Iterable[Sequence[str]], task: Task) -> Iterator[Sequence[str]]:
    """The same documents, some at a time; a task hears of them once the next are wanted."""
    for texts in chain.from_iterable(map(in_chunks, chunks)):
        yield texts
        task.advance(len(texts))


def _refuse_silence(config: Config, folder: RunFolder) -> int:
    """How many training documents are nothing but their end to the expert; refuse where most are."""
    lengths = Store.open(folder / "encoded/train").words().lengths
    silent = int((lengths <= 1).sum())
    if config.expert.language_model is not None and silent > len(lengths) / 2:
        raise InputError(
            f"{silent} of {len(lengths)} training documents hold no word that the language model in "
            f"{config.expert.language_model} knows: pre-train one on text like them."
        )
    return silent


def refuse_unknown_texts(teacher: Teacher, labeled: LabeledTexts, corpus: Corpus) -> None:
    """Look up every document, also of the test set, in a teacher's table before anything is trained."""
    if not isinstance(teacher, TeacherTable):
        return
    sources = [source for source in (corpus.unlabeled, corpus.test) if source is not None]
    raw = (chunk.texts for source in sources for chunk in source())
    for texts in chain([labeled.train_texts, labeled.dev_texts], raw):
        teacher(texts)


def remarks(counts: dict[str, int]) -> list[str]:
    """What a user should know about the documents before believing a result."""
    leaked = " {documents} {are} also in the test set: "
    sentences = {
        "silent": "{n} training {documents} {hold} no word that the expert knows.",
        "empty": "{n} {documents} {are} empty: {they} {are} kept, and {get} each class's share in training.",
        "removed": "{n} unlabelled" + leaked + "{they} {are} left out.",
        "unlabeled_in_test": "{n} unlabelled" + leaked + "{they} {are} kept, as asked.",
        "train_in_test": "{n} training" + leaked + "its error will look too good.",
        "dev_in_test": "{n} dev" + leaked + "its error will look too good.",
    }
    return [in_number(text, counts[name]) for name, text in sentences.items() if counts[name]]


def _refuse_other_documents(labeled: LabeledTexts, corpus: Corpus, folder: RunFolder) -> None:
    """Write labels.json and test.json; where they are there, the documents must be those of their run."""
    content = {
        "classes": list(labeled.labels.classes),
        "prior": labeled.prior.tolist(),
        "documents": labeled.digest,
    }
    _remember(folder, "labels.json", content, "labelled")
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
    encoder, seen = _vocabularies(config, [], [], texts, folder, reporter, reader)
    counts = _encode_unlabeled(config, folder, encoder, texts, seen["unlabeled"], reporter)
    folder.write_json("prepared.json", counts)


def _vocabularies(
    config: Config,
    train_texts: list[str],
    dev_texts: list[str],
    unlabeled: UnlabeledTexts,
    folder: RunFolder,
    reporter: Reporter,
    reader: Reader | None,
) -> tuple[Encoder, dict[str, int]]:
    """Learn both vocabularies from train and unlabelled text; also how many of the latter there are.

    The words are a language model's own where the expert starts from one.
    """
    if (folder / "vocabularies.json").exists():
        return load_encoder(config, folder, reader), folder.read_json("vocabularies.json")
    known_words = words_of_language_model(config)
    reporter.say("Learning the vocabularies ...")
    texts = chain(in_chunks(train_texts), unlabeled)
    encoder, documents = learn_vocabularies(texts, config.words, config.pieces)
    words = encoder.words if known_words is None else known_words
    encoder = Encoder(config.words, words, encoder.pieces, reader)
    seen = {
        "unlabeled": documents - len(train_texts),
        "removed": unlabeled.in_test if unlabeled.removes else 0,
        "unlabeled_in_test": 0 if unlabeled.removes else unlabeled.in_test,
        "empty": unlabeled.empty + empty_texts([*train_texts, *dev_texts]),
    }
    save_encoder(folder, encoder, seen)
    return encoder, seen


def _encode_unlabeled(
    config: Config,
    folder: RunFolder,
    encoder: Encoder,
    unlabeled: Iterable[Sequence[str]],
    documents: int,
    reporter: Reporter,
    spread: Spread | None = None,
) -> dict[str, int]:
    """Encode the unlabelled text into two stores: what imitators learn from, and what they are judged on."""
    held_out = held_out_rows(documents, config.seed)
    workers = config.runtime.workers or cores()

    counts = {}
    with reporter.task("encoding", documents) as task:
        for part in ("held_out", "unlabeled"):
            chosen = Chosen(_same_number(unlabeled, documents, folder), held_out, part == "held_out")
            counts[part] = len(
                write_store(
                    folder / f"encoded/{part}",
                    encoder,
                    counted(chosen, task),
                    shard_documents=shard_documents(encoder, SHARD_DOCUMENTS),
                    shard_characters=SHARD_CHARACTERS,
                    workers=workers,
                    spread=spread,
                )
            )
    return counts


def _same_number(
    chunks: Iterable[Sequence[str]], documents: int, folder: RunFolder
) -> Iterator[Sequence[str]]:
    """The unlabelled documents, which must be as many as the vocabularies were learned from."""
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        yield chunk
    if seen != documents:  # told before the store is finished, so that the restored text can go on
        raise RunError(
            f"The unlabelled text is not what the run in {folder.path} began with: its number of "
            f"documents is {seen:,}, not {documents:,}; restore it, or choose another --out."
        )


def held_out_rows(documents: int, seed: int) -> np.ndarray:
    """Which unlabelled documents stage 2 is judged on."""
    count = held_out_count(documents)
    return numpy_generator(seed, "held out").choice(documents, count, replace=False)


def held_out_count(documents: int) -> int:
    """How many of so many unlabelled documents are held out: a tenth, 2,000 at most, one at least."""
    return max(1, min(documents // 10, HELD_OUT_DOCUMENTS))
