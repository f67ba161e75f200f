"""The Proximity tab: what is typed, one measurement at a time, and what is shown of it. Needs no run."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError
from backend.prompts.presets import load_preset
from backend.records.events import Progress
from backend.records.offsets import LIMITS, ProximityRecord, ProximityRequest
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.types import Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.queue import waiting
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import Panel
from viz.studies.proximity import examples, views

LOG = logging.getLogger("lab_app")
REDRAW_SECONDS = 0.2
#: Whose role texts stand in the boxes at first: (preset, agent).
ROLES = (("math-3", 1), ("judge-majority", 1))


@dataclass(frozen=True)
class Asked:
    """The tab's boxes as they stand; may be wrong."""

    prefix_a: Any
    prefix_b: Any
    vocabulary: Any
    pairs: Any
    seed: Any


FIELDS = tuple(field.name for field in dataclasses.fields(Asked))


def first_asked() -> Asked:
    """What stands in the boxes at first: two agents' prompts up to their first hole."""
    role_a, role_b = (str(load_preset(name).pipeline.template(agent).parts[0]) for name, agent in ROLES)
    usual = ProximityRequest(role_a, role_b)
    return Asked(**{name: getattr(usual, name) for name in FIELDS})


def read(asked: Asked) -> ProximityRequest:
    """A checked request.

    Raises:
        Problems: every number that is out of its range.
    """
    found: dict[str, Any] = {}
    problems = []
    for name, (low, high) in LIMITS.items():
        label, where = text.PROXIMITY_NUMBERS[name], f"proximity.{name}"
        try:
            found[name] = NumberField(label, low, high).read(getattr(asked, name), where)
        except LabError as error:
            problems.append(Problem(where, str(error)))
    if problems:
        raise Problems(problems)
    return ProximityRequest(str(asked.prefix_a or ""), str(asked.prefix_b or ""), **found)


def measure(lab: Lab, visit: Visit, asked: Asked) -> Iterator[Update]:
    """Measure, one at a time per visit, and show the record."""
    if visit.measuring:
        yield {"proximity_status": html.status(text.MEASURES_ALREADY, "busy")}
        return
    visit.measuring = True
    try:
        request = read(asked)
        yield told(None) | {"measuring": True, "proximity_status": working("Starting", 0, 1)}
        with lab.in_line() as place:
            for said in waiting(place):
                yield {"proximity_status": html.status(said, "busy")}
            yield from _stream(visit, request)
    except LabError as error:
        yield told(error) | {"proximity_status": ""}
    except Exception as error:
        LOG.exception("a measurement failed")
        yield {"proximity_status": html.status(text.UNEXPECTED.format(kind=type(error).__name__), "error")}
    finally:
        visit.measuring = False
    yield {"measuring": False}


def _stream(visit: Visit, request: ProximityRequest) -> Iterator[Update]:
    drawn = 0.0
    for event in visit.engine.proximity(request):
        if isinstance(event, ProximityRecord):
            visit.keep_result("proximity", event)
            yield shown(visit)
        elif isinstance(event, Progress) and time.monotonic() - drawn >= REDRAW_SECONDS:
            drawn = time.monotonic()
            yield {"proximity_status": working(event.text, event.done, event.total)}


def edited(visit: Visit, asked: Asked) -> Update:
    """Messages about what was just typed, and whether the figures still belong to it."""
    if visit.measuring:
        return {}
    try:
        request = read(asked)
    except LabError as error:
        return told(error)
    if "proximity" not in visit.results:
        return told(None)
    if visit.result("proximity").request == request:
        return shown(visit, figures=False) | told(None)
    return told(None) | {"proximity_status": html.status(text.MEASURE_EDITED, "note")}


def shown(visit: Visit, figures: bool = True) -> Update:
    """The visit's measurement: what it was, and its figures."""
    token, record = visit.results["proximity"]
    update: Update = {"proximity_status": html.measured(record, token)}
    if figures:
        update["view_proximity"] = payload((*views(record), examples(record)))
    return update


def before() -> dict[str, Any]:
    """What the tab shows when nothing was measured yet."""
    steps = "".join(f"<li>{step}</li>" for step in text.PROXIMITY_STEPS)
    return payload([Panel("proximity_plan", text.PROXIMITY_PLAN, f'<ol class="kv-steps">{steps}</ol>')])


def working(said: str, done: int, total: int) -> str:
    """Progress of a measurement; other results on the page stay as they are."""
    return html.status(said, "measuring", done, total)


def told(error: LabError | None) -> Update:
    """Messages beside their boxes; boxes without one are cleared."""
    slots = dict.fromkeys((f"error_proximity_{name}" for name in (*FIELDS, "measure")), "")
    if error is None:
        return dict(slots)
    found = error.found if isinstance(error, Problems) else (Problem(error.field or "", str(error)),)
    for problem in found:
        name = problem.field.removeprefix("proximity.")
        slot = f"error_proximity_{name if name in FIELDS else 'measure'}"
        slots[slot] += html.error(problem.message)
    return dict(slots)
