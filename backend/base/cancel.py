"""Work that a person may stop at its next step."""

from __future__ import annotations

import threading

from backend.base.errors import RunCancelled


def stop_if(cancel: threading.Event | None) -> None:
    """End the work that was asked to stop.

    Raises:
        RunCancelled: ``cancel`` is set.
    """
    if cancel is not None and cancel.is_set():
        raise RunCancelled("Stopped. What was finished before is still there.")
