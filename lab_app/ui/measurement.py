"""A study that stands under a page's results: run, told beside itself, and saved by a link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from backend.base.errors import LabError, RunCancelled
from backend.records.events import Progress
from backend.records.offsets import BlendStudy, DocumentStudy
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.page import beside, running
from lab_app.ui.streaming import REDRAW_SECONDS
from lab_app.ui.types import Update
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import FigureView
from viz.base.format import escape, milliseconds

#: A finished record as what is said of it, behind which the time stands, and its figures.
Shown = Callable[[BlendStudy | DocumentStudy], tuple[str, Sequence[FigureView]]]


def measure(
    lab: Lab,
    visit: Visit,
    part: str,
    kind: str,
    events: Callable[[], Iterator[Progress | BlendStudy | DocumentStudy]],
    shown: Shown,
) -> Iterator[Update]:
    """Measure, with figures at the end; between two steps it can be stopped.

    Args:
        lab, visit: whose.
        part: of the page: the block ``<part>_status`` and the view ``view_<part>`` tell of it.
        kind: of the record, in the link that saves it.
        events: progress, the last one the record.
        shown: what becomes of that.
    """

    def work(cancel: threading.Event) -> Iterator[Update]:
        yield told(part, None) | {"status": ""}
        began = time.monotonic()
        said = began - REDRAW_SECONDS  # the first step is told at once
        for event in events():
            if cancel.is_set():
                raise RunCancelled(text.CANCELLED)
            now = time.monotonic()
            if not isinstance(event, Progress):
                facts, views = shown(event)
                link = f"lab/measured/{kind}/{visit.keep_result(kind, event)}"
                yield {
                    f"{part}_status": finished(
                        f"{facts} in {milliseconds((now - began) * 1e3)}.", part, link
                    ),
                    f"view_{part}": payload(views),
                }
            elif now - said >= REDRAW_SECONDS:
                said = now
                yield {f"{part}_status": html.status(event.text, "measuring", event.done, event.total)}

    for update in running(lab, visit, work, lambda error: told(part, error)):
        # what is said of it stands beside this part, not above the results of the page's run
        yield {f"{part}_status" if key == "status" and value else key: value for key, value in update.items()}


def told(part: str, error: LabError | None) -> Update:
    """Messages beside their places."""
    return beside(error, lambda field: part)


def finished(facts: str, part: str, link: str) -> str:
    """What was measured, and the link that saves it."""
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>'
        f'<a class="kv-button" id="kv-documents-{part}-save" href="{escape(link)}" download>'
        f"{text.MEASURE_SAVE}</a></div>"
    )
