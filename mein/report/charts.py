"""Charts of the report as SVG, colored by the style sheet; numbers and durations as text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from mein.evaluation.comparison import Row
from mein.evaluation.metrics import Reliability, RiskCoverage
from mein.evaluation.rendering import error_text, interval_text, signed, with_interval
from mein.evaluation.systems import EXPERT, MIXTURE

CHARACTER = 6.3  # about the width of a character of the tick labels


@dataclass(frozen=True)
class Scale:
    """From data to the picture, linearly."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 2)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers that cover a range: its first is at or below `low`, its last at or above `high`.

    >>> ticks(0, 18.4)
    [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    span = high - low if high > low else abs(high) or 1.0
    rough = span / most
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]


def tick_text(value: float) -> str:
    """A tick's number, as short as it can be."""
    return f"{value:,.10g}".replace("-", "−")


@dataclass
class Figure:
    """An inline picture with a text alternative: a title, and a description that holds the figures."""

    key: str
    """Unique on the page."""
    width: int
    height: int
    title: str
    description: str
    marks: list[Markup] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, css: str = "tick", anchor: str = "start") -> None:
        """A short text."""
        self.marks.append(
            Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(
                x, y, css, anchor, text
            )
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """A straight line."""
        self.marks.append(
            Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(x1, y1, x2, y2, css)
        )

    def path(self, points: Sequence[tuple[float, float]], css: str) -> None:
        """A line through points."""
        steps = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
        self.marks.append(Markup('<path d="{}" class="{}"/>').format(steps, css))

    def dot(self, x: float, y: float, radius: float, css: str) -> None:
        """A point."""
        self.marks.append(Markup('<circle cx="{}" cy="{}" r="{:.2f}" class="{}"/>').format(x, y, radius, css))

    def box(self, x: float, y: float, width: float, height: float, css: str, opacity: float = 1.0) -> None:
        """A filled rectangle."""
        self.marks.append(
            Markup(
                '<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" class="{}" '
                'fill-opacity="{:.3f}"/>'
            ).format(x, y, max(0.0, width), height, css, opacity)
        )

    def legend(self, entries: Sequence[tuple[str, str]], x: float, y: float) -> None:
        """Names beside samples of their lines: (name, class of the line)."""
        for name, css in entries:
            self.line(x, y - 4, x + 16, y - 4, css)
            self.text(x + 21, y, name, "legend")
            x += 21 + CHARACTER * len(name) + 14

    def svg(self) -> Markup:
        """The picture, as the page embeds it."""
        return Markup(
            '<svg viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
            'aria-labelledby="{key}-t {key}-d">'
            '<title id="{key}-t">{title}</title><desc id="{key}-d">{description}</desc>{marks}</svg>'
        ).format(
            w=self.width,
            h=self.height,
            key=self.key,
            title=self.title,
            description=self.description,
            marks=Markup("").join(self.marks),
        )


@dataclass(frozen=True)
class Axes:
    """The frame of a figure with two axes: where data lands."""

    x: Scale
    y: Scale


def draw_axes(
    figure: Figure, xs: Sequence[float], ys: Sequence[float], x_name: str, y_name: str, top: int = 34
) -> Axes:
    """Grid, ticks and names of both axes; xs and ys are the ticks."""
    left = 14 + CHARACTER * max(len(tick_text(y)) for y in ys)
    right, bottom = figure.width - 14, figure.height - 40
    axes = Axes(Scale(xs[0], xs[-1], left, right), Scale(ys[0], ys[-1], bottom, top))
    for y in ys:
        figure.line(left, axes.y(y), right, axes.y(y), "grid")
        figure.text(left - 7, axes.y(y) + 4, tick_text(y), "tick", "end")
    for x in xs:
        figure.line(axes.x(x), bottom, axes.x(x), bottom + 4, "axis")
        figure.text(axes.x(x), bottom + 17, tick_text(x), "tick", "middle")
    figure.line(left, bottom, right, bottom, "axis")
    figure.text((left + right) / 2, figure.height - 6, x_name, "name", "middle")
    figure.text(0, 12, y_name, "name")
    return axes


def number(value: float) -> str:
    """Three figures and no more zeros than needed: 0.0123, 1.25, 110, 12,000."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def seconds(value: float) -> str:
    """Such as 4.7 s, 2 min 5 s, 1 h 12 min."""
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def counted(n: int, one: str) -> str:
    """1 document, 2,000 documents."""
    return f"{n:,} {one if n == 1 else one + 's'}"


WIDTH = 358  # fits a phone without being scaled, so that letters keep their size
MOST_POINTS = 160


def label_class(css: str) -> str:
    """The classes of a system's name: those of few systems are in their colors, the others in ink."""
    return f"prominent {css}" if css in (EXPERT, MIXTURE) else ""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    css: str
    x: Sequence[float]
    y: Sequence[float]


def forest(key: str, rows: Sequence[tuple[str, str, Row]], title: str) -> Markup:
    """Each error with its 95% interval on one scale; rows are (title, class, row)."""
    height = 42 * len(rows) + 44
    errors = "; ".join(
        f"{name} {with_interval(error_text(row) + '%', interval_text(row))}" for name, _, row in rows
    )
    figure = Figure(key, WIDTH, height, title, f"Error of {errors}.")
    xs = ticks(0, max(row.interval[1] for _, _, row in rows))
    x = Scale(xs[0], xs[-1], 6, WIDTH - 14)
    for tick in xs:
        figure.line(x(tick), 4, x(tick), height - 36, "grid")
        figure.text(x(tick), height - 20, tick_text(tick), "tick", "middle")
    figure.text(WIDTH / 2, height - 4, "error, %", "name", "middle")
    for i, (name, css, row) in enumerate(rows):
        y = 30 + 42 * i
        low, high = row.interval
        figure.text(6, y - 13, shortened(name, 34), f"label halo {label_class(css)}")
        figure.text(WIDTH - 8, y - 13, error_text(row), f"label halo {label_class(css)}", "end")
        figure.line(x(low), y, x(high), y, f"whisker {css}")
        figure.dot(x(row.scores.error), y, 5.5, f"point {css}")
    return figure.svg()


def lines(
    key: str, series: Sequence[Series], x_name: str, y_name: str, title: str, marked: int | None = None
) -> Markup:
    """Lines over a common axis; `marked` is the index of a highlighted point of the first line."""
    values = [value for one in series for value in one.y]
    description = "; ".join(f"{one.name}: from {number(one.y[0])} to {number(one.y[-1])}" for one in series)
    if marked is not None:
        description += f"; lowest {number(series[0].y[marked])} at {x_name} {number(series[0].x[marked])}"
    figure = Figure(key, WIDTH, 230, title, f"{y_name} by {x_name}. {description}.")
    has_legend = len(series) > 1
    top = 52 if has_legend else 30
    is_share = y_name.endswith("%")  # an error is read against 0, a loss against its own range
    low = 0.0 if min(values) > 0 and (is_share or max(values) > 2 * min(values)) else min(values)
    start, stop = min(one.x[0] for one in series), max(one.x[-1] for one in series)
    xs = ticks(start, stop, most=max(1, min(5, int(stop - start))))  # epochs are integers
    margin = 1.12 if marked is not None else 1.0  # for the number above a point
    ys = ticks(low, low + (max(values) - low) * margin)
    ys = [y for y in ys if y <= 100] if is_share else ys
    axes = draw_axes(figure, xs, ys, x_name, y_name, top)
    if has_legend:
        figure.legend([(one.name, f"curve {one.css}") for one in series], 0, 33)
    for one in series:
        points = [(axes.x(a), axes.y(b)) for a, b in zip(one.x, one.y, strict=True)]
        figure.path(points, f"curve {one.css}")
        if len(points) == 1:
            figure.dot(*points[0], 3, f"point {one.css}")
    if marked is not None:
        x, y = axes.x(series[0].x[marked]), axes.y(series[0].y[marked])
        figure.dot(x, y, 4.5, f"point {series[0].css}")
        is_right = x > WIDTH - 70
        figure.text(x - 8 if is_right else x + 8, y - 7, number(series[0].y[marked]), "label",
                    "end" if is_right else "start")  # fmt: skip
    return figure.svg()


def signed_bars(key: str, bars: Sequence[tuple[str, str, float]], title: str, unit: str) -> Markup:
    """Bars to both sides of zero: (name, class, value)."""
    height = 34 * len(bars) + 30
    values = "; ".join(f"{name} {signed(value)}" for name, _, value in bars)
    figure = Figure(key, WIDTH, height, title, f"{unit}: {values}.")
    largest = max(abs(value) for _, _, value in bars) or 1.0
    has_negative = any(value < 0 for _, _, value in bars)
    x = Scale(-largest if has_negative else 0.0, largest, 150 if has_negative else 96, WIDTH - 62)
    for i, (name, css, value) in enumerate(bars):
        y = 8 + 34 * i
        figure.text(0, y + 15, name, f"label {label_class(css)}")
        start, stop = sorted((x(0), x(value)))
        figure.box(start, y, stop - start, 21, f"bar {css}")
        is_left = value < 0
        figure.text(start - 6 if is_left else stop + 6, y + 15, signed(value), "label",
                    "end" if is_left else "start")  # fmt: skip
    figure.line(x(0), 2, x(0), height - 26, "axis")
    figure.text(x(0), height - 6, unit, "name", "middle" if has_negative else "start")
    return figure.svg()


def reliability_chart(
    key: str, before: Reliability, after: Reliability, errors: tuple[float, float]
) -> Markup:
    """Accuracy against confidence, before and after temperature scaling; a dot's size is its share."""
    description = (
        f"Calibration error {errors[0]:.3f} before and {errors[1]:.3f} after temperature scaling. After: "
        + "; ".join(
            f"{n:,} documents at confidence {c:.2f} are correct in {100 * a:.0f}%"
            for c, a, n in zip(after.confidence, after.accuracy, after.count, strict=True)
            if n
        )
    )
    figure = Figure(key, WIDTH, 330, "Accuracy against confidence", description + ".")
    unit = [0.0, 0.25, 0.5, 0.75, 1.0]
    axes = draw_axes(figure, unit, unit, "confidence", "share that is correct", 52)
    figure.line(axes.x(0), axes.y(0), axes.x(1), axes.y(1), "diagonal")
    figure.legend([("before", "curve raw"), ("after", f"curve {MIXTURE}")], 0, 33)
    for bins, css in ((before, "raw"), (after, MIXTURE)):
        filled = np.flatnonzero(bins.count)
        points = [(axes.x(float(bins.confidence[b])), axes.y(float(bins.accuracy[b]))) for b in filled]
        figure.path(points, f"curve thin {css}")
        for point, count in zip(points, bins.count[filled], strict=True):
            figure.dot(*point, 2.5 + 7 * float(np.sqrt(count / bins.count.sum())), f"point {css}")
    return figure.svg()


def risk_chart(key: str, curves: dict[str, RiskCoverage]) -> Markup:
    """The error on the most confident documents, for every share of them that is answered."""
    description = "; ".join(
        f"{name}: {curve.error[np.searchsorted(curve.coverage, 0.5 - 1e-9)]:.1f}% on half of the documents, "
        f"{curve.error[-1]:.1f}% on all"
        for name, curve in curves.items()
    )
    figure = Figure(key, WIDTH, 330, "Error against the share of documents answered", description + ".")
    # The first few documents are noisy: one mistake among five would stretch the axis to 20%.
    highest = max(float(curve.error[curve.coverage >= 0.1].max()) for curve in curves.values())
    ys = ticks(0, max(highest, 0.1))
    axes = draw_axes(figure, [0, 25, 50, 75, 100], ys, "documents answered, %", "error, %", 52)
    figure.legend([(name, f"curve {name}") for name in curves], 0, 33)
    for name, curve in curves.items():
        at = thinned(len(curve.error))
        points = [
            (axes.x(100 * float(curve.coverage[i])), axes.y(min(ys[-1], float(curve.error[i])))) for i in at
        ]
        figure.path(points, f"curve {name}")
    return figure.svg()


def thinned(n: int, most: int = MOST_POINTS) -> list[int]:
    """At most `most` indices of n, the first and the last among them."""
    return sorted({round(index) for index in np.linspace(0, n - 1, min(n, most)).tolist()})


def shortened(text: str, longest: int) -> str:
    """A text that fits; a cut one ends in an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
