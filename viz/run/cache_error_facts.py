"""How far a reused cache is from dense's: by layer, and by layer and token."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.records.run import Outcome, RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, colour_bar, empty_view, figure, pool_columns, pooled_words
from viz.base.format import number
from viz.base.subplots import layer_axes, layer_curve, mark_spans, span_words, token_axes, two_panels
from viz.base.theme import MAGNITUDE

Which = Literal["key", "value"]


def _errors(record: RunRecord, agent: int) -> list[tuple[Outcome, NDArray[np.float32], NDArray[np.float32]]]:
    """The measured outcomes, each with its errors of keys and of values, (layers, tokens)."""
    outcomes = [record.outcome(agent, label) for label in words.others(record)]
    return [
        (o, o.key_error, o.value_error)
        for o in outcomes
        if o.key_error is not None and o.value_error is not None
    ]


def error_by_layer(record: RunRecord, agent: int) -> FigureView:
    """How far each method's cache is from dense's, layer by layer."""
    title = "At which layers does the reused cache differ?"
    columns = ("method", "layer", "key error (relative)", "value error (relative)")
    errors = _errors(record, agent)
    if not errors:
        return empty_view("error_by_layer", title, _no_error(record), columns)
    looks = words.styles(record)
    drawing = figure(320)
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    layers = 0
    for outcome, *both in errors:
        look = looks[outcome.method]
        key, value = (np.nan_to_num(error).mean(axis=1) for error in both)
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
    errors = _errors(record, agent)
    outcome, key, value = next((x for x in errors if x[0].method == method), (None, None, None))
    error = key if which == "key" else value
    if outcome is None or error is None or not error.size:
        reason = (
            "The full read is the reference: its error is 0."
            if method == words.dense_label(record)
            else _no_error(record)
        )
        return empty_view(f"error_map_{which}", title, reason, columns)
    prompt = words.prompt_of(record, outcome)
    peak = max(float(np.nanmax(e)) for _, *both in errors for e in both)
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
    token_axes(drawing, layers, tokens)
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
    how = (
        "Bright is far from the full read, dark is near; all methods, keys and values share one "
        "scale." + pooled_words(width, tokens, "error")
    )
    rows = tuple(
        (int(i), int(starts[j]), int(min(width, tokens - starts[j])), round(float(pooled[i, j]), 6))
        for i in range(layers)
        for j in range(pooled.shape[1])
    )
    return FigureView(f"error_map_{which}", title, how, finding, drawing, columns, rows)
