"""Does nearness in embedding space predict nearness in KV and in offset space? (KVCOMM, Fig. 4 a to d)"""

from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from backend.records.proximity import BINS, Correlation, ProximityRecord
from viz.base.figure import FigureView, Panel, figure, interval
from viz.base.format import clip, number, plot_text, rounded, visible
from viz.base.html import html, table
from viz.base.subplots import band, layer_axes, layer_curve, two_panels
from viz.base.theme import METHOD_COLOURS, SLOT_COLOURS

BIN_COLOURS = (SLOT_COLOURS[5], SLOT_COLOURS[4], SLOT_COLOURS[1])
BIN_DASHES = ("solid", "dash", "dot")
EXAMPLES = 4  # pairs shown of each bin


def views(record: ProximityRecord) -> tuple[FigureView, ...]:
    """The four panels of the figure, the points that their coefficients sum up, and the bound."""
    return (
        distances(record, offsets=False),
        correlation(record, offsets=False),
        points(record, offsets=False),
        distances(record, offsets=True),
        correlation(record, offsets=True),
        points(record, offsets=True),
        bound(record),
    )


def _fields(offsets: bool) -> tuple[str, str]:
    return ("key_offsets", "value_offsets") if offsets else ("keys", "values")


def distances(record: ProximityRecord, *, offsets: bool) -> FigureView:
    """(a), (c): distances by layer, for near, mid and far pairs: mean and middle half."""
    topic = "offsets" if offsets else "KV"
    columns = ("pairs", "kind", "layer", "mean distance", "lower quartile", "upper quartile")
    drawing = figure(330)
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    layers = record.keys.shape[0]
    for axis, name in zip(("", "2"), _fields(offsets), strict=True):
        data: NDArray[np.float32] = getattr(record, name)
        for index, label in enumerate(BINS):
            part = data[:, record.bins == index]
            mean, low, high = part.mean(axis=1), *np.percentile(part, [25, 75], axis=1)
            band(drawing, axis, low, high, BIN_COLOURS[index], 0.15)
            layer_curve(
                drawing, axis, mean, f"{label} pairs", BIN_COLOURS[index], dash=BIN_DASHES[index], size=5
            )
            rows += [
                (label, name, layer, *(round(float(v[layer]), 6) for v in (mean, low, high)))
                for layer in range(layers)
            ]
    layer_axes(drawing, layers, "distance (L2)")
    data = getattr(record, _fields(offsets)[0])
    near, far = (float(data[-1, record.bins == index].mean()) for index in (0, 2))
    finding = (
        f"At the last layer the key {'offsets' if offsets else 'vectors'} of near pairs are "
        f"{number(near, 2)} apart, those of far pairs {number(far, 2)}."
    )
    how = (
        f"{len(record.embedding)} pairs of single tokens in thirds by the distance of their embeddings; "
        + (
            "the offset is what changes in a token’s KV when prefix A becomes prefix B. "
            if offsets
            else "both behind prefix A. "
        )
        + "Lines are means, bands the middle half."
    )
    title = "Do similar tokens need similar corrections?" if offsets else "Do similar tokens have similar KV?"
    return FigureView(f"proximity_{topic.lower()}", title, how, finding, drawing, columns, tuple(rows))


def _reading(correlation: Correlation, name: str) -> str:
    defined = ~np.isnan(correlation.rho)
    if not defined.any():
        return f"{name}: undefined at every layer"
    rho = correlation.rho[defined]
    return f"{name}: {number(float(rho.min()), 2)} to {number(float(rho.max()), 2)}"


def correlation(record: ProximityRecord, *, offsets: bool) -> FigureView:
    """(b), (d): Spearman's rank correlation by layer with its 95% interval."""
    columns = ("kind", "layer", "Spearman rho", "95% from", "95% to")
    drawing = figure(300)
    rows: list[tuple[Any, ...]] = []
    layers = record.keys.shape[0]
    readings = []
    for index, (name, label) in enumerate(zip(_fields(offsets), ("keys", "values"), strict=True)):
        coefficients = record.correlations[name]
        curves = (coefficients.rho, coefficients.low, coefficients.high)
        readings.append(_reading(coefficients, label))
        layer_curve(
            drawing, None, coefficients.rho, label, METHOD_COLOURS[(1, 6)[index]],
            dash=("solid", "dash")[index], symbol=("circle", "diamond")[index],
            error_y=interval(*curves),
        )  # fmt: skip
        rows += [(label, layer, *rounded(*(curve[layer] for curve in curves))) for layer in range(layers)]
    drawing.add_hline(y=0, line={"width": 1, "dash": "dot", "color": "#8b95a1"})
    drawing.update_layout(
        xaxis={"title": "layer", "range": [-0.3, layers - 0.7], "dtick": 1 if layers <= 16 else None},
        yaxis={"title": "Spearman’s rho", "range": [-1.05, 1.05]},
    )
    gaps = "" if not offsets else " Layer 0’s offsets are zero: there is nothing to correlate."
    finding = f"Correlation with embedding distance, {'; '.join(readings)}.{gaps}"
    how = (
        "1: the order of the distances is exactly the order of the embedding distances; 0: no relation. "
        "Bars are 95% intervals."
    )
    title = (
        "Does embedding distance predict the distance of offsets?"
        if offsets
        else "Does embedding distance predict the distance of KV?"
    )
    key = "spearman_offsets" if offsets else "spearman_kv"
    return FigureView(key, title, how, finding, drawing, columns, tuple(rows))


