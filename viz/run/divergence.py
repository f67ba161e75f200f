"""How far predictions drift from dense's along dense's own answer."""

from typing import Any

import numpy as np

from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure
from viz.base.format import number, plot_text
from viz.base.subplots import curve

NEAR = 12  # marks closer than a 12th of the axis have labels that overlap


def kl_along_answer(record: RunRecord, agent: int) -> FigureView:
    """How far each method's next-token predictions are from dense's, along dense's own answer."""
    title = "Where along the answer do predictions drift?"
    columns = ("method", "token", "full read token", "KL (nats)")
    looks, dense = words.styles(record), words.dense_label(record)
    outcomes = [
        (o, o.fidelity)
        for o in (record.outcome(agent, m) for m in words.others(record))
        if o.fidelity is not None and o.fidelity.kl_tokens.size
    ]
    if not outcomes:
        reason = (
            "KL is defined only when every method reads the full read’s texts. Run pinned to see it."
            if record.request.mode == "free"
            else "KL was not measured in this run."
        )
        return empty_view("kl_along_answer", title, reason, columns)
    texts = record.outcome(agent, dense).texts
    floor = max(f.floor for _, f in outcomes)
    least = max(1e-9, min(1e-6, floor / 10 if floor > 0 else 1e-6))
    drawing = figure(320, margin={"t": 40})
    rows: list[tuple[Any, ...]] = []
    peak: tuple[float, int, str] = (0.0, 0, outcomes[0][0].method)
    rings: list[int] = []
    for outcome, fidelity in outcomes:
        look = looks[outcome.method]
        values = np.maximum(np.nan_to_num(fidelity.kl_tokens.astype(np.float64)), 0)
        steps = np.arange(1, len(values) + 1)
        names = [words.token_name(texts[i]) if i < len(texts) else "(end)" for i in range(len(values))]
        curve(
            drawing, steps, np.maximum(values, least).astype(np.float32), look.name, look.colour,
            dash=look.dash, symbol=look.symbol, width=1.8, customdata=[plot_text(n) for n in names],
            hover="token %{x} %{customdata}: %{y:.3g} nats",
        )  # fmt: skip
        first = fidelity.first_divergence
        if first is not None and first < len(values):
            # a label near another one is a line above it
            lines = sum(abs(first - other) <= len(values) / NEAR for other in rings)
            rings.append(first)
            drawing.add_scatter(
                x=[first + 1],
                y=[max(float(values[first]), least)],
                mode="markers+text",
                showlegend=False,
                marker={"symbol": "circle-open", "size": 15, "color": look.colour, "line": {"width": 2}},
                text=[
                    plot_text(
                        f"{words.token_name(fidelity.dense_token)} → "
                        f"{words.token_name(fidelity.method_token)}"
                    )
                    + "<br> " * lines
                ],
                textposition="top center",
                textfont={"size": 12},
                cliponaxis=False,
                hovertemplate=f"first token where {plot_text(look.name)} differs<extra></extra>",
            )
        token = int(values.argmax())
        peak = max(peak, (float(values[token]), token, outcome.method))
        rows += [(outcome.method, i + 1, names[i], float(f"{values[i]:.6g}")) for i in range(len(values))]
    if floor > 0:
        drawing.add_hline(y=2 * floor, line={"color": "#8b95a1", "width": 1.2, "dash": "dot"})
        drawing.add_annotation(
            text="rounding noise",
            x=1,
            xref="paper",
            y=float(np.log10(2 * floor)),
            xanchor="right",
            yanchor="bottom",
            showarrow=False,
            font={"size": 12},
        )
    count = max(r[1] for r in rows)
    axis: dict[str, Any] = {"title": "token of the full read’s answer", "range": [0.5, count + 0.5]}
    if count <= 48:
        labels = [words.token_name(t) for t in texts[:count]]
        flat = count * max(map(len, labels)) <= 100
        axis |= {
            "tickmode": "array",
            "tickvals": list(range(1, count + 1)),
            "tickangle": 0 if flat else -60,
            "ticktext": [plot_text(t) for t in labels],
        }
    top = max(peak[0], 2 * floor, least) * 60  # room below the legend for a ring's label
    drawing.update_layout(
        xaxis=axis,
        yaxis={
            "title": "KL (nats), log scale",
            "type": "log",
            "exponentformat": "power",
            "range": [float(np.log10(least / 2)), float(np.log10(top))],
        },
    )
    peak_text = words.token_name(texts[peak[1]]) if peak[1] < len(texts) else "the end"
    drifts = [
        f"{looks[o.method].name} at token {f.first_divergence + 1}"
        for o, f in outcomes
        if f.first_divergence is not None
    ]
    finding = (
        f"The largest drift is {number(peak[0], 2)} nats at token {peak[1] + 1} (“{peak_text}”) under "
        f"{looks[peak[2]].name}; "
        + (
            f"the text first differs under {words.listing(drifts)}."
            if drifts
            else "no text differs from the full read’s."
        )
    )
    how = (
        "The full read’s own answer is fed to every method; 0 means the same prediction, ln 2 = 0.69 a coin "
        f"flip apart. Values below "
        f"{number(least, 1)} are drawn at {number(least, 1)}; a ring marks the first token that came out "
        f"differently."
    )
    return FigureView("kl_along_answer", title, how, finding, drawing, columns, tuple(rows))
