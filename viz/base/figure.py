"""A figure with its words and its numbers."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from numpy.typing import NDArray

from backend.base.statistics import Share
from viz.base.format import plot_text
from viz.base.html import render
from viz.base.theme import base_layout

MAX_COLUMNS = 512


@dataclass(frozen=True)
class FigureView:
    """One question's view on a page: words, figure and the table behind it.

    ``title`` is a question or a finding, ``how_to_read`` and ``finding`` one sentence each; ``columns``
    name their units. ``rows`` is empty if there is nothing to draw, and ``finding`` then says why.
    """

    key: str
    title: str
    how_to_read: str
    finding: str
    figure: go.Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def empty(self) -> bool:
        """True when the record holds nothing for this view."""
        return not self.rows

    def csv(self) -> str:
        """The table as CSV text."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()

    def json(self) -> str:
        """The figure as Plotly JSON."""
        return str(self.figure.to_json())


@dataclass(frozen=True)
class Panel:
    """A piece of HTML instead of a figure; escaped in a card unless it is :class:`Markup`. ``finding``: one
    sentence, also shown while the panel is folded."""

    key: str
    title: str
    html: str
    finding: str = ""


def figure(height: int = 320, **layout: Any) -> go.Figure:
    """An empty figure in the lab's look."""
    return go.Figure(layout=base_layout(height, **layout))


def hatch(shape: str) -> dict[str, Any]:
    """A bar's pattern over its colour, so that colour is not the only sign."""
    return {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": "rgba(255,255,255,0.6)",
        "size": 6,
        "solidity": 0.28,
    }


def interval(values: Any, low: Any, high: Any, **look: Any) -> dict[str, Any]:
    """Error bars around each value, from ``low`` to ``high``; none if an end is not finite."""
    middle, bottom, top = (np.asarray(part, dtype=float) for part in (values, low, high))
    below, above = (
        np.where(np.isfinite(reach), np.maximum(0, reach), 0) for reach in (middle - bottom, top - middle)
    )
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return bars | {"thickness": 1.2, "width": 4} | look


def share_bars(shares: Sequence[Share], scale: float = 1, **look: Any) -> dict[str, Any]:
    """Error bars of shares with their intervals."""
    ends = np.array([(s.value, s.low, s.high) for s in shares]).reshape(-1, 3).T * scale
    return interval(*ends, **look)


def colour_bar(title: str) -> dict[str, Any]:
    """A colour scale beside a map."""
    small = {"size": 12}
    words = {"text": title, "font": small}
    return {"title": words, "thickness": 10, "len": 1, "tickfont": small, "outlinewidth": 0, "x": 1.01}


def empty_view(key: str, title: str, reason: str, columns: Sequence[str] = ()) -> FigureView:
    """A view without data that says why there is none."""
    drawing = figure(
        120, xaxis={"visible": False}, yaxis={"visible": False}, margin={"l": 8, "r": 8, "t": 8, "b": 8}
    )
    drawing.add_annotation(text=plot_text(reason), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    return FigureView(key, title, "", reason, drawing, tuple(columns), ())


def pool_columns(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Keep the largest value of neighbouring columns until at most ``MAX_COLUMNS`` are left.

    Returns:
        the pooled (rows, columns) float32 array, the first token of each column, and the tokens per column.
    """
    tokens = values.shape[1]
    width = max(1, -(-tokens // MAX_COLUMNS))
    starts = np.arange(0, tokens, width, dtype=np.int64)
    if tokens == 0:
        return values.astype(np.float32), starts, 1
    return np.maximum.reduceat(values, starts, axis=1).astype(np.float32), starts, width


def pooled_words(width: int, tokens: int, quantity: str = "value") -> str:
    """What a column of :func:`pool_columns` shows, in words; empty if it is one token."""
    if width < 2:
        return ""
    return (
        f" One column shows the largest {quantity} of {width} tokens, because the prompt has {tokens:,} "
        f"tokens and a figure {MAX_COLUMNS} columns."
    )


def card_html(view: FigureView | Panel) -> Markup:
    """A card around a view; a figure is drawn into its ``kv-plot`` by a script that has the figure's JSON."""
    return render("base/card.html", view=view, panel=isinstance(view, Panel))
