"""The page of few labels: tables, and a picture beside them, made from result lines only."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.draws import PROBLEMS
from benchmarks.few_labels import LEARN_FROM_RAW, SHARES, SIZES, SYSTEMS, Job, job_of
from benchmarks.few_labels_picture import SHARE_NAMES, TITLES, Jobs, picture_of
from benchmarks.standings import (
    OURS,
    SIGNIFICANT,
    Line,
    Suite,
    bars,
    correct_of,
    overall,
    pairs,
    ratios,
    suite_of,
)
from mein.errors import InputError
from mein.evaluation.significance import paired_bootstrap
from mein.evaluation.systems import CLOSED_GATES
from mein.report.charts import counted
from mein.runtime.files import write_atomically

HEAD = """# The few-label suite

Made by `python -m benchmarks few-labels page` from result lines; do not edit. Eight unlike problems, each
with a few hundred labels, more unlabeled text, and the same test documents in every draw of labels.

- **TF-IDF**: logistic regression on words and pairs of words.
- **Self-training**: the same, which also learns its own confident labels of unlabeled text.
- **MiniLM**: logistic regression on frozen sentence embeddings (all-MiniLM-L6-v2, the first 256 pieces of a
  document).
- All labels teach each of these; C is chosen by five-fold cross-validation.
- **mein**: `mein train` with its defaults. **mein + MiniLM**: the same with `--encoder`.
- Errors are in %. A ratio is the error of mein over a peer's, each averaged over draws; then the mean over
  problems.
