"""Mein encode, mein label.

mein encode, mein label.

mein imitate.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mein.cli.console import open_console
from mein.cli.engine import HERE, Engine, encoding_on_ray, labeling_on_ray, opened, training_on_ray
from mein.cli.train import check_sources, train_and_show
from mein.data.audit import replaced_columns
from mein.data.columns import ColumnsConfig
from mein.data.corpus import Source
from mein.data.readers import read_documents
from mein.data.soft_labels import SoftLabelTable
from mein.report.charts import counted
from mein.run.steps import (
    FinishedRun,
    Paths,
    begin,
    corpus_like,
    encode,
    is_there,
    label,
    ready_store,
    settings_like,
    texts_of,
    without_damage,
)
from mein.run.teacher import KERNELS
from mein.runtime.progress import Quiet, Reporter, Terminal
from mein.runtime.ranks import is_first
from mein.store.store import Store


def encode_files(
    like: Path,
    paths: Sequence[str],
    out: str,
    text_column: str | None,
    test: str | None,
    soft_label_file: str | None,
    workers: int | None,
    on_ray: bool,
) -> None:
    """Encode the text of some files, and say what comes next."""
    run, reporter = FinishedRun.open(like), open_reporter()
    columns = run.config.columns
    if text_column is not None:
        columns = ColumnsConfig(text=text_column, label=columns.label)
    source = texts_of(paths, columns, may_guess=text_column is None)
    next(source())  # refuses what cannot be read before anything is made
    for path in paths if text_column is None else ():
        for told in replaced_columns(path, columns):
            reporter.log(told)
    held_back, soft_labels = _test_of(run, test, reporter), None
    if soft_label_file is not None:
        soft_labels = SoftLabelTable(soft_label_file, run.config.columns, run.labels.classes)
    store = encode(
        run,
        source,
        paths,
        out,
        reporter,
        test=held_back,
        soft_labels=soft_labels,
        workers=workers,
        spread=encoding_on_ray(workers) if on_ray else None,
    )
    size = sum(shard.bytes for shard in store.shards)
    reporter.log(
        f"{out} holds {counted(len(store), 'document')} in {counted(store.shard_count, 'shard')}, "
        f"{size / 1e6:,.1f} MB."
    )
    reporter.log(f"Label them with `mein label {out} --by {like}`.")


def label_documents_of(at: str, by: Path, workers: int | None, sets_aside: bool, on_ray: bool) -> None:
    """Let a run's expert label a store, and say what comes next."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
    run, reporter = FinishedRun.open(by), open_reporter()
    elsewhere = labeling_on_ray(workers) if on_ray else None
    store = label(run, at, reporter, workers=workers, sets_aside=sets_aside, engine=elsewhere)
    reporter.log(f"The {len(store):,} documents of {at} are labeled.")
    reporter.log(f"Let imitators learn from them with `mein imitate {at} --like {by} --out FOLDER`.")


def open_reporter() -> Reporter:
    """The terminal for the first rank; the others are silent."""
    return Terminal(open_console()) if is_first() else Quiet()


def _test_of(run: FinishedRun, test: str | None, reporter: Reporter) -> Source | None:
    """The documents to leave out: those that were named, or those that the run was judged on."""
    name = run.folder.read_json("config.json").get("data", {}).get("test") if test is None else test
    if name is None:
        return None
    if test is None and not is_there(name):
        reporter.log(
            f"The test documents {name} are not there: none is left out; else name them with --test."
        )
        return None
    return lambda: read_documents(name, run.config.columns, labeled=False)


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
    """Train imitators on a labeled store and a mixture on a run's labels, and show the table."""
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
