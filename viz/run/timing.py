"""What reuse gains in time, and where the time goes."""

from typing import Any

from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure, hatch
from viz.base.format import milliseconds, plot_text, ratio
from viz.base.theme import TIME_PARTS


def ttft_view(record: RunRecord) -> FigureView:
    """Time to first token by agent and method, in parts."""
    title = "Was the first token faster, and what took the time?"
    columns = ("agent", "method", "part", "time (ms)", "TTFT (ms)", "TTFT / full read", "forwarded (tokens)")
    if not record.outcomes:
        return empty_view("ttft", title, "This record has no times.", columns)
    looks, dense, pipeline = words.styles(record), words.dense_label(record), record.request.pipeline
    outcomes = [record.outcome(a, m) for a in record.agents for m in record.labels]
    reference = {a: record.outcome(a, dense).timing.ttft_ms for a in record.agents}
    parts = [*TIME_PARTS, *sorted({p for o in outcomes for p in o.timing.parts_ms} - set(TIME_PARTS))]
    rows_axis = [
        [plot_text(words.clip(words.agent_name(pipeline, o.agent), 18)) for o in outcomes],
        [plot_text(looks[o.method].name) for o in outcomes],
    ]
    drawing = figure(
        90 + 24 * len(outcomes) + 8 * len(record.agents),
        barmode="stack",
        bargap=0.3,
        margin={"t": 56, "r": 130},
    )
    rows: list[tuple[Any, ...]] = []
    for part in parts:
        name, colour, pattern = TIME_PARTS.get(part, (part, "#a8735b", "."))
        values = [float(o.timing.parts_ms.get(part, 0.0)) for o in outcomes]
        if not any(values):
            continue
        drawing.add_bar(
            y=rows_axis,
            x=values,
            orientation="h",
            name=plot_text(name),
            marker={"color": colour, "line": {"width": 0}, "pattern": hatch(pattern)},
            hovertemplate=f"%{{y}}<br>{plot_text(name)}: %{{x:.3g}} ms<extra></extra>",
        )
    for outcome in outcomes:
        timing = outcome.timing
        dense_ms = reference[outcome.agent]
        rows += [
            (
                words.agent_name(pipeline, outcome.agent),
                outcome.method,
                part,
                round(float(ms), 4),
                round(timing.ttft_ms, 4),
                round(timing.ttft_ms / dense_ms, 4) if dense_ms else None,
                timing.forwarded_tokens,
            )
            for part, ms in timing.parts_ms.items()
        ]
    ends = [max(o.timing.ttft_ms, sum(o.timing.parts_ms.values())) for o in outcomes]
    drawing.add_scatter(
        y=rows_axis,
        x=ends,
        mode="text",
        showlegend=False,
        hoverinfo="skip",
        cliponaxis=False,
        textposition="middle right",
        textfont={"size": 12},
        text=[
            f" {milliseconds(o.timing.ttft_ms)}"
            + ("" if o.method == dense else f"  <b>{ratio(o.timing.ttft_ms, reference[o.agent])}</b>")
            for o in outcomes
        ],
    )
    drawing.update_layout(
        xaxis={"title": "time to first token (ms)", "rangemode": "tozero"},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "ticks": "",
            "tickfont": {"size": 12},
            "dividercolor": "rgba(139,149,161,0.45)",
        },
        legend={"traceorder": "normal", "y": 1.01},
    )
    sums = {m: words.total_ttft(record, m) for m in record.labels}
    sentences = [
        f"{looks[m].name} needs {words.times_words(sums[m], words.cached_ttft(record, m), sums[dense])}"
        for m in words.others(record)
    ]
    finding = (
        "; ".join(sentences) or f"The full read needs {milliseconds(sums[dense])}"
    ) + ". Summed over the agents; measured once."
    how = (
        "Each bar runs from the last input text to the first new token, with everything reuse needs "
        "counted in; once every text is cached, the part that encodes missing segments is gone. One "
        "measurement without any probe: differences of a few percent mean nothing."
    )
    return FigureView("ttft", title, how, finding, drawing, columns, tuple(rows))
