"""Encoding by tasks of Ray: this process reads the text and cuts it, they encode and write a shard each."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from mein.engines.ray_cluster import refuse_unshared
from mein.engines.ray_window import work_on_ray
from mein.text.encoder import Encoder
from mein.text.manifest import Shard
from mein.text.place import Place, place_of
from mein.text.worker import Job, write_shard
from mein.text.writing import kept

Held = tuple[Any, str]  # a reference to the encoder, and where the store is


def encode_on_ray(
    workers: int | None, encoder: Encoder, place: Place, jobs: Iterator[Job]
) -> Iterator[Shard]:
    """Encode and write every job that is not there already, whole; yields each shard when it is."""
    import ray

    refuse_unshared(place.address)
    held: Held = ray.put(encoder), place.address
    return work_on_ray(encode_shard, held, jobs, workers)


def encode_shard(held: Held, job: Job) -> Shard:
    """Write the shard of a job, or find it written."""
    encoder, place, there = _fetched(held)
    shard = kept(place, job) if job.file in there else None
    return write_shard(encoder, place, job) if shard is None else shard


@lru_cache(maxsize=1)
def _fetched(held: Held) -> tuple[Encoder, Place, set[str]]:
    """What a process fetches once: the vocabularies, the place, and what was there."""
    import ray

    encoder, address = held
    place = place_of(address)
    return ray.get(encoder), place, set(place.names())
