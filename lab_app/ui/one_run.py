"""A visit's one run: it waits for the model, shows errors beside their fields, and Cancel stops it."""

import logging
import threading
from collections.abc import Callable, Iterator

from backend.base.errors import LabError, RunCancelled
from lab_app.ui import html, text
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import Problems, problems_of
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import Visit, VisitStore

LOG = logging.getLogger("lab_app")


def one_run_in_turn(
    lab: VisitStore,
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    field_errors: Callable[[LabError], Update],
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run, in one turn at the model."""

    def in_turn(cancel: threading.Event) -> Iterator[Update]:
        with lab.in_line() as place:
            for words in wait_for_turn(place, cancel):
                yield {"status": html.status(words, "waiting")}
            yield from work(cancel)

    yield from one_run(visit, in_turn, field_errors)


def one_run(
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    field_errors: Callable[[LabError], Update],
    stopped: str = text.CANCELLED,
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run: Cancel stops it, errors are shown. ``work`` waits for its turns.

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
        yield {"status": html.status(stopped, "note")}
    except LabError as error:
        yield {"status": ""} | field_errors(error)
    except Exception:
        LOG.exception("a run failed")
        yield {"status": html.status(text.UNEXPECTED, "error")}
    finally:
        cancel.set()
        visit.cancel = None
    yield {"run.visible": True, "cancel.visible": False}


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
