"""The picture of few labels: error against labels, and against unlabeled text, ours beside the peers."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.draws import PROBLEMS
from benchmarks.few_labels import LEARN_FROM_RAW, SHARES, SIZES, SYSTEMS, Job
from benchmarks.peers import PEERS
from benchmarks.pictures import standalone
from benchmarks.standings import OURS, Line
from mein.report.charts import Figure, Scale, counted, tick_text, ticks

TITLES = {
    "tf-idf": "TF-IDF",
    "self-training": "self-training",
    "minilm": "MiniLM",
    "tf-idf + minilm": "TF-IDF + MiniLM",
    "setfit": "SetFit",
    "mein": "mein",
    "mein + minilm": "mein + MiniLM",
}
SHARE_NAMES = ("none", "a quarter", "half", "all")
WIDTH, TOP, BOTTOM, LEGEND = 860, 46, 300, 352
PANELS = ((44, 412), (474, 846))
COLORS = {
    "tf-idf": ("#6b7280", "#9ca3af"),
    "self-training": ("#b07d00", "#e0b040"),
    "minilm": ("#2e8b57", "#5fc58d"),
    "tf-idf + minilm": ("#0f7b8a", "#4fc3d4"),
    "setfit": ("#8a5a00", "#d09a50"),
    "mein": ("#d1495b", "#f0808c"),
    "mein + minilm": ("#4269d0", "#8fa8f0"),
}


@dataclass(frozen=True)
class Point:
    """The mean over problems at one x: of all draws, of the lowest draw, and of the highest."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    """One half of the picture: curves over the same x and the same problems."""

    curves: dict[str, list[Point]]
    problems: list[str]
    draws: int


Jobs = dict[Job, Line]
Wanted = Callable[[str, str, float], tuple[int, float]]
"""From a system, a problem, and an x to labels and a share of the text."""


def picture_of(found: Jobs) -> str | None:
    """Error against labels on the left, against unlabeled text on the right; none without either."""
    sizes = sorted({job.labels for job in found if job.share == 1 and job.labels in SIZES})
    left = _panel(found, sizes, lambda system, problem, size: (int(size), 1.0)) if len(sizes) > 1 else None
    right = _panel(found, SHARES, _share_of)
    if left is None and right is None:
        return None
    drawn = [panel for panel in (left, right) if panel is not None]
    shown = [s for s in (*OURS, *PEERS) if any(s in panel.curves for panel in drawn)]
    described = [
        _described(panel, of) for panel, of in ((left, "labels"), (right, "unlabeled text")) if panel
    ]
    rows = -(-len(shown) // 4)
    figure = Figure("few-labels", WIDTH, LEGEND + 22 * rows, "Error with few labels", " ".join(described))
    logs = [float(np.log2(size)) for size in sizes]
    _draw(figure, PANELS[0], left, logs, [f"{size:,}" for size in sizes], "labels")
    _draw(figure, PANELS[1], right, list(SHARES), list(SHARE_NAMES), "of the unlabeled text")
    for number, system in enumerate(shown):
        x, y = PANELS[0][0] + 202 * (number % 4), LEGEND + 22 * (number // 4)
        figure.line(x, y, x + 26, y, f"curve {_css(system)}")
        figure.text(x + 33, y + 4, TITLES[system], "ours" if system in OURS else "legend")
    return standalone(figure, *(_rules(side) for side in (0, 1)))


def _share_of(system: str, problem: str, share: float) -> tuple[int, float]:
    """Which job has a system's error with a share of the text: most systems do not use it."""
    return PROBLEMS[problem].labels, share if system in LEARN_FROM_RAW else 1.0


