"""Work in a window of tasks: bounded, each job once, by processes that stay."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mein.engines.cluster import work_on_ray
from mein.errors import RunError
from tests.support.ray_clusters import small_cluster

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray itself
CORES = 2
JOBS = 12


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """Two nodes of one core; one of them claims to have a GPU."""
    with small_cluster(nodes=0) as found:
        found.add_node(num_cpus=1, num_gpus=1)
        ray.init(found.address, log_to_driver=False)
        yield found
        ray.shutdown()


def work(held: str, job: int) -> tuple[str, int, int]:
    time.sleep(0.02)
    return held, job, os.getpid()


def refuse(held: str, job: int) -> None:
    raise RunError(f"{held} {job} is damaged.\nAsk for it again.")


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (3, 3), (None, CORES + 1)])
def test_jobs_are_taken_no_faster_than_they_are_done(workers: int | None, most: int) -> None:
    taken, ahead, done = [], [], []

    def jobs() -> Iterator[int]:
        for job in range(JOBS):
            taken.append(job)
            yield job

    for found in work_on_ray(work, "held", jobs(), workers):
        done.append(found)
        ahead.append(len(taken) - len(done) + 1)  # this one was in work until now
    assert sorted(found[:2] for found in done) == [("held", job) for job in range(JOBS)]
    assert max(ahead) == most + 1  # and one in hand


def test_a_process_on_a_gpu_stays_for_the_next_job() -> None:
    found = list(work_on_ray(work, "held", range(JOBS), None, "GPU"))
    assert sorted(job for _, job, _ in found) == list(range(JOBS))
    assert len({process for _, _, process in found}) == 1


def test_an_error_of_mein_comes_back_unchanged() -> None:
    with pytest.raises(RunError) as caught:
        list(work_on_ray(refuse, "shard", [7], 1))
    assert str(caught.value) == "shard 7 is damaged.\nAsk for it again."
