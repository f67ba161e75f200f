"""The measurement in the Anchors tab: what pools cost by their size. It needs no run."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.records.events import Progress
from backend.records.offsets import COST_LIMITS, AnchorCost, AnchorCostRequest
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.types import Update
from lab_app.ui.validation import Problem, Problems
from lab_app.visits.queue import waiting
from lab_app.visits.visits import Lab, Visit
from viz.anchors.cost import views

LOG = logging.getLogger("lab_app")
REDRAW_SECONDS = 0.2
MOST_NUMBERS = 8


@dataclass(frozen=True)
class Asked:
    """The boxes as they stand; may be wrong. Numbers in a box are separated by commas."""

    anchors: Any
    lengths: Any
    agents: Any


FIELDS = tuple(field.name for field in dataclasses.fields(Asked))


def first_asked() -> Asked:
    """What stands in the boxes at first."""
    usual = AnchorCostRequest()
    anchors, lengths = (", ".join(map(str, row)) for row in (usual.anchors, usual.lengths))
    return Asked(anchors, lengths, str(usual.agents))


def read(asked: Asked) -> AnchorCostRequest:
    """A checked request.

    Raises:
        Problems: every box that cannot be read.
    """
    found: dict[str, tuple[int, ...]] = {}
    problems = []
    for name in FIELDS:
        most = 1 if name == "agents" else MOST_NUMBERS
        try:
            found[name] = _numbers(str(getattr(asked, name) or ""), name, most)
        except LabError as error:
            problems.append(Problem(f"cost.{name}", str(error)))
    if problems:
        raise Problems(problems)
    return AnchorCostRequest(found["anchors"], found["lengths"], found["agents"][0])


def _numbers(written: str, name: str, most: int) -> tuple[int, ...]:
    """Whole numbers, each once, smallest first."""
    low, high = COST_LIMITS[name]
    parts = [part.strip() for part in written.replace(";", ",").split(",") if part.strip()]
    good = [p for p in parts if p.isascii() and p.isdigit() and len(p) < 9 and low <= int(p) <= high]
    if not parts or len(good) < len(parts) or len(parts) > most:
        bad = next((p for p in parts if p not in good), written.strip() or "empty")
        count = "one whole number" if most == 1 else f"up to {most} whole numbers with commas between"
        raise OptionError(
            f"{text.COST_BOXES[name]} is {bad[:40]!r}; allowed: {count}, {low} to {high:,}. Change it.",
            field=f"cost.{name}",
        )
    return tuple(sorted({int(p) for p in good}))


def measure(lab: Lab, visit: Visit, asked: Asked) -> Iterator[Update]:
    """Measure, one at a time per visit, and show the record."""
    if visit.measuring:
        yield {"cost_status": html.status(text.MEASURES_ALREADY, "busy")}
        return
    visit.measuring = True
    try:
        request = read(asked)
        yield told(None) | {"cost_status": html.status("Starting", "measuring", 0, 1)}
        with lab.in_line() as place:
            for said in waiting(place):
                yield {"cost_status": html.status(said, "busy")}
            yield from _stream(visit, request)
    except LabError as error:
        yield told(error) | {"cost_status": ""}
    except Exception as error:
        LOG.exception("a measurement of anchors failed")
        yield {"cost_status": html.status(text.UNEXPECTED.format(kind=type(error).__name__), "error")}
    finally:
        visit.measuring = False


def _stream(visit: Visit, request: AnchorCostRequest) -> Iterator[Update]:
    drawn = 0.0
    for event in visit.engine.anchor_cost(request):
        if isinstance(event, AnchorCost):
            token = visit.keep_result("anchors", event)
            yield {"cost_status": html.priced(event, token), "view_cost": payload(views(event))}
        elif isinstance(event, Progress) and time.monotonic() - drawn >= REDRAW_SECONDS:
            drawn = time.monotonic()
            yield {"cost_status": html.status(event.text, "measuring", event.done, event.total)}


def told(error: LabError | None) -> Update:
    """Messages beside their boxes; boxes without one are cleared."""
    slots = dict.fromkeys((f"error_cost_{name}" for name in (*FIELDS, "measure")), "")
    if error is None:
        return dict(slots)
    found = error.found if isinstance(error, Problems) else (Problem(error.field or "", str(error)),)
    for problem in found:
        name = problem.field.removeprefix("cost.")
        slots[f"error_cost_{name if name in FIELDS else 'measure'}"] += html.error(problem.message)
    return dict(slots)
