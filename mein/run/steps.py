"""The expensive steps of `mein train`, one by one, over a store of any size: encode text, label it, imitate.

`begin` makes a run whose imitators learn from a labeled store. It shares everything else with a finished run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mein.config import Config, load_config
from mein.data.columns import ColumnsConfig
from mein.data.corpus import Corpus, DocumentStream, corpus_of_files
from mein.data.formats import find_files
from mein.data.readers import Documents, read_documents
from mein.data.soft_labels import SoftLabelSource
from mein.data.splits import KnownTexts
from mein.errors import ConfigError, InputError, RunError
from mein.mixture.lexicon import LEXICON_OF_TRAIN
from mein.model.artefacts import EXPERT_OF_ALL, HUB, TEACHER
from mein.model.loading import FinishedRun
from mein.run.documents import NO_TEXTS, Split, UnlabeledTexts, held_out_count, read_labeled
from mein.run.prepare import (
    SHARD_CHARACTERS,
    SHARD_DOCUMENTS,
    counted,
    encode_labeled,
    identity_of,
    shard_documents,
)
from mein.run.teacher import (
    LabelingEngine,
    author_of,
    label_here,
    label_in_processes,
    label_store,
    load_teacher,
    refuse_other_classes,
    teaches_with_lexicon,
)
from mein.runtime.device import choose_device
from mein.runtime.files import link_or_copy, sha256_of
from mein.runtime.processes import cores
from mein.runtime.progress import Reporter
from mein.runtime.ranks import barrier, first_goes_ahead, is_first, rank, world
from mein.runtime.run_folder import RunFolder
from mein.store.repair import drop_damaged_labels, quarantine
from mein.store.store import Store, link_store
from mein.store.writing import Spread, drawn_from_few_shards, write_excerpt, write_store


def refuse_other_vocabularies(run: FinishedRun, store: Store) -> None:
    """Refuse a store of other vocabularies than the run's."""
    if store.fingerprint != run.indexer().fingerprint:
        raise RunError(
            f"{store.place} was encoded with other vocabularies than those of {run.folder.path}: "
            f"encode the text with `mein store encode --like {run.folder.path}`."
        )


def texts_of(paths: Sequence[str], columns: ColumnsConfig, *, may_guess: bool = True) -> DocumentStream:
    """The documents of some files, folders, globs or URLs, one after another.

    may_guess: where one lacks the column that is named for the text, whether to guess its own.
    """

    def read() -> Iterator[Documents]:
        for path in paths:
            yield from read_documents(path, columns, labeled=False, may_guess=may_guess)

    return read


def encode(
    like: FinishedRun,
    texts: DocumentStream,
    names: Sequence[str],
    at: str,
    reporter: Reporter,
    *,
    test: DocumentStream | None = None,
    soft_labels: SoftLabelSource | None = None,
    workers: int | None = None,
    spread: Spread | None = None,
) -> Store:
    """Write a store of documents, less those of a test set, with the vocabularies of a run.

    spread: an engine that does it on other machines, in as many processes as it likes.
    """
    known = NO_TEXTS if test is None else KnownTexts.of(chunk.texts for chunk in test())
    stream = UnlabeledTexts(texts, known)

    indexer = like.indexer(soft_labels)
    with reporter.task("encoding", None) as task:
        store = write_store(
            at,
            indexer,
            counted(stream, task),
            shard_documents=shard_documents(indexer, SHARD_DOCUMENTS),
            shard_characters=SHARD_CHARACTERS,
            workers=cores() if workers is None else workers,
            facts={"text": list(names)},
            part=(rank(), world()),
            spread=spread,
        )
    if stream.in_test:
        reporter.log(f"{stream.in_test:,} documents are also in the test set: they are left out.")
    return store


