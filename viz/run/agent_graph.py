"""Which agent reads which, as a small arc diagram in running order."""

import itertools

from markupsafe import Markup

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import agent_and_turn
from viz.base.format import agent_name, agent_weights, clip, listing
from viz.base.html import render

RADIUS = 12
MOST_WIDTH = 372  # the bench's inner width, which the drawing should fit at full size
LEAST_PITCH, MOST_PITCH, NAMES_FROM = 30, 76, 50


def graph_svg(pipeline: Pipeline) -> Markup:
    """The pipeline as SVG: the request, then the agents in running order, an arc for every reading.

    Colours come from the page. Names are left out when there are too many agents for them.
    """
    order = pipeline.order
    pitch = max(LEAST_PITCH, min(MOST_PITCH, MOST_WIDTH / (len(order) + 1)))
    with_names = pitch >= NAMES_FROM
    centre = {0: pitch / 2} | {a: (i + 1.5) * pitch for i, a in enumerate(order)}
    index = {0: 0} | {a: i + 1 for i, a in enumerate(order)}
    edges = [(0, a) for a in order if _reads_request(pipeline, a)]
    edges += [(p, a) for p, a in pipeline.edges if p in index and a in index]
    longest = max((index[a] - index[p] for p, a in edges), default=1)
    middle = 8 + (_rise(longest) if longest > 1 else 4) + RADIUS
    labels = {a: _labels(pipeline, a, pitch, with_names) for a in order}
    most_labels = max(map(len, labels.values()), default=0)
    height = middle + RADIUS + (34 + 12 * max(0, most_labels - 2) if with_names else 6 + 12 * most_labels)
    width = pitch * (len(order) + 1)
    nodes = [(pitch / 2, "?", "request", "kv-g-request", [("kv-g-name", "request")] if with_names else [])]
    nodes += [
        (
            centre[a],
            str(agent_and_turn(a)[0]),
            _full_name(pipeline, a),
            "kv-g-judge" if a == pipeline.judge else "",
            labels[a],
        )
        for a in order
    ]
    return render(
        "run/agent_graph.html",
        width=width,
        height=height,
        middle=middle,
        radius=RADIUS,
        said="; ".join(_sentence(pipeline, a, edges) for a in order),
        edges=[(p == 0, _path(centre[p], centre[a], middle, index[a] - index[p])) for p, a in edges],
        turns=[centre[a] - pitch / 2 for p, a in itertools.pairwise(order) if _later(p, a)],
        nodes=nodes,
    )


def _reads_request(pipeline: Pipeline, agent: int) -> bool:
    return any(hole.kind in ("question", "declared") for hole in pipeline.template(agent).placeholders)


def _later(previous: int, agent: int) -> bool:
    """Whether a new turn begins with this agent."""
    return agent_and_turn(previous)[1] < agent_and_turn(agent)[1]


def _rise(span: int) -> float:
    return 8 + 9.0 * min(span, 8)


def _path(start: float, end: float, middle: float, span: int) -> str:
    """An edge's path: straight to the next agent, an arc beyond it."""
    if span <= 1:
        return f"M{start + RADIUS + 1:.1f} {middle:.1f}H{end - RADIUS - 2:.1f}"
    x1, x2, y = start + RADIUS * 0.5, end - RADIUS * 0.45, middle - RADIUS * 0.9
    top, lean = middle - RADIUS - _rise(span) * 1.22, (end - start) * 0.2
    return f"M{x1:.1f} {y:.1f}C{x1 + lean:.1f} {top:.1f} {x2 - lean:.1f} {top:.1f} {x2:.1f} {y - 2:.1f}"


def _labels(pipeline: Pipeline, agent: int, pitch: float, with_names: bool) -> list[tuple[str, str]]:
    """An agent's name, if there is room for names, and the weights that it runs on if they are others."""
    rows = _wrap(agent_name(pipeline, agent), max(7, int(pitch / 5.9))) if with_names else []
    weights = agent_weights(pipeline, agent)
    labels = [("kv-g-weights", clip(weights, max(4, int(pitch / 6.4))))] if weights else []
    return [("kv-g-name", row) for row in rows] + labels


def _full_name(pipeline: Pipeline, agent: int) -> str:
    """An agent's name, and its weights if they are others than the model's own."""
    weights = agent_weights(pipeline, agent)
    return agent_name(pipeline, agent) + (f", on the weights {weights}" if weights else "")


def _wrap(name: str, most: int) -> list[str]:
    """A name on at most two lines."""
    line, _, tail = name.partition(" ")
    for word in tail.split():
        if len(line) + 1 + len(word) > most:
            break
        line, tail = f"{line} {word}", tail.split(" ", 1)[1] if " " in tail else ""
    # a clipped row is shorter: the ellipsis is wide, and rows of neighbours must not touch
    return [clip(row, most if len(row) <= most else most - 2) for row in (line, tail) if row]


def _sentence(pipeline: Pipeline, agent: int, edges: list[tuple[int, int]]) -> str:
    sources = ["the request" if p == 0 else agent_name(pipeline, p) for p, a in edges if a == agent]
    reader = _full_name(pipeline, agent) + ("," if agent_weights(pipeline, agent) else "")
    return f"{reader} reads {listing(sources) or 'its own template alone'}"
