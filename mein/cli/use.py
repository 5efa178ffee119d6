"""mein evaluate, mein predict, mein export, mein report: commands that use a trained run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mein.cli.console import log, open_console
from mein.cli.options import AsJson, LabelColumn, Resume, RunPath, SoftLabelFile, TextColumn
from mein.errors import RunError

if TYPE_CHECKING:
    from mein.data.columns import ColumnsConfig
    from mein.data.soft_labels import SoftLabels


def evaluate(
    run: RunPath,
    documents: Annotated[str, typer.Argument(metavar="FILE", help="Labeled documents.")],
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    soft_labels: SoftLabelFile = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run and its controls on labeled documents."""
    from mein.data.corpus import read_all
    from mein.data.readers import read_documents
    from mein.evaluation.comparison import compare, verdict_of
    from mein.evaluation.rendering import render, sentence_of
    from mein.evaluation.systems import PREVIOUS_RUN
    from mein.model.loading import Classifiers, FinishedRun
    from mein.run.evaluate import credited, log_probs_of_all, previous_run_log_probs
    from mein.runtime.device import choose_device
    from mein.runtime.progress import QUIET, Terminal

    given = soft_labels_of(run, soft_labels)
    finished = FinishedRun.open(run)
    config = finished.config
    columns = _columns(config.columns, text_column, label_column)
    texts, values = read_all(lambda: read_documents(documents, columns, labeled=True))
    ids = finished.labels.encode(values, documents)
    systems = previous_run_log_probs(finished.folder, config, "test", texts)
    console = open_console()
    reporter = QUIET if as_json else Terminal(console)
    classifiers = Classifiers(finished.folder, config, choose_device("auto"), given)
    systems |= log_probs_of_all(classifiers, "test", texts, reporter)
    has_lexicon = classifiers.mixture.lexicon is not None
    rows = compare(ids, systems, seed=config.seed, has_lexicon=has_lexicon)
    if as_json:
        print(json.dumps([row.to_dict() for row in rows], indent=1))
        return
    console.print(render(rows, title=f"{len(ids):,} documents of {documents}"))
    if config.expert.is_self_training and PREVIOUS_RUN not in systems:
        log(console, f"{config.expert.from_run}: the previous run is no longer there.")
    log(console, sentence_of(verdict_of(rows, credited(config))), "bold")


def predict(
    run: RunPath,
    documents: Annotated[
        str, typer.Argument(metavar="FILE", help="Documents: csv, tsv, jsonl, parquet, txt, ...")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file; its extension sets the format.")],
    text_column: TextColumn = None,
    soft_labels: SoftLabelFile = None,
    imitators_only: Annotated[
        bool, typer.Option("--imitators-only", help="Skip the expert: faster, slightly less accurate.")
    ] = False,
    abstain_below: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, metavar="P", help="Leave the label empty below this probability."),
    ] = 0.0,
    all_probabilities: Annotated[
        bool, typer.Option("--all-probabilities", help="Also write a column p_LABEL per class.")
    ] = False,
    fragments: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also write the N most influential fragments.")
    ] = 0,
    resume: Resume = False,
) -> None:
    """Label the documents of a file of any size."""
    from mein.model.loading import load_model
    from mein.predict.predict import Wanted, predict_file
    from mein.runtime.progress import Terminal

    console, model = open_console(), load_model(run, soft_labels=soft_labels_of(run, soft_labels))
    if not len(model.gates):
        given = {"--imitators-only": imitators_only, "--fragments": fragments > 0}
        for option in (name for name, is_given in given.items() if is_given):
            raise RunError(f"{run} has no imitators: remove {option}.")
    column = _columns(model.config.columns, text_column, None).text
    wanted = Wanted(column, imitators_only, abstain_below, all_probabilities, fragments)
    count = predict_file(model, documents, out, wanted, Terminal(console), resume=resume)
    log(console, f"Labeled {count:,} documents in {out}.")


def export(
    run: RunPath,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to create.")],
) -> None:
    """Write a run's fine-tuned transformer as a Hugging Face model.

    mein export runs/films --out models/films

    Use the folder with transformers, or with `mein train --set expert.model=FOLDER` on other labels.
    """
    from mein.sharing import export_transformer

    export_transformer(run, out)
    log(open_console(), f"Wrote {out}: use it with transformers, or with `--set expert.model={out}`.")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished runs.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output page. Default: RUN/report.html.")
    ] = None,
) -> None:
    """Write a page about one run, or a comparison of several."""
    from mein.report.page import write_report

    if out is None and len(runs) > 1:
        raise RunError(f"A comparison of {len(runs)} runs needs an output file: add --out FILE.html.")
    target = runs[0] / "report.html" if out is None else out
    write_report(runs, target)
    log(open_console(), f"Wrote {target}.")


def soft_labels_of(path: Path, file: str | None) -> "SoftLabels | None":
    """A teacher's soft labels for documents outside the run, if a file is given."""
    if file is None:
        return None
    from mein.data.soft_labels import SoftLabelTable
    from mein.model.loading import read_config, read_labels
    from mein.runtime.run_folder import RunFolder

    config, labels = read_config(RunFolder(path)), read_labels(RunFolder(path))[0]
    return SoftLabelTable(file, config.columns, labels.classes)


def _columns(of_run: "ColumnsConfig", text: str | None, label: str | None) -> "ColumnsConfig":
    """The columns named now; by default, those of the training."""
    named = {"text": text, "label": label}
    return of_run.model_copy(update={name: value for name, value in named.items() if value is not None})
