"""A visit's one run: it waits for the model, shows errors beside their fields, and Cancel stops it."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError, RunCancelled
from backend.prompts.presets import Example
from backend.records.request import RunRequest
from lab_app.ui import html, text
from lab_app.ui.first_runs import results_notice
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import Problems, problems_of
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import Visit, VisitStore

LOG = logging.getLogger("lab_app")


@dataclass
class RunState:
    """What a visit's page remembers: the ``example`` on the form, the last ``request`` that was run, and the
    ``token`` of its record."""

    example: Example | None = None
    next_example: int = 0
    request: RunRequest | None = None
    token: str = ""
    saved: bool = False  # whether the shown run is the saved one of a first visit


def in_line(
    lab: VisitStore,
    cancel: threading.Event,
    work: Callable[[], Iterator[Update]],
    together: bool = False,
) -> Generator[Update, None, Any]:
    """Do ``work`` in turn, and return what it returns; until then, say how many wait before it."""
    with lab.in_line(together) as place:
        for words in wait_for_turn(place, cancel):
            yield {"status": html.status(words, "waiting")}
        return (yield from work())


def one_run_in_turn(
    lab: VisitStore,
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    field_errors: Callable[[LabError], Update],
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run, in one turn at the model."""
    return one_run(visit, lambda cancel: in_line(lab, cancel, lambda: work(cancel)), field_errors)


def one_run(
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    field_errors: Callable[[LabError], Update],
    stopped: str = text.CANCELLED,
    failed: Callable[[], Update] = dict,
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run: Cancel stops it, errors are shown, both over what ``failed`` brings
    back. ``work`` waits for its turns.

    The page has the widgets ``run``, ``cancel`` and ``status``.
    """
    if visit.cancel is not None:
        yield {"status": html.status(text.RUN_ELSEWHERE, "busy")}
        return
    cancel = visit.cancel = threading.Event()
    try:
        yield {
            "run.visible": False, "cancel.visible": True, "cancel": text.RUNNING,
            "status": html.status("Starting", "running"),
        }  # fmt: skip
        yield from work(cancel)
    except RunCancelled:
        yield failed() | {"status": html.status(stopped, "note")}
    except LabError as error:
        yield failed() | {"status": ""} | field_errors(error)
    except Exception:
        LOG.exception("a run failed")
        yield failed() | {"status": html.status(text.UNEXPECTED, "error")}
    finally:
        cancel.set()
        visit.cancel = None
    yield {"run.visible": True, "cancel.visible": False}


def follow(
    visit: Visit,
    state: RunState,
    read: Callable[[], RunRequest],
    page_errors: Callable[[LabError | None], Update],
    edited: str,
) -> Update:
    """What follows from a page's form: messages, the cost, the known answer, and whether the results belong
    to an earlier form (``edited``). Another known answer alone is no edit."""
    request = None
    try:
        request = read()
        update = page_errors(None) | {"cost": html.cost(visit.engine.estimate(request), 0, 0.0)}
    except LabError as error:
        update = page_errors(error) | {"cost": ""}
    example = state.example if request is not None and request.expected is not None else None
    update["expected"] = html.known_answer(example, example.values) if example else ""
    if visit.cancel is None and state.request is not None:
        asked, ran = (r and dataclasses.replace(r, expected=None) for r in (request, state.request))
        update["status"] = results_notice(asked != ran, state.saved, edited)
    return update


def field_errors(error: LabError | None, slot_of: Callable[[str | None], str]) -> Update:
    """Messages beside their places; ``slot_of`` gives that of a field of the engine's request."""
    slots: dict[str, str] = {}
    for problem in problems_of(error):
        slot = problem.field if isinstance(error, Problems) else slot_of(problem.field or None)
        slots[slot] = slots.get(slot, "") + html.error(problem.message)
    return {"errors": slots}


def cancelled(visit: Visit, given: Given) -> Update:
    """Ask the run to stop at its next step. The button shows it, not the status line, where the run may have
    written its end before this answer arrives."""
    if visit.cancel is None:
        return {}
    visit.cancel.set()
    return {"cancel": text.CANCELLING}
