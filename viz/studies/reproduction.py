"""A paper's figure with our measurements, from a reproduction's saved report: as a figure of the page, and as
an SVG for documents."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from viz.base import subplots
from viz.base.figure import FigureView, figure, interval
from viz.base.format import number, plot_text
from viz.base.html import html, joined
from viz.base.theme import DASHES, FONT, METHOD_COLOURS, SYMBOLS

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 58, 50  # of the axes; the legend is above them
LEGEND_ROW = 3  # names in a row
MOST_TICKS = 6
#: A method's line as SVG draws it, by Plotly's name.
STROKES = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4"}


STYLE = Markup(
    f"text{{font:12px {FONT};fill:#454e59}}@media(prefers-color-scheme:dark){{text{{fill:#b9c1ca}}}}"
)


@dataclass(frozen=True)
class Curve:
    """One column over the lines' places: ``low`` and ``high`` are None without an interval."""

    name: str
    points: tuple[tuple[float, float, float | None, float | None], ...]
    index: int
    percent: bool


def curves(report: Mapping[str, Any]) -> list[Curve]:
    """The curves of a report, without columns that were not measured."""
    picture = report["picture"]
    out = []
    for index, title in enumerate(picture["columns"]):
        column = next(i for i, c in enumerate(report["columns"]) if c["title"] == title)
        points = tuple(
            (place, value["value"], value["low"], value["high"])
            for place, line in zip(picture["places"], report["lines"], strict=True)
            if place is not None and (value := line["ours"][column])
        )
        if points:
            out.append(Curve(title, points, index, report["columns"][column]["form"] == "percent"))
    return out


def axis_value(value: float, percent: bool) -> str:
    """A value as the axis writes it."""
    return f"{100 * value:.0f}%" if percent else number(value)


def finding(lines: Sequence[Curve]) -> str:
    """Every curve's first and last point, in a sentence."""
    ends = [(curve, curve.points[0][1], curve.points[-1][1]) for curve in lines]
    parts = [
        f"{c.name} {axis_value(first, c.percent)} and {axis_value(last, c.percent)}"
        for c, first, last in ends
    ]
    return f"First and last: {'; '.join(parts)}." if parts else "Nothing was measured."


def view(report: Mapping[str, Any]) -> FigureView:
    """The figure as the page draws figures."""
    lines, axes = curves(report), report["picture"]
    drawing = figure(400)
    for at, curve in enumerate(lines):
        x, y, low, high = zip(*curve.points, strict=True)
        aside = (at - (len(lines) - 1) / 2) * 0.05 * _step(x)  # so that bars do not hide each other
        subplots.curve(
            drawing, [place + aside for place in x], y, curve.name, METHOD_COLOURS[curve.index], size=7,
            dash=DASHES[curve.index], symbol=SYMBOLS[curve.index], customdata=x, hover="%{customdata}: %{y}",
            error_y=interval(y, low, high),
        )  # fmt: skip
    percent = any(curve.percent for curve in lines)
    drawing.update_layout(
        xaxis={"title": plot_text(axes["x"])},
        yaxis={"title": plot_text(axes["y"]), "range": [0, 1.02] if percent else None, "rangemode": "tozero"}
        | ({"tickformat": ".0%"} if percent else {}),
    )
    rows = tuple((curve.name, *point) for curve in lines for point in curve.points)
    how = f"{report['setting_ours']}. Bars are 95% intervals, where there are any."
    columns = (report["picture"]["y"], report["picture"]["x"], "value", "95% from", "95% to")
    return FigureView(report["name"], report["asks"], how, finding(lines), drawing, columns, rows)


def _step(places: Sequence[float]) -> float:
    return min((b - a for a, b in itertools.pairwise(places)), default=1.0)