def label(
    by: FinishedRun,
    at: str,
    reporter: Reporter,
    *,
    workers: int | None = None,
    sets_aside: bool = False,
    engine: LabelingEngine | None = None,
) -> Store:
    """Let a run's teacher label a store; label files that others wrote are verified and kept.

    engine: labels on other machines, in as many processes as it likes.
    """
    if not author_of(by.folder, by.config):
        raise RunError(_without_expert(by))
    store = Store.open(at)
    refuse_other_vocabularies(by, store)
    classes = by.labels.classes
    with store.place.held() if is_first() else nullcontext():
        barrier()
        store = without_damage(by, store, reporter) if sets_aside else store
        author = author_of(by.folder, by.config)
        store = _without_damaged_labels(store, author, reporter)
        if store.labeled_by - {None, author}:
            raise RunError(
                f"{store.place} holds the soft labels of another run than {by.folder.path}: "
                "label with the run that they are from, or remove the label files and labels.json."
            )
        work = partial(_work, by, store, author, workers)
        if engine is not None:
            work = partial(_work_elsewhere, engine, by, store, author)
        unknown = label_store(store, classes, author, work, reporter)
    if unknown:
        reporter.log(f"{unknown:,} shards were labeled by another teacher: kept unchanged.")
    return store


def without_damage(like: FinishedRun, store: Store, reporter: Reporter) -> Store:
    """The store after its damaged files were set aside, of which the first rank takes care."""
    if is_first():
        for note in quarantine(store, like.labels.classes):
            reporter.log(note)
    barrier()
    return Store.open(str(store.place))


def _without_damaged_labels(store: Store, author: str, reporter: Reporter) -> Store:
    """The store, marked as incompletely labeled if label files are damaged or missing."""
    if is_first():
        for note in drop_damaged_labels(store, author):
            reporter.log(note)
    barrier()
    return Store.open(str(store.place))


def _work(
    by: FinishedRun, store: Store, author: str, workers: int | None, shards: Sequence[int]
) -> Iterator[int]:
    """Label shards in `workers` processes. Default: one per core, or this process on a GPU."""
    if not shards:
        return iter(())
    device = choose_device(by.config.runtime.device)
    if workers is None:
        workers = cores() // world() if device.type == "cpu" else 1
    if min(workers, len(shards)) > 1:
        return label_in_processes(by.folder.path, store, author, min(workers, len(shards)), shards)
    teacher = load_teacher(by.folder, by.config, device)
    return label_here(teacher, store, by.labels.classes, author, shards)


def _work_elsewhere(
    engine: LabelingEngine, by: FinishedRun, store: Store, author: str, shards: Sequence[int]
) -> Iterator[int]:
    """Send the teacher to where shards are labeled."""
    teacher = load_teacher(by.folder, by.config, torch.device("cpu"))
    done = engine(teacher, store, by.labels.classes, author, shards)
    return (store.shard_lengths[shard] for shard in done)


SHARED = ("words.txt", "pieces.model", "vocabularies.json", "labels.json", "expert.safetensors")
OF_THE_TEACHER = (TEACHER, LEXICON_OF_TRAIN)  # shared too where a lexicon is part of the teacher
FREE = ("imitators", "optimizer", "imitator_training", "mixture", "fine_tuning", "runtime")  # may differ


def begin(
    like: FinishedRun, store: Store, config: Config, corpus: Corpus, out: Path, reporter: Reporter
) -> None:
    """Make `out` a run that stands where `like` stood before its imitators, with the store for its text.

    Some documents of the store are held out, to validate the imitators on; it goes on with `train_run`.
    """
    labeled = _same_labels(like, config, corpus)
    folder = RunFolder(out)
    with first_goes_ahead(), folder.held():
        folder.claim(identity_of(config, corpus), resume=(folder / "config.json").exists())
        of_teacher = teaches_with_lexicon(config) and (like.folder / TEACHER).exists()
        shared = (*SHARED, *(OF_THE_TEACHER if of_teacher else ()))
        if any(not _is_same(like.folder / name, folder / name) for name in shared):
            raise RunError(
                f"The run in {out} was begun like another run than {like.folder.path}: "
                "give that run, or choose another --out."
            )
        if (folder / "prepared.json").exists():
            return
        for name in shared:
            link_or_copy(like.folder / name, folder / name)
        if (again := f"{EXPERT_OF_ALL}.safetensors") in like.done.required:
            link_or_copy(like.folder / again, folder / again)
        for path in filter(Path.is_file, (like.folder / HUB).rglob("*")):
            link_or_copy(path, folder.path / path.relative_to(like.folder.path))
        encode_labeled(folder, like.indexer(), labeled, reporter)
        rows = drawn_from_few_shards(store, held_out_count(len(store)), config.seed)
        write_excerpt(folder / "encoded/held_out", store, rows)
        link_store(folder / "encoded/unlabeled", store, rows.tolist())
        counts = like.folder.read_json("prepared.json") | {"removed": 0}
        counts |= {"held_out": len(rows), "unlabeled": len(store) - len(rows)}
        folder.rewind("data", 0)
        folder.record("data", **counts)
        folder.write_json("prepared.json", counts)


