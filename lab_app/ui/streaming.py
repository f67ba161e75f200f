"""A run while it goes on: what it streams, as updates of the status line and the comparison."""

import math
import time
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from backend.base.errors import LabError
from backend.records.events import Event, Progress, RunDone, TextSoFar
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from lab_app.ui import html
from lab_app.ui.types import Update
from viz.run.comparison import live_html

REDRAW_SECONDS = 0.2


def live(request: RunRequest, events: Iterator[Event]) -> Generator[dict[str, Any], None, RunRecord]:
    """Yields ``status`` and ``comparison`` a few times a second; returns the record.

    Raises:
        LabError: what the run raises; or it ended without a record.
    """
    labels = [m.label for m in request.methods]
    texts: dict[tuple[int, str], str] = {}
    words, done, total, last_draw = "Starting", 0, 1, -math.inf
    for event in events:
        if isinstance(event, RunDone):
            return event.record
        if isinstance(event, TextSoFar):
            last_draw = last_draw if texts else -math.inf  # the first word is shown at once
            texts[(event.agent, event.method)] = event.text
        elif isinstance(event, Progress):
            words, done, total = html.progress_text(event), event.done, event.total
        if time.monotonic() - last_draw >= REDRAW_SECONDS:
            last_draw = time.monotonic()
            yield {
                "status": html.status(words, "running", done, total),
                "comparison": live_html(request.pipeline, labels, texts, words, done, total),
            }
    raise LabError("The run ended without a result. Run it again.")


class Throttle:
    """True at the first call, then once in ``seconds`` at most."""

    def __init__(self, seconds: float = REDRAW_SECONDS) -> None:
        self._seconds, self._last = seconds, -math.inf

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


AT_ONCE_SECONDS = (
    1.0  # answers nearer than this may arrive together, in a browser or on a machine that is busy
)


def coalesced(steps: Iterable[Update]) -> Iterator[Update]:
    """Each step, together with one that came an instant before it.

    The browser applies answers that arrive together to one object and draws that once, so what the last of
    them leaves out would never be seen: a status line would say "Starting" for ever.
    """
    before, last = Update(), 0.0
    for update in steps:
        update = before | update if time.monotonic() - last < AT_ONCE_SECONDS else update
        yield update
        before, last = update, time.monotonic()
