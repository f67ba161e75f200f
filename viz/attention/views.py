"""A generated token's attention to the template, the question and each slot, beside dense.

The judge study's Fig. 3 and 8. A query's attention sums to one over everything before it. The figures show
where a verdict came from, not whether it is right.
"""

from typing import Any

import numpy as np

from backend.records.run import AttentionProbe, RunRecord
from viz.attention.maps import head_map, token_difference, token_map
from viz.attention.regions import QUERIES, absent, mass_of, probes, regions
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure, hatch
from viz.base.format import number, plot_text
from viz.base.theme import MethodStyle

PATTERNS = ("", "/", "\\", "x", "-", "|", "+")


def views(record: RunRecord, agent: int, method: str, span: str | None = None) -> tuple[FigureView, ...]:
    """All figures of an agent, for each token that was measured."""
    queries = [query for query in QUERIES if probes(record, agent, query)]
    out = [(mass_by_slot(record, agent, q), *_detail_views(record, agent, method, q, span)) for q in queries]
    return tuple(view for group in out for view in group) or (mass_by_slot(record, agent, "first"),)


def slot_views(record: RunRecord, agent: int) -> tuple[FigureView, ...]:
    """The coarse figures: attention to each region."""
    queries = [query for query in QUERIES if probes(record, agent, query)]
    return tuple(mass_by_slot(record, agent, query) for query in queries or ["first"])


def closer_views(record: RunRecord, agent: int, method: str) -> tuple[FigureView, ...]:
    """The detailed figures: by layer, by head and by token."""
    queries = [query for query in QUERIES if probes(record, agent, query)]
    return tuple(view for query in queries for view in _detail_views(record, agent, method, query))


def _detail_views(
    record: RunRecord, agent: int, method: str, query: str, span: str | None = None
) -> tuple[FigureView, ...]:
    return (
        mass_by_layer(record, agent, query),
        head_map(record, agent, method, query, span),
        token_map(record, agent, method, query),
        token_difference(record, agent, query),
    )


def _token(probed: dict[str, AttentionProbe], looks: dict[str, MethodStyle]) -> str:
    """The token that each method generated, in words; empty if all are equal."""
    texts = {p.token for p in probed.values()}
    if len(texts) < 2:
        return ""
    quotes = [f"“{words.token_name(p.token).strip()}” under {looks[m].name}" for m, p in probed.items()]
    return f" The token is {words.listing(quotes)}."


def mass_by_slot(record: RunRecord, agent: int, query: str) -> FigureView:
    """Attention to each region, mean over layers and heads (judge study, Fig. 3)."""
    key, title = f"attention_slots_{query}", f"{QUERIES[query]}: what was it read off?"
    columns = ("method", "token", "region", "attention (share, mean over layers and heads)")
    probed, looks = probes(record, agent, query), words.styles(record)
    if not probed:
        return empty_view(key, title, absent(record), columns)
    drawing = figure(300, barmode="group", bargap=0.25)
    rows: list[tuple[Any, ...]] = []
    for place, (label, probe) in enumerate(probed.items()):
        look, parts = looks[label], regions(record, probe)
        shares = [float(mass_of(probe, part).mean()) for part in parts]
        drawing.add_bar(
            x=[plot_text(part.name) for part in parts],
            y=shares,
            name=plot_text(look.name),
            marker={"color": look.colour, "pattern": hatch(PATTERNS[place % len(PATTERNS)])},
            hovertemplate=f"{plot_text(look.name)}<br>%{{x}}: %{{y:.3f}}<extra></extra>",
        )
        rows += [
            (label, probe.token, part.name, round(share, 6))
            for part, share in zip(parts, shares, strict=True)
        ]
    drawing.update_layout(
        xaxis={"showgrid": False}, yaxis={"title": "attention (share)", "rangemode": "tozero"}
    )
    how = (
        "One bar per method; the bars of a method sum to 1. It is the query that generates the token which "
        "looks; the first tokens of a prompt get much attention whatever they say."
    )
    finding = _largest_shift(record, probed, looks) + _token(probed, looks)
    return FigureView(key, title, how, finding, drawing, columns, tuple(rows))


