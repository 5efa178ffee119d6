"""Mein evaluate, mein predict, mein export.

mein evaluate, mein predict, mein export.

mein report.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mein.cli.console import log, open_console
from mein.data.columns import ColumnsConfig
from mein.data.corpus import read_all
from mein.data.readers import read_documents
from mein.data.soft_labels import SoftLabels, SoftLabelTable
from mein.errors import RunError
from mein.evaluation.comparison import compare, render
from mein.evaluation.systems import PREVIOUS_RUN
from mein.model.loading import load_model, read_config, read_labels
from mein.predict.predict import Wanted, predict_file
from mein.report.page import write_report
from mein.run.evaluate import as_plain, log_probs_of_all, previous_run_log_probs, sentence
from mein.runtime.progress import QUIET, Terminal
from mein.runtime.run_folder import RunFolder
from mein.sharing import export_transformer


def evaluate_run(
    path: Path,
    documents: str,
    columns_named: tuple[str | None, str | None],
    soft_label_file: str | None,
    as_json: bool,
) -> None:
    """Judge every system of a run on labeled documents."""
    soft_labels = soft_labels_of(path, soft_label_file)
    model = load_model(path, soft_labels=soft_labels)
    config = model.config
    columns = _columns(config.columns, *columns_named)
    texts, values = read_all(lambda: read_documents(documents, columns, labeled=True))
    ids = model.labels.encode(values, documents)
    systems = previous_run_log_probs(RunFolder(path), config, "test", texts)
    console = open_console()
    reporter = QUIET if as_json else Terminal(console)
    systems |= log_probs_of_all(RunFolder(path), config, "test", texts, soft_labels, reporter)
    rows = compare(ids, systems, seed=config.seed)
    if as_json:
        print(json.dumps([as_plain(row) for row in rows], indent=1))
        return
    console.print(render(rows, title=f"{len(ids):,} documents of {documents}"))
    if config.expert.is_self_training and PREVIOUS_RUN not in systems:
        log(console, f"The run that it learned from is not in {config.expert.from_run} any more.")
    log(console, sentence(rows, config), "bold")


def predict_documents(
    path: Path, documents: str, out: Path, wanted: Wanted, soft_label_file: str | None, resume: bool
) -> None:
    """Label a file."""
    console, model = open_console(), load_model(path, soft_labels=soft_labels_of(path, soft_label_file))
    if not len(model.gates):
        asked = {"--imitators-only": wanted.imitators_only, "--fragments": wanted.fragments > 0}
        for option in (name for name, is_asked in asked.items() if is_asked):
            raise RunError(f"The run in {path} has no imitators: leave {option} out.")
    wanted = replace(wanted, text_column=_columns(model.config.columns, wanted.text_column, None).text)
    count = predict_file(model, documents, out, wanted, Terminal(console), resume=resume)
    log(console, f"Labeled {count:,} documents in {out}.")


def export_run(path: Path, out: Path) -> None:
    """Write a run's transformer for everybody, and say how to use it."""
    export_transformer(path, out)
    log(open_console(), f"Wrote {out}: use it with transformers, or with `--set expert.model={out}`.")


def soft_labels_of(path: Path, file: str | None) -> SoftLabels | None:
    """The teacher's words on other documents than those of the run, where a file with them is given."""
    if file is None:
        return None
    config, labels = read_config(RunFolder(path)), read_labels(RunFolder(path))[0]
    return SoftLabelTable(file, config.columns, labels.classes)


def _columns(of_run: ColumnsConfig, text: str | None, label: str | None) -> ColumnsConfig:
    """The columns named now, or else when the run was trained."""
    return ColumnsConfig(
        text=of_run.text if text is None else text, label=of_run.label if label is None else label
    )


def report_runs(paths: Sequence[Path], out: Path | None) -> None:
    """Write one page about the runs: into the run's own folder, or where `out` says."""
    if out is None and len(paths) > 1:
        raise RunError(f"Where should the comparison of {len(paths)} runs go? Say --out FILE.html.")
    target = paths[0] / "report.html" if out is None else out
    write_report(paths, target)
    log(open_console(), f"Wrote {target}.")
