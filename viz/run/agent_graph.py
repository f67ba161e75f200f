"""Who reads whom, as a small arc diagram in running order."""

from __future__ import annotations

import itertools

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import agent_and_turn
from viz.base.format import agent_name, agent_weights, clip, escape, listing

RADIUS = 12
MOST_WIDTH = 372  # the bench's inner width, which the drawing should fit at full size
LEAST_PITCH, MOST_PITCH, NAMES_FROM = 30, 76, 50


def graph_svg(pipeline: Pipeline) -> str:
    """The pipeline as SVG: the request, then the agents in running order, an arc for every reading.

    Colours come from the page. Names are left out when there are too many agents for them.
    """
    order = pipeline.order
    pitch = max(LEAST_PITCH, min(MOST_PITCH, MOST_WIDTH / (len(order) + 1)))
    named = pitch >= NAMES_FROM
    centre = {0: pitch / 2} | {a: (i + 1.5) * pitch for i, a in enumerate(order)}
    index = {0: 0} | {a: i + 1 for i, a in enumerate(order)}
    edges = [(0, a) for a in order if _reads_request(pipeline, a)]
    edges += [(p, a) for p, a in pipeline.edges if p in index and a in index]
    longest = max((index[a] - index[p] for p, a in edges), default=1)
    middle = 8 + (_rise(longest) if longest > 1 else 4) + RADIUS
    labels = {a: _labels(pipeline, a, pitch, named) for a in order}
    most = max(map(len, labels.values()), default=0)
    height = middle + RADIUS + (34 + 12 * max(0, most - 2) if named else 6 + 12 * most)
    width = pitch * (len(order) + 1)
    lines = "".join(_edge(centre[p], centre[a], middle, index[a] - index[p], p == 0) for p, a in edges)
    request = [("kv-g-name", "request")] if named else []
    nodes = _node(pitch / 2, middle, "", "request", "kv-g-request", request) + "".join(
        _node(
            centre[a],
            middle,
            str(agent_and_turn(a)[0]),
            _called(pipeline, a),
            "kv-g-judge" if a == pipeline.judge else "",
            labels[a],
        )
        for a in order
    )
    lines += "".join(_turn(centre[a], pitch, height) for p, a in itertools.pairwise(order) if _later(p, a))
    said = "; ".join(_sentence(pipeline, a, edges) for a in order)
    return (
        f'<svg class="kv-graph" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'style="max-width:{width:.0f}px" '
        f'aria-label="{escape("Who reads whom. " + said)}"><title>Who reads whom</title><desc>'
        f"{escape(said)}.</desc>"
        '<defs><marker id="kv-arrow" viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path class="kv-g-tip" d="M0 0.8 7.5 4 0 7.2z"/></marker></defs>'
        f"{lines}{nodes}</svg>"
    )


def _reads_request(pipeline: Pipeline, agent: int) -> bool:
    return any(hole.kind in ("question", "declared") for hole in pipeline.template(agent).placeholders)


def _later(before: int, agent: int) -> bool:
    """Does a new turn begin with this agent?"""
    return agent_and_turn(before)[1] < agent_and_turn(agent)[1]


def _turn(x: float, pitch: float, height: float) -> str:
    """A line where a turn begins."""
    return (
        f'<path class="kv-g-turn" d="M{x - pitch / 2:.1f} 2V{height - 2:.1f}" stroke="currentColor" '
        'stroke-opacity="0.35" stroke-dasharray="2 3"/>'
    )


def _rise(span: int) -> float:
    return 8 + 9.0 * min(span, 8)


def _edge(start: float, end: float, middle: float, span: int, request: bool) -> str:
    kind = "kv-g-edge kv-g-from-request" if request else "kv-g-edge"
    if span <= 1:
        return f'<path class="{kind}" d="M{start + RADIUS + 1:.1f} {middle:.1f}H{end - RADIUS - 2:.1f}"/>'
    x1, x2, y = start + RADIUS * 0.5, end - RADIUS * 0.45, middle - RADIUS * 0.9
    top, lean = middle - RADIUS - _rise(span) * 1.22, (end - start) * 0.2
    return (
        f'<path class="{kind}" d="M{x1:.1f} {y:.1f}C{x1 + lean:.1f} {top:.1f} {x2 - lean:.1f} {top:.1f} '
        f'{x2:.1f} {y - 2:.1f}"/>'
    )


def _node(x: float, y: float, number: str, name: str, kind: str, labels: list[tuple[str, str]]) -> str:
    """One node and the lines below it, each as its class and its text."""
    ring = (
        f'<circle class="kv-g-ring" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS + 3}"/>'
        if kind == "kv-g-judge"
        else ""
    )
    inner = f'<text class="kv-g-number" x="{x:.1f}" y="{y + 4:.1f}">{number or "?"}</text>'
    lines = "".join(
        f'<text class="{look}" x="{x:.1f}" y="{y + RADIUS + 15 + 12 * i:.1f}">{escape(row)}</text>'
        for i, (look, row) in enumerate(labels)
    )
    return (
        f'<g class="kv-g-node {kind}"><title>{escape(name)}</title>{ring}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>{inner}{lines}</g>'
    )


def _labels(pipeline: Pipeline, agent: int, pitch: float, named: bool) -> list[tuple[str, str]]:
    """An agent's name, if there is room for names, and the weights that it runs on if they are others."""
    rows = _wrap(agent_name(pipeline, agent), max(7, int(pitch / 5.9))) if named else []
    weights = agent_weights(pipeline, agent)
    shown = [("kv-g-weights", clip(weights, max(4, int(pitch / 6.4))))] if weights else []
    return [("kv-g-name", row) for row in rows] + shown


def _called(pipeline: Pipeline, agent: int) -> str:
    """An agent's name, and its weights if they are others than the model's own."""
    weights = agent_weights(pipeline, agent)
    return agent_name(pipeline, agent) + (f", on the weights {weights}" if weights else "")


def _wrap(name: str, most: int) -> list[str]:
    """A name on at most two lines."""
    line, _, rest = name.partition(" ")
    for word in rest.split():
        if len(line) + 1 + len(word) > most:
            break
        line, rest = f"{line} {word}", rest.split(" ", 1)[1] if " " in rest else ""
    # a clipped row is shorter: the ellipsis is wide, and rows of neighbours must not touch
    return [clip(row, most if len(row) <= most else most - 2) for row in (line, rest) if row]


def _sentence(pipeline: Pipeline, agent: int, edges: list[tuple[int, int]]) -> str:
    read = ["the request" if p == 0 else agent_name(pipeline, p) for p, a in edges if a == agent]
    who = _called(pipeline, agent) + ("," if agent_weights(pipeline, agent) else "")
    return f"{who} reads {listing(read) or 'its own template alone'}"