def ticks(top: float) -> list[float]:
    """Round numbers from 0 to at least ``top``, at most :data:`MOST_TICKS` steps."""
    step_size = max(top, 1e-9) / MOST_TICKS
    ten = 10.0 ** math.floor(math.log10(step_size))
    step = next(m * ten for m in (1, 2, 5, 10) if m * ten >= step_size * (1 - 1e-9))
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def svg(report: Mapping[str, Any]) -> str:
    """The figure as an SVG file that reads on a light and on a dark page."""
    lines, axes = curves(report), report["picture"]
    places = sorted({x for curve in lines for x, *_ in curve.points})
    percent = any(curve.percent for curve in lines)
    tops = [y if high is None else max(y, high) for curve in lines for _, y, _, high in curve.points]
    heights = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0] if percent else ticks(max(tops, default=1.0))
    margin = (places[-1] - places[0]) * 0.04 or 1.0
    start, end = places[0] - margin, places[-1] + margin

    def across(x: float) -> float:
        return LEFT + (x - start) / (end - start) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / heights[-1] * (HEIGHT - TOP - BOTTOM)

    parts: list[Markup] = [*_axes(axes, places, heights, percent, across, up)]
    has_bars = any(low is not None for curve in lines for _, _, low, _ in curve.points)
    for at, curve in enumerate(lines):
        aside = (at - (len(lines) - 1) / 2) * 4 * has_bars  # keeps bars apart
        parts += _curve(
            curve, [(across(x) + aside, up(y), low, high) for x, y, low, high in curve.points], up
        )
        name_x = LEFT + 8 + at % LEGEND_ROW * (WIDTH - LEFT - RIGHT) / LEGEND_ROW
        name_y = 18 + at // LEGEND_ROW * 20
        parts += _curve(curve, [(name_x, name_y, None, None), (name_x + 26, name_y, None, None)], up)
        parts.append(_text(name_x + 36, name_y + 4, curve.name, "start"))
    drawing = html(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'height="{height}" role="img"><title>{asks}</title><desc>{finding}</desc><style>{style}</style>\n'
        "{parts}\n</svg>\n",
        width=WIDTH,
        height=HEIGHT,
        asks=report["asks"],
        finding=finding(lines),
        style=STYLE,
        parts=joined(parts, "\n"),
    )
    return str(drawing)


def _axes(
    axes: Mapping[str, Any],
    places: Sequence[float],
    heights: Sequence[float],
    percent: bool,
    across: Callable[[float], float],
    up: Callable[[float], float],
) -> Iterator[Markup]:
    for y in heights:
        strength = 0.25 if y else 1
        yield html(
            '<path d="M{} {:.1f}H{}" stroke="#8b95a1" stroke-opacity="{}"/>',
            LEFT,
            up(y),
            WIDTH - RIGHT,
            strength,
        )
        yield _text(LEFT - 8, up(y) + 4, axis_value(y, True) if percent else f"{y:g}", "end")
    for x in places:
        yield _text(across(x), HEIGHT - BOTTOM + 18, f"{x:g}")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, axes["x"])
    rotation = f"translate(14 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
    yield html('<g transform="{}">{}</g>', rotation, _text(0, 0, axes["y"]))


def _text(x: float, y: float, text: str, anchor: str = "middle") -> Markup:
    return html('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>', x, y, anchor, text)


def _curve(
    curve: Curve,
    points: Sequence[tuple[float, float, float | None, float | None]],
    up: Callable[[float], float],
) -> Iterator[Markup]:
    """Line, bars and dots; a point is its place in the drawing, with the interval's ends as values."""
    colour, stroke = METHOD_COLOURS[curve.index], STROKES[DASHES[curve.index]]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in points)
    dashes = html(' stroke-dasharray="{}"', stroke) if stroke else ""
    yield html('<path d="M{}" fill="none" stroke="{}" stroke-width="2"{}/>', path, colour, dashes)
    for x, y, low, high in points:
        if low is not None and high is not None:
            yield html(
                '<path d="M{:.1f} {:.1f}V{:.1f}" stroke="{}" stroke-opacity="0.6"/>',
                x,
                up(low),
                up(high),
                colour,
            )
        yield html('<circle cx="{:.1f}" cy="{:.1f}" r="3.2" fill="{}"/>', x, y, colour)
