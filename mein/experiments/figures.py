"""Figures of the paper, made from result lines alone: more data, better performance; windows."""

import math
import statistics
from collections.abc import Sequence

from mein.experiments.cells import WINDOW_SETS
from mein.experiments.lines import Line, experts_of, of_the_same_seeds
from mein.experiments.published import MORE_DATA
from mein.report.svg import Figure, Scale, tick_text, ticks

COLOURS = ("#4269d0", "#d1495b", "#2e8b57", "#8a5a00", "#6f4fb3", "#0f7b8a", "#b0417f")
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 340, 52, 296
STYLE = """<style>text{font:12px system-ui,sans-serif;fill:#555}.grid{stroke:#ddd}.axis{stroke:#888}
path{fill:none;stroke-width:2}.paper{stroke-dasharray:5 4}@media(prefers-color-scheme:dark){
text{fill:#bbb}.grid{stroke:#3a3a3a}.axis{stroke:#888}}"""

Curve = list[tuple[float, float]]  # x, error in %


def more_data_figure(dataset: str, lines: Sequence[Line]) -> str | None:
    """Error against unlabelled documents, on a log scale, beside the paper's curve; none without results."""
    curves: dict[str, Curve] = {}
    for expert in experts_of(lines):
        found = [line for line in lines if line["expert"] == expert and line["unlabeled"] is not None]
        curves[f"{expert} + IMN"] = _means([(line["unlabeled"], line["test_error"]) for line in found])
    if not any(curves.values()):
        return None
    curves["ADV-LM-LSTM + IMN, paper"] = sorted(MORE_DATA.get(dataset, {}).items())
    logs = {name: [(math.log10(x), y) for x, y in curve] for name, curve in curves.items() if curve}
    ends = {curve[-1][0] for curve in curves.values() if curve}  # the paper's has more points than labels fit
    xs = sorted(ends | {x for name, curve in curves.items() if "paper" not in name for x, _ in curve})
    marks = [(math.log10(x), f"{x:,.0f}") for x in xs]
    return _drawn(f"More data, better performance: {dataset}", "unlabelled documents", marks, logs)


def windows_figure(dataset: str, lines: Sequence[Line]) -> str | None:
    """Error by set of windows for each expert; none without results."""
    names = list(WINDOW_SETS)
    curves: dict[str, Curve] = {}
    for expert in experts_of(lines):
        points = [
            (float(names.index(name)), line["test_error"])
            for line in of_the_same_seeds(lines)
            for name, windows in WINDOW_SETS.items()
            if line["expert"] == expert and tuple(line["windows"]) == windows
        ]
        curves[f"{expert} + IMN"] = _means(points)
    drawn = {name: curve for name, curve in curves.items() if len(curve) > 1}
    if not drawn:
        return None
    marks = [(float(i), name) for i, name in enumerate(names)]
    return _drawn(f"Sets of windows: {dataset}", "windows", marks, drawn)


def _means(points: Sequence[tuple[float, float]]) -> Curve:
    """One point for each x: the mean over seeds."""
    return [(x, statistics.mean(y for at, y in points if at == x)) for x in sorted({x for x, _ in points})]


def _drawn(title: str, x_name: str, marks: Sequence[tuple[float, str]], curves: dict[str, Curve]) -> str:
    errors = [y for curve in curves.values() for _, y in curve]
    told = "; ".join(f"{name}: " + ", ".join(f"{y:.2f}" for _, y in c) for name, c in curves.items())
    figure = Figure("figure", WIDTH, HEIGHT + 18 * len(curves) + 8, title, f"Test error in %. {told}.")
    ys = ticks(min(errors), max(errors))
    last = max(x for curve in curves.values() for x, _ in curve)
    x = Scale(marks[0][0], max(last, marks[-1][0], marks[0][0] + 1e-9), LEFT, WIDTH - 24)
    y = Scale(ys[0], ys[-1], BOTTOM, 24)
    for tick in ys:
        figure.line(LEFT, y(tick), WIDTH - 24, y(tick), "grid")
        figure.text(LEFT - 8, y(tick) + 4, tick_text(tick), "tick", "end")
    figure.line(LEFT, BOTTOM, WIDTH - 24, BOTTOM, "axis")
    for at, name in marks:
        figure.text(x(at), BOTTOM + 18, name, "tick", "middle")
    figure.text((LEFT + WIDTH) / 2, BOTTOM + 38, x_name, "name", "middle")
    figure.text(0, 14, "test error, %", "name")
    rules = []
    for number, (name, curve) in enumerate(curves.items()):
        css = f"c{number} paper" if name.endswith("paper") else f"c{number}"
        rules.append(f".c{number}{{stroke:{COLOURS[number % len(COLOURS)]}}}")
        figure.path([(x(a), y(b)) for a, b in curve], css)
        figure.path([(LEFT, HEIGHT + 14 + 18 * number), (LEFT + 24, HEIGHT + 14 + 18 * number)], css)
        figure.text(LEFT + 32, HEIGHT + 18 + 18 * number, name)
    style = STYLE + "".join(rules) + "</style>"
    svg = str(figure.svg()).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return svg.replace("</desc>", "</desc>" + style, 1) + "\n"
