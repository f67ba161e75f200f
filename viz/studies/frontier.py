"""What compositions of methods cost and flip, drawn with intervals, and as a table."""

import plotly.graph_objects as go

from backend.records.frontier import Frontier, FrontierPoint
from viz.base.figure import FigureView, figure, share_bars
from viz.base.format import clip, percent, plot_text, plural
from viz.base.theme import METHOD_COLOURS

COLUMNS = (
    "composition", "round", "problems", "flips", "flipped", "95% from", "95% to", "tokens computed",
    "95% from", "95% to", "parts", "on the frontier",
)  # fmt: skip
LABEL = 44


def view(result: Frontier) -> FigureView:
    """Tokens computed from left to right, flips from below; the frontier is a line."""
    drawing = figure(
        460, xaxis={"title": "tokens computed, of the full read’s", "tickformat": ".0%"},
        yaxis={"title": "answers flipped", "tickformat": ".0%", "rangemode": "tozero"},
    )  # fmt: skip
    on = [p for p in result.points if p.on]
    last = [p for p in result.points if p.round == len(result.rounds) and not p.on]
    early = [p for p in result.points if p.round < len(result.rounds)]
    groups = (("left out earlier", early, 0, "markers"), ("last round", last, 6, "markers"),
              ("frontier", on, 1, "lines+markers"))  # fmt: skip
    for name, points, colour, mode in groups:
        if points:
            _draw(drawing, name, points, METHOD_COLOURS[colour], mode, bars=points is not early)
    how = (
        "Each point is a composition; lower and further left is better. Bars: 95% (flips: exact; tokens: "
        "bootstrap over problems). Those left out earlier were measured on fewer problems."
    )
    return FigureView("frontier", "What does a kept answer cost?", how, finding(result), drawing, COLUMNS,
                      tuple(_row(p) for p in result.points))  # fmt: skip


def finding(result: Frontier) -> str:
    """The best composition, the simplest within noise, and whether other problems confirm it."""
    by_name = {p.method: p for p in result.points}
    if not result.best:
        return f"No composition computes at most {percent(result.limit, 1)} of the tokens."
    best, simplest = by_name[result.best], by_name[result.simplest]
    limit = percent(result.limit, 1)
    text = f"Of {plural(result.tried, 'composition')} the fewest flips at {limit} of the tokens or less: "
    text += f"{_describe_point(best)}."
    text += (
        " It is the simplest within noise, too." if simplest == best
        else f" The simplest within noise: {_describe_point(simplest)}."
    )  # fmt: skip
    if result.confirmed is not None:
        behind = [x.row.method for x in result.against if x.difference.high >= 0]
        text += f" On other problems: {_describe_point(result.confirmed)}, " + (
            "ahead of every row it is compared with, at equal tokens computed."
            if result.ahead
            else f"not clearly ahead of {', '.join(behind)} at equal tokens computed."
        )
    return text


def rows(result: Frontier) -> list[tuple[str, ...]]:
    """The points for people, heads first."""
    out: list[tuple[str, ...]] = [
        ("composition", "n", "flips", "flipped %", "tokens computed %", "parts", "")
    ]
    for p in result.points:
        marks = [word for word, holds in (("frontier", p.on), ("best", p.method == result.best),
                 ("simplest within noise", p.method == result.simplest)) if holds]  # fmt: skip
        out.append((p.method, *_numbers(p), str(p.parts), ", ".join(marks)))
    return out


def held_out_rows(result: Frontier) -> list[tuple[str, ...]]:
    """The best one and its rivals on other problems, heads first; nothing without."""
    if result.confirmed is None:
        return []
    head = "flips of the best less its, at equal tokens"
    out: list[tuple[str, ...]] = [
        ("held out", "n", "flips", "flipped %", "tokens computed %", head),
        (result.confirmed.method, *_numbers(result.confirmed), ""),
    ]
    for x in result.against:
        d = x.difference
        out.append((x.row.method, *_numbers(x.row), f"{d.value:+.1%} [{d.low:+.1%}, {d.high:+.1%}]"))
    return out


def _numbers(p: FrontierPoint) -> tuple[str, ...]:
    s, c = p.share, p.cost
    return (str(s.of), str(p.flips), f"{100 * s.value:.1f} [{100 * s.low:.1f}, {100 * s.high:.1f}]",
            f"{100 * c.value:.1f} [{100 * c.low:.1f}, {100 * c.high:.1f}]")  # fmt: skip


def _describe_point(p: FrontierPoint) -> str:
    return f"{p.method} ({p.flips} of {p.share.of} at {percent(p.cost.value, 1)} of the tokens)"


def _row(p: FrontierPoint) -> tuple[object, ...]:
    numbers = (round(x, 4) for s in (p.share, p.cost) for x in (s.value, s.low, s.high))
    return (p.method, p.round, p.share.of, p.flips, *numbers, p.parts, p.on)


def _draw(
    drawing: go.Figure, name: str, points: list[FrontierPoint], colour: str, mode: str, bars: bool
) -> None:
    bars_by_axis: dict[str, object] = {}
    if bars:
        for axis, shares in (("error_x", [p.cost for p in points]), ("error_y", [p.share for p in points])):
            bars_by_axis[axis] = share_bars(shares, color=colour)
    drawing.add_scatter(
        x=[p.cost.value for p in points], y=[p.share.value for p in points], mode=mode, name=name,
        marker={"color": colour, "size": 9 if bars else 6, "opacity": 1 if bars else 0.5},
        line={"color": colour, "width": 1.5, "shape": "hv"},
        text=[plot_text(clip(p.method, LABEL)) for p in points], customdata=[p.share.of for p in points],
        hovertemplate="%{text}<br>%{y:.1%} flipped, %{x:.1%} of the tokens, %{customdata} problems"
        "<extra></extra>",
        **bars_by_axis,
    )  # fmt: skip
