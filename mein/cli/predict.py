"""mein predict: labels for the documents of a file. One module per command."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.console import Output
from mein.cli.help import share, whole
from mein.cli.options import IsQuiet, IsVerbose, RunPath, SoftLabelFile, TextColumn
from mein.cli.runs import columns_of, soft_labels_of
from mein.errors import RunError

AbstainBelow = Annotated[
    float,
    typer.Option(
        metavar="P", help="Leave the label empty below this probability.", parser=share("--abstain-below")
    ),
]
Fragments = Annotated[
    int,
    typer.Option(
        metavar="N", help="Also write the N most influential fragments.", parser=whole("--fragments", 0)
    ),
]


def predict(
    run: RunPath,
    documents: Annotated[
        str, typer.Argument(metavar="FILE", help="Documents: csv, tsv, jsonl, parquet, txt, ...")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Output file; its extension sets the format."),
    ],
    text_column: TextColumn = None,
    soft_labels: SoftLabelFile = None,
    imitators_only: Annotated[
        bool, typer.Option("--imitators-only", help="Skip the expert: faster, slightly less accurate.")
    ] = False,
    abstain_below: AbstainBelow = 0.0,
    all_probabilities: Annotated[
        bool, typer.Option("--all-probabilities", help="Also write a column p_LABEL per class.")
    ] = False,
    fragments: Fragments = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a prediction that was stopped.")] = False,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
) -> None:
    """Label the documents of a file of any size.

    Examples:
      mein predict runs/reviews new.parquet --out labeled.parquet
      mein predict runs/reviews new.csv --out labeled.csv --abstain-below 0.8
    """
    from mein.model.loading import load_model
    from mein.predict.predict import Wanted, predict_file

    output, model = Output(quiet, verbose), load_model(run, soft_labels=soft_labels_of(run, soft_labels))
    if not len(model.gates):
        given = {"--imitators-only": imitators_only, "--fragments": fragments > 0}
        for option in (name for name, is_given in given.items() if is_given):
            raise RunError(f"{run} has no imitators: remove {option}.")
    column = columns_of(model.config.columns, text_column, None).text
    wanted = Wanted(column, imitators_only, abstain_below, all_probabilities, fragments)
    count = predict_file(model, documents, out, wanted, output.reporter, resume=resume)
    output.log(f"Labeled {count:,} documents in {out}.")
