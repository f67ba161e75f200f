"""Which anchors are used, and are they the long ones? (KVCOMM, Fig. A.3)"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure, hatch
from viz.base.format import number, plot_text, plural
from viz.base.subplots import two_panels
from viz.base.theme import SLOT_COLOURS, SYMBOLS

COLUMNS = ("placeholder", "anchor", "length (tokens)", "activations")
FEWEST = 3  # anchors for a rank correlation that says anything


def _rows(record: RunRecord, method: str) -> list[tuple[str, int, int, int]]:
    return [
        (pool.placeholder, *anchor)
        for pool in record.pools
        if pool.method == method
        for anchor in zip(pool.anchors, pool.lengths, pool.uses, strict=True)
    ]


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Spearman's rho, ties sharing their mean rank; None where one side is constant."""

    def ranks(x: NDArray[np.float64]) -> NDArray[np.float64]:
        _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])

    if len(a) < FEWEST or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def activations_by_length(record: RunRecord, method: str) -> FigureView:
    """(a): each anchor's activations against its length."""
    title = "Are long anchors used more?"
    rows = _rows(record, method)
    if not rows:
        return empty_view("activations", title, "This method holds no anchors after this run.", COLUMNS)
    pipeline, colours = record.request.pipeline, words.slots(record.request.pipeline)
    drawing = figure(320)
    for name in dict.fromkeys(r[0] for r in rows):
        own_rows = [r for r in rows if r[0] == name]
        slot = colours.get(name, 0)
        drawing.add_scatter(
            x=[r[2] for r in own_rows],
            y=[r[3] for r in own_rows],
            mode="markers",
            name=plot_text(words.segment_words(pipeline, name)),
            marker={"size": 9, "color": SLOT_COLOURS[slot], "symbol": SYMBOLS[slot], "opacity": 0.8},
            customdata=[r[1] for r in own_rows],
            hovertemplate="anchor %{customdata}<br>%{x} tokens, %{y} activations<extra></extra>",
        )
    drawing.update_layout(
        xaxis={"title": "length of the anchor (tokens)", "rangemode": "tozero"},
        yaxis={"title": "activations (uses in a mix)", "rangemode": "tozero"},
    )
    lengths, uses = (np.array([r[i] for r in rows], dtype=np.float64) for i in (2, 3))
    rho = rank_correlation(lengths, uses)
    finding = (
        f"Over {plural(len(rows), 'anchor')}, Spearman’s rho of length and activations is {number(rho, 2)}."
        if rho is not None
        else f"{plural(len(rows), 'anchor')}: too few, or too alike, to say whether length matters."
    )
    how = (
        "One mark per anchor; an activation is a mix that it was part of. A longer anchor fits more texts, "
        "and an older one has had more time, so neither shows that it is better."
    )
    return FigureView("activations", title, how, finding, drawing, COLUMNS, tuple(rows))


def activation_histograms(record: RunRecord, method: str) -> FigureView:
    """(b), (c): how many anchors have how many activations, and how many tokens."""
    title = "How are activations and lengths spread?"
    columns = ("quantity", "from", "to (exclusive)", "anchors")
    rows = _rows(record, method)
    if not rows:
        return empty_view(
            "activation_histograms", title, "This method holds no anchors after this run.", columns
        )
    drawing = figure(280, bargap=0.04)
    two_panels(drawing, ("Activations", "Lengths"))
    out: list[tuple[Any, ...]] = []
    for index, quantity in enumerate(("activations", "length (tokens)")):
        values = np.array([r[3 - index] for r in rows])
        counts, edges = np.histogram(values, bins=whole_bins(values))
        drawing.add_bar(
            x=(edges[:-1] + edges[1:] - 1) / 2,
            y=counts,
            width=np.diff(edges) * 0.94,
            xaxis=f"x{index + 1}" if index else "x",
            yaxis=f"y{index + 1}" if index else "y",
            marker={"color": SLOT_COLOURS[(4, 1)[index]], "pattern": hatch(("", "/")[index])},
            showlegend=False,
            customdata=[f"{a} to {b - 1}" for a, b in pairwise(edges)],
            hovertemplate="%{customdata}: %{y} anchors<extra></extra>",
        )
        out += [(quantity, int(a), int(b), int(n)) for (a, b), n in zip(pairwise(edges), counts, strict=True)]
    drawing.update_layout(
        xaxis={"title": "activations"},
        xaxis2={"title": "length (tokens)"},
        yaxis={"title": "anchors", "rangemode": "tozero"},
    )
    never = sum(r[3] == 0 for r in rows)
    finding = (
        f"{words.percent(never, len(rows))} of {plural(len(rows), 'anchor')} were never used; the median "
        f"length is {number(float(np.median([r[2] for r in rows])))} tokens."
    )
    how = "Bars count the anchors of all this method’s pools after the run."
    return FigureView("activation_histograms", title, how, finding, drawing, columns, tuple(out))


def whole_bins(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Edges of at most 20 bins of one whole width that hold every value."""
    low, high = int(values.min()), int(values.max())
    width = max(1, -(-(high - low + 1) // 20))
    return np.arange(low, high + width + 1, width, dtype=np.int64)
