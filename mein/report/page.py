"""report.html: one file that needs nothing else, made from run folders alone."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import jinja2

from mein import __version__
from mein.errors import RunError
from mein.files import write_atomically
from mein.report.comparison import comparison, unique_names
from mein.report.reading import Finished, read_finished, telling_of_damage
from mein.report.sections import sections
from mein.training.folder import runs_of_seeds

TEMPLATES = Path(__file__).parent / "templates"


def write_report(paths: Sequence[Path], target: Path) -> None:
    """Write the page about one or several finished runs; the same folders give the same bytes.

    A folder with the runs of several seeds stands for all of them.
    """
    runs = [read_finished(run) for path in paths for run in runs_of_seeds(path) or [path]]
    for run in runs:
        if not run.rows:
            raise RunError(
                f"{run.path} holds a classifier without its measurements: "
                "give the folder that `mein train --out` wrote."
            )
    write_atomically(target, page(runs).encode("utf-8"))


def page(runs: Sequence[Finished]) -> str:
    """The page as text."""
    names = unique_names(runs)
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    told = []
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        with telling_of_damage(run.path):
            told.append(sections(run, f"run{i}") | {"name": name})
    return environment().get_template("report.html").render(
        runs=told,
        comparison=comparison(runs, names),
        title=names[0] if len(runs) == 1 else f"{len(runs)} runs compared",
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii"),
        version=__version__,
    )  # fmt: skip


def environment() -> jinja2.Environment:
    """Templates in which every value is escaped unless we drew it ourselves, and none may be missing."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
