"""Encoding by Ray Data: one task reads the text and cuts it, others encode and write a shard each."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mein.engines.ray_cluster import quiet_data, refuse_unshared, told
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
    while the others are busy.
    """
    import ray

    data = quiet_data()
    refuse_unshared(place.address)
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    folder = os.getcwd()  # noqa: PTH109

    def cut(start: Batch) -> Iterator[pa.Table]:
        with chdir(folder):  # where the user's paths mean what they say
            for job in jobs():
                yield pa.table({"job": pa.array([_packed(job)], pa.large_binary())})

    # Subtle: of what a task yields Ray makes blocks of this size; with 1 a job is a block.
    data.DataContext.get_current().target_max_block_size = 1
    shards = (
        data.from_items([0])
        .map_batches(cut, batch_size=None, num_cpus=0, label_selector=here)
        .map_batches(
            _encode,
            fn_args=(ray.put(encoder), place.address),
            batch_size=None,
            batch_format="pyarrow",
            compute=data.TaskPoolStrategy(workers),
        )
    )
    with told():
        for row in shards.iter_rows():
            yield Shard(**row)


def _encode(batch: pa.Table, encoder: Any, address: str) -> pa.Table:
    """Write the shard of a job, or find it written; what the manifest says of it."""
    held, place, there = _held(encoder, address)
    found = []
    for job in map(_unpacked, batch["job"]):
        shard = kept(place, job) if job.file in there else None
        found.append(asdict(write_shard(held, place, job) if shard is None else shard))
    return pa.Table.from_pylist(found)


@lru_cache(maxsize=1)
def _held(encoder: Any, address: str) -> tuple[Encoder, Place, set[str]]:
    """What a process fetches once: the vocabularies, the place, and what was there."""
    import ray

    place = place_of(address)
    return ray.get(encoder), place, set(place.names())


def _packed(job: Job) -> bytes:
    stream = io.BytesIO()
    send(job, stream)
    return stream.getvalue()


def _unpacked(content: pa.Scalar) -> Job:
    job = receive(io.BytesIO(content.as_buffer()))
    assert job is not None
    return job
