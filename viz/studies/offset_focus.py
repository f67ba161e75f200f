"""What the figures of the offset study look at, and a line by layer as all of them draw it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.records.offsets import PARTS, OffsetStudy
from viz.base.format import plot_text

Array = NDArray[np.floating[Any]]
PART_WORDS = ("shared texts", "template text")


@dataclass(frozen=True)
class Focus:
    """What the figures look at. ``token`` of the segment, ``prefix`` and ``agent`` (None: the mean of all),
    ``part``: index into ``PARTS``."""

    token: int = 0
    prefix: int | None = None
    agent: int | None = None
    part: int = 0


def usual_token(record: OffsetStudy) -> int:
    """The token with the most similar other token: the one that Fig. 1b is about."""
    return int(np.argmin(record.twins.distance))


def valid_focus(record: OffsetStudy, focus: Focus) -> Focus:
    """A focus that this record can show."""
    agents = record.approximated.agents if record.approximated else ()
    return Focus(
        focus.token if 0 <= focus.token < len(record.tokens) else usual_token(record),
        focus.prefix if focus.prefix is not None and 0 <= focus.prefix < len(record.prefix_tokens) else None,
        focus.agent if focus.agent in agents else None,
        focus.part if focus.part in range(len(PARTS)) else 0,
    )


def layer_line(
    drawing: go.Figure, axis: str, values: Array, name: str, colour: str, dash: str = "solid", **more: Any
) -> None:
    drawing.add_scatter(
        x=np.arange(len(values)),
        y=values.astype(np.float32),
        mode="lines+markers",
        name=plot_text(name),
        line={"color": colour, "width": 2, "dash": dash},
        marker={"size": 6, "symbol": more.pop("symbol", "circle")},
        legendgroup=name,
        showlegend=axis == "",
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
        hovertemplate=f"{plot_text(name)}<br>layer %{{x}}: %{{y:.3f}}<extra></extra>",
        **more,
    )


def rounded(*values: Any) -> tuple[float | str, ...]:
    return tuple("" if np.isnan(v) else round(float(v), 6) for v in values)
