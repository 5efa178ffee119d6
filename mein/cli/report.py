"""mein report: a page about one run or several. One module per command."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.console import log, open_console
from mein.errors import UsageError


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished runs.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output page. Default: RUN/report.html."),
    ] = None,
) -> None:
    """Write a page about one run, or a comparison of several.

    Examples:
      mein report runs/reviews
      mein report runs/reviews runs/other --out both.html
    """
    from mein.report.page import write_report

    if out is None and len(runs) > 1:
        raise UsageError(f"A comparison of {len(runs)} runs needs an output file: add --out FILE.html.")
    target = runs[0] / "report.html" if out is None else out
    write_report(runs, target)
    log(open_console(), f"Wrote {target}.")