def points(record: ProximityRecord, *, offsets: bool) -> FigureView:
    """The last layer's pairs, one point each: what the correlation there sums up."""
    topic = "offsets" if offsets else "KV"
    drawing = figure(330)
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    readings = []
    names = [" / ".join(clip(visible(t), 16) for t in pair) for pair in record.texts]
    for axis, name, kind in zip(("", "2"), _fields(offsets), ("keys", "values"), strict=True):
        last: NDArray[np.float32] = getattr(record, name)[-1]
        for index, label in enumerate(BINS):
            chosen = np.flatnonzero(record.bins == index)
            drawing.add_scatter(
                x=record.embedding[chosen],
                y=last[chosen],
                mode="markers",
                name=f"{label} pairs",
                marker={"color": BIN_COLOURS[index], "size": 5, "opacity": 0.6},
                legendgroup=label,
                showlegend=axis == "",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                customdata=[plot_text(names[i]) for i in chosen],
                hovertemplate="%{customdata}<br>embeddings %{x:.3f}, here %{y:.3f} apart<extra></extra>",
            )
        rho = float(record.correlations[name].rho[-1])
        readings.append(f"{kind} {number(rho, 2)}")
        rows += [
            (kind, names[i], round(float(record.embedding[i]), 6), round(float(last[i]), 6))
            for i in range(len(last))
        ]
    x = {"title": "distance of embeddings (L2)"}
    drawing.update_layout(xaxis=x, xaxis2=x, yaxis={"title": f"distance of {topic} (L2)"})
    columns = ("kind", "pair", "distance of embeddings (L2)", f"distance of {topic} (L2)")
    finding = f"Spearman’s rho of these points: {' and '.join(readings)}."
    how = "Each point is a pair of tokens at the last layer. A cloud without a slope is a rho near 0."
    title = f"Which points does that coefficient sum up ({topic}, last layer)?"
    return FigureView(f"proximity_points_{topic.lower()}", title, how, finding, drawing, columns, tuple(rows))


def bound(record: ProximityRecord) -> FigureView:
    """Proposition 1's right side beside what was measured."""
    columns = ("layer", "mean distance of keys", "mean bound", "bound over distance")
    layers = record.keys.shape[0]
    distance, limit = record.keys.mean(axis=1), record.bound.mean(axis=1)
    drawing = figure(300)
    for index, (values, label) in enumerate(((distance, "measured"), (limit, "bound of Proposition 1"))):
        layer_curve(
            drawing, None, values, label, METHOD_COLOURS[(1, 0)[index]], dash=("solid", "dash")[index], size=5
        )
    drawing.update_layout(
        xaxis={"title": "layer", "dtick": 1 if layers <= 16 else None},
        yaxis={"title": "distance of keys (L2, log scale)", "type": "log"},
    )
    ratio = limit / np.maximum(distance, 1e-12)
    rows = tuple(
        (i, round(float(distance[i]), 6), round(float(limit[i]), 6), round(float(ratio[i]), 4))
        for i in range(layers)
    )
    finding = f"At the last layer the bound lies {number(float(ratio[-1]), 2)} times above the mean distance."
    how = (
        "The bound’s constants are the smallest that hold on these pairs, so it holds by construction; the "
        "gap says how little the inequality alone can promise."
    )
    title = "How tight is the paper’s bound?"
    return FigureView("proximity_bound", title, how, finding, drawing, columns, rows)


def examples(record: ProximityRecord) -> Panel:
    """A few pairs of every bin as text, with their distances."""
    rows = []
    for index, label in enumerate(BINS):
        members = np.flatnonzero(record.bins == index)
        for pair in members[np.unique(np.linspace(0, len(members) - 1, EXAMPLES).round().astype(int))]:
            distances = (record.embedding[pair], record.keys[-1, pair], record.key_offsets[-1, pair])
            tokens = map(_token, record.texts[pair], record.tokens[pair])
            rows.append((label, *tokens, *(number(float(value)) for value in distances)))
    heads = ("bin", "token", "token", "embeddings apart", "keys apart", "key offsets apart")
    how = (
        "Keys and offsets at the last layer; the number beside a token is its id. ␣ is a space, ↵ a line "
        "end, \\u00a0 a character without a shape, \ufffd a byte of a longer character."
    )
    body = table(heads, [("", rows)], look="kv-pairs") + html('<p class="kv-how">{}</p>', how)
    return Panel("proximity_pairs", "Which tokens were paired?", body)


def _token(text: str, token: np.int64) -> Markup:
    """A token's text, nothing of it hidden, and its id."""
    shown = clip(visible(text), 32) or "(nothing)"
    return html('<q class="kv-token">{}</q> <span class="kv-note">{}</span>', shown, int(token))
