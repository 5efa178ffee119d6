"""The heavy steps by themselves, over a store of any size: encode text, label it, learn from the labels.

`mein train` is the same functions in a row, in its own folder.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from mein.artefacts import SEALED, load_encoder, verify
from mein.building import open_reader
from mein.config import Config
from mein.data.corpus import Source
from mein.data.labels import Labels
from mein.data.readers import ColumnsConfig, Documents, read_documents
from mein.data.teacher import Teacher
from mein.errors import RunError
from mein.inference import choose_device
from mein.label import Labelling, label_here, label_in_processes, label_store
from mein.loading import read_config, read_labels
from mein.prepare import SHARD_CHARACTERS, SHARD_DOCUMENTS, counted, shard_documents
from mein.processes import cores
from mein.progress import Reporter
from mein.ranks import barrier, is_first, rank, world
from mein.text.encoder import Encoder
from mein.text.quarantine import drop_damaged_labels, quarantine
from mein.text.store import Store
from mein.text.writing import Spread, write_store
from mein.training.folder import RunFolder
from mein.tutor import author_of, load_tutor
from mein.unlabeled import UnlabeledTexts, known_texts


@dataclass(frozen=True)
class FinishedRun:
    """A finished run to go by: its settings, classes and vocabularies."""

    folder: RunFolder
    config: Config
    labels: Labels

    @classmethod
    def open(cls, path: Path) -> "FinishedRun":
        """The run in a folder, which must be finished."""
        folder = RunFolder(path)
        config = read_config(folder)
        if not folder.is_done:
            raise RunError(f"The run in {path} is not finished: continue it with `mein train --resume`.")
        verify(folder, "done", SEALED)
        return cls(folder, config, read_labels(folder)[0])

    def encoder(self, teacher: Teacher | None = None) -> Encoder:
        """Its vocabularies, with what its expert reads with."""
        device = choose_device(self.config.runtime.device)
        reader = open_reader(self.config, self.folder, self.labels.classes, device, teacher)
        return load_encoder(self.config, self.folder, reader)

    def refuse_strange(self, store: Store) -> None:
        """Refuse a store of other vocabularies than the run's."""
        if store.fingerprint != self.encoder().fingerprint:
            raise RunError(
                f"{store.place} was encoded with other vocabularies than those of {self.folder.path}: "
                f"encode the text with `mein encode --like {self.folder.path}`."
            )


def texts_of(paths: Sequence[str], columns: ColumnsConfig, *, may_guess: bool = True) -> Source:
    """The documents of some files, folders, globs or URLs, one after another.

    may_guess: where one lacks the column that is named for the text, whether to guess its own.
    """

    def read() -> Iterator[Documents]:
        for path in paths:
            yield from read_documents(path, columns, labeled=False, may_guess=may_guess)

    return read


def encode(
    like: FinishedRun,
    texts: Source,
    names: Sequence[str],
    at: str,
    reporter: Reporter,
    *,
    test: Source | None = None,
    teacher: Teacher | None = None,
    workers: int | None = None,
    spread: Spread | None = None,
) -> Store:
    """Write a store of documents, less those of a test set, with the vocabularies of a run.

    spread: an engine that does it on other machines, in as many processes as it likes.
    """
    stream = UnlabeledTexts(like.config, texts, known_texts(test))

    encoder = like.encoder(teacher)
    with reporter.task("encoding", None) as task:
        store = write_store(
            at,
            encoder,
            counted(stream, task),
            shard_documents=shard_documents(encoder, SHARD_DOCUMENTS),
            shard_characters=SHARD_CHARACTERS,
            workers=cores() if workers is None else workers,
            facts={"text": list(names)},
            part=(rank(), world()),
            spread=spread,
        )
    if stream.in_test and stream.removes:
        reporter.say(f"{stream.in_test:,} documents are also in the test set: they are left out.")
    return store


def label(
    by: FinishedRun,
    at: str,
    reporter: Reporter,
    *,
    workers: int | None = None,
    sets_aside: bool = False,
    engine: Labelling | None = None,
) -> Store:
    """Let the tutor of a run's imitators label a store; label files that others wrote are proved and kept.

    engine: labels on other machines, in as many processes as it likes.
    """
    store = Store.open(at)
    by.refuse_strange(store)
    classes = by.labels.classes
    with store.place.held() if is_first() else nullcontext():
        barrier()
        store = without_damage(by, store, reporter) if sets_aside else store
        author = author_of(by.folder, by.config)
        store = _without_damaged_labels(store, author, reporter)
        if store.labelled_by - {None, author}:
            raise RunError(
                f"{store.place} holds the word of another run than {by.folder.path}: label with the run that "
                "it is from, or remove the label files and labels.json."
            )
        work = partial(_work, by, store, author, workers)
        if engine is not None:
            work = partial(_work_elsewhere, engine, by, store, author)
        strangers = label_store(store, classes, author, work, reporter)
    if strangers:
        reporter.say(f"{strangers:,} shards were labelled by another teacher: kept as they are.")
    return store


def without_damage(like: FinishedRun, store: Store, reporter: Reporter) -> Store:
    """The store after its damaged files were set aside, of which the first rank takes care."""
    if is_first():
        for told in quarantine(store, like.labels.classes):
            reporter.say(told)
    barrier()
    return Store.open(str(store.place))


def _without_damaged_labels(store: Store, author: str, reporter: Reporter) -> Store:
    """The store, no longer wholly labelled where label files are damaged or missing."""
    if is_first():
        for told in drop_damaged_labels(store, author):
            reporter.say(told)
    barrier()
    return Store.open(str(store.place))


def _work(
    by: FinishedRun, store: Store, author: str, workers: int | None, shards: Sequence[int]
) -> Iterator[int]:
    """Label shards in so many processes; else in one for each core, or in this one on a GPU."""
    if not shards:
        return iter(())
    device = choose_device(by.config.runtime.device)
    if workers is None:
        workers = cores() // world() if device.type == "cpu" else 1
    if min(workers, len(shards)) > 1:
        return label_in_processes(by.folder.path, store, author, min(workers, len(shards)), shards)
    tutor = load_tutor(by.folder, by.config, device)
    return label_here(tutor, store, by.labels.classes, author, shards)


def _work_elsewhere(
    engine: Labelling, by: FinishedRun, store: Store, author: str, shards: Sequence[int]
) -> Iterator[int]:
    """Send the tutor to where shards are labelled."""
    tutor = load_tutor(by.folder, by.config, torch.device("cpu"))
    done = engine(tutor, store, by.labels.classes, author, shards)
    return (store.shard_lengths[shard] for shard in done)
