"""The weights of a correction, token by token and layer by layer (KVCOMM, Eq. 6 and 7)."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.records.run import Mix, Outcome, RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, colour_bar, empty_view, figure, pool_columns
from viz.base.format import number, plot_text, plural
from viz.base.subplots import span_words, two_panels
from viz.base.theme import MAGNITUDE

MAX_ROWS = 16  # anchors drawn; the lightest are summed into one row
SAME = 1e-6
Floats = NDArray[np.float32]


def weights_by_token(record: RunRecord, agent: int, method: str, span: str | None = None) -> FigureView:
    """How each token of a segment mixes the anchors' offsets."""
    title = "Do all tokens trust the same anchor?"
    columns = ("segment", "kind", "anchor", "first token", "tokens in column", "weight (share)")
    selection = _select(record, agent, method, span)
    if isinstance(selection, str):
        return empty_view("weights_by_token", title, selection, columns)
    outcome, mix, name = selection
    prompt = words.prompt_of(record, outcome)
    sides = _sides(mix.keys_by_token, mix.values_by_token)
    drawing, labels, top = _frame(mix, len(sides))
    rows: list[tuple[Any, ...]] = []
    width = 1
    for index, (kind, weights) in enumerate(sides):
        pooled, starts, width = pool_columns(_rows(weights, top))
        places = starts + mix.start
        texts = [plot_text(words.token_name(prompt.texts[int(p)])) for p in places]
        _heatmap(drawing, index, pooled, places.astype(np.int32), labels, texts, sides, "token %{x} %{text}")
        rows += [
            (name, kind, anchor, int(places[column]), int(min(width, mix.end - places[column])),
             round(float(whole[row, column]), 6))
            for whole in [pool_columns(weights)[0]]
            for row, anchor in enumerate(mix.anchors)
            for column in range(len(places))
        ]  # fmt: skip
    drawing.update_layout(xaxis={"title": "token of the prompt"}, xaxis2={"title": "token of the prompt"})
    heaviest = mix.keys_by_token.argmax(axis=0)
    tops = [mix.anchors[i] for i in np.unique(heaviest)]
    finding = (
        f"In {span_words(record, name)}, "
        + (
            f"anchor {tops[0]} is the heaviest for every token"
            if len(tops) == 1
            else f"{len(tops)} of {plural(len(mix.anchors), 'anchor')} are the heaviest for some token"
        )
        + f"; the heaviest weight is {number(float(mix.keys_by_token.max(axis=0).mean()), 2)} on average."
    )
    how = (
        "Each column is a token and adds up to 1: bright is the anchor whose offset it takes. "
        + ("" if len(sides) > 1 else "Keys and values have the same weights. ")
        + (f"One column shows the largest weight of {width} tokens. " if width > 1 else "")
        + _rows_note(mix)
    )
    return FigureView("weights_by_token", title, how, finding, drawing, columns, tuple(rows))


def weights_by_layer(record: RunRecord, agent: int, method: str, span: str | None = None) -> FigureView:
    """The mean weight of each anchor at each layer."""
    title = "Does an anchor weigh more in some layers?"
    columns = ("segment", "kind", "anchor", "layer", "weight (share)")
    selection = _select(record, agent, method, span)
    if isinstance(selection, str):
        return empty_view("weights_by_layer", title, selection, columns)
    _, mix, name = selection
    sides = _sides(mix.keys_by_layer, mix.values_by_layer)
    drawing, labels, top = _frame(mix, len(sides))
    layers = mix.keys_by_layer.shape[1]
    for index, (_, weights) in enumerate(sides):
        texts = [""] * layers
        _heatmap(
            drawing, index, _rows(weights, top), np.arange(layers, dtype=np.int32), labels, texts, sides,
            "layer %{x}",
        )  # fmt: skip
    ticks = {"title": "layer", "dtick": 1 if layers <= 16 else None}
    drawing.update_layout(xaxis=ticks, xaxis2=ticks)
    spread = max(float(np.ptp(weights, axis=1).max()) for _, weights in sides)
    finding = (
        f"In {span_words(record, name)} an anchor has one weight for all layers, as this weighing defines it."
        if spread <= SAME
        else f"In {span_words(record, name)} an anchor’s weight moves by up to {number(spread, 2)} between "
        "layers."
    )
    how = "Each column is a layer and adds up to 1; means over tokens, heads and channels. " + _rows_note(mix)
    rows = tuple(
        (name, kind, anchor, layer, round(float(weights[row, layer]), 6))
        for kind, weights in sides
        for row, anchor in enumerate(mix.anchors)
        for layer in range(layers)
    )
    return FigureView("weights_by_layer", title, how, finding, drawing, columns, rows)


