"""Attention of a generated token as maps: a slot by layer and head, and the prompt's tokens by layer."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.records.run import AttentionProbe, RunRecord
from viz.attention.regions import QUERIES, Region, absent, mass_of, probes, regions
from viz.base import format as words
from viz.base.figure import (
    MAX_COLUMNS,
    FigureView,
    colour_bar,
    empty_view,
    figure,
    pool_columns,
    pooled_words,
)
from viz.base.format import number, plot_text
from viz.base.subplots import mark_spans, span_words, token_axes
from viz.base.theme import DIVERGING, MAGNITUDE

Floats = NDArray[np.float32]


def _slot(
    record: RunRecord, probed: dict[str, AttentionProbe], method: str, span: str | None
) -> Region | None:
    """The slot selected on the page, else the one whose heads differ most from dense's."""
    probe = probed[method]
    sides = [part for part in regions(record, probe) if part.slot]
    matches = [part for part in sides if probe.regions[part.members[0]] == span]
    if matches or not sides:
        return matches[0] if matches else None
    dense = probed.get(words.dense_label(record), probe)
    dense_mass = {part.name: mass_of(dense, part) for part in regions(record, dense)}

    def rank(part: Region) -> tuple[float, float]:
        mass = mass_of(probe, part)
        difference = np.abs(mass - dense_mass[part.name]).mean() if part.name in dense_mass else 0.0
        return float(difference), float(mass.mean())

    return max(sides, key=rank)


def head_map(record: RunRecord, agent: int, method: str, query: str, span: str | None = None) -> FigureView:
    """A slot's attention by layer and head: dense, the method, and the method minus dense."""
    key = f"attention_heads_{query}"
    probed, looks = probes(record, agent, query), words.styles(record)
    method = method if method in probed else next(reversed(probed), method)
    title = f"{QUERIES[query]}: which heads read the slot?"
    columns = (
        "slot",
        "layer",
        "head",
        "full read (share)",
        "method (share)",
        "method minus full read (share)",
    )
    slot = _slot(record, probed, method, span) if probed else None
    if slot is None:
        return empty_view(key, title, "There is no slot to look at." if probed else absent(record), columns)
    dense = probed.get(words.dense_label(record))
    name = looks[method].name
    title = f"{QUERIES[query]}: which heads read {slot.short}?"
    mass = mass_of(probed[method], slot)
    base = next(
        (mass_of(dense, part) for part in regions(record, dense) if part.name == slot.name), None
    ) if dense is not None and dense is not probed[method] else None  # fmt: skip
    panels: list[tuple[str, NDArray[np.float64]]] = [(name, mass)]
    if base is not None:
        full = looks[words.dense_label(record)].name
        panels = [(full, base), (name, mass), (f"{name} − the full read", mass - base)]
    layers, heads = mass.shape
    drawing = figure(150 + min(420, 20 * layers), margin={"t": 48, "b": 96})
    drawing.set_subplots(
        1, len(panels), shared_yaxes=True, horizontal_spacing=0.03,
        subplot_titles=[plot_text(title) for title, _ in panels],
    )  # fmt: skip
    peak = max(float(values.max()) for _, values in panels[:2])
    gap = float(np.abs(panels[-1][1]).max())
    for column, (_, values) in enumerate(panels, 1):
        signed = column == 3
        drawing.add_heatmap(
            z=values.astype(np.float32), coloraxis="coloraxis2" if signed else "coloraxis",
            hovertemplate="layer %{y}, head %{x}<br>%{z:.4f}<extra></extra>", row=1, col=column,
        )  # fmt: skip
    across = 0.64 if len(panels) == 3 else 1.0
    drawing.update_layout(
        coloraxis=_scale(MAGNITUDE, 0, peak or 1, "attention (share)", 0, across),
        coloraxis2=_scale(DIVERGING, -(gap or 1), gap or 1, "difference (share)", 0.69, 0.31),
    )
    drawing.update_annotations(font={"size": 12})
    drawing.update_xaxes(title={"text": "head"}, showgrid=False, dtick=1 if heads <= 12 else None)
    drawing.update_yaxes(showgrid=False, dtick=1 if layers <= 12 else None)
    drawing.update_yaxes(title={"text": "layer"}, col=1)
    rows = tuple(
        (slot.name, i, j, *(
            "" if x is None else round(float(x[i, j]), 6)
            for x in (mass if base is None and method == words.dense_label(record) else base,
                      mass, None if base is None else mass - base)
        ))
        for i in range(layers) for j in range(heads)
    )  # fmt: skip
    most = np.unravel_index(int(mass.argmax()), mass.shape)
    place, share = f"head {most[1]} of layer {most[0]}", number(float(mass[most]), 2)
    finding = f"{name} reads {slot.name} most with {place}: {share}."
    if base is not None:
        most = np.unravel_index(int(np.abs(mass - base).argmax()), mass.shape)
        change = float(mass[most] - base[most])
        finding += (
            f" It differs from the full read most at head {most[1]} of layer {most[0]}, by "
            f"{'+' if change > 0 else '−'}{number(abs(change), 2)}."
        )
    how = (
        "Bright heads spend much of their attention on this slot; panels side by side share one scale, and "
        "the difference has a symmetric one around 0. Select another slot in the strip."
    )
    return FigureView(key, title, how, finding, drawing, columns, rows)


