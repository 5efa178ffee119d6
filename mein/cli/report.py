"""mein report: a page about one run or several. One module per command."""

from pathlib import Path
from typing import Annotated

from mein.cli.console import Output
from mein.cli.options import argument, option
from mein.errors import UsageError


def report(
    runs: Annotated[list[Path], argument("RUN...", "Finished runs.")],
    out: Annotated[
        Path | None,
        option("FILE", "Output page. Default: RUN/report.html.", names="--out -o"),
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
    Output().log(f"Wrote {target}.")
