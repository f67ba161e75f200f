"""Who reads whom, as a small arc diagram in running order."""

from __future__ import annotations

from backend.prompts import Pipeline
from viz.words import agent_name, clip, escape, listing

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
    height = middle + RADIUS + (34 if named else 6)
    width = pitch * (len(order) + 1)
    lines = "".join(_edge(centre[p], centre[a], middle, index[a] - index[p], p == 0) for p, a in edges)
    nodes = _node(pitch / 2, middle, "", "request", "kv-g-request", named, pitch) + "".join(
        _node(
            centre[a],
            middle,
            str(a),
            agent_name(pipeline, a),
            "kv-g-judge" if a == pipeline.judge else "",
            named,
            pitch,
        )
        for a in order
    )
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


def _node(x: float, y: float, number: str, name: str, kind: str, named: bool, pitch: float) -> str:
    ring = (
        f'<circle class="kv-g-ring" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS + 3}"/>'
        if kind == "kv-g-judge"
        else ""
    )
    inner = f'<text class="kv-g-number" x="{x:.1f}" y="{y + 4:.1f}">{number or "?"}</text>'
    lines = ""
    if named:
        rows = _wrap(name, max(7, int(pitch / 5.9)))
        lines = "".join(
            f'<text class="kv-g-name" x="{x:.1f}" y="{y + RADIUS + 15 + 12 * i:.1f}">{escape(row)}</text>'
            for i, row in enumerate(rows)
        )
    return (
        f'<g class="kv-g-node {kind}"><title>{escape(name)}</title>{ring}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>{inner}{lines}</g>'
    )


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
    return f"{agent_name(pipeline, agent)} reads {listing(read) or 'its own template alone'}"
