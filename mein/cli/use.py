"""mein predict, mein explain and mein export: the commands that use a trained run."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.options import AsJson, Resume, Run, SoftLabelFile, TextColumn


def predict(
    run: Run,
    documents: Annotated[str, typer.Argument(metavar="FILE", help="csv, tsv, jsonl, parquet, txt ...")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write them; its ending names the format.")
    ],
    text_column: TextColumn = None,
    soft_labels: SoftLabelFile = None,
    imitators_only: Annotated[
        bool, typer.Option("--imitators-only", help="Do without the expert: faster, a little weaker.")
    ] = False,
    abstain_below: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="P", help="Leave labels less probable than this empty.")
    ] = 0.0,
    all_probabilities: Annotated[
        bool, typer.Option("--all-probabilities", help="Also write a column p_LABEL for every class.")
    ] = False,
    fragments: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also write so many fragments that moved it most.")
    ] = 0,
    resume: Resume = False,
) -> None:
    """Label the documents of a file of any size."""
    from mein.cli.run_use import predict_documents
    from mein.predict.predict import Wanted

    wanted = Wanted(text_column, imitators_only, abstain_below, all_probabilities, fragments)
    predict_documents(run, documents, out, wanted, soft_labels, resume)


def explain(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to classify.")],
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help="The label to explain; else the likeliest.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="The label to weigh it against; else the next likely.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many fragments to show.")] = 12,
    soft_labels: SoftLabelFile = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with the text in colors.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the label of a text, and which fragments spoke for it."""
    from mein.cli.explain import explain_text

    explain_text(run, text, (label, against), top, soft_labels, html, as_json)


def export(
    run: Run,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to make.")],
) -> None:
    """Write a run's fine-tuned transformer as Hugging Face has it.

    mein export runs/films --out models/films

    The folder is for transformers, and for `mein train --set expert.model=FOLDER` on other labels.
    """
    from mein.cli.run_use import export_run

    export_run(run, out)
