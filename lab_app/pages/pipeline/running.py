"""Runs and warm-ups in progress: pausing between many runs, progress."""

import math
import threading
import time
from collections.abc import Callable, Iterator

from backend.base.errors import RateError, RunCancelled
from backend.records.events import Event, Progress
from lab_app.ui import html, text
from lab_app.ui.streaming import Throttle
from lab_app.ui.types import Update
from lab_app.visits.queue import REPORT_SECONDS


def paced(run: Callable[[], Iterator[Update]], cancel: threading.Event) -> Iterator[Update]:
    """One of many runs; it waits where the rate limit refuses it."""
    while True:
        try:
            yield from run()
            return
        except RateError as error:
            until = time.monotonic() + error.seconds
        while (seconds := until - time.monotonic()) > 0:
            yield {"status": html.status(text.PACED.format(seconds=math.ceil(seconds)), "waiting")}
            if cancel.wait(min(seconds, REPORT_SECONDS)):
                raise RunCancelled("Stopped while waiting.")


def progress(events: Iterator[Event], heading: str) -> Iterator[Update]:
    """Progress of a warm-up."""
    due = Throttle()
    for event in events:
        if isinstance(event, Progress) and due():
            yield {"status": html.status(f"{heading}. {event.text}", "running", event.done, event.total)}
