"""KVCOMM's decisions and their reasons: the gate, the anchors' weights, the pools."""

from typing import Any

from markupsafe import Markup

from backend.records.pools import PoolState
from backend.records.run import GateDecision, RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure, hatch
from viz.base.format import number, plot_text
from viz.base.html import render
from viz.base.theme import ACTION_COLOURS, SLOT_COLOURS

MAX_BARS = 24


def _gate_title(record: RunRecord, method: str) -> str:
    look = words.styles(record).get(method)
    return f"Why did {look.name if look else method} reuse or refuse?"


def gate_view(record: RunRecord, agent: int, method: str) -> FigureView:
    """Per placeholder: the entropy of the anchors' weights beside the gate's threshold."""
    title = _gate_title(record, method)
    columns = (
        "placeholder",
        "decision",
        "rule",
        "entropy (nats)",
        "threshold (nats)",
        "tokens",
        "pool size (anchors)",
        "eligible (anchors)",
        "reason",
    )
    gates = record.outcome(agent, method).gate
    if not gates:
        return empty_view(
            "gate", title, "This method has no gate, or nothing of this prompt went through it.", columns
        )
    pipeline = record.request.pipeline
    labels = [plot_text(words.segment_words(pipeline, g.placeholder)) for g in gates]
    drawing = figure(90 + 46 * len(gates), margin={"t": 34, "r": 150})
    for share, decision in ((True, "shared"), (False, "computed")):
        rows = [i for i, g in enumerate(gates) if g.shareable is share and g.entropy is not None]
        drawing.add_bar(
            y=[labels[i] for i in rows],
            x=[gates[i].entropy for i in rows],
            orientation="h",
            name=decision,
            width=0.5,
            marker={
                "color": ACTION_COLOURS[2 if share else 0],
                "line": {"width": 0 if share else 1.8, "color": "#7d8793"},
                "pattern": hatch("/" if share else ""),
            },
            opacity=1 if share else 0.75,
            hovertemplate="%{y}<br>entropy %{x:.3f} nats<extra></extra>",
        )
    thresholds = [i for i, g in enumerate(gates) if g.threshold is not None]
    drawing.add_scatter(
        y=[labels[i] for i in thresholds],
        x=[gates[i].threshold for i in thresholds],
        mode="markers",
        name="threshold",
        marker={"symbol": "line-ns", "size": 26, "line": {"width": 2.5, "color": "#c0564a"}},
        hovertemplate="%{y}<br>threshold %{x:.3f} nats<extra></extra>",
    )
    widest = max((max(g.entropy or 0, g.threshold or 0) for g in gates), default=0) or 1
    for label, gate in zip(labels, gates, strict=True):
        right = max(gate.entropy or 0, gate.threshold or 0)
        drawing.add_annotation(
            x=right,
            y=label,
            text=_decision(gate),
            xanchor="left",
            xshift=8,
            showarrow=False,
            font={"size": 12},
        )
    drawing.update_layout(
        barmode="overlay",
        xaxis={"title": "entropy of the anchors’ weights (nats)", "range": [0, widest * 1.15]},
        yaxis={
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": labels,
            "showgrid": False,
            "ticks": "",
        },
    )
    shared = sum(g.shareable for g in gates)
    finding = f"The gate shares {shared} of {words.plural(len(gates), 'placeholder')}"
    first = next((g for g in gates if not g.shareable), None)
    finding += (
        f"; {words.segment_words(pipeline, first.placeholder)}: {_lower(first.reason)}" if first else "."
    )
    how = (
        "A bar left of its mark: one anchor clearly stands out, so its offset is trusted. A bar past the "
        "mark: the "
        "anchors weigh too evenly, and the text is computed instead."
    )
    rows_out = tuple(
        (
            g.placeholder,
            "shared" if g.shareable else "computed",
            g.rule,
            g.entropy,
            g.threshold,
            g.tokens,
            g.pool_size,
            g.eligible,
            g.reason,
        )
        for g in gates
    )
    return FigureView("gate", title, how, finding, drawing, columns, rows_out)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _decision(gate: GateDecision) -> str:
    if gate.entropy is None:
        return f"{'✓ shared' if gate.shareable else '✗ computed'}: {plot_text(gate.rule)}"
    return "✓ shared" if gate.shareable else "✗ computed"


