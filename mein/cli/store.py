"""mein encode, mein label, mein imitate: the heavy steps of a training, one by one, over a store."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.options import Address, EngineName, Processes, Set, SoftLabelFile, TextColumn

MOVED = "RUN's {} documents, if they have moved."
Like = Annotated[Path, typer.Option(metavar="RUN", help="A finished run, whose vocabularies are used.")]
StoreAt = Annotated[str, typer.Argument(metavar="STORE", help="A folder or URL that `mein encode` wrote.")]
StepWorkers = Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes; else one a core.")]
Quarantine = Annotated[
    bool, typer.Option("--quarantine", help="Look at every file first, and go on without damaged ones.")
]


def encode(
    like: Like,
    text: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="Raw documents: a file, folder, glob or URL; repeatable."),
    ],
    out: Annotated[str, typer.Option(metavar="STORE", help="A folder or a URL such as s3://raw/store.")],
    text_column: TextColumn = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Documents to leave out; else those RUN was judged on.")
    ] = None,
    soft_labels: SoftLabelFile = None,
    workers: StepWorkers = None,
    engine: EngineName = "processes",
    address: Address = None,
) -> None:
    """Encode raw text of any size into a store of shards.

    mein encode --like runs/reviews --text 'raw/*.parquet' --out s3://raw/store

    After a stop the same command goes on: whole shards are kept.
    """
    from mein.cli.engine import opened

    with opened((engine, address), "encode", workers) as on_ray:
        from mein.cli.run_store import encode_files

        encode_files(like, text, out, text_column, test, soft_labels, workers, on_ray)


def label(
    store: StoreAt,
    by: Annotated[Path, typer.Option(metavar="RUN", help="A finished run, whose expert is asked.")],
    workers: StepWorkers = None,
    quarantine: Quarantine = False,
    engine: EngineName = "processes",
    address: Address = None,
) -> None:
    """Write what a run's expert says beside every shard of a store.

    mein label s3://raw/store --by runs/reviews

    It is what the run's own imitators have learned: the expert's word, or expert's and lexicon's.

    The labels are plain Parquet: files that another teacher wrote are checked and kept.
    After a stop the same command goes on: whole label files are kept.
    """
    from mein.cli.engine import opened

    with opened((engine, address), "label", workers) as on_ray:
        from mein.cli.run_store import label_documents_of

        label_documents_of(store, by, workers, quarantine, on_ray)


def imitate(
    store: StoreAt,
    like: Annotated[
        Path, typer.Option(metavar="RUN", help="A finished run, whose expert and labels are used.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run folder to make.")],
    labeled: Annotated[str | None, typer.Option(metavar="FILE", help=MOVED.format("labeled"))] = None,
    dev: Annotated[str | None, typer.Option(metavar="FILE", help=MOVED.format("dev"))] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help=MOVED.format("test"))] = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    quarantine: Quarantine = False,
    engine: EngineName = "processes",
    address: Address = None,
    processes: Processes = None,
) -> None:
    """Train a run whose imitators learn from a labeled store.

    mein imitate s3://raw/store --like runs/reviews --out runs/large

    The folder is a run like any other. After a stop the same command goes on.
    """
    from mein.cli.run_store import imitate_store
    from mein.config import parse_overrides

    documents = {"labeled": labeled, "dev": dev, "test": test}
    imitate_store(
        store, like, out, documents, parse_overrides(set_), quarantine, (engine, address), processes
    )
