"""mein store: the expensive steps of training, one by one, over a store: encode, label, train."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mein.cli.console import Output
from mein.cli.help import App
from mein.cli.options import (
    DATA,
    RUN,
    Address,
    EngineName,
    IsQuiet,
    IsVerbose,
    Out,
    Processes,
    RawText,
    Set,
    SoftLabelFile,
    TextColumn,
    argument,
    flag,
    option,
    whole,
)
from mein.cli.training import Request, train_on_engine
from mein.engines import Engine, encoding_on_ray, labeling_on_ray, opened

if TYPE_CHECKING:
    from mein.data.corpus import DocumentStream
    from mein.model.loading import FinishedRun
    from mein.runtime.progress import Reporter

app = App("Train on text of any size, step by step: encode, label, train.")

MOVED = "RUN's {} documents, if they have moved."
Like = Annotated[Path, option("RUN", "Finished run whose vocabularies are used.", RUN)]
StoreAt = Annotated[str, argument("STORE", "Folder or URL from `mein store encode`.")]
StepWorkers = Annotated[
    int | None, option("N", "Number of processes. Default: one per core.", parser=whole("--workers", 1))
]
MovedLabeled = Annotated[str | None, option("FILE", MOVED.format("labeled"), DATA)]
MovedDev = Annotated[str | None, option("FILE", MOVED.format("dev"), DATA)]
MovedTest = Annotated[str | None, option("FILE", MOVED.format("test"), DATA)]
Quarantine = Annotated[bool, flag("--quarantine", "Check every file first and skip damaged ones.")]


@app.command()
def encode(
    like: Like,
    text: RawText,
    out: Annotated[str, option("STORE", "Folder or URL, such as s3://raw/store.", RUN, names="--out -o")],
    text_column: TextColumn = None,
    test: Annotated[
        str | None, option("FILE", "Test documents to leave out. Default: those of RUN.", DATA)
    ] = None,
    soft_labels: SoftLabelFile = None,
    workers: StepWorkers = None,
    engine: EngineName = "processes",
    address: Address = None,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
) -> None:
    """Encode unlabeled text of any size into a store of shards.

    After a stop, the same command continues; finished shards are kept.

    Examples:
      mein store encode --like runs/reviews --text 'raw/*.parquet' --out store
    """
    with opened(Engine(engine, address, workers), "encode") as on_ray:
        from mein.model.loading import FinishedRun
        from mein.report.charts import counted
        from mein.run import steps

        run, reporter = FinishedRun.open(like), Output(quiet, verbose).reporter
        source = _raw_text(run, text, text_column, reporter)
        left_out = _test_of(run, test, reporter)
        spread = encoding_on_ray(workers) if on_ray else None
        store = steps.encode(
            run,
            source,
            text,
            out,
            reporter,
            test=left_out,
            soft_labels=soft_labels,
            workers=workers,
            spread=spread,
        )
    documents, shards = counted(len(store), "document"), counted(store.shard_count, "shard")
    size = sum(shard.bytes for shard in store.shards)
    reporter.log(f"{out} holds {documents} in {shards}, {size / 1e6:,.1f} MB.")
    reporter.log(f"Label them with `mein store label {out} --by {like}`.")


@app.command()
def label(
    store: StoreAt,
    by: Annotated[Path, option("RUN", "Finished run that acts as teacher.", RUN)],
    workers: StepWorkers = None,
    quarantine: Quarantine = False,
    engine: EngineName = "processes",
    address: Address = None,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
) -> None:
    """Write a teacher's soft labels next to every shard of a store.

    The teacher is the run's expert, with its lexicon if the run's own imitators learned from both.

    Soft labels are plain Parquet. Files from another teacher are verified and kept.
    After a stop, the same command continues; finished files are kept.

    Examples:
      mein store label s3://raw/store --by runs/reviews
    """
    with opened(Engine(engine, address, workers), "label") as on_ray:
        from mein.model.loading import FinishedRun
        from mein.run import steps
        from mein.run.teacher import KERNELS

        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
        run, reporter = FinishedRun.open(by), Output(quiet, verbose).reporter
        spread = labeling_on_ray(workers) if on_ray else None
        labeled = steps.label(run, store, reporter, workers=workers, sets_aside=quarantine, engine=spread)
    reporter.log(f"The {len(labeled):,} documents of {store} are labeled.")
    reporter.log(f"Train imitators on them with `mein store train {store} --like {by} --out FOLDER`.")


@app.command("train")
def train(
    store: StoreAt,
    like: Annotated[Path, option("RUN", "Finished run whose expert and labels are used.", RUN)],
    out: Out,
    labeled: MovedLabeled = None,
    dev: MovedDev = None,
    test: MovedTest = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    quarantine: Quarantine = False,
    engine: EngineName = "processes",
    address: Address = None,
    processes: Processes = None,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
) -> None:
    """Train a run whose imitators learn from a labeled store.

    The folder is a run like any other. After a stop, the same command continues.

    Examples:
      mein store train s3://raw/store --like runs/reviews --out runs/large
    """
    from mein.config import parse_overrides
    from mein.model.loading import FinishedRun
    from mein.run.documents import check_sources
    from mein.run.steps import begin, corpus_like, ready_store, settings_like, without_damage
    from mein.store.store import Store

    run, encoded = FinishedRun.open(like), Store.open(store)
    config, output = settings_like(run, parse_overrides(set_)), Output(quiet, verbose)
    corpus = corpus_like(run, store, {"labeled": labeled, "dev": dev, "test": test})
    check_sources(config, corpus)
    if quarantine:
        encoded = without_damage(run, encoded, output.reporter)
    begin(run, ready_store(run, encoded), config, corpus, out, output.reporter)
    request = Request(config, corpus, out, output, True, Engine(engine, address, processes))
    with opened(request.engine) as is_on_ray:
        train_on_engine(request, is_on_ray=is_on_ray)


def _raw_text(
    run: "FinishedRun", paths: Sequence[str], text_column: str | None, reporter: "Reporter"
) -> "DocumentStream":
    """The text of some files; the first document is read before anything is written."""
    from mein.data.audit import replaced_columns
    from mein.run.steps import texts_of

    columns = run.config.columns.renamed(text_column)
    source = texts_of(paths, columns, may_guess=text_column is None)
    next(source())
    for path in paths if text_column is None else ():
        for note in replaced_columns(path, columns):
            reporter.log(note)
    return source


def _test_of(run: "FinishedRun", test: str | None, reporter: "Reporter") -> "DocumentStream | None":
    """The documents to leave out: those named, or those the run was evaluated on."""
    from mein.data.readers import read_documents
    from mein.run.steps import is_there

    name = run.folder.read_json("config.json").get("data", {}).get("test") if test is None else test
    if name is None:
        return None
    if test is None and not is_there(name):
        reporter.log(f"The test documents {name} are missing: none are left out. Name them with --test.")
        return None
    return lambda: read_documents(name, run.config.columns, labeled=False)
