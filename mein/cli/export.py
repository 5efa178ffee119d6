"""mein export: a run's fine-tuned transformer as a Hugging Face model. One module per command."""

from pathlib import Path
from typing import Annotated

from mein.cli.console import Output
from mein.cli.options import RunPath, option


def export(
    run: RunPath,
    out: Annotated[Path, option("FOLDER", "Folder to create.", names="--out -o")],
) -> None:
    """Write a run's fine-tuned transformer as a Hugging Face model.

    Use the folder with transformers, or train on other labels from it (--preset transformer).

    Examples:
      mein export runs/films --out models/films
      mein train --preset transformer --encoder models/films --labeled train.csv
    """
    from mein.sharing import export_transformer

    export_transformer(run, out)
    use = f"`mein train --preset transformer --encoder {out}`"
    Output().log(f"Wrote {out}: use it with transformers, or with {use}.")
