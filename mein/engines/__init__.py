"""The engine of a command: processes of this machine, or Ray on many, an extra imported where it is used."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
Engine = tuple[str, str | None]  # its name, and the address of its cluster
HERE: Engine = ("processes", None)
WARM = {"encode": ["mein.engines.steps"], "label": ["mein.engines.steps"]}
"""What a Ray process imports for a step."""


@contextmanager
def opened(engine: Engine, step: str | None = None, processes: int | None = None) -> Iterator[bool]:
    """Connect to an engine; yields whether it is Ray, and warms up its processes for `step`."""
    name, address = engine
    if name not in ENGINES:
        raise ConfigError(f"Unknown engine {name!r}: choose one of {', '.join(ENGINES)}.")
    if name == "processes":
        if address is not None:
            raise ConfigError(f"--address {address} needs --engine ray: give both, or neither.")
        if step is None and processes is not None:
            raise ConfigError(f"--processes {processes} needs --engine ray: give both, or neither.")
        yield False
        return
    from mein.engines.cluster import ray_cluster, warm_up

    with ray_cluster(address):
        if step is not None:
            warm_up(WARM[step], processes)
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
