"""report.html: one self-contained file about one run or several, made from run folders only."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from mein import __version__
from mein.errors import RunError
from mein.evaluation.metrics import percent
from mein.evaluation.rendering import ADVICE, error_text, interval_text, p_text, signed
from mein.evaluation.significance import mcnemar, mean_and_spread
from mein.evaluation.systems import MIXTURE, SYSTEMS
from mein.report.charts import forest, seconds
from mein.report.record import Finished, explaining_damage, read_finished
from mein.report.sections import sections, settings
from mein.runtime.files import write_atomically
from mein.runtime.run_folder import runs_of_seeds


def comparison(runs: Sequence[Finished], names: Sequence[str]) -> dict[str, Any] | None:
    """The table over runs; None where there is only one."""
    if len(runs) < 2:
        return None
    rows = [_row(run, name, _best_beside(run, runs)) for run, name in zip(runs, names, strict=True)]
    bars = [(name, run.best, run.rows[run.best]) for run, name in zip(runs, names, strict=True)]
    different = _different_settings(runs)
    return {
        "rows": rows,
        "forest": forest("runs-forest", bars, "Error of each run"),
        "is_paired": all(_are_same_documents(run, runs[0]) for run in runs),
        "names": list(names),
        "different": different,
        "over_seeds": _over_seeds(runs) if {name for name, _ in different} == {"seed"} else [],
    }


def unique_names(runs: Sequence[Finished]) -> list[str]:
    """A name for each run: its folder's, with the folders above it where two are alike."""
    parts = [run.path.resolve().parts for run in runs]
    names = [run.name for run in runs]
    depth = 1
    while len(set(names)) < len(names) and depth < max(map(len, parts)):
        depth += 1
        names = ["/".join(part[-depth:]) for part in parts]
    return [name if names.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(names)]


def _best_beside(run: Finished, runs: Sequence[Finished]) -> Finished | None:
    """The best of the runs evaluated on the same documents, this one included; none without another."""
    peers = [other for other in runs if _are_same_documents(other, run)]
    return min(peers, key=lambda peer: peer.rows[peer.best].scores.error) if len(peers) > 1 else None


def _row(run: Finished, name: str, best: Finished | None) -> dict[str, Any]:
    row, counts = run.rows[run.best], run.counts
    baseline = None if run.verdict is None else run.verdict.baseline
    p = None
    if best is not None and run is not best:
        p = mcnemar(_is_right(run), _is_right(best))
    return {
        "name": name,
        "advice": "" if run.verdict is None else ADVICE[run.verdict.advice],
        "error": error_text(row),
        "interval": interval_text(row),
        "is_best": run is best,
        "baseline": "" if baseline is None else error_text(baseline),
        "baseline_title": "" if baseline is None else f"against {baseline.title}",
        "gain": "" if baseline is None else signed(-baseline.gain, 1),
        "p_baseline": "" if baseline is None else p_text(baseline.p_value),
        "p_best": p_text(p),
        "labeled": f"{counts.get('train', 0) + counts.get('dev', 0):,}",
        "unlabeled": f"{counts.get('unlabeled', 0) + counts.get('held_out', 0):,}",
        "evaluated": f"{row.scores.documents:,} {run.part}",
        "time": seconds(sum(line["seconds"] for line in run.stage("steps"))),
    }


def _is_right(run: Finished) -> np.ndarray:
    right: np.ndarray = run.log_probs(run.best).argmax(axis=1) == run.label_ids
    return right


def _are_same_documents(a: Finished, b: Finished) -> bool:
    """Whether two runs name the same data, or are seeds of one corpus, and have the same test labels."""
    return a.data == b.data and a.classes == b.classes and np.array_equal(a.label_ids, b.label_ids)


def _different_settings(runs: Sequence[Finished]) -> list[tuple[str, list[str]]]:
    """Settings, and sources of the data, that are not the same in all runs."""
    each = [dict(settings(run.config)) | dict(settings({"data": run.data})) for run in runs]
    names = list(dict.fromkeys(name for one in each for name in one))
    values = [(name, [one.get(name, "–") for one in each]) for name in names]
    return [(name, found) for name, found in values if len(set(found)) > 1]


def _over_seeds(runs: Sequence[Finished]) -> list[dict[str, Any]]:
    """Mean and spread of each system that all runs have."""
    found = []
    for name in runs[0].rows:
        if all(name in run.rows for run in runs):
            mean, spread = mean_and_spread([run.rows[name].scores.error for run in runs])
            documents = runs[0].rows[name].scores.documents
            found.append(
                {
                    "title": runs[0].rows[name].title,
                    "is_mixture": name == MIXTURE,
                    "mean": percent(mean, documents),
                    "spread": f"{spread:.2f}",
                }
            )
    return found


# Control characters but tab and line feed, which no HTML may hold and a terminal obeys.
NOT_IN_HTML = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
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
    write_atomically(target, NOT_IN_HTML.sub(REPLACEMENT, page(runs)).encode("utf-8", "replace"))


def page(runs: Sequence[Finished]) -> str:
    """The page as text."""
    names = unique_names(runs)
    style = colors_of_systems() + (TEMPLATES / "style.css").read_text(encoding="utf-8")
    contents = []
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        with explaining_damage(run.path):
            contents.append(sections(run, f"run{i}") | {"name": name})
    title = names[0] if len(runs) == 1 else f"{len(runs)} runs compared"
    with explaining_damage(runs[0].path if len(runs) == 1 else Path(title)):
        return environment().get_template("report.html").render(
            runs=contents,
            comparison=comparison(runs, names),
            title=title,
            style=style,
            style_hash=base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii"),
            version=__version__,
        )  # fmt: skip


def colors_of_systems() -> str:
    """A class for each system that sets the color of its marks, on a light page and on a dark one."""
    light, dark = (
        "".join(f".{name}{{--system:{system.color[scheme]}}}" for name, system in SYSTEMS.items())
        for scheme in (0, 1)
    )
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def environment() -> jinja2.Environment:
    """Templates that escape every value except the charts, and fail where a value is missing."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
