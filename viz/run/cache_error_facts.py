"""How far a reused cache is from dense's: by layer, and by layer and token."""

from typing import Any, Literal

import numpy as np

from backend.records.run import Outcome, RunRecord
from viz.base import format as words
from viz.base.figure import MAX_COLUMNS, FigureView, colour_bar, empty_view, figure, pool_columns
from viz.base.format import number
from viz.base.subplots import layer_axes, layer_curve, mark_spans, span_words, two_panels
from viz.base.theme import MAGNITUDE

Which = Literal["key", "value"]


def _measured(record: RunRecord, agent: int) -> list[Outcome]:
    outcomes = [record.outcome(agent, label) for label in words.others(record)]
    return [o for o in outcomes if o.key_error is not None and o.value_error is not None]


def error_by_layer(record: RunRecord, agent: int) -> FigureView:
    """How far each method's cache is from dense's, layer by layer."""
    title = "At which layers does the reused cache differ?"
    columns = ("method", "layer", "key error (relative)", "value error (relative)")
    outcomes = _measured(record, agent)
    if not outcomes:
        return empty_view("error_by_layer", title, _no_error(record), columns)
    looks = words.styles(record)
    drawing = figure(320)
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    layers = 0
    for outcome in outcomes:
        look = looks[outcome.method]
        if outcome.key_error is None or outcome.value_error is None:
            continue
        key, value = (
            np.nan_to_num(outcome.key_error).mean(axis=1),
            np.nan_to_num(outcome.value_error).mean(axis=1),
        )
        layers = max(layers, len(key))
        for axis, values in (("", key), ("2", value)):
            layer_curve(
                drawing, axis, values, look.name, look.colour, dash=look.dash, symbol=look.symbol,
                legendgroup=outcome.method, width=2.2, size=7, digits=".4f",
            )  # fmt: skip
        rows += [
            (outcome.method, i, round(float(key[i]), 7), round(float(value[i]), 7)) for i in range(len(key))
        ]
    layer_axes(drawing, layers, "relative error")
    worst = max(rows, key=lambda r: max(r[2], r[3]))
    floor = record.model.certificate.floor
    kind = "keys" if worst[2] >= worst[3] else "values"
    size = max(worst[2], worst[3])
    if size <= floor:
        finding = f"No error above rounding ({number(floor, 1)})."
    else:
        finding = (
            f"Largest: {number(size, 2)}, {kind} at layer {worst[1]} under {looks[worst[0]].name}; "
            f"rounding alone makes {number(floor, 1)}."
        )
    how = (
        "Mean over all prompt tokens of the length of the difference over the length of the full read’s "
        "vector; 0 is exact."
    )
    return FigureView("error_by_layer", title, how, finding, drawing, columns, tuple(rows))


def _no_error(record: RunRecord) -> str:
    if record.request.mode == "free":
        return (
            "In free-running mode prompts differ from the full read’s, so cache errors are not defined. Run "
            "pinned to see them."
        )
    return "Cache errors were not measured in this run."


def error_map(record: RunRecord, agent: int, method: str, which: Which = "key") -> FigureView:
    """Every token at every layer; the scale is shared by all methods and by keys and values."""
    kind = "keys" if which == "key" else "values"
    look = words.styles(record).get(method)
    name = look.name if look else method
    title = f"Which tokens’ {kind} differ under {name}?"
    columns = ("layer", "first token", "tokens in column", f"largest {which} error (relative)")
    outcome = next((o for o in _measured(record, agent) if o.method == method), None)
    error = None if outcome is None else outcome.key_error if which == "key" else outcome.value_error
    if outcome is None or error is None or not error.size:
        reason = (
            "The full read is the reference: its error is 0."
            if method == words.dense_label(record)
            else _no_error(record)
        )
        return empty_view(f"error_map_{which}", title, reason, columns)
    prompt = words.prompt_of(record, outcome)
    peak = max(
        float(np.nanmax(e))
        for o in _measured(record, agent)
        for e in (o.key_error, o.value_error)
        if e is not None
    )
    pooled, starts, width = pool_columns(np.nan_to_num(error))
    layers, tokens = error.shape
    drawing = figure(120 + min(420, 24 * layers), margin={"t": 34, "r": 8})
    drawing.add_heatmap(
        z=np.ascontiguousarray(pooled, dtype=np.float32),
        x=starts.astype(np.int32),
        y=np.arange(layers, dtype=np.int32),
        colorscale=MAGNITUDE,
        zmin=0,
        zmax=peak or 1,
        colorbar=colour_bar("relative<br>error"),
        hovertemplate="token %{x}, layer %{y}<br>error %{z:.3f}<extra></extra>",
    )
    drawing.update_layout(
        xaxis={"title": "token of the prompt", "showgrid": False, "range": [-0.5, tokens - 0.5]},
        yaxis={"title": "layer", "showgrid": False, "dtick": 1 if layers <= 12 else None},
    )
    mark_spans(drawing, record, prompt, tokens)
    token, layer = int(np.nanargmax(error.max(axis=0))), int(np.nanargmax(error.max(axis=1)))
    mean = [(float(np.nanmean(error[:, s.start : s.end])), s) for s in prompt.spans if s.end > s.start]
    worst = max(mean, key=lambda m: m[0])
    finding = "No token differs from the full read’s" + (
        f": {name} computed this prompt in full." if not words.reused_anything(outcome) else "."
    )
    if float(np.nanmax(error)) > 0:
        finding = (
            f"The worst token is {token} ({words.token_name(prompt.texts[token])}), the worst layer "
            f"{layer}; by segment, "
            f"{span_words(record, worst[1].name)} is worst with a mean of {number(worst[0], 2)}."
        )
    pooled_words = (
        f" One column shows the largest error of {width} tokens, because the prompt has {tokens:,} tokens "
        f"and a figure "
        f"{MAX_COLUMNS} columns."
        if width > 1
        else ""
    )
    how = (
        "Bright is far from the full read, dark is near; all methods, keys and values share one "
        "scale." + pooled_words
    )
    rows = tuple(
        (int(i), int(starts[j]), int(min(width, tokens - starts[j])), round(float(pooled[i, j]), 6))
        for i in range(layers)
        for j in range(pooled.shape[1])
    )
    return FigureView(f"error_map_{which}", title, how, finding, drawing, columns, rows)
