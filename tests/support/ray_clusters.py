"""A Ray cluster of several small nodes on this machine, and deaths in it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from mein.engines.cluster import QUIET
from mein.engines.steps import encode_shard, label_shard
from mein.store.files import Shard

MEMORY = 100_000_000  # bytes of each node's object store


@contextmanager
def small_cluster(nodes: int = 2) -> Iterator[Any]:
    """A cluster whose head has one core, with so many more nodes of one core."""
    os.environ |= QUIET
    head = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        yield cluster
    finally:
        cluster.shutdown()


def workers_of(nodes: Iterable[Any], title: str) -> list[int]:
    """The processes of some nodes that call themselves so, such as ray::RayTrainWorker."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in nodes}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
            called = (folder / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue  # it has just ended
        if parent in raylets and title in called:
            found.append(int(folder.name))
    return sorted(found)


def kill_node(cluster: Any, title: str) -> bool:
    """SIGKILL a whole node, not the head, that has such a process; whether there was one."""
    for node in list(cluster.worker_nodes):
        if workers_of([node], title):
            cluster.remove_node(node, allow_graceful=False)
            return True
    return False


def kill_worker(cluster: Any, title: str) -> bool:
    """SIGKILL one process that calls itself so; whether there was one."""
    found = workers_of(cluster.list_all_nodes(), title)
    if found:
        os.kill(found[0], signal.SIGKILL)
    return bool(found)


@contextmanager
def meanwhile(deed: Callable[[], bool]) -> Iterator[list[float]]:
    """Try a deed again and again, beside what is done inside, until it reports that it is done.

    Yields the times at which it was: none before, one after.
    """
    times: list[float] = []
    is_over = threading.Event()

    def try_it() -> None:
        while not is_over.wait(0.01):
            if deed():
                times.append(time.monotonic())
                return

    thread = threading.Thread(target=try_it)
    thread.start()
    try:
        yield times
    finally:
        is_over.set()
        thread.join()


def encode_slowly(*job: Any) -> Shard:
    """What encodes a shard on Ray, slowly enough to be met at work."""
    time.sleep(0.05)
    return encode_shard(*job)


def label_slowly(*job: Any) -> int:
    """What labels a shard on Ray, as slowly."""
    time.sleep(0.05)
    return label_shard(*job)
