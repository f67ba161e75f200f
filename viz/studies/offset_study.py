"""Offsets of a text by token and by head (KVCOMM, Fig. 1)."""

from typing import Any

import numpy as np
from markupsafe import Markup

from backend.records.offsets import KINDS, OffsetStudy
from viz.base.figure import FigureView, colour_bar, figure
from viz.base.format import clip, number, percent, plot_text, rounded, visible
from viz.base.html import render
from viz.base.subplots import band, layer_axes, layer_curve, two_panels
from viz.base.theme import MAGNITUDE, OUTLINE_COLOUR, SLOT_COLOURS
from viz.studies.offset_focus import PART_WORDS, Array, Focus, valid_focus
from viz.studies.offset_samples import distributions, estimate_view

__all__ = ["PART_WORDS", "Focus", "tokens_html", "valid_focus", "views"]

CHOSEN, SIMILAR = SLOT_COLOURS[4], SLOT_COLOURS[3]
MOST_NAMED = 40  # tokens written under an axis


def views(record: OffsetStudy, focus: Focus) -> tuple[FigureView, ...]:
    """Every figure of the study."""
    focus = valid_focus(record, focus)
    return (
        by_layer(record, focus),
        similar_tokens(record, focus),
        token_map(record, focus),
        head_map(record, focus),
        distributions(record, focus),
        estimate_view(record, focus, "cosine"),
        estimate_view(record, focus, "cache_cosine"),
        estimate_view(record, focus, "error"),
    )


def token_text(record: OffsetStudy, token: int) -> str:
    """A token of the segment for a person."""
    return clip(visible(record.texts[token]), 24) or "(nothing)"


def _whole(heads: Array) -> Array:
    """Norms over all heads from norms per head: (..., kv_heads, tokens) to (..., tokens)."""
    return np.asarray(np.sqrt(np.square(heads.astype(np.float64)).sum(axis=-2)))


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
        offset, base = (
            _whole(getattr(record, kind)),
            _whole(norm),
        )  # (prefixes, layers, tokens), (layers, ...)
        for label, norms, length, colour, dash in (
            (name, offset[:, :, focus.token], base[:, focus.token], CHOSEN, "solid"),
            ("mean of the whole text", offset.mean(axis=2), base.mean(axis=1), OUTLINE_COLOUR, "dash"),
        ):
            middle, half = norms.mean(axis=0), norms.std(axis=0)
            band(drawing, axis, np.maximum(0, middle - half), middle + half, colour, 0.18)
            layer_curve(drawing, axis, middle, label, colour, dash=dash)
            rows += [
                (label, kind, layer, *rounded(middle[layer], half[layer], middle[layer] / length[layer]))
                for layer in range(layers)
            ]
            if colour == CHOSEN:
                spread[kind] = float(half[-1] / max(middle[-1], 1e-12))
                final = (float(middle[-1]), float(middle[-1] / length[-1]))
                spread[f"{kind} last"], spread[f"{kind} share"] = final
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
        sizes = _whole(getattr(record, kind))[:, :, token]
        for index, norms in enumerate((sizes, getattr(twins, kind)[:, :, token].astype(np.float64))):
            name = f"“{texts[index]}”{label}"
            layer_curve(
                drawing, axis, norms.mean(axis=0), name, (CHOSEN, SIMILAR)[index], dash=dash,
                symbol=("circle", "diamond")[index],
            )  # fmt: skip
            side = {"keys": "keys, aligned", "unmoved": "keys, not aligned"}.get(kind, kind)
            middle, half = norms.mean(axis=0), norms.std(axis=0)
            rows += [
                (texts[index], side, layer, *rounded(middle[layer], half[layer])) for layer in range(layers)
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
    return {"colorscale": MAGNITUDE, "cmin": 0, "cmax": peak or 1, "colorbar": colour_bar("offset<br>(L2)")}


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
            (kind, layer, token, record.texts[token], *rounded(data[layer, token]))
            for layer in range(layers)
            for token in range(tokens)
        ]
    step = 1 if layers <= 12 else None
    drawing.update_layout(
        coloraxis=_scale(max(float(data.max()) for data in maps)),
        xaxis={"title": "token of the text", "showgrid": False, "anchor": "y2"},
        yaxis={"title": "layer (keys)", "domain": [0.54, 1], "dtick": step, "showgrid": False},
        yaxis2={"title": "layer (values)", "domain": [0, 0.46], "dtick": step, "showgrid": False},
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
            (kind, layer, head, *rounded(data[layer, head], whole[layer, head].mean()))
            for layer in range(layers)
            for head in range(heads)
        ]
    ticks = {"title": "layer", "dtick": 1 if layers <= 16 else None, "showgrid": False}
    drawing.update_layout(
        coloraxis=_scale(max(float(data.max()) for data in maps)),
        xaxis=ticks,
        xaxis2=ticks,
        yaxis={"title": "KV head", "dtick": 1 if heads <= 16 else None, "showgrid": False},
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
