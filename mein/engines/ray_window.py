"""Jobs in, results out: tasks of Ray, no more of them at a time than there is room for.

Plain tasks, not Ray Data: its scheduler looks for tasks that ended ten times a second, and a shard of
short documents takes less than that; each of its processes takes a second to start.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from mein.engines.ray_cluster import told

Held = TypeVar("Held")
Job = TypeVar("Job")
Result = TypeVar("Result")


def work_on_ray(
    work: Callable[[Held, Job], Result], held: Held, jobs: Iterable[Job], workers: int | None, on: str = "CPU"
) -> Iterator[Result]:
    """What work(held, job) returns for each job, as it comes; each is a task on one CPU or GPU.

    So many tasks at a time; none: as the cluster has room for. Jobs are taken no faster than they are
    done. What a lost process or machine was at is done again by another: that is Ray's care.
    """
    import ray

    # max_calls: else a process that used a GPU ends with its task, and with it what it holds there
    task = ray.remote(max_retries=-1, max_calls=0, **{f"num_{on.lower()}s": 1})(work)
    in_work: list[Any] = []
    with told():
        for job in jobs:
            while len(in_work) >= (_room(on) if workers is None else workers):
                done, in_work = ray.wait(in_work)
                yield from ray.get(done)
            in_work.append(task.remote(held, job))
        while in_work:
            done, in_work = ray.wait(in_work)
            yield from ray.get(done)


def _room(on: str) -> int:
    """A task for each core or GPU of the cluster, and one that waits and so calls for more machines."""
    import ray

    return int(ray.cluster_resources().get(on, 1)) + 1
