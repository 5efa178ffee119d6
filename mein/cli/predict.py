"""mein predict: labels for the documents of a file. One module per command."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mein.cli.console import Output
from mein.cli.options import (
    AsJson,
    IsQuiet,
    IsVerbose,
    RunPath,
    SoftLabelFile,
    TextColumn,
    argument,
    flag,
    option,
    share,
    whole,
)
from mein.errors import RunError, UsageError

if TYPE_CHECKING:
    from mein.data.files import File
    from mein.data.streams import Stdout

WRITTEN = "Output"  # a heading of the help
STREAM = Path("-")
InputFile = Annotated[
    str, argument("FILE", "Documents (csv, tsv, jsonl, parquet, txt, ...), or - for stdin.")
]
OutputFile = Annotated[
    Path,
    option(
        "FILE", "Output file, whose extension sets the format, or - for stdout.", WRITTEN, names="--out -o"
    ),
]
StreamFormat = Annotated[
    str | None,
    option(
        "NAME",
        "Format of stdin and stdout: csv, tsv, jsonl, csv.gz, and others. Default: jsonl.",
        WRITTEN,
        names="--format",
    ),
]
ImitatorsOnly = Annotated[bool, flag("--imitators-only", "Skip the expert: faster, slightly less accurate.")]
AbstainBelow = Annotated[
    float,
    option("P", "Leave the label empty below this probability.", WRITTEN, parser=share("--abstain-below")),
]
AllProbabilities = Annotated[
    bool, flag("--all-probabilities", "Also write a column p_LABEL per class.", WRITTEN)
]
Fragments = Annotated[
    int, option("N", "Also write the N most influential fragments.", WRITTEN, parser=whole("--fragments", 0))
]
ResumeParts = Annotated[bool, flag("--resume", "Continue a prediction that was stopped.", WRITTEN)]


def predict(
    run: RunPath,
    documents: InputFile,
    out: OutputFile,
    stream_format: StreamFormat = None,
    text_column: TextColumn = None,
    soft_labels: SoftLabelFile = None,
    imitators_only: ImitatorsOnly = False,
    abstain_below: AbstainBelow = 0.0,
    all_probabilities: AllProbabilities = False,
    fragments: Fragments = 0,
    resume: ResumeParts = False,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
    as_json: AsJson = False,
) -> None:
    """Label the documents of a file of any size.

    Examples:
      mein predict runs/reviews new.parquet --out labeled.parquet
      mein predict runs/reviews new.csv --out labeled.csv --abstain-below 0.8
      zcat raw.jsonl.gz | mein predict runs/reviews - --out - | head
    """
    places = DocumentPlaces.of(documents, out, stream_format, resume=resume, as_json=as_json)
    from mein.model.loading import load_model
    from mein.predict.predict import Wanted, predict_file

    output = Output(quiet, verbose, as_json or out == STREAM)
    model = load_model(run, soft_labels=soft_labels)
    if not len(model.gates):
        given = {"--imitators-only": imitators_only, "--fragments": fragments > 0}
        for option in (name for name, is_given in given.items() if is_given):
            raise RunError(f"{run} has no imitators: remove {option}.")
    column = model.config.columns.renamed(text_column).text
    wanted = Wanted(column, imitators_only, abstain_below, all_probabilities, fragments)
    started = time.monotonic()
    count = predict_file(model, places.source, places.target, wanted, output.reporter, resume=resume)
    output.log(f"Labeled {count:,} documents in {places.target}.")
    if as_json:
        seconds = time.monotonic() - started
        rate = {"seconds": seconds, "documents_per_second": count / seconds}
        output.give({"documents": count, "out": str(out), **rate})


@dataclass(frozen=True)
class DocumentPlaces:
    """Where documents come from and go to: files or streams."""

    source: "str | File"
    target: "Path | Stdout"

    @classmethod
    def of(
        cls, documents: str, out: Path, stream_format: str | None, *, resume: bool, as_json: bool
    ) -> "DocumentPlaces":
        """Files, or streams where `-` stands for them; refuses what does not go together."""
        reads, writes = documents == str(STREAM), out == STREAM
        if stream_format is not None and not (reads or writes):
            raise UsageError(f"--format {stream_format!r} is for stdin and stdout: remove it.")
        if resume and (reads or writes):
            raise UsageError("--resume cannot continue a stream: remove it, or name FILE and --out.")
        if as_json and writes:
            raise UsageError("--json and --out - would both write to stdout: remove one of them.")
        from mein.data.streams import USUAL, Stdout, stdin_file

        name = USUAL if stream_format is None else stream_format
        return cls(stdin_file(name) if reads else documents, Stdout(name) if writes else out)