def varies(by_layer: FigureView) -> bool:
    """Whether any anchor's weight differs between layers; under most profiles none does."""
    weights: dict[tuple[Any, ...], set[float]] = {}
    for row in by_layer.rows:
        weights.setdefault(row[:3], set()).add(row[-1])
    return any(max(values) - min(values) > SAME for values in weights.values())


def _select(record: RunRecord, agent: int, method: str, span: str | None) -> tuple[Outcome, Mix, str] | str:
    """The outcome, the mix and the name of the segment to show, or why there is none."""
    outcome = record.outcome(agent, method)
    spans = {s.start: s for s in words.prompt_of(record, outcome).spans}
    mixes = [(m, spans[m.start]) for m in outcome.mixes if m.start in spans]
    if not mixes:
        any_refused = any(not g.shareable for g in outcome.gate)
        return (
            "The gate refused a text of this prompt, so nothing was mixed; the bars above show what would "
            "have weighed."
            if any_refused
            else "No offsets were mixed for this prompt, or their weights were not kept."
        )
    matches = [(m, s) for m, s in mixes if s.name == span]
    if span is not None and not matches:
        return "No offsets were mixed for this segment. Choose another segment, or the whole prompt."
    usual = [(m, s) for m, s in mixes if s.kind == "placeholder"] or mixes
    mix, place = (matches or usual)[0]
    return outcome, mix, place.name


def _sides(keys: Floats, values: Floats) -> list[tuple[str, Floats]]:
    """Keys and values, or one entry for both if they are equal."""
    if np.allclose(keys, values, atol=SAME):
        return [("keys and values", keys)]
    return [("keys", keys), ("values", values)]


def _frame(mix: Mix, panels: int) -> tuple[go.Figure, list[str], NDArray[np.int64]]:
    """An empty figure, the rows' labels, and the anchors with a row of their own, heaviest first."""
    order = np.argsort(-mix.keys_by_token.mean(axis=1), kind="stable")
    top = order[: MAX_ROWS if len(order) > MAX_ROWS + 1 else len(order)]
    labels = [f"#{mix.anchors[i]}" for i in top]
    if len(top) < len(order):
        labels.append(f"{len(order) - len(top)} others")
    drawing = figure(150 + 20 * len(labels), margin={"t": 34, "r": 8})
    if panels > 1:
        two_panels(drawing)
    axis = {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": "", "title": "anchor"}
    drawing.update_layout(yaxis=axis, yaxis2=axis | {"title": ""} if panels > 1 else {})
    return drawing, labels, top


def _rows(weights: Floats, top: NDArray[np.int64]) -> Floats:
    """The top anchors' rows, and the sum of the others if there are any."""
    if len(top) == len(weights):
        return weights[top]
    others = np.setdiff1d(np.arange(len(weights)), top)
    return np.concatenate([weights[top], weights[others].sum(axis=0, keepdims=True)])


def _heatmap(
    drawing: go.Figure,
    index: int,
    weights: Floats,
    places: NDArray[np.int32],
    labels: list[str],
    texts: list[str],
    sides: list[tuple[str, Floats]],
    where: str,
) -> None:
    axis = "" if index == 0 else "2"
    drawing.add_heatmap(
        z=np.ascontiguousarray(weights, dtype=np.float32),
        x=places,
        y=labels,
        text=[texts] * len(labels),
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
        colorscale=MAGNITUDE,
        zmin=0,
        zmax=1,
        showscale=index == len(sides) - 1,
        colorbar=colour_bar("weight"),
        hovertemplate=f"anchor %{{y}}, {where}<br>weight %{{z:.3f}}<extra></extra>",
    )


def _rows_note(mix: Mix) -> str:
    if len(mix.anchors) <= MAX_ROWS + 1:
        return ""
    return f"The {MAX_ROWS} heaviest anchors have a row of their own; the CSV has all."
