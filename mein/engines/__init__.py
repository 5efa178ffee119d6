"""The engine of a command: processes of this machine, or Ray on many, an extra imported where it is used."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mein.errors import ConfigError

if TYPE_CHECKING:  # what a command imports while the engine starts
    from mein.config import Config
    from mein.data.corpus import Corpus
    from mein.run.teacher import LabelingEngine
    from mein.runtime.progress import Reporter
    from mein.store.writing import Spread

ENGINES = ("processes", "ray")
WARM = {"encode": ["mein.engines.steps"], "label": ["mein.engines.steps"]}
"""What a Ray process imports for a step."""


@dataclass(frozen=True)
class Engine:
    """Which engine, the address of its cluster, and how many of its processes a command takes."""

    name: str = "processes"
    address: str | None = None
    processes: int | None = None


HERE = Engine()


@contextmanager
def opened(engine: Engine, step: str | None = None) -> Iterator[bool]:
    """Connect to an engine; yields whether it is Ray, and warms up its processes for `step`."""
    if engine.name not in ENGINES:
        raise ConfigError(f"Unknown engine {engine.name!r}: choose one of {', '.join(ENGINES)}.")
    if engine.name == "processes":
        if engine.address is not None:
            raise ConfigError(f"--address {engine.address} needs --engine ray: give both, or neither.")
        if step is None and engine.processes is not None:
            raise ConfigError(f"--processes {engine.processes} needs --engine ray: give both, or neither.")
        yield False
        return
    from mein.engines.cluster import ray_cluster, warm_up

    with ray_cluster(engine.address):
        if step is not None:
            warm_up(WARM[step], engine.processes)
        yield True


def encoding_on_ray(workers: int | None) -> "Spread":
    """Encodes in `workers` processes of the cluster; None: one per core."""
    from mein.engines.steps import encode_on_ray

    return partial(encode_on_ray, workers)


def labeling_on_ray(workers: int | None) -> "LabelingEngine":
    """Labels in `workers` processes of the cluster; None: one per GPU, or per core."""
    from mein.engines.steps import label_on_ray

    return partial(label_on_ray, workers)


def training_on_ray(
    config: "Config",
    corpus: "Corpus",
    out: Path,
    reporter: "Reporter",
    *,
    resume: bool,
    processes: int | None,
) -> None:
    """Algorithm 1 in `processes` processes of the cluster; evaluation is left to do."""
    from mein.engines.train import train_on_ray

    train_on_ray(config, corpus, out, reporter, resume=resume, processes=processes)


def tasks_on_ray(tasks: Sequence[Callable[[], None]]) -> Iterator[str | None]:
    """Run tasks on the cluster; yields the error of each as it ends, or None."""
    from mein.engines.cluster import run_on_ray

    return run_on_ray(tasks)
