"""What anchors cost by their number and length (KVCOMM, Fig. A.1, Tables A.5 and A.6)."""

import numpy as np
from numpy.typing import NDArray

from backend.records.anchor_cost import AnchorCost
from viz.base.figure import FigureView, empty_view, figure
from viz.base.format import milliseconds, plural, ratio, size
from viz.base.subplots import curve
from viz.base.theme import DASHES, SLOT_COLOURS, SYMBOLS

PARTS = (
    ("match_ms", "matching by embeddings", 4, "solid"),
    ("match_kv_ms", "matching by whole KV, as shipped", 1, "dash"),
    ("mix_ms", "mixing the offsets", 5, "dot"),
    ("move_ms", "bringing cold offsets back", 3, "dashdot"),
)


def views(record: AnchorCost) -> tuple[FigureView, ...]:
    """Memory, then time."""
    return memory(record), times(record), moving(record)


def memory(record: AnchorCost) -> FigureView:
    """Bytes of a pool by anchors, one line per length (Fig. A.1)."""
    drawing = figure(300)
    counts, lengths = record.request.anchors, record.request.lengths
    for index, tokens in enumerate(lengths):
        curve(
            drawing, list(counts), record.pool_bytes[:, index] / 2**20, f"{tokens:,} tokens",
            SLOT_COLOURS[index % 6], dash=DASHES[index % 7], symbol=SYMBOLS[index % 7],
            hover="%{x} anchors: %{y:.3g} MiB",
        )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "anchors of one placeholder", "rangemode": "tozero"},
        yaxis={"title": "MiB", "rangemode": "tozero"},
    )
    most = int(record.pool_bytes[-1, -1])
    per_token = most / (counts[-1] * lengths[-1])
    finding = (
        f"{plural(counts[-1], 'anchor')} of {lengths[-1]:,} tokens take {size(most)}: "
        f"{size(per_token)} a token, {ratio(per_token, record.model.kv_bytes_per_token)} its KV."
    )
    how = (
        "Memory blocks really allocated: the text’s own KV, its embeddings, and one offset for each of "
        f"{plural(record.request.agents, 'agent')} that read it. Template text behind it comes on top."
    )
    rows = tuple(
        (count, tokens, record.request.agents, int(record.pool_bytes[i, j]))
        for i, count in enumerate(counts)
        for j, tokens in enumerate(lengths)
    )
    columns = ("anchors", "length (tokens)", "agents", "bytes")
    return FigureView("cost_memory", "How does a pool grow?", how, finding, drawing, columns, rows)


def times(record: AnchorCost) -> FigureView:
    """Milliseconds of each step by anchors, at the longest length (Table A.5); the table has all lengths."""
    drawing = figure(300)
    counts, lengths = record.request.anchors, record.request.lengths
    parts = [part for part in PARTS if not np.isnan(_of(record, part[0])).all()]
    for name, label, slot, dash in parts:
        values, hover = _of(record, name)[:, -1], "%{x} anchors: %{y:.3g} ms"
        curve(drawing, list(counts), values, label, SLOT_COLOURS[slot], dash=dash, hover=hover)
    drawing.update_layout(
        xaxis={"title": f"anchors of {lengths[-1]:,} tokens", "rangemode": "tozero"},
        yaxis={"title": "milliseconds (log scale)", "type": "log"},
        legend={"y": 1.02},
    )
    embed, kv, mix = (float(_of(record, name)[-1, -1]) for name in ("match_ms", "match_kv_ms", "mix_ms"))
    finding = (
        f"Matching against {plural(counts[-1], 'anchor')} of {lengths[-1]:,} tokens takes "
        f"{milliseconds(embed)} by embeddings and {milliseconds(kv)} by whole KV ({ratio(kv, embed)}); "
        f"mixing takes {milliseconds(mix)}."
    )
    how = (
        f"The best of a few repetitions of the lab’s own code on {record.model.device} in "
        f"{record.model.dtype}, with nothing else of the lab running; one placeholder, one agent."
    )
    rows = tuple(
        (label, count, tokens, number_(_of(record, name)[i, j]))
        for name, label, *_ in PARTS
        for i, count in enumerate(counts)
        for j, tokens in enumerate(lengths)
    )
    columns = ("step", "anchors", "length (tokens)", "time (ms)")
    return FigureView("cost_times", "What does matching cost?", how, finding, drawing, columns, rows)


def moving(record: AnchorCost) -> FigureView:
    """Time of bringing offsets back from main memory, beside matching (Table A.6)."""
    title = "What does offloading cost?"
    columns = ("anchors", "length (tokens)", "moved (bytes)", "time (ms)", "GiB per second")
    if np.isnan(record.move_ms).all():
        reason = (
            f"The model runs on {record.model.device}: offsets already lie in main memory, so there is "
            "nothing to move."
        )
        return empty_view("cost_moving", title, reason, columns)
    counts, lengths = record.request.anchors, record.request.lengths
    drawing = figure(300)
    rows = []
    for index, tokens in enumerate(lengths):
        sizes = np.array(counts) * tokens * record.model.kv_bytes_per_token
        times = record.move_ms[:, index]
        curve(
            drawing, sizes / 2**20, times, f"{tokens:,} tokens", SLOT_COLOURS[index % 6],
            dash=DASHES[index % 7], hover="%{x:.3g} MiB: %{y:.3g} ms",
        )  # fmt: skip
        rows += [
            (count, tokens, int(b), number_(ms), number_(b / 2**30 / (ms / 1e3)))
            for count, b, ms in zip(counts, sizes, times, strict=True)
        ]
    drawing.update_layout(
        xaxis={"title": "offsets moved (MiB)", "rangemode": "tozero"},
        yaxis={"title": "milliseconds", "rangemode": "tozero"},
    )
    last = rows[-1]
    finding = f"Bringing {size(last[2])} back takes {milliseconds(float(record.move_ms[-1, -1]))}."
    how = "From ordinary main memory to the device, one agent’s offsets of every anchor."
    return FigureView("cost_moving", title, how, finding, drawing, columns, tuple(rows))


def _of(record: AnchorCost, name: str) -> NDArray[np.float64]:
    return np.asarray(getattr(record, name), dtype=np.float64)


def number_(value: float) -> float | None:
    """Rounded for a table; None where it was not measured."""
    return None if np.isnan(value) else float(f"{value:.4g}")