def weights_view(record: RunRecord, agent: int, method: str) -> FigureView:
    """The anchors' weights at the gate; the mix has weights of its own, token by token."""
    title = "Which earlier texts does the gate compare this one with?"
    columns = ("placeholder", "anchor", "gate weight (share)", "distance", "anchor text")
    gates = [g for g in record.outcome(agent, method).gate if g.weights]
    if not gates:
        return empty_view("weights", title, "No anchors were weighed for this prompt.", columns)
    pipeline, colours = record.request.pipeline, words.slots(record.request.pipeline)
    rows: list[tuple[Any, ...]] = []
    for gate in gates:
        for index in sorted(range(len(gate.weights)), key=lambda i: -gate.weights[i]):
            rows.append(
                (
                    gate.placeholder,
                    gate.anchors[index] if index < len(gate.anchors) else index,
                    float(f"{gate.weights[index]:.6g}"),
                    float(f"{gate.distances[index]:.6g}") if index < len(gate.distances) else None,
                    gate.previews[index] if index < len(gate.previews) else "",
                )
            )
    per_gate = max(3, MAX_BARS // len(gates))
    bars = [r for g in gates for r in [r for r in rows if r[0] == g.placeholder][:per_gate]]
    drawing = figure(80 + 24 * len(bars), margin={"t": 30, "r": 24, "l": 10}, bargap=0.25)
    names = [f"{plot_text(words.clip(r[4], 44))}  #{r[1]}" for r in bars]
    keys = [f"{r[0]}:{r[1]}" for r in bars]
    for gate in gates:
        indices = [i for i, r in enumerate(bars) if r[0] == gate.placeholder]
        drawing.add_bar(
            y=[keys[i] for i in indices],
            x=[bars[i][2] for i in indices],
            orientation="h",
            name=plot_text(words.segment_words(pipeline, gate.placeholder))
            + ("" if gate.shareable else " (not shared)"),
            marker={
                "color": SLOT_COLOURS[colours.get(gate.placeholder, 0)],
                "pattern": hatch("" if gate.shareable else "x"),
            },
            text=[number(bars[i][2], 2) for i in indices],
            textposition="outside",
            cliponaxis=False,
            customdata=[[names[i], number(bars[i][3])] for i in indices],
            hovertemplate="%{customdata[0]}<br>weight %{x:.3f}, distance %{customdata[1]}<extra></extra>",
        )
    drawing.update_layout(
        xaxis={"title": "weight at the gate (shares of each placeholder add up to 1)", "rangemode": "tozero"},
        yaxis={
            "autorange": "reversed",
            "tickmode": "array",
            "tickvals": keys,
            "ticktext": names,
            "showgrid": False,
            "ticks": "",
            "categoryorder": "array",
            "categoryarray": keys,
        },
    )
    top = max(rows, key=lambda r: r[2])
    finding = (
        f"For {words.segment_words(pipeline, top[0])}, anchor {top[1]} weighs most ({number(top[2], 2)}) at "
        f"the gate: “{words.clip(top[4], 70)}”."
    )
    mixes = record.outcome(agent, method).mixes
    if mixes:
        heaviest = sum(float(mix.keys_by_token.max(axis=0).mean()) for mix in mixes) / len(mixes)
        finding += f" In the mix, the heaviest anchor of a token holds {number(heaviest, 2)} on average."
    note = (
        f" Only the {per_gate} heaviest of each placeholder are drawn; the CSV has all."
        if len(bars) < len(rows)
        else ""
    )
    how = (
        "Nearer earlier texts weigh more. These weights decide whether the text is shared; the offsets are "
        "mixed by weights of their own, token by token (next figure)." + note
    )
    return FigureView("weights", title, how, finding, drawing, columns, tuple(rows))


def pool_table(record: RunRecord, method: str) -> Markup:
    """The anchors that a method holds after the run."""
    pools = [(pool, _anchors(record, pool)) for pool in record.pools if pool.method == method]
    return render("anchors/pool_table.html", pipeline=record.request.pipeline, pools=pools)


def _anchors(record: RunRecord, pool: PoolState) -> list[tuple[Any, ...]]:
    """A row for each anchor: number, tokens, uses, agents with its offset, bytes, start of its text."""
    view = next(
        (v for v in record.pool_views if (v.method, v.placeholder) == (pool.method, pool.placeholder)), None
    )
    details: list[tuple[str, str]] = [(words.NONE, words.NONE)] * len(pool.anchors)
    if view is not None:
        sizes = view.base_bytes + view.stored_bytes
        details = [
            (
                words.listing(words.agent_name(record.request.pipeline, a) for a in agents) or "nobody yet",
                words.size(int(b)) + (" (offsets in main memory)" if n in view.away else ""),
            )
            for n, agents, b in zip(pool.anchors, view.agents, sizes, strict=True)
        ]
    current = view.sample if view is not None else None
    texts = [
        words.clip(preview, 140) + (" (this run’s text)" if n == current else "")
        for n, preview in zip(pool.anchors, pool.previews, strict=False)
    ]
    return [
        (n, length, uses, *detail, text)
        for n, length, uses, detail, text in zip(
            pool.anchors, pool.lengths, pool.uses, details, texts, strict=False
        )
    ]
