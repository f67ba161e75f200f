"""Memory of anchors by their number and length, and the cost of packing (Fig. A.1, 6.4.5)."""

from typing import Any

import numpy as np

from backend.records.pools import PoolState, PoolView
from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure, hatch
from viz.base.format import number, percent, plot_text, plural, size
from viz.base.subplots import layer_axes, layer_curve, two_panels
from viz.base.theme import ACTION_COLOURS, METHOD_COLOURS, OUTLINE_COLOUR, SLOT_COLOURS, SYMBOLS

NO_VIEW = "This record holds no sizes of anchors: the method kept none, or an earlier version made it."


def pools_of(record: RunRecord, method: str) -> list[tuple[PoolState, PoolView]]:
    """A method's pools that hold anchors, with their views."""
    views = {v.placeholder: v for v in record.pool_views if v.method == method}
    return [(p, views[p.placeholder]) for p in record.pools if p.method == method and p.placeholder in views]


def memory_by_pool(record: RunRecord, method: str) -> FigureView:
    """Bytes of each pool, in parts."""
    title = "What do the anchors take in memory?"
    columns = (
        "placeholder", "anchors", "tokens", "base KV and descriptors (bytes)", "offsets as computed (bytes)",
        "offsets as kept (bytes)", "budget (bytes)", "anchors in main memory",
    )  # fmt: skip
    pools = pools_of(record, method)
    if not pools:
        return empty_view("memory_by_pool", title, NO_VIEW, columns)
    pipeline = record.request.pipeline
    names = [plot_text(words.segment_words(pipeline, p.placeholder)) for p, _ in pools]
    base, raw, stored = (
        np.array([int(getattr(v, part).sum()) for _, v in pools])
        for part in ("base_bytes", "offset_bytes", "stored_bytes")
    )
    drawing = figure(100 + 34 * len(pools), margin={"t": 34, "r": 90}, barmode="stack", bargap=0.35)
    for label, amount, colour, pattern in (
        ("base KV and descriptors", base, METHOD_COLOURS[0], ""),
        ("offsets as kept", stored, ACTION_COLOURS[2], "/"),
    ):
        drawing.add_bar(
            y=names, x=amount / 2**20, orientation="h", name=label,
            marker={"color": colour, "pattern": hatch(pattern)},
            hovertemplate=f"%{{y}}<br>{label}: %{{x:.3g}} MiB<extra></extra>",
        )  # fmt: skip
    packed = bool((stored != raw).any())
    if packed:
        drawing.add_scatter(
            y=names, x=(base + raw) / 2**20, mode="markers", name="unpacked",
            marker={"symbol": "line-ns", "size": 22, "line": {"width": 2.5, "color": OUTLINE_COLOUR}},
            hovertemplate="%{y}<br>unpacked: %{x:.3g} MiB<extra></extra>",
        )  # fmt: skip
    budgets = [p.budget_bytes for p, _ in pools]
    if any(budgets):
        drawing.add_scatter(
            y=names, x=[b / 2**20 for b in budgets], mode="markers", name="budget",
            marker={"symbol": "line-ns", "size": 26, "line": {"width": 2.5, "color": "#c0564a"}},
            hovertemplate="%{y}<br>budget: %{x:.3g} MiB<extra></extra>",
        )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "MiB", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False, "ticks": ""},
    )
    total, anchors = int((base + stored).sum()), sum(len(p.anchors) for p, _ in pools)
    finding = (
        f"{plural(anchors, 'anchor')} take {size(total)}, {percent(int(stored.sum()), total)} of it offsets"
    )
    if packed:
        finding += f"; packing keeps {percent(int(stored.sum()), int(raw.sum()))} of the offsets’ bytes"
    how = (
        "One bar per placeholder’s pool. An anchor keeps its own KV and, for every agent that read it, an "
        "offset of its tokens and of the template text behind it. " + _place_words(record, method, pools)
    )
    rows = tuple(
        (p.placeholder, len(p.anchors), sum(p.lengths), int(base[i]), int(raw[i]), int(stored[i]),
         p.budget_bytes or None, len(v.away))
        for i, (p, v) in enumerate(pools)
    )  # fmt: skip
    return FigureView("memory_by_pool", title, how, finding + ".", drawing, columns, rows)


def _place_words(record: RunRecord, method: str, pools: list[tuple[PoolState, PoolView]]) -> str:
    """Where the offsets are stored, if the method was configured to move some."""
    on_device = next((m.options.get("on_device", 0) for m in record.request.methods if m.label == method), 0)
    if not on_device:
        return ""
    if record.model.device.startswith("cpu"):
        return "The model runs on a CPU, so there is no other memory to move cold anchors to: all stay."
    away = sum(len(v.away) for _, v in pools)
    return f"{plural(away, 'anchor')} wait in main memory, as asked."


