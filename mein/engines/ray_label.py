"""Labelling by tasks of Ray: processes hold the tutor, on a GPU where there are any, and take shards."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from mein.data.labels import Label
from mein.engines.ray_cluster import refuse_unshared
from mein.engines.ray_window import work_on_ray
from mein.inference import choose_device
from mein.label import KERNELS, Tutor, write_label_file
from mein.text.label_files import label_file
from mein.text.store import Store

Held = tuple[Any, str, tuple[Label, ...], str]  # a reference to the tutor, the store, classes, author


def label_on_ray(
    workers: int | None,
    tutor: Tutor,
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
    held: Held = ray.put(replace(tutor, expert=tutor.expert.cpu())), store.place.address, tuple(classes), by
    on = "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"
    return work_on_ray(label_shard, held, shards, workers, on)


def label_shard(held: Held, shard: int) -> int:
    """Write the label file of a shard, unless a process before us left it when it was lost."""
    _, _, classes, by = held
    tutor, store, there = _fetched(held)
    if label_file(store.shards[shard].file) not in there:
        write_label_file(tutor, store, classes, by, shard)
    return shard


@lru_cache(maxsize=1)
def _fetched(held: Held) -> tuple[Tutor, Store, set[str]]:
    """What a process fetches once: the tutor, on its GPU or core, the store, and what was there."""
    import ray

    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
    reference, address, _, _ = held
    store, tutor = Store.open(address), ray.get(reference)
    expert = tutor.expert.to(choose_device("auto")).eval()
    return replace(tutor, expert=expert), store, set(store.place.names())