def _scale(colours: str, low: float, high: float, title: str, x: float, length: float) -> dict[str, Any]:
    """A colour axis whose bar lies under its panels."""
    return {
        "colorscale": colours,
        "cmin": low,
        "cmax": high,
        "colorbar": {
            "orientation": "h",
            "x": x,
            "xanchor": "left",
            "y": -0.3,
            "yanchor": "top",
            "len": length,
            "thickness": 10,
            "title": {"text": title, "side": "bottom", "font": {"size": 12}},
            "tickfont": {"size": 12},
            "outlinewidth": 0,
        },
    }


def token_map(record: RunRecord, agent: int, method: str, query: str) -> FigureView:
    """Every prompt token's attention at every layer (judge study, Fig. 8)."""
    key = f"attention_tokens_{query}"
    probed, looks = probes(record, agent, query), words.styles(record)
    method = method if method in probed else next(reversed(probed), method)
    name = looks[method].name if method in looks else method
    title = f"{QUERIES[query]}: which words does it read?"
    columns = ("layer", "first token", "text", "tokens in column", "largest attention (share)")
    if not probed:
        return empty_view(key, title, absent(record), columns)
    prompt, values = record.prompts[probed[method].prompt], probed[method].tokens
    layers, tokens = values.shape
    pooled, starts, width = pool_columns(values)
    peak = max(float(np.quantile(p.tokens, 0.995)) for p in probed.values())
    drawing = figure(140 + min(420, 22 * layers), margin={"t": 34, "r": 8})
    _tokens_panel(drawing, pooled, starts, prompt.texts, coloraxis="coloraxis")
    drawing.update_layout(coloraxis=_bar(MAGNITUDE, 0, peak or 1, "attention<br>(share)"))
    token_axes(drawing, layers, tokens)
    mark_spans(drawing, record, prompt, tokens)
    most = int(values.mean(axis=0).argmax())
    inner = values.mean(axis=0).copy()
    inner[0] = 0
    second = int(inner.argmax())
    finding = (
        f"{name}, mean over layers: most goes to token {most} ({words.token_name(prompt.texts[most])}), "
        f"{number(float(values.mean(axis=0)[most]), 2)}"
    )
    finding += (
        f"; behind the prompt’s first token, most to token {second} "
        f"({words.token_name(prompt.texts[second])}), {number(float(inner[second]), 2)}."
        if most == 0 and tokens > 1
        else "."
    )
    how = (
        "Bright tokens are read, dark ones are not; means over heads. The scale is shared by all methods and "
        "ends at the 99.5th percentile, so that a sink at the prompt’s beginning does not drown the rest."
        + pooled_words(width, tokens)
    )
    rows = tuple(
        (i, int(starts[j]), words.token_name(prompt.texts[starts[j]]), int(min(width, tokens - starts[j])),
         round(float(pooled[i, j]), 7))
        for i in range(layers) for j in range(pooled.shape[1])
    )  # fmt: skip
    return FigureView(key, title, how, finding, drawing, columns, rows)