def memory_by_length(record: RunRecord, method: str) -> FigureView:
    """Bytes of each anchor against its length."""
    title = "How does an anchor’s memory grow with its length?"
    columns = ("placeholder", "anchor", "length (tokens)", "agents", "bytes", "bytes per token")
    pools = pools_of(record, method)
    if not pools:
        return empty_view("memory_by_length", title, NO_VIEW, columns)
    pipeline, colours = record.request.pipeline, words.slots(record.request.pipeline)
    rows: list[tuple[Any, ...]] = []
    drawing = figure(300)
    for pool, view in pools:
        sizes = view.base_bytes + view.stored_bytes
        own_rows = [
            (pool.placeholder, number_, tokens, len(agents), int(b), round(int(b) / max(1, tokens), 1))
            for number_, tokens, agents, b in zip(pool.anchors, pool.lengths, view.agents, sizes, strict=True)
        ]
        slot = colours.get(pool.placeholder, 0)
        drawing.add_scatter(
            x=[r[2] for r in own_rows],
            y=[r[4] / 2**20 for r in own_rows],
            mode="markers",
            name=plot_text(words.segment_words(pipeline, pool.placeholder)),
            marker={"size": 9, "color": SLOT_COLOURS[slot], "symbol": SYMBOLS[slot], "opacity": 0.8},
            customdata=[[r[1], r[3]] for r in own_rows],
            hovertemplate="anchor %{customdata[0]}, %{customdata[1]} agents<br>%{x} tokens, %{y:.3g} MiB"
            "<extra></extra>",
        )
        rows += own_rows
    per_token = record.model.kv_bytes_per_token
    longest = max(r[2] for r in rows)
    drawing.add_scatter(
        x=[0, longest],
        y=[0, longest * per_token / 2**20],
        mode="lines",
        name="KV of the text alone",
        line={"color": OUTLINE_COLOUR, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )
    drawing.update_layout(
        xaxis={"title": "length of the anchor (tokens)", "rangemode": "tozero"},
        yaxis={"title": "MiB", "rangemode": "tozero"},
    )
    total, tokens = sum(r[4] for r in rows), sum(r[2] for r in rows)
    finding = (
        f"A token of an anchor takes {size(total / max(1, tokens))} on average, "
        f"{words.ratio(total / max(1, tokens), per_token)} the KV of one token ({size(per_token)})."
    )
    how = "One mark per anchor, everything that is kept of it; more agents that read it mean more offsets."
    return FigureView("memory_by_length", title, how, finding, drawing, columns, tuple(rows))


def codec_view(record: RunRecord, method: str) -> FigureView:
    """Offsets and the error of keeping them packed, by layer, and the share of small elements."""
    title = "What does packing the offsets cost?"
    columns = (
        "placeholder", "kind", "layer", "offset size (RMS)", "error as kept (RMS)", "share under 0.1",
    )  # fmt: skip
    pools = pools_of(record, method)
    pairs = [(p, v) for p, v in pools if v.offset_bytes.any()]
    if not pairs:
        return empty_view("codec", title, NO_VIEW if not pools else "No offset was seen yet.", columns)
    layers = pairs[0][1].small.shape[1]
    drawing = figure(320)
    two_panels(drawing)
    weight = np.array([float(v.offset_bytes.sum()) for _, v in pairs])
    codec = pairs[0][0].codec
    for axis, row in (("", 0), ("2", 1)):
        for label, part, colour, dash in (
            ("offset", "offset_size", ACTION_COLOURS[2], "solid"),
            ("error as kept", "stored_error", "#c0564a", "dash"),
        ):
            squares = np.stack([getattr(v, part)[row] ** 2 for _, v in pairs])
            size = np.sqrt(np.average(squares, axis=0, weights=weight))
            layer_curve(drawing, axis, size, label, colour, dash=dash, size=5, digits=".4g")
    layer_axes(drawing, layers, "root mean square of an element")
    small = np.average(np.stack([v.small for _, v in pairs]), axis=0, weights=weight)
    beyond = small[:, 1:].mean() if layers > 1 else small.mean()
    largest = max(v.largest_error for _, v in pairs)
    share = percent(sum(int(v.stored_bytes.sum()) for _, v in pairs), int(weight.sum()))
    if codec == "half" and not largest:
        codec = "none"  # the model's offsets have 16 bits already: nothing was packed
    codec_text = {
        "none": "offsets are kept as they were computed",
        "half": f"kept in half precision in {share} of the bytes (largest error {number(largest)})",
        "lossless": f"kept without loss in {share} of the bytes (largest error {number(largest)})",
        "lossy": f"kept rounded in {share} of the bytes; no element errs by more than {number(largest, 3)}",
    }.get(codec, f"kept by {codec}")
    finding = (
        f"{percent(100 * float(small.mean()), 100)} of the offset elements are under 0.1 in size, "
        f"{percent(100 * float(beyond), 100)} without layer 0, whose offsets are zero; {codec_text}."
    )
    how = (
        "Keys position-free. The paper reports about half under 0.1 on its models; the share depends on how "
        "large a model’s keys and values are."
    )
    rows = tuple(
        (p.placeholder, kind, layer, *(
            round(float(getattr(v, part)[row, layer]), 7) for part in ("offset_size", "stored_error", "small")
        ))
        for p, v in pairs
        for row, kind in enumerate(("keys", "values"))
        for layer in range(layers)
    )  # fmt: skip
    return FigureView("codec", title, how, finding, drawing, columns, rows)