def _largest_shift(
    record: RunRecord, probed: dict[str, AttentionProbe], looks: dict[str, MethodStyle]
) -> str:
    dense = probed.get(words.dense_label(record))
    if dense is None:
        return "The full read was not measured, so there is nothing to compare with."
    shares = {part.name: float(mass_of(dense, part).mean()) for part in regions(record, dense) if part.slot}
    shifts = [
        (float(mass_of(probe, part).mean()) - shares[part.name], part.name, label)
        for label, probe in probed.items()
        if probe is not dense
        for part in regions(record, probe)
        if part.name in shares
    ]
    if not shifts:
        most = max(shares, key=shares.__getitem__) if shares else ""
        return (
            f"The full read gives most to {most}: {number(shares[most], 2)}." if most else "There is no slot."
        )
    change, name, label = max(shifts, key=lambda s: abs(s[0]))
    if abs(change) < 5e-7:
        return "Every method looks at the slots as the full read does."
    verb = "more" if change > 0 else "less"
    return (
        f"The largest change in a slot: {looks[label].name} gives {name} {number(abs(change), 2)} {verb} "
        f"than the full read’s {number(shares[name], 2)}."
    )


def mass_by_layer(record: RunRecord, agent: int, query: str) -> FigureView:
    """The same by layer, a panel per region."""
    key = f"attention_layers_{query}"
    title = f"{QUERIES[query]}: which layers look elsewhere?"
    columns = ("method", "region", "layer", "attention (share)", "lowest head", "highest head")
    probed, looks = probes(record, agent, query), words.styles(record)
    if not probed:
        return empty_view(key, title, absent(record), columns)
    names = list(dict.fromkeys(part.name for probe in probed.values() for part in regions(record, probe)))
    across = min(4 if len(names) > 6 else 3, len(names))
    down = -(-len(names) // across)
    drawing = figure(90 + 140 * down, margin={"t": 64})
    drawing.set_subplots(
        down, across, subplot_titles=[plot_text(n) for n in names],
        horizontal_spacing=0.07, vertical_spacing=0.44 / down if down > 1 else 0,
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    largest: tuple[float, str, int, str] = (0.0, "", 0, "")
    dense = probed.get(words.dense_label(record))
    means = {} if dense is None else {p.name: mass_of(dense, p).mean(axis=1) for p in regions(record, dense)}
    for label, probe in probed.items():
        look = looks[label]
        for part in regions(record, probe):
            heads = mass_of(probe, part)
            mean, place = heads.mean(axis=1), names.index(part.name)
            low, high = heads.min(axis=1), heads.max(axis=1)
            drawing.add_scatter(
                x=np.arange(len(mean)), y=mean.astype(np.float32), mode="lines+markers",
                name=plot_text(look.name), legendgroup=label, showlegend=place == 0,
                line={"color": look.colour, "width": 2, "dash": look.dash},
                marker={"symbol": look.symbol, "size": 5},
                hovertemplate=f"{plot_text(look.name)}<br>layer %{{x}}: %{{y:.3f}}<extra></extra>",
                row=place // across + 1, col=place % across + 1,
            )  # fmt: skip
            rows += [
                (label, part.name, i, *(round(float(v), 6) for v in (mean[i], low[i], high[i])))
                for i in range(len(mean))
            ]
            if part.name in means and probe is not dense:
                change = mean - means[part.name]
                layer = int(np.abs(change).argmax())
                shift = (float(change[layer]), part.name, layer, label)
                largest = max(largest, shift, key=lambda x: abs(x[0]))
    drawing.update_xaxes(dtick=1 if len(rows) and max(r[2] for r in rows) < 16 else None)
    drawing.update_xaxes(title={"text": "layer"}, row=down)
    drawing.update_yaxes(rangemode="tozero")
    drawing.update_annotations(font={"size": 12})
    drawing.update_yaxes(title={"text": "attention (share)"}, col=1)
    drawing.update_layout(legend={"y": 1 + 34 / (90 + 170 * down)})
    finding = "No layer looks elsewhere than under the full read."
    if abs(largest[0]) > 5e-7:
        finding = (
            f"Most at layer {largest[2]} under {looks[largest[3]].name}: {largest[1]} gets "
            f"{number(abs(largest[0]), 2)} {'more' if largest[0] > 0 else 'less'} than under the full read."
        )
    how = (
        "One panel per region, each with its own scale. Lines are means over heads; the CSV has the lowest "
        "and the highest head as well."
    )
    return FigureView(key, title, how, finding, drawing, columns, tuple(rows))