def token_difference(record: RunRecord, agent: int, query: str) -> FigureView:
    """Each method's attention to the prompt's tokens minus dense's, all on one symmetric scale."""
    key = f"attention_difference_{query}"
    title = f"{QUERIES[query]}: which words more or less?"
    columns = ("method", "layer", "first token", "text", "tokens in column", "method minus full read (share)")
    probed, looks = probes(record, agent, query), words.styles(record)
    if not probed:
        return empty_view(key, title, absent(record), columns)
    dense = probed.get(words.dense_label(record))
    others = {
        label: probe.tokens - dense.tokens
        for label, probe in probed.items()
        if dense is not None and probe is not dense and probe.prompt == dense.prompt
    }
    if not others or dense is None:
        reason = (
            "In free-running mode prompts differ from the full read’s, so tokens cannot be compared. Run "
            "pinned."
            if record.request.mode == "free"
            else "Only the full read was measured, so there is nothing to compare with."
        )
        return empty_view(key, title, reason, columns)
    prompt = record.prompts[dense.prompt]
    layers, tokens = dense.tokens.shape
    peak = max(float(np.quantile(np.abs(values), 0.995)) for values in others.values())
    panel = 44 + min(220, 10 * layers)
    drawing = figure(70 + panel * len(others), margin={"t": 34, "r": 8})
    drawing.set_subplots(
        len(others), 1, shared_xaxes=True, vertical_spacing=min(0.12, 0.3 / len(others)),
        subplot_titles=[plot_text(f"{looks[label].name} − the full read") for label in others],
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    worst: tuple[float, str, int] = (0.0, "", 0)
    for row, (label, values) in enumerate(others.items(), 1):
        pooled, starts, width = _largest(values)
        _tokens_panel(drawing, pooled, starts, prompt.texts, coloraxis="coloraxis", row=row, col=1)
        mean = values.mean(axis=0)
        most = int(np.abs(mean).argmax())
        worst = max(worst, (float(mean[most]), label, most), key=lambda x: abs(x[0]))
        rows += [
            (label, i, int(starts[j]), words.token_name(prompt.texts[starts[j]]),
             int(min(width, tokens - starts[j])), round(float(pooled[i, j]), 7))
            for i in range(layers) for j in range(pooled.shape[1])
        ]  # fmt: skip
    drawing.update_annotations(font={"size": 12})
    drawing.update_layout(coloraxis=_bar(DIVERGING, -(peak or 1), peak or 1, "difference<br>(share)"))
    drawing.update_xaxes(range=[-0.5, tokens - 0.5], showgrid=False)
    drawing.update_xaxes(title={"text": "token of the prompt"}, row=len(others))
    drawing.update_yaxes(title={"text": "layer"}, showgrid=False)
    finding = "Every token is read as under the full read."
    if abs(worst[0]) > 5e-8:
        span = words.span_at(prompt, worst[2])
        place = f" in {span_words(record, span.name)}" if span else ""
        finding = (
            f"Mean over layers: {looks[worst[1]].name} reads token {worst[2]} "
            f"({words.token_name(prompt.texts[worst[2]])}){place} {'more' if worst[0] > 0 else 'less'} than "
            f"the full read, by {number(abs(worst[0]), 2)}: the largest change."
        )
    how = (
        "Green is read more than under the full read, purple less; all methods share one symmetric scale, "
        "which ends at the 99.5th percentile." + pooled_words(max(1, -(-tokens // MAX_COLUMNS)), tokens)
    )
    return FigureView(key, title, how, finding, drawing, columns, tuple(rows))


def _largest(values: Floats) -> tuple[Floats, NDArray[np.int64], int]:
    """Pooled columns with the value of largest magnitude, signed; see :func:`pool_columns`."""
    high, starts, width = pool_columns(values)
    low = -pool_columns(-values)[0]
    return np.where(high >= -low, high, low).astype(np.float32), starts, width


def _tokens_panel(
    drawing: go.Figure, values: Floats, starts: NDArray[np.int64], texts: tuple[str, ...], **options: Any
) -> None:
    names = [plot_text(words.token_name(texts[i])) for i in starts]
    drawing.add_heatmap(
        z=np.ascontiguousarray(values),
        x=starts.astype(np.int32),
        y=np.arange(len(values), dtype=np.int32),
        text=[names] * len(values),
        hovertemplate="token %{x} (%{text}), layer %{y}<br>%{z:.5f}<extra></extra>",
        **options,
    )


def _bar(colours: str, low: float, high: float, title: str) -> dict[str, Any]:
    return {"colorscale": colours, "cmin": low, "cmax": high, "colorbar": colour_bar(title)}
