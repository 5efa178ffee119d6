"""Labelling by Ray Data: actors hold the expert, on a GPU each where there are any, and take shards."""

from collections.abc import Iterator, Sequence
from typing import Any

from mein.data.labels import Label
from mein.engines.ray_cluster import refuse_unshared, told
from mein.engines.ray_encode import Batch, actors
from mein.experts.base import Expert
from mein.inference import choose_device
from mein.label import write_label_file
from mein.text.label_files import label_file
from mein.text.store import Store

MOST_BLOCKS = 10_000  # lists of shards that Ray keeps an eye on


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
    import ray.data

    if not shards:
        return
    refuse_unshared(store.place.address)
    has_gpus = ray.cluster_resources().get("GPU", 0) >= 1
    options: dict[str, Any] = {"num_gpus": 1} if has_gpus else {"num_cpus": 1}
    done = ray.data.from_items(list(shards), override_num_blocks=min(len(shards), MOST_BLOCKS)).map_batches(
        Labelling,
        fn_constructor_args=(expert.cpu(), store.place.address, list(classes), by),
        batch_size=1,
        compute=actors(workers, "GPU" if has_gpus else "CPU", len(shards)),
        **options,
    )
    with told():
        for row in done.iter_rows():
            yield int(row["item"])


class Labelling:
    """An actor that holds the expert."""

    def __init__(self, expert: Expert, address: str, classes: Sequence[Label], by: str) -> None:
        self.expert = expert.to(choose_device("auto")).eval()
        self.store, self.classes, self.by = Store.open(address), classes, by
        self.there = set(self.store.place.names())

    def __call__(self, batch: Batch) -> Batch:
        """Write the label files of shards, less those that an actor before us left when it was lost."""
        for shard in batch["item"].tolist():
            if label_file(self.store.shards[shard].file) not in self.there:
                write_label_file(self.expert, self.store, self.classes, self.by, shard)
        return batch
