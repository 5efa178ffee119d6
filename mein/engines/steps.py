"""Encode and label as Ray tasks: this process reads and cuts text, each task writes a shard or its labels.

Encoding processes hold the vocabularies, labeling ones the teacher, on a GPU if there are any.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mein.data.labels import Label
from mein.engines.cluster import refuse_unshared, work_on_ray
from mein.run.teacher import KERNELS, Teacher, write_label_file
from mein.runtime.device import choose_device
from mein.store.files import Shard, label_file
from mein.store.place import Place, place_of
from mein.store.store import Store
from mein.store.worker import ShardJob, write_shard
from mein.store.writing import kept
from mein.text.indexer import Indexer

HeldIndexer = tuple[Any, str]  # a reference to the indexer, and where the store is


def encode_on_ray(
    workers: int | None, indexer: Indexer, place: Place, jobs: Iterator[ShardJob]
) -> Iterator[Shard]:
    """Encode and write every job that is not complete yet; yields each shard when it is."""
    import ray

    refuse_unshared(place.address)
    held: HeldIndexer = ray.put(indexer), place.address
    return work_on_ray(encode_shard, held, jobs, workers)


def encode_shard(held: HeldIndexer, job: ShardJob) -> Shard:
    """Write the shard of a job, or find it written."""
    indexer, place, there = _fetched_encoder(held)
    shard = kept(place, job) if job.file in there else None
    return write_shard(indexer, place, job) if shard is None else shard


@lru_cache(maxsize=1)
def _fetched_encoder(held: HeldIndexer) -> tuple[Indexer, Place, set[str]]:
    """What a process fetches once: the vocabularies, the place, and what was there."""
    import ray

    indexer, address = held
    place = place_of(address)
    return ray.get(indexer), place, set(place.names())


HeldTeacher = tuple[
    Any, str, tuple[Label, ...], str
]  # a reference to the teacher, the store, classes, author


def label_on_ray(
    workers: int | None,
    teacher: Teacher,
    store: Store,
    classes: Sequence[Label],
    by: str,
    shards: Sequence[int],
) -> Iterator[int]:
    """Label shards of a store; yields each when it is done."""
    import ray

    if not shards:
        return iter(())
    refuse_unshared(store.place.address)
    held: HeldTeacher = (
        ray.put(replace(teacher, expert=teacher.expert.cpu())),
        store.place.address,
        tuple(classes),
        by,
    )
    on = "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"
    return work_on_ray(label_shard, held, shards, workers, on)


def label_shard(held: HeldTeacher, shard: int) -> int:
    """Write the label file of a shard, unless a lost process wrote it before."""
    _, _, classes, by = held
    teacher, store, there = _fetched_run(held)
    if label_file(store.shards[shard].file) not in there:
        write_label_file(teacher, store, classes, by, shard)
    return shard


@lru_cache(maxsize=1)
def _fetched_run(held: HeldTeacher) -> tuple[Teacher, Store, set[str]]:
    """What a process fetches once: the teacher, on its GPU or core, the store, and what was there."""
    import ray

    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
    reference, address, _, _ = held
    store, teacher = Store.open(address), ray.get(reference)
    expert = teacher.expert.to(choose_device("auto")).eval()
    return replace(teacher, expert=expert), store, set(store.place.names())
