"""A Ray cluster for one command, by its address or on this machine only; jobs and complete runs as its tasks.

Plain tasks, not Ray Data: its scheduler polls for finished tasks ten times a second, and a shard of short
documents takes less than that; each of its processes takes a second to start.
"""

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager
from importlib import import_module
from typing import Any, TypeVar

from mein import __version__
from mein.errors import InputError, MeinError, MissingExtra, RunError
from mein.store.place import Folder, Place, place_of

ANSWER_SECONDS = 5.0  # a cluster that takes longer to answer counts as missing
OBJECT_STORE = 500_000_000  # bytes of shared memory of a local cluster: some shards of text in flight
TOKEN = ".shared"
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Keeps Ray's own messages off the terminal; its log files are where Ray always writes them."""


@contextmanager
def ray_cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster with this address, or to a local one that lives as long as this context.

    Without an address the variable RAY_ADDRESS is used, as in Ray's own tools.
    """
    if address is None:
        address = os.environ.get("RAY_ADDRESS", "local")
    os.environ |= {name: value for name, value in QUIET.items() if name not in os.environ}
    with as_extra():
        import ray
    _refuse_unreachable(address)
    own: dict[str, Any] = {"object_store_memory": OBJECT_STORE, "include_dashboard": False}
    try:
        with _silenced():
            ray.init(
                address, logging_level="error", log_to_driver=False, **(own if address == "local" else {})
            )
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise _closed(address, problem) from problem
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def as_extra() -> Iterator[None]:
    """One sentence where Ray, or a part of it, is not installed."""
    try:
        yield
    except ImportError as problem:
        raise MissingExtra(
            f"--engine ray needs the package ray ({problem}): pip install '.[ray]'"
        ) from problem


def warm_up(modules: Sequence[str], processes: int | None) -> list[Any]:
    """Let processes of the cluster, by default one per core, import modules before there is work for them."""
    import ray

    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    count = cores if processes is None else min(cores, processes)
    load = ray.remote(max_retries=0, scheduling_strategy="SPREAD")(_load)
    return [load.remote(modules) for _ in range(count)]


def _load(modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)


@contextmanager
def reported() -> Iterator[None]:
    """Raise errors of mein as they were raised on the cluster; one sentence for Ray's."""
    from ray.exceptions import RayError

    try:
        yield
    except (RayError, RuntimeError) as problem:
        raise _first_of_mein(problem) or RunError(
            f"Ray failed ({_last_line(problem)}): see its logs, and run the same command again."
        ) from problem


def refuse_unshared(at: str) -> None:
    """Refuse a folder or URL that some machine of the cluster does not share."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    place, token = place_of(at), uuid.uuid4().hex
    with place.writing(TOKEN) as path:
        path.write_text(token, encoding="utf-8")
    look = ray.remote(num_cpus=0, max_retries=2)(_look)
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    if isinstance(place, Folder):
        nodes.pop(ray.get_runtime_context().get_node_id(), None)  # this machine's own
    answers = [
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)).remote(
            place.address
        )
        for node in nodes
    ]
    try:
        with reported():
            seen = ray.get(answers)
    finally:
        place.remove(TOKEN)
    for (found, version), host in zip(seen, nodes.values(), strict=True):
        if version != __version__:
            raise RunError(
                f"{host} has mein {version}, not {__version__}: install the same on every machine."
            )
        if found != token:
            raise InputError(
                f"{at} is not shared with {host}, a machine of the cluster: "
                "give a folder that all of them mount, or a URL such as s3://bucket/store."
            )


def _look(address: str) -> tuple[str | None, str]:
    """What a machine of the cluster finds at a place, and the version that it runs."""
    place: Place = place_of(address)
    try:
        return place.read(TOKEN).decode("utf-8"), __version__
    except (OSError, MeinError):
        return None, __version__


def _refuse_unreachable(address: str) -> None:
    """Try to connect before Ray does, which waits for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in ("local", "auto"):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError, OverflowError) as problem:
        raise _unreachable(address, problem) from problem


def _closed(address: str, problem: Exception) -> InputError:
    if address == "local":
        return InputError(f"Ray does not start on this machine ({_last_line(problem)}): see `ray status`.")
    if address == "auto":
        return _unreachable(address, problem)
    return InputError(  # something answered
        f"{address} answers but refuses the connection ({_last_line(problem)}): check --address, "
        "and set RAY_AUTH_MODE=token if the cluster requires a token (`ray get-auth-token`)."
    )


def _unreachable(address: str, problem: Exception) -> InputError:
    return InputError(
        f"There is no Ray cluster at {address} ({_last_line(problem)}): check --address, "
        "or remove it for a local one."
    )


def _first_of_mein(problem: BaseException | None) -> MeinError | None:
    """The error of mein among the causes of one that came from the cluster.

    Subtle: Ray may return it as a class of its own that also inherits from it, whose text is a traceback.
    """
    while problem is not None:
        cause = getattr(problem, "cause", None)
        if isinstance(problem, MeinError) and cause is None:
            return problem
        problem = problem.__cause__ if cause is None else cause
    return None


def _last_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines or [type(problem).__name__])[-1].rstrip(".")


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep off the terminal what Ray's C++ prints while it starts, whatever its log level."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


Held = TypeVar("Held")
T = TypeVar("T")
Result = TypeVar("Result")


def work_on_ray(
    work: Callable[[Held, T], Result], held: Held, jobs: Iterable[T], workers: int | None, on: str = "CPU"
) -> Iterator[Result]:
    """What work(held, job) returns for each job, as it comes; each is a task on one CPU or GPU.

    At most `workers` tasks at a time; None: as many as the cluster has room for. Jobs are taken no faster
    than they are done. Ray repeats the tasks of a lost process or machine.
    """
    import ray

    # max_calls: otherwise a process that used a GPU ends with its task and loses what it holds there
    task = ray.remote(max_retries=-1, max_calls=0, **{f"num_{on.lower()}s": 1})(work)
    in_work: list[Any] = []
    with reported():
        for job in jobs:
            while len(in_work) >= (_room(on) if workers is None else workers):
                done, in_work = ray.wait(in_work)
                yield from ray.get(done)
            in_work.append(task.remote(held, job))
        while in_work:
            done, in_work = ray.wait(in_work)
            yield from ray.get(done)


def _room(on: str) -> int:
    """A task for each core or GPU of the cluster, and a waiting one that requests more machines."""
    import ray

    return int(ray.cluster_resources().get(on, 1)) + 1


def run_on_ray(tasks: Sequence[Callable[[], None]]) -> Iterator[str | None]:
    """Run all tasks, each as soon as there is room; yields the error of each as it ends, or None."""
    import ray

    needs = {"num_gpus": 1} if ray.cluster_resources().get("GPU", 0) >= 1 else {"num_cpus": 1}
    run = ray.remote(max_calls=1, **needs)(_run)  # a process of its own, as each run has without Ray
    folder = os.getcwd()  # noqa: PTH109
    waiting = [run.remote(task, folder) for task in tasks]
    with reported():
        while waiting:
            ended, waiting = ray.wait(waiting)
            yield from ray.get(ended)


def _run(task: Callable[[], None], folder: str) -> str | None:
    with chdir(folder):  # where the user's relative paths are valid
        try:
            task()
        except MeinError as problem:
            return str(problem)
    return None