def _is_same(source: Path, target: Path) -> bool:
    """Whether a file of a run is there unchanged, or not there yet."""
    return not target.exists() or target.samefile(source) or sha256_of(target) == sha256_of(source)


def _same_labels(like: FinishedRun, config: Config, corpus: Corpus) -> Split:
    """The labeled documents, verified to be those of the run."""
    if not all((like.folder / name).exists() for name in (*SHARED, "prepared.json")):
        raise RunError(_without_expert(like))
    labeled = read_labeled(config, corpus)
    if labeled.digest != like.folder.read_json("labels.json")["documents"]:
        raise InputError(
            f"{corpus.names['labeled']} holds other labeled documents than those of {like.folder.path}: "
            "give the files that it was trained with."
        )
    return labeled


def _without_expert(run: FinishedRun) -> str:
    return (
        f"{run.folder.path} holds a classifier without its expert and its text: "
        "give the folder that `mein train --out` wrote."
    )


def ready_store(like: FinishedRun, store: Store) -> Store:
    """The store, verified to be encoded and labeled for a run."""
    refuse_other_vocabularies(like, store)
    if store.classes is None:
        raise RunError(
            f"{store.place} is not completely labeled: "
            f"label it with `mein store label {store.place} --by {like.folder.path}`."
        )
    refuse_other_classes(store, like.labels.classes)
    if len(store) < 2:
        raise InputError(f"{store.place} holds {len(store)} documents: encode some more text.")
    return store


def settings_like(like: FinishedRun, overrides: Mapping[str, Any]) -> Config:
    """The settings of a run, with others for its imitators and its mixture."""
    expert = like.config.expert
    option = "--from-run" if expert.is_self_training else None
    option = {"probabilities": "--soft-labels", "clones": "expert="}.get(expert.traits.reads, option)
    if option is not None:
        raise ConfigError(
            f"{like.folder.path} was trained with {option}, which `mein store train` does not support: "
            "give a run that was trained without it."
        )
    for name in overrides:
        if name.split(".")[0] not in FREE:
            raise ConfigError(
                f"{name} cannot be set, for it is shared with {like.folder.path}: "
                f"set something in {', '.join(FREE)}."
            )
    return load_config(file=like.folder / "config.json", overrides=overrides)


def corpus_like(like: FinishedRun, store: str, given: Mapping[str, str | None]) -> Corpus:
    """The labeled documents that a run was made from, and the store instead of its text."""
    names = like.folder.read_json("config.json").get("data", {})
    paths = {part: names.get(part) if path is None else path for part, path in given.items()}
    for part, path in paths.items():
        if given[part] is None and path is not None and not is_there(path):
            raise InputError(
                f"The run in {like.folder.path} was made with {path}, which is not there: "
                f"give its {part} documents with --{part}."
            )
    if paths["labeled"] is None:
        raise InputError(
            f"{like.folder / 'config.json'} names no labeled documents: give them with --labeled."
        )
    corpus = corpus_of_files(paths["labeled"], None, paths["dev"], paths["test"], like.config.columns)
    return replace(corpus, names=corpus.names | {"unlabeled": store})


def is_there(path: str) -> bool:
    """Whether documents can be found under a name."""
    try:
        return bool(find_files(path))
    except InputError:
        return False
