"""A map of a pool's anchors and this run's text: PCA at once, UMAP when it is ready."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.records.pools import PoolState, PoolView
from backend.records.run import GateDecision, RunRecord
from viz.anchors.memory import NO_VIEW, pools_of
from viz.base import format as words
from viz.base.figure import FigureView, colour_bar, empty_view, figure
from viz.base.format import number, percent, plot_text, plural
from viz.base.subplots import plane_layouts
from viz.base.theme import MAGNITUDE, SLOT_COLOURS

FEWEST_FOR_UMAP = 5  # texts; below, its graph of neighbours is meaningless
Layout = NDArray[np.float32]


def mapped_pool(
    record: RunRecord, agent: int, method: str, span: str | None = None
) -> tuple[PoolState, PoolView] | None:
    """The pool to map: the selected placeholder's, else the first of this agent's gate."""
    pools = {p.placeholder: (p, v) for p, v in pools_of(record, method)}
    names = [span, *(g.placeholder for g in record.outcome(agent, method).gate), *pools]
    return next((pools[name] for name in names if name in pools), None)


def umap_layout(points: NDArray[np.float32]) -> Layout:
    """UMAP of principal coordinates (texts, components) to (texts, 2); slow at its first call.

    Raises:
        ValueError: fewer than :data:`FEWEST_FOR_UMAP` texts, or all alike.
    """
    if len(points) < FEWEST_FOR_UMAP or not np.ptp(points, axis=0).any():
        raise ValueError(f"UMAP needs at least {FEWEST_FOR_UMAP} texts that are not all alike.")
    import umap  # seconds to import, and not needed for anything else

    neighbours = min(15, len(points) - 1)
    # a spectral start fails on few points; a seed makes it repeatable and single-threaded
    reducer = umap.UMAP(n_neighbors=neighbours, init="random", random_state=0, n_jobs=1)
    return np.asarray(reducer.fit_transform(points), dtype=np.float32)


def anchor_map(
    record: RunRecord, agent: int, method: str, span: str | None = None, umap: Layout | str | None = None
) -> FigureView:
    """Where the current text lies among the anchors.

    ``umap``: its layout, the reason why there is none, or None while it is being computed.
    """
    title = "Where does this text lie among the anchors?"
    columns = (
        "placeholder", "text", "role", "PCA 1", "PCA 2", "UMAP 1", "UMAP 2", "weight in the gate (share)",
        "distance in the gate", "start of the text",
    )  # fmt: skip
    pool_and_view = mapped_pool(record, agent, method, span)
    if pool_and_view is None:
        return empty_view("anchor_map", title, NO_VIEW, columns)
    pool, view = pool_and_view
    gate = next((g for g in record.outcome(agent, method).gate if g.placeholder == pool.placeholder), None)
    texts = _texts(pool, view, gate)
    drawing = figure(300, margin={"t": 40, "r": 8}, showlegend=False)
    layouts = plane_layouts(drawing, view.points, umap)
    for index, layout in enumerate(layouts):
        _draw(drawing, index, layout, texts, words.slots(record.request.pipeline).get(pool.placeholder, 0))
    squares = (view.points.astype(np.float64) ** 2).sum(axis=0)
    share = float(squares[:2].sum() / squares.sum()) if squares.sum() else 1.0
    name = words.segment_words(record.request.pipeline, pool.placeholder)
    finding = f"{name[:1].upper()}{name[1:]}: {plural(len(pool.anchors), 'anchor')}; "
    finding += _nearest(view, texts) + f" The PCA plane shows {percent(100 * share, 100)} of the spread."
    how = (
        "Each text is the mean of its token embeddings; near marks are alike in words. The gate compares "
        "token by token instead, so its weight (colour) need not follow the map. "
    )
    how += (
        "UMAP keeps neighbours together and says nothing about far distances."
        if len(layouts) > 1
        else umap
        if isinstance(umap, str)
        else "UMAP is being computed; it appears beside PCA when it is ready."
    )
    second = layouts[1] if len(layouts) > 1 else None
    rows = tuple(
        (
            pool.placeholder, t["number"], t["role"], *(round(float(x), 6) for x in layouts[0][i]),
            *((round(float(x), 6) for x in second[i]) if second is not None else (None, None)),
            t["weight"], t["distance"], t["preview"],
        )
        for i, t in enumerate(texts)
    )  # fmt: skip
    return FigureView("anchor_map", title, how, finding, drawing, columns, rows)


def _texts(pool: PoolState, view: PoolView, gate: GateDecision | None) -> list[dict[str, Any]]:
    """Number, text, role, weight and distance of every point, in the order of the points."""
    weights = {}
    if gate is not None:
        weights = {
            n: (float(w), float(d))
            for n, w, d in zip(gate.anchors, gate.weights, gate.distances, strict=False)
        }
    entries = list(zip(pool.anchors, pool.previews, strict=True))
    if len(view.points) > len(entries):
        entries.append((view.sample, view.sample_preview))
    out = []
    for number_, preview in entries:
        weight, distance = weights.get(number_, (None, None))
        own = number_ == view.sample
        role = "this text, now an anchor" if len(view.points) == len(pool.anchors) else "this text"
        out.append(
            {"number": number_, "preview": preview, "weight": weight, "distance": distance, "own": own,
             "role": role if own else "anchor"}
        )  # fmt: skip
    return out


def _draw(drawing: go.Figure, index: int, layout: Layout, texts: list[dict[str, Any]], slot: int) -> None:
    axis = "" if index == 0 else "2"
    for own in (False, True):
        indices = [i for i, t in enumerate(texts) if t["own"] is own]
        if not indices:
            continue
        labels = [
            f"#{texts[i]['number']} {plot_text(words.clip(texts[i]['preview'], 60))}"
            f"<br>weight {number(texts[i]['weight'], 2)}, distance {number(texts[i]['distance'])}"
            for i in indices
        ]
        drawing.add_scatter(
            x=layout[indices, 0],
            y=layout[indices, 1],
            mode="markers+text" if own else "markers",
            text=["this text"] * len(indices) if own else None,
            textposition="top center",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={
                "size": 15 if own else 10,
                "symbol": "star" if own else "circle",
                "color": SLOT_COLOURS[slot] if own else [texts[i]["weight"] or 0.0 for i in indices],
                "line": {"width": 1.2, "color": "#7d8793"},
                **(
                    {}
                    if own
                    else {
                        "colorscale": MAGNITUDE, "cmin": 0, "cmax": 1, "showscale": index == 0,
                        "colorbar": colour_bar("weight"),
                    }
                ),
            },
            customdata=labels,
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip


def _nearest(view: PoolView, texts: list[dict[str, Any]]) -> str:
    """The anchor nearest to this text by the full coordinates, in words."""
    place = next((i for i, t in enumerate(texts) if t["own"]), None)
    if place is None or len(texts) < 2:
        return "this text is not on the map, or stands alone."
    distances = np.linalg.norm(view.points.astype(np.float64) - view.points[place], axis=1)
    distances[place] = np.inf
    best = int(distances.argmin())
    return (
        f"nearest by its words is anchor {texts[best]['number']}, {number(float(distances[best]), 2)} away."
    )
