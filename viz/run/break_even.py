"""From what length does reuse pay? A run's agents by the length of their prompts (docs/break-even.md)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.records.run import Outcome, RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure
from viz.base.format import plot_text

FARTHEST = 4.0  # times the longest prompt: a crossing farther away says nothing of this run


@dataclass(frozen=True)
class Line:
    """Least squares through ``of`` agents: milliseconds at length 0 and per token."""

    at_nothing: float
    each: float
    of: int


def break_even_view(record: RunRecord) -> FigureView:
    """Time to first token by prompt length, a line through each method's agents, and where it meets dense's.
    Only agents that reused count, since others were read densely."""
    title = "From what length does reuse pay?"
    columns = ("method", "agent", "prompt (tokens)", "TTFT (ms)", "reused")
    if not record.outcomes:
        return empty_view("break_even", title, "This record has no times.", columns)
    looks, dense, pipeline = words.styles(record), words.dense_label(record), record.request.pipeline
    drawing = figure(
        340,
        xaxis={"title": "prompt (tokens)", "rangemode": "tozero"},
        yaxis={"title": "time to first token (ms)", "rangemode": "tozero"},
    )
    rows: list[tuple[Any, ...]] = []
    lines: dict[str, Line] = {}
    longest = max(_tokens(o) for o in record.outcomes)
    for label in record.labels:
        look, outcomes = looks[label], [record.outcome(agent, label) for agent in record.agents]
        rows += [
            (
                look.name,
                words.agent_name(pipeline, o.agent),
                _tokens(o),
                round(o.timing.ttft_ms, 4),
                o.state == "reused",
            )
            for o in outcomes
        ]
        reusers = [o for o in outcomes if label == dense or o.state == "reused"]
        if not reusers:
            continue
        drawing.add_scatter(
            x=[_tokens(o) for o in reusers],
            y=[o.timing.ttft_ms for o in reusers],
            mode="markers",
            name=plot_text(look.name),
            legendgroup=label,
            marker={"color": look.colour, "symbol": look.symbol, "size": 9},
            text=[plot_text(words.agent_name(pipeline, o.agent)) for o in reusers],
            hovertemplate="%{text}<br>%{x} tokens: %{y:.3g} ms<extra>" + plot_text(look.name) + "</extra>",
        )
        line = fit(reusers)
        if line is None:
            continue
        lines[label] = line
        ends = [0.0, 1.05 * longest]
        drawing.add_scatter(
            x=ends,
            y=[line.at_nothing + line.each * x for x in ends],
            mode="lines",
            showlegend=False,
            legendgroup=label,
            hoverinfo="skip",
            line={"color": look.colour, "dash": look.dash, "width": 1.5},
        )
    sentences = [
        _finding(looks[m].name, lines.get(m), lines.get(dense), longest) for m in words.others(record)
    ]
    finding = " ".join(sentences) or "Only the full read ran."
    how = (
        "Each mark is an agent; the lines are straight ones through a method’s agents. Left of where a line "
        "meets the full read’s, reading afresh is faster. One run, few agents: look at the order of size, "
        "and measure longer prompts with kvlab break-even or under “When would reuse pay?”."
    )
    return FigureView("break_even", title, how, finding, drawing, columns, tuple(rows))


def _tokens(outcome: Outcome) -> int:
    return int(outcome.actions.shape[1])


def fit(outcomes: list[Outcome]) -> Line | None:
    """A line through two lengths or more; level if the times would fall with the length."""
    lengths = [_tokens(o) for o in outcomes]
    if len(set(lengths)) < 2:
        return None
    times = [o.timing.ttft_ms for o in outcomes]
    each, at_nothing = map(float, np.polyfit(lengths, times, 1))
    if each < 0:  # the first agent pays for the question's base; more tokens never cost less
        each, at_nothing = 0.0, sum(times) / len(times)
    return Line(at_nothing, each, len(outcomes))


def crossing(reuse: Line, dense: Line) -> float | None:
    """The length where both take as long, if reuse is faster behind it; None otherwise."""
    slope = dense.each - reuse.each
    return (reuse.at_nothing - dense.at_nothing) / slope if slope > 0 else None


def _finding(name: str, reuse: Line | None, dense: Line | None, longest: int) -> str:
    if reuse is None or dense is None:
        return f"{name}: too few agents reused prompts of different lengths to say."
    meets = crossing(reuse, dense)
    if meets is None and reuse.at_nothing + reuse.each * longest < dense.at_nothing + dense.each * longest:
        return f"{name} was faster at these lengths; longer prompts do not add to what it gains."
    if meets is None and reuse.each == dense.each:
        return f"{name} takes as much for each token as the full read does, so length does not decide."
    if meets is None:
        return (
            f"{name} takes more for each token than the full read does, so longer prompts do not make it pay."
        )
    if meets <= 0:
        return f"{name} pays at any length, by these {reuse.of} agents."
    if meets > FARTHEST * longest:
        return f"{name} does not pay at lengths like these."
    return f"{name} pays from about {round(meets):,} tokens on, by these {reuse.of} agents."
