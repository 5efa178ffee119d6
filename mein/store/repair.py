"""Damaged files of a store, moved to quarantine so that work can continue without them."""

from collections.abc import Sequence

from mein.data.labels import Label
from mein.errors import DamagedFile, InputError, RunError
from mein.runtime.files import sha256_of
from mein.store.files import LABELS, Shard, label_file, labeled_by, read_soft_labels, write_manifest
from mein.store.store import Store

QUARANTINE = "quarantine"


def quarantine(store: Store, classes: Sequence[Label]) -> list[str]:
    """Verify every file and move the damaged ones into quarantine/; what was lost, in sentences."""
    damaged = [shard for shard in store.shards if not _is_complete(store, shard)]
    if damaged:
        _set_aside(store, damaged)
    kept = [shard for shard in store.shards if shard not in damaged]
    doubtful = [shard for shard in kept if not _is_well_labeled(store, shard, classes)]
    there = set(store.place.names())
    for shard in doubtful:
        if label_file(shard.file) in there:
            store.place.move(label_file(shard.file), QUARANTINE)
    if doubtful and LABELS in there:
        store.place.remove(LABELS)
    lost = sum(shard.documents for shard in damaged)
    notes = [f"{shard.file} is damaged: set aside in {store.place}/{QUARANTINE}." for shard in damaged]
    notes += [f"The labels of {shard.file} are {_label_problem(shard, there)}." for shard in doubtful]
    return [*notes, f"{lost:,} documents are lost to this store."] if lost else notes


def _label_problem(shard: Shard, there: set[str]) -> str:
    is_there = label_file(shard.file) in there
    return "damaged: set aside, to be made again" if is_there else "missing, to be made again"


def drop_damaged_labels(store: Store, by: str) -> list[str]:
    """Unseal a labeled store with damaged label files, and remove those that this expert wrote.

    Another teacher's labels stay: they are verified when the store is labeled again.
    """
    there, sealed = set(store.place.names()), store.label_digests
    doubtful = [shard for shard in store.shards if sealed and not _is_as_sealed(store, shard, sealed, there)]
    if doubtful and store.labeled_by - {None, by}:
        raise RunError(
            f"{store.place}/{label_file(doubtful[0].file)} is damaged or missing, and the store holds the "
            "soft labels of another expert: label with the run that they are from."
        )
    notes = []
    for shard in doubtful:
        file = label_file(shard.file)
        if file in there and not _is_of(store, shard, by):
            continue
        if file in there:
            store.place.remove(file)
        notes.append(f"The labels of {shard.file} are damaged or missing: they are made again.")
    if doubtful:
        store.place.remove(LABELS)  # last: a kill before it leaves labels that are missing
    return notes


def _is_as_sealed(store: Store, shard: Shard, sealed: dict[str, str], there: set[str]) -> bool:
    """Whether a label file in the place itself is as sealed: a cache may hold what is lost there."""
    file = label_file(shard.file)
    if file not in there:
        return False
    with store.place.reading(file) as path:
        try:
            return sha256_of(path) == sealed.get(file)
        except OSError:
            return False


def _is_of(store: Store, shard: Shard, by: str) -> bool:
    """Whether an expert wrote a label file, as far as the damaged file shows."""
    file = label_file(shard.file)
    with store.place.reading(file) as path:
        author = labeled_by(path)
        if author is not None or store.label_authors.get(file) != by:
            return author == by
        assert store.classes is not None  # it is sealed
        try:
            read_soft_labels(path, file, shard.documents, store.classes)
        except InputError:
            return True
    return False  # a complete file from another source


def _is_complete(store: Store, shard: Shard) -> bool:
    try:
        store.place.fetch(shard.file, shard.sha256)
    except DamagedFile:
        return False
    return True


def _is_well_labeled(store: Store, shard: Shard, classes: Sequence[Label]) -> bool:
    """Whether a shard's labels are undamaged; also if there are none yet."""
    file = label_file(shard.file)
    if file not in store.place.names():
        return file not in store.label_digests
    try:
        if store.label_digests:
            store.place.fetch(file, store.label_digests.get(file))
        with store.place.reading(file) as path:
            read_soft_labels(path, f"{store.place}/{file}", shard.documents, classes)
    except (DamagedFile, InputError):
        return False
    return True


def _set_aside(store: Store, damaged: Sequence[Shard]) -> None:
    """Move the files before the manifest: a kill between leaves missing shards, which are found later."""
    there = set(store.place.names())
    for shard in damaged:
        for file in (label_file(shard.file), shard.file):
            if file in there:
                store.place.move(file, QUARANTINE)
    kept = [shard for shard in store.shards if shard not in damaged]
    before = int(store.manifest.facts.get("quarantined", 0))
    lost = sum(shard.documents for shard in damaged)
    facts = {**store.manifest.facts, "quarantined": before + lost}
    write_manifest(store.place, store.fingerprint, kept, facts)
