"""mein report."""

from collections.abc import Sequence
from pathlib import Path

from mein.errors import RunError
from mein.report.page import write_report
from mein.shell.console import open_console, say


def report_runs(paths: Sequence[Path], out: Path | None) -> None:
    """Write one page about the runs: into the run's own folder, or where `out` says."""
    if out is None and len(paths) > 1:
        raise RunError(f"Where should the comparison of {len(paths)} runs go? Say --out FILE.html.")
    target = paths[0] / "report.html" if out is None else out
    write_report(paths, target)
    say(open_console(), f"Wrote {target}.")
