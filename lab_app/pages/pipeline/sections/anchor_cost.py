"""The measurement in the Anchors tab: memory and time of pools by their size. It needs no run."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from backend.base.errors import OptionError
from backend.records.anchor_cost import COST_LIMITS, AnchorCost, AnchorCostRequest
from lab_app.ui import fields
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.types import Given
from lab_app.visits.visits import Visit
from viz.anchors.cost import views
from viz.base.format import plural

BOXES = {
    "anchors": "Anchors of a placeholder",
    "lengths": "Their length (tokens)",
    "agents": "Agents that read them",
}
MOST_NUMBERS = 8


def boxes(section: Section) -> Sequence[Node]:
    """The boxes with their first values. Commas separate the numbers in a box."""
    usual = AnchorCostRequest()
    rows = {name: getattr(usual, name) for name in ("anchors", "lengths")} | {"agents": [usual.agents]}
    nodes = [section.text_box(name, label, ", ".join(map(str, rows[name]))) for name, label in BOXES.items()]
    return [fields.row(*nodes, section.button(), css="kv-measure")]


def read(visit: Visit, inputs: Given) -> AnchorCostRequest:
    """A checked request.

    Raises:
        Problems: every box that cannot be read.
    """
    reader = SECTION.reader(inputs)
    lists = {name: reader.attempt(name, partial(_numbers, reader.values[name], name)) for name in BOXES}
    reader.check()
    return AnchorCostRequest(lists["anchors"], lists["lengths"], lists["agents"][0])


def _numbers(box: Any, name: str) -> tuple[int, ...]:
    """The whole numbers in a box, sorted, without duplicates."""
    entry, (low, high) = str(box or ""), COST_LIMITS[name]
    most = 1 if name == "agents" else MOST_NUMBERS
    parts = [part.strip() for part in entry.replace(";", ",").split(",") if part.strip()]
    valid = [p for p in parts if p.isascii() and p.isdigit() and len(p) < 9 and low <= int(p) <= high]
    if not parts or len(valid) < len(parts) or len(parts) > most:
        wrong = next((p for p in parts if p not in valid), entry.strip() or "empty")
        count = "one whole number" if most == 1 else f"up to {most} whole numbers with commas between"
        raise OptionError(
            f"{BOXES[name]} is {wrong[:40]!r}; allowed: {count}, {low} to {high:,}. Change it.", field=name
        )
    return tuple(sorted({int(p) for p in valid}))


def facts(record: AnchorCost) -> str:
    """What was measured."""
    request = record.request
    return (
        f"Pools of up to {plural(request.anchors[-1], 'anchor')} of up to "
        f"{plural(request.lengths[-1], 'token')}"
    )


SECTION = Section(
    "pool_cost", "What would larger pools cost here?",
    "Draws pools of these sizes in the model’s own shapes on this machine, and measures their memory and the "
    "time of matching, mixing and moving them. The lab’s other work waits meanwhile.",
    boxes, read, views, facts, kind="anchors", tab="anchors",
)  # fmt: skip