- p is McNemar's, exact and two-sided, with Holm's correction over the cells of the same peer.
"""


def write_page(lines: Sequence[Line], page: Path) -> Iterator[Path]:
    """Write the page and, if there is one, the picture beside it; yields the files."""
    found = {job_of(line): line for line in lines if line["error"] is not None}
    if not found:
        raise InputError("The files hold no result: measure with `python -m benchmarks few-labels suite`.")
    picture = picture_of(found)
    path = page.with_suffix(".svg")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, page_of(found, None if picture is None else path.name).encode("utf-8"))
    yield page
    if picture is not None:
        write_atomically(path, picture.encode("utf-8"))
        yield path


def page_of(found: Jobs, picture: str | None) -> str:
    """The text of the page."""
    suite = suite_of(found.values())
    shown = "" if picture is None else f"![Error against labels, and against unlabeled text]({picture})"
    parts = [HEAD, shown]
    if suite:
        parts += ["## Errors", _errors(suite), "## Ratios", _ratios(suite), "## Targets", _bars(suite)]
        parts += ["## Probabilities and seconds", _probabilities(suite)]
    parts += _section("## Where unlabeled text helps", _gains(found))
    parts += _section("## Error against labels", _against_labels(found))
    parts += _section("## Error against unlabeled text", _against_raw(found))
    parts += _section("## Every draw", _draws(suite))
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _section(head: str, content: str) -> list[str]:
    return [head, content] if content else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _named(systems: Sequence[str]) -> list[str]:
    return [TITLES[system] for system in systems]


def _problems(suite: Suite) -> list[str]:
    return [problem for problem in PROBLEMS if any(problem in draws for draws in suite.values())]


def _systems(suite: Suite) -> list[str]:
    return [system for system in SYSTEMS if system in suite]


def _with_spread(errors: Sequence[float]) -> str:
    if not errors:
        return ""
    spread = f" ± {statistics.stdev(errors):.1f}" if len(errors) > 1 else ""
    return f"{statistics.mean(errors):.1f}{spread}"


def _errors(suite: Suite) -> str:
    """Problems by systems: mean and standard deviation over draws, the least of a row in bold."""
    systems, problems, rows = _systems(suite), _problems(suite), []
    for problem in problems:
        cells = [[line["error"] for line in suite[system].get(problem, {}).values()] for system in systems]
        least = min(round(statistics.mean(cell), 1) for cell in cells if cell)
        texts = [
            f"**{text}**" if cell and round(statistics.mean(cell), 1) == least else text
            for cell, text in zip(cells, map(_with_spread, cells), strict=True)
        ]
        rows.append([problem, f"{PROBLEMS[problem].labels:,}", *texts])
    means = [overall(suite, system, "error", problems) for system in systems]
    rows.append(["mean", "", *("" if mean is None else f"{mean:.1f}" for mean in means)])
    draws = max(len(draws) for found in suite.values() for draws in found.values())
    note = f"Mean and standard deviation over {counted(draws, 'draw')} of labels."
    return _table(["problem", "labels", *_named(systems)], rows) + f"\n\n{note}"


def _ratios(suite: Suite) -> str:
    """Ours over each peer, and over the best linear one, by problem."""
    peers = [system for system in _systems(suite) if system not in OURS]
    rows = []
    for ours in (system for system in OURS if system in suite):
        for peer in peers:
            found = ratios(suite, ours, [peer])
            if found:
                mean = statistics.mean(ratio for _, ratio in found.values())
                each = [f"{found[p][1]:.2f}" if p in found else "" for p in _problems(suite)]
                rows.append([f"{TITLES[ours]} / {TITLES[peer]}", *each, f"**{mean:.2f}**"])
    return _table(["", *_problems(suite), "mean"], rows)


def _bars(suite: Suite) -> str:
    rows = [
        [bar.name, f"{'≥' if bar.is_least else '≤'} {bar.bar:.3g}", f"{bar.found:.3g}", str(bar.count),
         "met" if bar.is_met else "**missed**"]
        for bar in bars(suite)
    ]  # fmt: skip
    return _table(["target", "to reach", "found", "of", ""], rows)


def _probabilities(suite: Suite) -> str:
    problems, rows = _problems(suite), []
    figures = {"macro_f1": ".3f", "log_loss": ".3f", "calibration_error": ".3f", "seconds": ".0f"}
    for system in _systems(suite):
        own = [problem for problem in problems if problem in suite[system]]
        means = [f"{overall(suite, system, figure, own):{text}}" for figure, text in figures.items()]
        most = max(line["calibration_error"] for draws in suite[system].values() for line in draws.values())
        rows.append([TITLES[system], str(len(own)), *means[:3], f"{most:.3f}", means[3]])
    head = ["", "problems", "macro F1", "log loss", "calibration error", "its largest", "seconds"]
    return _table(head, rows) + "\n\nMeans over problems and draws; seconds on one thread."


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def _gains(found: Jobs) -> str:
    """Where unlabeled text helps: the same command without it, and closed gates."""
    rows = []
    for problem in PROBLEMS:
        for system in OURS:
            some = [
                (line, without)
                for job, line in found.items()
                if (job.problem, job.system, job.share) == (problem, system, 1.0)
                and job.labels == PROBLEMS[problem].labels
                and (without := found.get(Job(problem, job.draw, job.labels, 0.0, system))) is not None
            ]
            if not some:
                continue
            all_text, none = (np.stack([correct_of(pair[side]) for pair in some]) for side in (0, 1))
            compared = paired_bootstrap(none, all_text, seed=0)
            errors = [100 * float(np.mean(~side)) for side in (none, all_text)]
            closed = [
                p for line, _ in some
                if (p := line["controls"].get(CLOSED_GATES, {}).get("p_value")) is not None
            ]  # fmt: skip
            is_clear = compared.p_value < SIGNIFICANT
            verdict = ("helps" if compared.difference > 0 else "harms") if is_clear else "no difference"
            texts = [f"{some[0][0]['raw']:,}", *(f"{error:.1f}" for error in errors), _p(compared.p_value)]
            rows.append([problem, TITLES[system], *texts, verdict, ", ".join(map(_p, closed))])
    head = ["problem", "", "unlabeled", "without it", "with it", "p", "", "p against closed gates"]
    note = (
        "p of a paired bootstrap over documents, draws pooled; the last column is McNemar's in each draw, "
        "against the same run fine-tuned without imitators."
    )
    return f"{_table(head, rows)}\n\n{note}" if rows else ""


def _against_labels(found: Jobs) -> str:
    sizes = sorted({job.labels for job in found if job.share == 1 and job.labels in SIZES})
    rows = []
    for problem in PROBLEMS:
        for system in SYSTEMS:
            cells = [_of(found, problem, size, 1.0, system) for size in sizes]
            if sum(map(bool, cells)) > 1:
                rows.append([problem, TITLES[system], *map(_with_spread, cells)])
    return _table(["problem", "", *(f"{size:,}" for size in sizes)], rows)


def _against_raw(found: Jobs) -> str:
    rows = []
    for problem, plan in PROBLEMS.items():
        for system in LEARN_FROM_RAW:
            cells = [_of(found, problem, plan.labels, share, system) for share in SHARES]
            if sum(map(bool, cells)) > 1:
                rows.append([problem, TITLES[system], *map(_with_spread, cells)])
    return _table(["problem", "", *SHARE_NAMES], rows)


def _of(found: Jobs, problem: str, labels: int, share: float, system: str) -> list[float]:
    """The errors of a system in every draw."""
    jobs = (Job(problem, draw, labels, share, system) for draw in sorted({job.draw for job in found}))
    return [found[job]["error"] for job in jobs if job in found]


def _draws(suite: Suite) -> str:
    """A row for each line; ours with adjusted p against every peer."""
    peers = [system for system in _systems(suite) if system not in OURS]
    tested = {
        (ours, pair.problem, pair.draw, peer): pair
        for ours in OURS
        for peer in peers
        for pair in pairs(suite, ours, peer)
    }
    rows = []
    for problem in _problems(suite):
        for system in _systems(suite):
            for draw, line in sorted(suite[system].get(problem, {}).items()):
                against = [tested.get((system, problem, draw, peer)) for peer in peers]
                rows.append([
                    problem, str(draw), TITLES[system], f"{line['error']:.1f}", f"{line['macro_f1']:.3f}",
                    f"{line['log_loss']:.3f}", f"{line['calibration_error']:.3f}", f"{line['seconds']:.0f}",
                    *("" if pair is None else _p(pair.adjusted_p) for pair in against),
                ])  # fmt: skip
    head = ["problem", "draw", "", "error", "macro F1", "log loss", "calibration error", "seconds"]
    return _table([*head, *(f"p, {TITLES[peer]}" for peer in peers)], rows)
