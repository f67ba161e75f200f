"""What the context adds to a text's KV, and how well that is estimated (KVCOMM, Fig. 1, A.4 to A.12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from numpy.typing import NDArray

from backend.records.offsets import APPROXIMATIONS, KINDS, PARTS, OffsetStudy
from viz.base.figure import FigureView, empty_view, figure
from viz.base.format import GAP, agent_name, clip, number, percent, plot_text, visible
from viz.base.html import render
from viz.base.subplots import layer_axes, two_panels
from viz.base.theme import MAGNITUDE, METHOD_COLOURS, OUTLINE_COLOUR, SLOT_COLOURS

Array = NDArray[np.floating[Any]]

CHOSEN, SIMILAR = SLOT_COLOURS[4], SLOT_COLOURS[3]
PART_WORDS = ("shared texts", "template text")
PART_COLOURS = (SLOT_COLOURS[4], SLOT_COLOURS[0])
QUANTILES = (5, 25, 50, 75, 95)
MOST_NAMED = 40  # tokens written under an axis
#: The two copies, the estimates, the profiles, the ceiling: (colour, dash, symbol).
LOOKS = {
    "plain": (OUTLINE_COLOUR, "dot", "x"),
    "moved": (METHOD_COLOURS[1], "solid", "diamond"),
    "nearest": (METHOD_COLOURS[3], "dot", "triangle-up"),
    "cosine": (METHOD_COLOURS[4], "dashdot", "cross"),
    "softmax": (METHOD_COLOURS[2], "solid", "square"),
    "uniform": (METHOD_COLOURS[5], "longdash", "circle"),
    "shipped": (METHOD_COLOURS[6], "dash", "star"),
    "corrected": (SLOT_COLOURS[2], "solid", "hexagon"),
    "oracle": (OUTLINE_COLOUR, "dash", "circle-open"),
}


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


def valid_focus(record: OffsetStudy, wish: Focus) -> Focus:
    """A focus that this record can show."""
    agents = record.approximated.agents if record.approximated else ()
    return Focus(
        wish.token if 0 <= wish.token < len(record.tokens) else usual_token(record),
        wish.prefix if wish.prefix is not None and 0 <= wish.prefix < len(record.prefix_tokens) else None,
        wish.agent if wish.agent in agents else None,
        wish.part if wish.part in range(len(PARTS)) else 0,
    )


def views(record: OffsetStudy, focus: Focus) -> tuple[FigureView, ...]:
    """Every figure of the study."""
    focus = valid_focus(record, focus)
    return (
        by_layer(record, focus),
        similar_tokens(record, focus),
        token_map(record, focus),
        head_map(record, focus),
        distributions(record, focus),
        approximated(record, focus, "cosine"),
        approximated(record, focus, "cache_cosine"),
        approximated(record, focus, "error"),
    )


def token_text(record: OffsetStudy, token: int) -> str:
    """A token of the segment for a person."""
    return clip(visible(record.texts[token]), 24) or "(nothing)"


def _whole(heads: Array) -> Array:
    """Norms over all heads from norms per head: (..., kv_heads, tokens) to (..., tokens)."""
    return np.asarray(np.sqrt(np.square(heads.astype(np.float64)).sum(axis=-2)))


def _line(
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


def _band(drawing: go.Figure, axis: str, middle: Array, half: Array, colour: str) -> None:
    x = np.arange(len(middle))
    drawing.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([middle + half, np.maximum(0, middle - half)[::-1]]).astype(np.float32),
        mode="lines",
        fill="toself",
        fillcolor=colour,
        opacity=0.18,
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
    )


def by_layer(record: OffsetStudy, focus: Focus) -> FigureView:
    """Fig. 1a: mean and spread of the offset over the prefixes."""
    columns = ("text", "kind", "layer", "mean offset (L2)", "standard deviation", "share of its KV")
    drawing = figure(330)
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    spread: dict[str, float] = {}
    layers = record.keys.shape[1]
    name = f"“{token_text(record, focus.token)}”, token {focus.token}"
    for axis, kind, norm in zip(("", "2"), KINDS, (record.key_norm, record.value_norm), strict=True):
        offset, own = _whole(getattr(record, kind)), _whole(norm)  # (prefixes, layers, tokens), (layers, ...)
        for label, one, length, colour, dash in (
            (name, offset[:, :, focus.token], own[:, focus.token], CHOSEN, "solid"),
            ("mean of the whole text", offset.mean(axis=2), own.mean(axis=1), OUTLINE_COLOUR, "dash"),
        ):
            middle, half = one.mean(axis=0), one.std(axis=0)
            _band(drawing, axis, middle, half, colour)
            _line(drawing, axis, middle, label, colour, dash)
            rows += [
                (label, kind, layer, *_rounded(middle[layer], half[layer], middle[layer] / length[layer]))
                for layer in range(layers)
            ]
            if colour == CHOSEN:
                spread[kind] = float(half[-1] / max(middle[-1], 1e-12))
                last = (float(middle[-1]), float(middle[-1] / length[-1]))
                spread[f"{kind} last"], spread[f"{kind} share"] = last
    layer_axes(drawing, layers, "offset (L2)")
    finding = (
        f"At the last layer the context moves the keys of {name} by {number(spread['keys last'], 2)} "
        f"({percent(spread['keys share'], 1)} of their length), give or take "
        f"{percent(spread['keys'], 1)} from prefix to prefix; its values by "
        f"{number(spread['values last'], 2)}, give or take {percent(spread['values'], 1)}."
    )
    how = (
        f"Length of (KV behind a prefix minus KV behind nothing), keys turned back to one position; lines "
        f"are means over {len(record.prefix_tokens)} prefixes, bands one standard deviation. Layer 0 reads "
        "the token alone, so its offset is zero."
    )
    title = "Does the same token need the same correction behind every prefix?"
    return FigureView("study_by_layer", title, how, finding, drawing, columns, tuple(rows))


def similar_tokens(record: OffsetStudy, focus: Focus) -> FigureView:
    """Fig. 1b: a token and the one most like it, with and without position alignment."""
    columns = ("token", "kind", "layer", "mean offset (L2)", "standard deviation")
    drawing = figure(330)
    two_panels(drawing)
    token, twins = focus.token, record.twins
    texts = (token_text(record, token), clip(visible(twins.texts[token]), 24) or "(nothing)")
    rows: list[tuple[Any, ...]] = []
    layers = record.keys.shape[1]
    last: dict[tuple[str, int], float] = {}
    for kind, axis, label, dash in (
        ("keys", "", "", "solid"),
        ("unmoved", "", ", not aligned", "dot"),
        ("values", "2", "", "solid"),
    ):
        own = _whole(getattr(record, kind))[:, :, token]
        for index, one in enumerate((own, getattr(twins, kind)[:, :, token].astype(np.float64))):
            name = f"“{texts[index]}”{label}"
            _line(
                drawing, axis, one.mean(axis=0), name, (CHOSEN, SIMILAR)[index], dash,
                symbol=("circle", "diamond")[index],
            )  # fmt: skip
            what = {"keys": "keys, aligned", "unmoved": "keys, not aligned"}.get(kind, kind)
            middle, half = one.mean(axis=0), one.std(axis=0)
            rows += [
                (texts[index], what, layer, *_rounded(middle[layer], half[layer])) for layer in range(layers)
            ]
            last[kind, index] = float(middle.mean())
    layer_axes(drawing, layers, "offset (L2)")
    ratio = last["unmoved", 0] / max(last["keys", 0], 1e-12)
    finding = (
        f"Over all layers the keys of “{texts[0]}” move by {number(last['keys', 0], 2)} and those of "
        f"“{texts[1]}” by {number(last['keys', 1], 2)}; without turning them back to one position the first "
        f"would seem to move {number(ratio, 2)} times as far."
    )
    how = (
        f"“{texts[1]}” is the token whose embedding is nearest ({number(float(twins.distance[token]), 2)} "
        "apart), read in the same place with all before it unchanged; means over the prefixes. Dotted: keys "
        "as they lie, with the change of position left in."
    )
    title = "Do similar tokens need similar corrections?"
    return FigureView("study_similar", title, how, finding, drawing, columns, tuple(rows))


def _of_prefix(data: Array, focus: Focus) -> Array:
    """One prefix, or the mean of all: (prefixes, ...) to (...)."""
    return np.asarray(data.mean(axis=0) if focus.prefix is None else data[focus.prefix], dtype=np.float64)


def _behind(focus: Focus) -> str:
    return "mean over the prefixes" if focus.prefix is None else f"behind prefix {focus.prefix + 1}"


def _scale(peak: float) -> dict[str, Any]:
    return {
        "colorscale": MAGNITUDE,
        "cmin": 0,
        "cmax": peak or 1,
        "colorbar": {
            "title": {"text": "offset<br>(L2)", "font": {"size": 11}},
            "thickness": 10,
            "len": 1,
            "tickfont": {"size": 11},
            "outlinewidth": 0,
            "x": 1.01,
        },
    }


def token_map(record: OffsetStudy, focus: Focus) -> FigureView:
    """Token x layer, keys above values, on one scale."""
    columns = ("kind", "layer", "token", "text", "offset (L2)")
    maps = [_of_prefix(_whole(getattr(record, kind)), focus) for kind in KINDS]
    layers, tokens = maps[0].shape
    side = min(260, 26 * layers)
    drawing = figure(120 + 2 * side, margin={"t": 30, "r": 8})
    names = [token_text(record, i) for i in range(tokens)]
    rows: list[tuple[Any, ...]] = []
    for axis, kind, data in zip(("", "2"), KINDS, maps, strict=True):
        drawing.add_heatmap(
            z=np.ascontiguousarray(data, dtype=np.float32),
            x=np.arange(tokens, dtype=np.int32),
            y=np.arange(layers, dtype=np.int32),
            coloraxis="coloraxis",
            name=kind,
            yaxis=f"y{axis}",
            hovertemplate=f"token %{{x}}, layer %{{y}}<br>{kind} move by %{{z:.3f}}<extra></extra>",
        )
        rows += [
            (kind, layer, token, record.texts[token], *_rounded(data[layer, token]))
            for layer in range(layers)
            for token in range(tokens)
        ]
    step = 1 if layers <= 12 else None
    drawing.update_layout(
        coloraxis=_scale(max(float(data.max()) for data in maps)),
        xaxis={"title": {"text": "token of the text"}, "showgrid": False, "anchor": "y2"},
        yaxis={"title": {"text": "layer (keys)"}, "domain": [0.54, 1], "dtick": step, "showgrid": False},
        yaxis2={"title": {"text": "layer (values)"}, "domain": [0, 0.46], "dtick": step, "showgrid": False},
    )
    if tokens <= MOST_NAMED:
        drawing.update_layout(
            xaxis={
                "tickmode": "array",
                "tickvals": list(range(tokens)),
                "ticktext": [plot_text(name) for name in names],
                "tickangle": -60,
            }
        )
    for axis in ("y domain", "y2 domain"):
        drawing.add_shape(
            type="rect", x0=focus.token - 0.5, x1=focus.token + 0.5, y0=0, y1=1, yref=axis,
            line={"color": "#ffffff", "width": 2},
        )  # fmt: skip
    worst = [np.unravel_index(int(data.argmax()), data.shape) for data in maps]
    finding = " ".join(
        f"The {kind} that move most are those of “{names[token]}” (token {token}) at layer {layer}: by "
        f"{number(float(data[layer, token]), 2)}."
        for kind, data, (layer, token) in zip(KINDS, maps, worst, strict=True)
    )
    how = (
        f"Bright: far from the KV behind nothing; {_behind(focus)}. Keys and values share one scale. Click a "
        "token to look at it in every figure; the white frame is the chosen one."
    )
    title = "Which tokens does the context change?"
    return FigureView("study_tokens", title, how, finding, drawing, columns, tuple(rows))


def head_map(record: OffsetStudy, focus: Focus) -> FigureView:
    """Head x layer for the chosen token, keys beside values, on one scale."""
    columns = ("kind", "layer", "head", "offset (L2)", "mean of the whole text (L2)")
    name = f"“{token_text(record, focus.token)}” (token {focus.token})"
    every = [_of_prefix(getattr(record, kind), focus) for kind in KINDS]  # (layers, kv_heads, tokens)
    maps = [data[:, :, focus.token] for data in every]
    layers, heads = maps[0].shape
    drawing = figure(130 + min(300, 26 * heads))
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    for axis, kind, data, whole in zip(("", "2"), KINDS, maps, every, strict=True):
        drawing.add_heatmap(
            z=np.ascontiguousarray(data.T, dtype=np.float32),
            x=np.arange(layers, dtype=np.int32),
            y=np.arange(heads, dtype=np.int32),
            coloraxis="coloraxis",
            name=kind,
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            hovertemplate=f"layer %{{x}}, head %{{y}}<br>{kind} move by %{{z:.3f}}<extra></extra>",
        )
        rows += [
            (kind, layer, head, *_rounded(data[layer, head], whole[layer, head].mean()))
            for layer in range(layers)
            for head in range(heads)
        ]
    ticks = {"title": {"text": "layer"}, "dtick": 1 if layers <= 16 else None, "showgrid": False}
    drawing.update_layout(
        coloraxis=_scale(max(float(data.max()) for data in maps)),
        xaxis=ticks,
        xaxis2=ticks,
        yaxis={"title": {"text": "KV head"}, "dtick": 1 if heads <= 16 else None, "showgrid": False},
        yaxis2={"showgrid": False},
    )
    share = [float(np.square(data).max() / max(np.square(data).sum(), 1e-12)) for data in maps]
    worst = [np.unravel_index(int(data.argmax()), data.shape) for data in maps]
    finding = " ".join(
        f"Of all that moves in the {kind} of {name}, head {head} at layer {layer} holds "
        f"{percent(part, 1)} (evenly: {percent(1, layers * heads)})."
        for kind, part, (layer, head) in zip(KINDS, share, worst, strict=True)
    )
    how = f"Length of the offset of each KV head at each layer, {_behind(focus)}; one scale for both panels."
    title = "Which heads does the context change?"
    return FigureView("study_heads", title, how, finding, drawing, columns, tuple(rows))


def distributions(record: OffsetStudy, focus: Focus) -> FigureView:
    """Fig. A.4 to A.11: offsets of shared texts against those of the template text behind them."""
    title = "Is template text changed more than the texts in its holes?"
    columns = (
        "text", "kind", "layer", "tokens", *(f"{q}% quantile" for q in QUANTILES), "mean offset (L2)",
        "standard deviation between requests",
    )  # fmt: skip
    samples = record.samples
    if samples is None:
        return empty_view("study_distributions", title, _no_requests(), columns)
    drawing = figure(340, boxmode="group")
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    layers = samples.keys.shape[0]
    told: dict[tuple[str, int], tuple[float, float]] = {}
    for part, label in enumerate(PART_WORDS):
        mine = samples.part == part
        if focus.agent is not None:
            mine = mine & (samples.agent == focus.agent)
        if not mine.any():
            continue
        number_of, every = samples.sample[mine], np.unique(samples.sample[mine])
        for axis, kind in zip(("", "2"), KINDS, strict=True):
            data = getattr(samples, kind)[:, mine].astype(np.float64)
            low, first, middle, third, high = np.percentile(data, QUANTILES, axis=1)
            means = np.stack([data[:, number_of == i].mean(axis=1) for i in every])
            drawing.add_box(
                x=np.arange(layers),
                lowerfence=low,
                q1=first,
                median=middle,
                q3=third,
                upperfence=high,
                mean=data.mean(axis=1),
                name=label,
                legendgroup=label,
                offsetgroup=label,
                showlegend=axis == "",
                line={"color": PART_COLOURS[part], "width": 1.6},
                fillcolor=f"{PART_COLOURS[part]}{('22', '66')[part]}",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
            )
            between = means.std(axis=0)
            told[kind, part] = (float(data[-1].mean()), float(between[-1] / max(data[-1].mean(), 1e-12)))
            rows += [
                (label, kind, layer, int(mine.sum()),
                 *_rounded(*(q[layer] for q in (low, first, middle, third, high))),
                 *_rounded(data[layer].mean(), between[layer]))
                for layer in range(layers)
            ]  # fmt: skip
    layer_axes(drawing, layers, "offset (L2)")
    drawing.update_layout(xaxis={"range": [-0.6, layers - 0.4]}, xaxis2={"range": [-0.6, layers - 0.4]})
    finding = " ".join(
        f"At the last layer the {kind} of {PART_WORDS[1]} move by {number(told[kind, 1][0], 2)}, of "
        f"{PART_WORDS[0]} by {number(told[kind, 0][0], 2)}; from request to request these means vary by "
        f"{percent(told[kind, 1][1], 1)} and {percent(told[kind, 0][1], 1)}."
        for kind in KINDS
        if (kind, 1) in told and (kind, 0) in told
    )
    how = (
        f"Every token of {len(np.unique(samples.sample))} requests, {_who(record, focus)}: boxes hold the "
        "middle half, whiskers 5 to 95%. Offsets are relative to the base that would be copied."
    )
    if not rows:
        return empty_view("study_distributions", title, "This agent reads no shared text.", columns)
    return FigureView(
        "study_distributions", title, how, finding or "One of the two kinds of text does not occur here.",
        drawing, columns, tuple(rows),
    )  # fmt: skip


QUESTIONS = {
    "cosine": ("Does the estimated correction point the right way?", "cosine similarity of the offsets"),
    "cache_cosine": ("How like the real cache is the corrected one?", "cosine similarity of the KV"),
    "error": ("How much error does each estimate leave?", "error (L2)"),
}


def approximated(record: OffsetStudy, focus: Focus, which: str) -> FigureView:
    """Fig. A.12: estimated against real, by layer: ``cosine``, ``cache_cosine`` or ``error``."""
    title, unit = QUESTIONS[which]
    columns = ("estimate", "agent", "text", "kind", "layer", unit, "real offset (L2)", "tokens")
    found = record.approximated
    key = f"study_{which}"
    if found is None:
        return empty_view(key, title, _no_requests(), columns)
    part = focus.part
    chosen = [i for i, agent in enumerate(found.agents) if focus.agent in (None, agent)]
    weight = found.tokens[chosen, part].astype(np.float64)
    if not weight.sum():
        why = "No sample here has an anchor that is at least as long, so nothing can be estimated."
        return empty_view(key, title, why, columns)
    data = getattr(found, which)[:, chosen, part]  # (rows, agents, kinds, layers)
    mean = _mean(data, weight)
    real = _mean(found.offset[None][:, chosen, part], weight)[0]
    layers = data.shape[-1]
    drawing = figure(380)
    two_panels(drawing)
    for index, name in enumerate(found.names):
        colour, dash, symbol = LOOKS.get(name, (OUTLINE_COLOUR, "solid", "circle"))
        hidden = which == "error" and name == "plain"
        for kind, axis in enumerate(("", "2")):
            _line(
                drawing, axis, mean[index, kind], APPROXIMATIONS.get(name, name), colour, dash,
                symbol=symbol, visible="legendonly" if hidden else True,
            )  # fmt: skip
    layer_axes(drawing, layers, unit)
    drawing.update_layout(margin={"t": 96}, legend={"y": 1.16})
    if which != "error":
        drawing.update_layout(yaxis={"rangemode": "normal"})
    rows = [
        (APPROXIMATIONS.get(name, name), agent, PART_WORDS[part], kind, layer,
         *_rounded(getattr(found, which)[i, a, part, k, layer], found.offset[a, part, k, layer]),
         int(found.tokens[a, part]))
        for i, name in enumerate(found.names)
        for a, agent in enumerate(found.agents)
        if a in chosen
        for k, kind in enumerate(KINDS)
        for layer in range(layers)
    ]  # fmt: skip
    return FigureView(
        key, title, _how(record, focus, which), _ranking(found.names, mean, real, which), drawing, columns,
        tuple(rows),
    )  # fmt: skip


def _ranking(names: tuple[str, ...], mean: Array, real: Array, which: str) -> str:
    """Every estimate from best to worst, keys and values together, over the layers that have an offset."""
    if mean.shape[-1] < 2:
        return "A model of one layer has no offsets: its keys and values depend on the token alone."
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = real if which == "error" else np.ones_like(real)
        share = (mean / scale)[:, :, 1:].reshape(len(names), -1)
        score = np.nansum(share, axis=1) / (~np.isnan(share)).sum(axis=1)
    known = {
        name: float(value)
        for name, value in zip(names, score, strict=True)
        if name not in ("plain", "oracle") and not np.isnan(value)
    }
    order = sorted(known, key=lambda name: known[name] if which == "error" else -known[name])
    if which == "error":
        said = ", ".join(f"{APPROXIMATIONS.get(n, n)} {100 * known[n]:.0f}{GAP}%" for n in order)
        return f"What is left of the true offset, from best to worst: {said}."
    said = ", ".join(f"{APPROXIMATIONS.get(n, n)} {number(known[n], 2)}" for n in order)
    return f"From best to worst, over all layers but the first: {said}."


def _how(record: OffsetStudy, focus: Focus, which: str) -> str:
    found = record.approximated
    assert found is not None
    here = [i for i, agent in enumerate(found.agents) if focus.agent in (None, agent)]
    compared, left = (int(x[here, focus.part].sum()) for x in (found.tokens, found.unmatched))
    aid = {
        "cosine": "1: the estimate points exactly where the real offset does; 0: no relation or no estimate.",
        "cache_cosine": "1: the corrected cache points exactly where dense’s does.",
        "error": "0: the estimate is exact; an estimate above “copied and moved” is worse than none.",
    }[which]
    return (
        f"{aid} Each request is estimated from the {len(record.request.values) - 1} others, whatever the "
        f"gate would say; {PART_WORDS[focus.part]}, {_who(record, focus)}: {compared:,} tokens"
        + (f", {left:,} more had no anchor as long." if left else ".")
    )


def _mean(data: Array, weight: Array) -> Array:
    """Mean over agents (axis 1) by their tokens; NaN only where every agent has none."""
    weights = np.where(np.isnan(data), 0.0, weight[None, :, None, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((np.nan_to_num(data) * weights).sum(axis=1) / weights.sum(axis=1))


def _who(record: OffsetStudy, focus: Focus) -> str:
    if focus.agent is None or record.request.pipeline is None:
        return "all agents"
    return agent_name(record.request.pipeline, focus.agent)


def _no_requests() -> str:
    return "No requests were sent through the scenario. Ask for two or more and measure again."


def _rounded(*values: Any) -> tuple[float | str, ...]:
    return tuple("" if np.isnan(v) else round(float(v), 6) for v in values)


def tokens_html(record: OffsetStudy, focus: Focus) -> Markup:
    """The segment's tokens as buttons (``data-pick``), the darker the more the context changes them."""
    focus = valid_focus(record, focus)
    keys, values = (_of_prefix(_whole(getattr(record, kind)), focus).mean(axis=0) for kind in KINDS)
    heat = (keys + values) / max(float(np.max(keys + values)), 1e-12)
    return render(
        "studies/offset_tokens.html",
        tokens=zip(record.texts, keys.tolist(), values.tolist(), heat.tolist(), strict=True),
        chosen=focus.token,
    )
