"""Parts that several figures share: two panels on one scale, layer axes, marks of segments."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.records.prompt import Prompt
from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.format import plot_text
from viz.base.theme import SLOT_COLOURS

PANELS = ("Keys", "Values")


def two_panels(drawing: go.Figure, titles: tuple[str, ...] = PANELS) -> None:
    """Two panels side by side on one shared vertical scale."""
    drawing.update_layout(
        xaxis={"domain": [0, 0.485]},
        xaxis2={"domain": [0.515, 1], "anchor": "y2"},
        yaxis2={"anchor": "x2", "matches": "y", "showticklabels": False},
        margin={"t": 58},
        legend={"y": 1.12},
    )
    for index, title in enumerate(titles):
        drawing.add_annotation(
            text=f"<b>{title}</b>",
            x=(0, 0.515)[index],
            y=1.0,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            yshift=4,
            showarrow=False,
            font={"size": 12},
        )


def curve(
    drawing: go.Figure,
    x: Any,
    y: Any,
    name: str,
    colour: str,
    *,
    hover: str,
    axis: str | None = None,
    dash: str = "solid",
    symbol: str = "circle",
    size: float = 6,
    width: float = 2,
    **more: Any,
) -> None:
    """A line with marks. ``axis``: ``""`` or ``"2"``, one of two panels; the first is in the legend.
    ``hover``: the tooltip below the name."""
    if axis is not None:
        panel = {"showlegend": axis == "", "xaxis": f"x{axis}", "yaxis": f"y{axis}"}
        more = {"legendgroup": name} | panel | more
    drawing.add_scatter(
        x=x, y=y, mode="lines+markers", name=plot_text(name),
        line={"color": colour, "width": width, "dash": dash}, marker={"size": size, "symbol": symbol},
        hovertemplate=f"{plot_text(name)}<br>{hover}<extra></extra>", **more,
    )  # fmt: skip


def layer_curve(
    drawing: go.Figure,
    axis: str | None,
    values: Any,
    name: str,
    colour: str,
    *,
    digits: str = ".3f",
    **more: Any,
) -> None:
    """A value at each layer, as a :func:`curve`."""
    y, hover = np.asarray(values, dtype=np.float32), f"layer %{{x}}: %{{y:{digits}}}"
    curve(drawing, np.arange(len(y)), y, name, colour, axis=axis, hover=hover, **more)


def band(drawing: go.Figure, axis: str, low: Any, high: Any, colour: str, opacity: float) -> None:
    """The area between two values at each layer, in one of two panels."""
    x = np.arange(len(low))
    drawing.add_scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]).astype(np.float32), mode="lines",
        fill="toself", fillcolor=colour, opacity=opacity, line={"width": 0}, hoverinfo="skip",
        showlegend=False, xaxis=f"x{axis}", yaxis=f"y{axis}",
    )  # fmt: skip


def layer_axes(drawing: go.Figure, layers: int, unit: str) -> None:
    ticks: dict[str, Any] = {"title": "layer", "range": [-0.3, layers - 0.7]}
    if layers <= 16:
        ticks["dtick"] = 1
    drawing.update_layout(xaxis=ticks, xaxis2=ticks)
    drawing.update_layout(yaxis={"title": unit, "rangemode": "tozero"})


def token_axes(drawing: go.Figure, layers: int, tokens: int) -> None:
    """Axes of a map of a prompt's tokens by layers."""
    drawing.update_layout(
        xaxis={"title": "token of the prompt", "showgrid": False, "range": [-0.5, tokens - 0.5]},
        yaxis={"title": "layer", "showgrid": False, "dtick": 1 if layers <= 12 else None},
    )


def plane_layouts(
    drawing: go.Figure, points: NDArray[np.float32], umap: NDArray[np.float32] | str | None = None
) -> list[NDArray[np.float32]]:
    """Coordinates (texts, 2) of one or two planes, each in a panel of its own: the first two axes of the
    principal coordinates ``points``, and UMAP's if ``umap`` holds them."""
    plane = np.zeros((len(points), 2), dtype=np.float32)
    plane[:, : min(2, points.shape[1])] = points[:, :2]
    layouts = [plane]
    if isinstance(umap, np.ndarray) and umap.shape == plane.shape:
        layouts.append(umap)
        two_panels(drawing, ("PCA", "UMAP"))
        drawing.update_layout(yaxis2={"matches": None, "showticklabels": True})
    drawing.update_layout(xaxis={"title": "first principal axis"}, yaxis={"title": "second principal axis"})
    return layouts


def span_words(record: RunRecord, name: str) -> str:
    """A segment in quotation marks, for a sentence."""
    return f"“{words.segment_words(record.request.pipeline, name)}”"


def mark_spans(drawing: go.Figure, record: RunRecord, prompt: Prompt, tokens: int) -> None:
    """Draw where segments meet, and name the wide placeholders."""
    pipeline = record.request.pipeline
    colours = words.slots(pipeline)
    borders = [
        {
            "type": "line", "x0": span.start - 0.5, "x1": span.start - 0.5, "y0": 0, "y1": 1,
            "yref": "y domain", "line": {"color": "#ffffff", "width": 1, "dash": "dot"},
        }
        for span in prompt.spans
        if span.start
    ]  # fmt: skip
    names = [
        {
            "text": plot_text(words.clip(words.segment_words(pipeline, span.name), 24)),
            "x": (span.start + span.end - 1) / 2, "y": 1, "yref": "paper", "yanchor": "bottom",
            "showarrow": False, "font": {"size": 12, "color": SLOT_COLOURS[colours.get(span.name, 0)]},
        }
        for span in prompt.spans
        if span.kind == "placeholder" and (span.end - span.start) > 0.05 * tokens
    ]  # fmt: skip
    # In one call: each call validates all shapes again, which took a fifth of the server's time with a
    # hundred visitors.
    drawing.update_layout(
        shapes=[*drawing.layout.shapes, *borders],
        annotations=[*drawing.layout.annotations, *names],
        xaxis={"range": [-0.5, tokens - 0.5]},  # the page derives the room for names from it
    )
