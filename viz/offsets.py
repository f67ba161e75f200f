"""Where reuse goes wrong: true offsets, errors of the reused cache, KL along the answer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.records import OffsetProbe, Outcome, Prompt, RunRecord, Span
from viz import words
from viz.figure import MAX_COLUMNS, FigureView, empty_view, figure, pool_columns
from viz.theme import MAGNITUDE, SLOT_COLOURS
from viz.words import escape, number

Which = Literal["key", "value"]
PREFIX_COLOUR = "#8b95a1"
PANELS = ("Keys", "Values")


def _panels(drawing: go.Figure, titles: tuple[str, ...] = PANELS) -> None:
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
            text=f"<b>{title}</b>", x=(0, 0.515)[index], y=1.0, xref="paper", yref="paper", xanchor="left",
            yanchor="bottom", yshift=4, showarrow=False, font={"size": 12},
        )  # fmt: skip


def _layer_axes(drawing: go.Figure, layers: int, unit: str) -> None:
    ticks: dict[str, Any] = {"title": {"text": "layer"}, "range": [-0.3, layers - 0.7]}
    if layers <= 16:
        ticks["dtick"] = 1
    drawing.update_layout(xaxis=ticks, xaxis2=ticks)
    drawing.update_layout(yaxis={"title": {"text": unit}, "rangemode": "tozero"})


def _probe(record: RunRecord, agent: int) -> OffsetProbe | None:
    return next((p for p in record.offsets if p.agent == agent), None)


def _with_base(probe: OffsetProbe, prompt: Prompt) -> list[Span]:
    """The spans that have a base KV to differ from."""
    seen = (probe.key_offset != 0).any(axis=0) | (probe.value_offset != 0).any(axis=0)
    return [s for s in prompt.spans if s.end > s.start and bool(seen[s.start : s.end].any())]


def _relative(part: NDArray[np.float32], norm: NDArray[np.float32], span: Span) -> NDArray[np.float64]:
    piece = part[:, span.start : span.end].astype(np.float64)
    return np.asarray((piece / np.maximum(norm[:, span.start : span.end], 1e-12)).mean(axis=1))


def offset_by_layer(record: RunRecord, agent: int, span_name: str | None = None) -> FigureView:
    """What the context adds to each segment, layer by layer."""
    title = "How much does the context change the text’s memory?"
    columns = ("segment", "tokens", "layer", "key offset (relative)", "value offset (relative)",
               "key difference before moving (relative)")  # fmt: skip
    probe = _probe(record, agent)
    if probe is None:
        return empty_view("offset_by_layer", title, "Offsets were not measured in this run.", columns)
    prompt = record.prompts[probe.prompt]
    spans = [s for s in _with_base(probe, prompt) if span_name in (None, s.name)]
    if not spans:
        why = "This segment opens the prompt, so it has no context and no offset." if span_name else "No segment of this prompt has a base to compare with."
        return empty_view("offset_by_layer", title, why, columns)
    pipeline, colours = record.request.pipeline, words.slots(record.request.pipeline)
    layers = probe.key_offset.shape[0]
    drawing = figure(340)
    _panels(drawing)
    rows: list[tuple[Any, ...]] = []
    unaligned = np.zeros(layers)
    count = 0
    dashes = iter(("dot", "dashdot", "longdash", "longdashdot") * 8)
    for span in spans:
        key = _relative(probe.key_offset, probe.key_norm, span)
        value = _relative(probe.value_offset, probe.value_norm, span)
        before = _relative(probe.key_unaligned, probe.key_norm, span)
        size = span.end - span.start
        unaligned, count = unaligned + before * size, count + size
        hole = span.kind == "placeholder"
        name = words.slot_words(pipeline, span.name) if hole else span.name
        line = {
            "color": SLOT_COLOURS[colours.get(span.name, 0)] if hole else PREFIX_COLOUR,
            "width": 2.2 if hole else 1.3,
            "dash": "solid" if hole else next(dashes),
        }
        for axis, values in (("", key), ("2", value)):
            drawing.add_scatter(
                x=np.arange(layers), y=values.astype(np.float32), mode="lines+markers", name=escape(name), line=line,
                marker={"size": 5 if hole else 3}, legendgroup=span.name, showlegend=axis == "", xaxis=f"x{axis}",
                yaxis=f"y{axis}", hovertemplate=f"{escape(name)}<br>layer %{{x}}: %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
        rows += [
            (span.name, size, i, round(float(key[i]), 6), round(float(value[i]), 6), round(float(before[i]), 6))
            for i in range(layers)
        ]
    before = unaligned / max(1, count)
    drawing.add_scatter(
        x=np.arange(layers), y=before.astype(np.float32), mode="lines", name="keys before moving (all segments)",
        line={"color": "#d4547d", "width": 1.6, "dash": "dash"},
        hovertemplate="before moving<br>layer %{x}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    _layer_axes(drawing, layers, "offset, share of the vector’s length")
    worst = max(rows, key=lambda r: max(r[3], r[4]))
    kind = "keys" if worst[3] >= worst[4] else "values"
    key_mean = float(np.average([r[3] for r in rows], weights=[r[1] for r in rows]))
    finding = (
        f"The context changes the {kind} of {_span_words(record, worst[0])} at layer {worst[2]} most: by "
        f"{number(max(worst[3], worst[4]), 2)} of their length. Moving the keys leaves a difference of "
        f"{number(key_mean, 2)} where there was {number(float(before.mean()), 2)} before (means)."
    )
    how = (
        "One line per segment: the length of (KV read in this prompt minus KV read elsewhere) over the length of the "
        "KV, mean over the segment’s tokens; 0 means that copying is exact."
    )
    return FigureView("offset_by_layer", title, how, finding, drawing, columns, tuple(rows))


def _span_words(record: RunRecord, name: str) -> str:
    known = words.slots(record.request.pipeline)
    return f"‘{words.slot_words(record.request.pipeline, name)}’" if name in known else name


def _compared(record: RunRecord, agent: int) -> list[Outcome]:
    found = [record.outcome(agent, label) for label in words.others(record)]
    return [o for o in found if o.key_error is not None and o.value_error is not None]


def error_by_layer(record: RunRecord, agent: int) -> FigureView:
    """How far each method's cache is from dense's, layer by layer."""
    title = "At which layers does the reused cache differ from dense’s?"
    columns = ("method", "layer", "key error (relative)", "value error (relative)")
    compared = _compared(record, agent)
    if not compared:
        return empty_view("error_by_layer", title, _no_error(record), columns)
    looks = words.styles(record)
    drawing = figure(320)
    _panels(drawing)
    rows: list[tuple[Any, ...]] = []
    layers = 0
    for outcome in compared:
        look = looks[outcome.method]
        assert outcome.key_error is not None and outcome.value_error is not None
        key, value = np.nan_to_num(outcome.key_error).mean(axis=1), np.nan_to_num(outcome.value_error).mean(axis=1)
        layers = max(layers, len(key))
        for axis, values in (("", key), ("2", value)):
            drawing.add_scatter(
                x=np.arange(len(values)), y=values.astype(np.float32), mode="lines+markers", name=escape(look.name),
                line={"color": look.colour, "width": 2.2, "dash": look.dash},
                marker={"symbol": look.symbol, "size": 7}, legendgroup=outcome.method, showlegend=axis == "",
                xaxis=f"x{axis}", yaxis=f"y{axis}",
                hovertemplate=f"{escape(look.name)}<br>layer %{{x}}: %{{y:.4f}}<extra></extra>",
            )  # fmt: skip
        rows += [(outcome.method, i, round(float(key[i]), 7), round(float(value[i]), 7)) for i in range(len(key))]
    _layer_axes(drawing, layers, "error, share of dense’s length")
    worst = max(rows, key=lambda r: max(r[2], r[3]))
    floor = record.model.certificate.floor
    kind = "keys" if worst[2] >= worst[3] else "values"
    size = max(worst[2], worst[3])
    if size <= floor:
        finding = f"No error above rounding ({number(floor, 1)})."
    else:
        finding = (
            f"Largest: {kind} at layer {worst[1]} under {looks[worst[0]].name}, {number(size, 2)} of dense’s length; "
            f"rounding alone makes {number(floor, 1)}."
        )
    how = "Mean over all prompt tokens of the length of the difference over the length of dense’s vector; 0 is exact."
    return FigureView("error_by_layer", title, how, finding, drawing, columns, tuple(rows))


def _no_error(record: RunRecord) -> str:
    if record.request.mode == "free":
        return "In free-running mode prompts differ from dense’s, so cache errors are not defined. Run pinned to see them."
    return "Cache errors were not measured in this run."


def error_map(record: RunRecord, agent: int, method: str, which: Which = "key") -> FigureView:
    """Every token at every layer; the scale is shared by all methods and by keys and values."""
    kind = "keys" if which == "key" else "values"
    look = words.styles(record).get(method)
    name = look.name if look else method
    title = f"Which tokens’ {kind} differ from dense’s under {name}?"
    columns = ("layer", "first token", "tokens in column", f"largest {which} error (relative)")
    found = next((o for o in _compared(record, agent) if o.method == method), None)
    error = None if found is None else found.key_error if which == "key" else found.value_error
    if found is None or error is None or not error.size:
        why = "Dense is the reference: its error is 0." if method == words.dense_label(record) else _no_error(record)
        return empty_view(f"error_map_{which}", title, why, columns)
    prompt = words.prompt_of(record, found)
    peak = max(
        float(np.nanmax(e)) for o in _compared(record, agent) for e in (o.key_error, o.value_error) if e is not None
    )
    pooled, starts, width = pool_columns(np.nan_to_num(error))
    layers, tokens = error.shape
    drawing = figure(120 + min(420, 24 * layers), margin={"t": 34, "r": 8})
    drawing.add_heatmap(
        z=np.ascontiguousarray(pooled, dtype=np.float32), x=starts.astype(np.int32), y=np.arange(layers, dtype=np.int32),
        colorscale=MAGNITUDE, zmin=0, zmax=peak or 1,
        colorbar={"title": {"text": "error, share<br>of dense’s", "font": {"size": 11}}, "thickness": 10, "len": 1,
                  "tickfont": {"size": 11}, "outlinewidth": 0, "x": 1.01},
        hovertemplate="token %{x}, layer %{y}<br>error %{z:.3f}<extra></extra>",
    )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": {"text": "token of the prompt"}, "showgrid": False, "range": [-0.5, tokens - 0.5]},
        yaxis={"title": {"text": "layer"}, "showgrid": False, "dtick": 1 if layers <= 12 else None},
    )
    _mark_spans(drawing, record, prompt, tokens)
    token, layer = int(np.nanargmax(error.max(axis=0))), int(np.nanargmax(error.max(axis=1)))
    mean = [(float(np.nanmean(error[:, s.start : s.end])), s) for s in prompt.spans if s.end > s.start]
    worst = max(mean, key=lambda m: m[0])
    finding = (
        f"The worst token is {token} ({words.token_name(prompt.texts[token])}), the worst layer {layer}; by segment, "
        f"{_span_words(record, worst[1].name)} is worst with a mean of {number(worst[0], 2)}."
    )
    pooled_words = (
        f" One column shows the largest error of {width} tokens, because the prompt has {tokens:,} tokens and a figure "
        f"{MAX_COLUMNS} columns." if width > 1 else ""
    )
    how = "Bright is far from dense, dark is near; all methods, keys and values share one scale." + pooled_words
    rows = tuple(
        (int(i), int(starts[j]), int(min(width, tokens - starts[j])), round(float(pooled[i, j]), 6))
        for i in range(layers)
        for j in range(pooled.shape[1])
    )
    return FigureView(f"error_map_{which}", title, how, finding, drawing, columns, rows)


def _mark_spans(drawing: go.Figure, record: RunRecord, prompt: Prompt, tokens: int) -> None:
    colours = words.slots(record.request.pipeline)
    for span in prompt.spans:
        if span.start:
            drawing.add_vline(x=span.start - 0.5, line={"color": "#ffffff", "width": 1, "dash": "dot"})
        if span.kind == "placeholder" and (span.end - span.start) > 0.05 * tokens:
            drawing.add_annotation(
                text=escape(words.clip(words.slot_words(record.request.pipeline, span.name), 24)),
                x=(span.start + span.end - 1) / 2, y=1, yref="paper", yanchor="bottom", showarrow=False,
                font={"size": 11, "color": SLOT_COLOURS[colours.get(span.name, 0)]},
            )  # fmt: skip


def kl_along_answer(record: RunRecord, agent: int) -> FigureView:
    """How far each method's next-token predictions are from dense's, along dense's own answer."""
    title = "Where along the answer do predictions drift from dense’s?"
    columns = ("method", "token index", "dense token", "KL (nats)")
    looks, dense = words.styles(record), words.dense_label(record)
    found = [(o, o.fidelity) for o in (record.outcome(agent, m) for m in words.others(record)) if o.fidelity is not None]
    found = [(o, f) for o, f in found if f is not None and f.kl_tokens.size]
    if not found:
        why = "KL is defined only when every method reads dense’s texts. Run pinned to see it." if record.request.mode == "free" else "KL was not measured in this run."
        return empty_view("kl_along_answer", title, why, columns)
    texts = record.outcome(agent, dense).texts
    floor = max(f.floor for _, f in found if f is not None)
    least = max(1e-9, min(1e-6, floor / 10 if floor > 0 else 1e-6))
    drawing = figure(320, margin={"t": 40})
    rows: list[tuple[Any, ...]] = []
    peak: tuple[float, int, str] = (0.0, 0, found[0][0].method)
    for outcome, fidelity in found:
        assert fidelity is not None
        look = looks[outcome.method]
        values = np.maximum(np.nan_to_num(fidelity.kl_tokens.astype(np.float64)), 0)
        steps = np.arange(len(values))
        named = [words.token_name(texts[i]) if i < len(texts) else "(end)" for i in steps]
        drawing.add_scatter(
            x=steps, y=np.maximum(values, least).astype(np.float32), mode="lines+markers", name=escape(look.name),
            line={"color": look.colour, "width": 1.8, "dash": look.dash}, marker={"symbol": look.symbol, "size": 6},
            customdata=[escape(n) for n in named],
            hovertemplate=f"{escape(look.name)}<br>token %{{x}} %{{customdata}}: %{{y:.3g}} nats<extra></extra>",
        )  # fmt: skip
        first = fidelity.first_divergence
        if first is not None and first < len(values):
            drawing.add_scatter(
                x=[first], y=[max(float(values[first]), least)], mode="markers+text", showlegend=False,
                marker={"symbol": "circle-open", "size": 15, "color": look.colour, "line": {"width": 2}},
                text=[escape(f"{words.token_name(fidelity.dense_token)} → {words.token_name(fidelity.method_token)}")],
                textposition="top center", textfont={"size": 11}, cliponaxis=False,
                hovertemplate=f"first token where {escape(look.name)} differs<extra></extra>",
            )  # fmt: skip
        at = int(values.argmax())
        peak = max(peak, (float(values[at]), at, outcome.method))
        rows += [(outcome.method, int(i), named[i], float(f"{values[i]:.6g}")) for i in steps]
    if floor > 0:
        drawing.add_hline(y=2 * floor, line={"color": "#8b95a1", "width": 1.2, "dash": "dot"})
        drawing.add_annotation(
            text="most that rounding can do", x=1, xref="paper", y=float(np.log10(2 * floor)), xanchor="right",
            yanchor="bottom", showarrow=False, font={"size": 11},
        )  # fmt: skip
    count = max(r[1] for r in rows) + 1
    axis: dict[str, Any] = {"title": {"text": "token of dense’s answer"}, "range": [-0.5, count - 0.5]}
    if count <= 48:
        axis |= {"tickmode": "array", "tickvals": list(range(count)), "tickangle": -60,
                 "ticktext": [escape(words.token_name(t)) for t in texts[:count]]}  # fmt: skip
    drawing.update_layout(
        xaxis=axis, yaxis={"title": {"text": "KL (nats), log scale"}, "type": "log", "exponentformat": "power"}
    )
    where = words.token_name(texts[peak[1]]) if peak[1] < len(texts) else "the end"
    drifted = [f"{looks[o.method].name} at token {f.first_divergence}" for o, f in found if f and f.first_divergence is not None]
    finding = (
        f"The largest drift is {number(peak[0], 2)} nats at token {peak[1]} ({where}) under {looks[peak[2]].name}; "
        + (f"the text first differs under {words.listing(drifted)}." if drifted else "no text differs from dense’s.")
    )
    how = (
        f"Dense’s own answer is fed to every method; 0 means the same prediction, ln 2 = 0.69 a coin flip apart. Values below "
        f"{number(least, 1)} are drawn at {number(least, 1)}; a ring marks the first token that came out differently."
    )
    return FigureView("kl_along_answer", title, how, finding, drawing, columns, tuple(rows))
