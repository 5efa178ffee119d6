"""Encoding by Ray Data: one task reads the text and cuts it, actors encode and write a shard each."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from mein.engines.ray_cluster import refuse_unshared, told
from mein.text.encoder import Encoder
from mein.text.manifest import Shard
from mein.text.place import Place, place_of
from mein.text.worker import Job, receive, send, write_shard
from mein.text.writing import kept

Batch = dict[str, Any]


def encode_on_ray(
    workers: int | None, encoder: Encoder, place: Place, jobs: Callable[[], Iterator[Job]]
) -> Iterator[Shard]:
    """Encode and write every job that is not there already, whole; yields each shard when it is.

    The text is read where this runs, so that only the store must be shared. Ray holds the reader back
    while the actors are busy.
    """
    import ray
    import ray.data

    refuse_unshared(place.address)
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    folder = os.getcwd()  # noqa: PTH109

    def cut(start: Batch) -> Iterator[pa.Table]:
        with chdir(folder):  # where the user's paths mean what they say
            for job in jobs():
                yield pa.table({"job": pa.array([_packed(job)], pa.large_binary())})

    # Subtle: of what a task yields Ray makes blocks of this size; with 1 a job is a block.
    ray.data.DataContext.get_current().target_max_block_size = 1
    shards = (
        ray.data.from_items([0])
        .map_batches(cut, batch_size=None, num_cpus=0, label_selector=here)
        .map_batches(
            Encoding,
            fn_constructor_args=(encoder, place.address),
            batch_size=None,
            batch_format="pyarrow",
            compute=actors(workers),
        )
    )
    with told():
        for row in shards.iter_rows():
            yield Shard(**row)


class Encoding:
    """An actor that holds the vocabularies."""

    def __init__(self, encoder: Encoder, address: str) -> None:
        self.encoder, self.place = encoder, place_of(address)
        self.there = set(self.place.names())

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Write the shard of a job, or find it written; what the manifest says of it."""
        return pa.Table.from_pylist([asdict(self._written(_unpacked(job))) for job in batch["job"]])

    def _written(self, job: Job) -> Shard:
        shard = kept(self.place, job) if job.file in self.there else None
        return write_shard(self.encoder, self.place, job) if shard is None else shard


def actors(workers: int | None, unit: str = "CPU", jobs: int | None = None) -> Any:
    """So many actors; else one for each core or GPU of the cluster, or of what it grows to."""
    import ray
    from ray.data import ActorPoolStrategy

    if workers is not None:
        return ActorPoolStrategy(size=workers)
    units = max(1, int(ray.cluster_resources().get(unit, 1)))
    return ActorPoolStrategy(min_size=1, initial_size=units if jobs is None else min(units, jobs))


def _packed(job: Job) -> bytes:
    stream = io.BytesIO()
    send(job, stream)
    return stream.getvalue()


def _unpacked(content: pa.Scalar) -> Job:
    job = receive(io.BytesIO(content.as_buffer()))
    assert job is not None
    return job
