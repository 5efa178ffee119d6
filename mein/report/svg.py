"""Drawing: scales, ticks, and a figure whose marks take their colours from the page's style sheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

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
    """An inline picture with a text alternative: a title, and a description that tells the figures."""

    key: str
    """Unique on the page."""
    width: int
    height: int
    title: str
    description: str
    marks: list[Markup] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, css: str = "tick", anchor: str = "start") -> None:
        """A few words."""
        self.marks.append(
            Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(
                x, y, css, anchor, words
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
        """The picture as it stands in the page."""
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
