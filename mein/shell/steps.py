"""mein encode, mein label."""

import os
from collections.abc import Sequence
from pathlib import Path

from mein.data.corpus import Source
from mein.data.guesses import replaced_columns
from mein.data.readers import ColumnsConfig, read_documents
from mein.data.teacher import TeacherTable
from mein.imitate import is_there
from mein.label import KERNELS
from mein.progress import Reporter, Silence, Terminal
from mein.ranks import is_first
from mein.report.words import counted
from mein.shell.console import open_console
from mein.shell.engine import encoding_on_ray, labelling_on_ray
from mein.steps import FinishedRun, encode, label, texts_of


def encode_files(
    like: Path,
    paths: Sequence[str],
    out: str,
    text_column: str | None,
    test: str | None,
    teacher_file: str | None,
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
            reporter.say(told)
    held_back, teacher = _test_of(run, test, reporter), None
    if teacher_file is not None:
        teacher = TeacherTable(teacher_file, run.config.columns, run.labels.classes)
    store = encode(
        run,
        source,
        paths,
        out,
        reporter,
        test=held_back,
        teacher=teacher,
        workers=workers,
        spread=encoding_on_ray(workers) if on_ray else None,
    )
    size = sum(shard.bytes for shard in store.shards)
    reporter.say(
        f"{out} holds {counted(len(store), 'document')} in {counted(store.shard_count, 'shard')}, "
        f"{size / 1e6:,.1f} MB."
    )
    reporter.say(f"Label them with `mein label {out} --by {like}`.")


def label_documents_of(at: str, by: Path, workers: int | None, sets_aside: bool, on_ray: bool) -> None:
    """Let a run's expert label a store, and say what comes next."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KERNELS))
    run, reporter = FinishedRun.open(by), open_reporter()
    elsewhere = labelling_on_ray(workers) if on_ray else None
    store = label(run, at, reporter, workers=workers, sets_aside=sets_aside, engine=elsewhere)
    reporter.say(f"The {len(store):,} documents of {at} are labelled.")
    reporter.say(f"Let imitators learn from them with `mein imitate {at} --like {by} --out FOLDER`.")


def open_reporter() -> Reporter:
    """The terminal for the first rank; the others are silent."""
    return Terminal(open_console()) if is_first() else Silence()


def _test_of(run: FinishedRun, test: str | None, reporter: Reporter) -> Source | None:
    """The documents to leave out: those that were named, or those that the run was judged on."""
    name = run.folder.read_json("config.json").get("data", {}).get("test") if test is None else test
    if name is None:
        return None
    if test is None and not is_there(name):
        reporter.say(
            f"The test documents {name} are not there: none is left out; else name them with --test."
        )
        return None
    return lambda: read_documents(name, run.config.columns, labeled=False)