def _panel(found: Jobs, xs: Sequence[float], wanted: Wanted) -> Panel | None:
    """Curves over the problems that ours has for every x in every draw; none without such problems."""
    draws = sorted({job.draw for job in found})

    def job(system: str, problem: str, draw: int, x: float) -> Job:
        labels, share = wanted(system, problem, x)
        is_plain = system == "self-training" and share == 0  # which is then TF-IDF
        return Job(problem, draw, labels, 1.0 if is_plain else share, "tf-idf" if is_plain else system)

    def complete(system: str) -> set[str]:
        return {p for p in PROBLEMS if all(job(system, p, draw, x) in found for draw in draws for x in xs)}

    problems = next((own for system in reversed(OURS) if (own := complete(system))), set())
    if not problems:
        return None
    curves = {}
    for system in SYSTEMS:
        if problems <= complete(system):
            errors = [
                [statistics.mean(found[job(system, p, draw, x)]["error"] for p in problems) for draw in draws]
                for x in xs
            ]
            curves[system] = [Point(statistics.mean(each), min(each), max(each)) for each in errors]
    return Panel(curves, sorted(problems), len(draws))


def _described(panel: Panel, of: str) -> str:
    curves = "; ".join(
        f"{TITLES[system]} {', '.join(f'{point.mean:.1f}' for point in points)}"
        for system, points in panel.curves.items()
    )
    return f"Test error in % against {of}: {curves}."


def _draw(
    figure: Figure,
    edges: tuple[int, int],
    panel: Panel | None,
    xs: list[float],
    names: list[str],
    x_name: str,
) -> None:
    """One half: grid, curves with a whisker from the lowest draw to the highest, and what it is a mean of."""
    start, stop = edges
    if panel is None:
        figure.text((start + stop) / 2, (TOP + BOTTOM) / 2, "not measured yet", "tick", "middle")
        return
    points = [point for curve in panel.curves.values() for point in curve]
    ys = ticks(min(point.low for point in points), max(point.high for point in points), most=6)
    x, y = Scale(xs[0], xs[-1], start + 10, stop - 10), Scale(ys[0], ys[-1], BOTTOM, TOP)
    over = f"mean of {counted(len(panel.problems), 'problem')}; bars: range of {counted(panel.draws, 'draw')}"
    figure.text(start - 30, 16, f"test error, %: {over}", "name")
    for tick in ys:
        figure.line(start, y(tick), stop, y(tick), "grid")
        figure.text(start - 7, y(tick) + 4, tick_text(tick), "tick", "end")
    figure.line(start, BOTTOM, stop, BOTTOM, "axis")
    for at, name in zip(xs, names, strict=True):
        figure.line(x(at), BOTTOM, x(at), BOTTOM + 4, "axis")
        figure.text(x(at), BOTTOM + 18, name, "tick", "middle")
    figure.text((start + stop) / 2, BOTTOM + 36, x_name, "name", "middle")
    for system, curve in panel.curves.items():
        marked = list(zip(xs, curve, strict=True))
        figure.path([(x(at), y(point.mean)) for at, point in marked], f"curve {_css(system)}")
        if len(set(curve)) == 1:  # measured once
            marked = marked[-1:]
        for at, point in marked:
            figure.line(x(at), y(point.low), x(at), y(point.high), f"whisker {_css(system)}")
            figure.dot(x(at), y(point.mean), 3.5 if system in OURS else 2.2, f"dot {_css(system)}")


def _css(system: str) -> str:
    number = f"s{list(COLORS).index(system)}"
    return f"{number} wide" if system in OURS else f"{number} thin"


def _rules(side: int) -> str:
    """Colors on a light page (0) or a dark one (1), and widths."""
    rules = [
        f".s{number}{{stroke:{pair[side]}}}.dot.s{number}{{fill:{pair[side]};stroke:none}}"
        for number, pair in enumerate(COLORS.values())
    ]
    widths = (
        ".wide{stroke-width:3}.thin{stroke-width:1.6}.whisker{stroke-width:1.2;opacity:.55}"
        ".ours{font-weight:600}"
    )
    return "".join([widths, *rules]) if side == 0 else "".join(rules)
