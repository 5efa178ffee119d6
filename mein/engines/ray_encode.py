"""Encoding by tasks of Ray: this process reads the text and cuts it, they encode and write a shard each.

Plain tasks, not Ray Data: its scheduler looks for tasks that ended ten times a second, and a shard of
short documents takes less than that; each of its processes takes a second to start.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from mein.engines.ray_cluster import refuse_unshared, told
from mein.text.encoder import Encoder
from mein.text.manifest import Shard
from mein.text.place import Place, place_of
from mein.text.worker import Job, write_shard
from mein.text.writing import kept

Held = tuple[Any, str]  # a reference to the encoder, and where the store is


def encode_on_ray(
    workers: int | None, encoder: Encoder, place: Place, jobs: Iterator[Job]
) -> Iterator[Shard]:
    """Encode and write every job that is not there already, whole; yields each shard when it is.

    Text is read no faster than it is encoded. What a lost process or machine was at is done again by
    another: that is Ray's care.
    """
    import ray

    refuse_unshared(place.address)
    encode = ray.remote(max_retries=-1)(encode_shard)
    held: Held = ray.put(encoder), place.address
    in_work: list[Any] = []
    with told():
        for job in jobs:
            if len(in_work) >= _most(workers):
                done, in_work = ray.wait(in_work)
                yield from ray.get(done)
            in_work.append(encode.remote(held, job))
        while in_work:
            done, in_work = ray.wait(in_work)
            yield from ray.get(done)


def encode_shard(held: Held, job: Job) -> Shard:
    """Write the shard of a job, or find it written."""
    encoder, place, there = _fetched(held)
    shard = kept(place, job) if job.file in there else None
    return write_shard(encoder, place, job) if shard is None else shard


def _most(workers: int | None) -> int:
    """How many jobs may be in work: so many, or one a core and one that calls for more machines."""
    import ray

    return int(ray.cluster_resources().get("CPU", 1)) + 1 if workers is None else workers


@lru_cache(maxsize=1)
def _fetched(held: Held) -> tuple[Encoder, Place, set[str]]:
    """What a process fetches once: the vocabularies, the place, and what was there."""
    import ray

    encoder, address = held
    place = place_of(address)
    return ray.get(encoder), place, set(place.names())
