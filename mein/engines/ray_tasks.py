"""Whole runs as tasks of Ray: one process each, on a GPU where there are any, else on a core."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir

from mein.engines.ray_cluster import told
from mein.errors import MeinError


def run_on_ray(tasks: Sequence[Callable[[], None]]) -> Iterator[str | None]:
    """Run all tasks, each as soon as there is room for it; yields what each that ended complained of."""
    import ray

    needs = {"num_gpus": 1} if ray.cluster_resources().get("GPU", 0) >= 1 else {"num_cpus": 1}
    run = ray.remote(max_calls=1, **needs)(_run)  # a process of its own, as each run has without Ray
    folder = os.getcwd()  # noqa: PTH109
    waiting = [run.remote(task, folder) for task in tasks]
    with told():
        while waiting:
            ended, waiting = ray.wait(waiting)
            yield from ray.get(ended)


def _run(task: Callable[[], None], folder: str) -> str | None:
    with chdir(folder):  # where the user's paths mean what they say
        try:
            task()
        except MeinError as problem:
            return str(problem)
    return None
