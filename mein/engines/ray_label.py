"""Labelling by Ray Data: processes hold the expert, on a GPU each where there are any, and take shards."""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from mein.data.labels import Label
from mein.engines.ray_cluster import quiet_data, refuse_unshared, told
from mein.experts.base import Expert
from mein.inference import choose_device
from mein.label import KERNELS, write_label_file
from mein.text.label_files import label_file
from mein.text.store import Store

Batch = dict[str, Any]
SHARDS_A_TASK = 3  # between two tasks a process waits, for as long as a third of a small shard takes


def label_on_ray(
    workers: int | None,
    expert: Expert,
    store: Store,
    classes: Sequence[Label],
    by: str,
    shards: Sequence[int],
) -> Iterator[int]:
    """Label shards of a store, and yield each when it is done."""
    import ray

    if not shards:
        return
    data = quiet_data()
    refuse_unshared(store.place.address)
    given = (ray.put(expert.cpu()), store.place.address, tuple(classes), by)
    work = data.from_items(list(shards), override_num_blocks=-(-len(shards) // SHARDS_A_TASK))
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if gpus:
        most = min(len(shards), gpus if workers is None else workers)
        pool = data.ActorPoolStrategy(min_size=1, initial_size=most, max_size=workers)
        done = work.map_batches(Labelling, fn_constructor_args=given, batch_size=1, compute=pool, num_gpus=1)
    else:
        done = work.map_batches(_label, fn_args=given, batch_size=1, compute=data.TaskPoolStrategy(workers))
    with told():
        for row in done.iter_rows():
            yield int(row["item"])


class Labelling:
    """Holds the expert: an actor on a GPU, or what a process of the cluster keeps between its tasks."""

    def __init__(self, expert: Any, address: str, classes: Sequence[Label], by: str) -> None:
        import ray

        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
        self.expert: Expert = ray.get(expert).to(choose_device("auto")).eval()
        self.store, self.classes, self.by = Store.open(address), classes, by
        self.there = set(self.store.place.names())

    def __call__(self, batch: Batch) -> Batch:
        """Write the label files of shards, less those that a process before us left when it was lost."""
        for shard in batch["item"].tolist():
            if label_file(self.store.shards[shard].file) not in self.there:
                write_label_file(self.expert, self.store, self.classes, self.by, shard)
        return batch


_held = lru_cache(maxsize=1)(Labelling)


def _label(batch: Batch, *given: Any) -> Batch:
    return _held(*given)(batch)
