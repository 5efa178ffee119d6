"""Damaged files of a store, set aside so that work can go on without them."""

from collections.abc import Sequence

from mein.data.labels import Label
from mein.errors import DamagedFile, InputError
from mein.text.label_files import LABELS, label_file, read_labels
from mein.text.manifest import Shard, write_manifest
from mein.text.store import Store

QUARANTINE = "quarantine"


def quarantine(store: Store, classes: Sequence[Label]) -> list[str]:
    """Look at every file; move the damaged ones into quarantine/, and say what that costs."""
    damaged = [shard for shard in store.shards if not _is_whole(store, shard)]
    if damaged:
        _set_aside(store, damaged)
    kept = [shard for shard in store.shards if shard not in damaged]
    doubtful = [shard for shard in kept if not _is_well_labelled(store, shard, classes)]
    for shard in doubtful:
        store.place.move(label_file(shard.file), QUARANTINE)
    if doubtful and LABELS in store.place.names():
        store.place.remove(LABELS)
    lost = sum(shard.documents for shard in damaged)
    told = [f"{shard.file} is damaged: set aside in {store.place}/{QUARANTINE}." for shard in damaged]
    told += [f"The labels of {shard.file} are damaged: set aside, to be made again." for shard in doubtful]
    return [*told, f"{lost:,} documents are lost to this store."] if lost else told


def _is_whole(store: Store, shard: Shard) -> bool:
    try:
        store.place.fetch(shard.file, shard.sha256)
    except DamagedFile:
        return False
    return True


def _is_well_labelled(store: Store, shard: Shard, classes: Sequence[Label]) -> bool:
    """Also where there are no labels yet."""
    file = label_file(shard.file)
    if file not in store.place.names():
        return True
    try:
        if store.label_digests:
            store.place.fetch(file, store.label_digests.get(file))
        with store.place.reading(file) as path:
            read_labels(path, f"{store.place}/{file}", shard.documents, classes)
    except (DamagedFile, InputError):
        return False
    return True


def _set_aside(store: Store, damaged: Sequence[Shard]) -> None:
    """Move the files first: a kill before the manifest is written leaves shards that are missing."""
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
