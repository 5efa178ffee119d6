"""mein imitate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mein.imitate import Paths, begin, corpus_like, ready_store, settings_like
from mein.shell.console import open_console
from mein.shell.engine import HERE, Engine, opened, training_on_ray
from mein.shell.steps import open_reporter
from mein.shell.train import check_sources, train_and_show
from mein.steps import FinishedRun, without_damage
from mein.text.store import Store


def imitate_store(
    at: str,
    like: Path,
    out: Path,
    documents: Paths,
    overrides: Mapping[str, Any],
    sets_aside: bool,
    engine: Engine = HERE,
    processes: int | None = None,
) -> None:
    """Train imitators on a labelled store and a mixture on a run's labels, and show the table."""
    run, store = FinishedRun.open(like), Store.open(at)
    config, corpus = settings_like(run, overrides), corpus_like(run, at, documents)
    check_sources(config, corpus)
    if sets_aside:
        store = without_damage(run, store, open_reporter())
    begin(run, ready_store(run, store), config, corpus, out, open_reporter())
    with opened(engine) as on_ray:
        if on_ray:
            training_on_ray(config, corpus, out, open_reporter(), resume=True, processes=processes)
    train_and_show(config, corpus, out, True, open_console())
