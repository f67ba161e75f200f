"""Work in steps: a person may stop it at each, and its last word is what it returns."""

import threading
from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

from backend.base.errors import RunCancelled

Step = TypeVar("Step")
Result = TypeVar("Result")
Cancel = threading.Event | None
NOTE = "What was finished before is still there."


def stop_if(cancel: Cancel, note: str = NOTE) -> None:
    """End the work that was asked to stop. ``note`` says what is left of it.

    Raises:
        RunCancelled: ``cancel`` is set.
    """
    if cancel is not None and cancel.is_set():
        raise RunCancelled(f"Stopped. {note}")


def stoppable(
    steps: Generator[Step, None, Result], cancel: Cancel, note: str = NOTE
) -> Generator[Step, None, Result]:
    """The same steps and the same result, with a look at ``cancel`` behind each step.

    Raises:
        RunCancelled: ``cancel`` was set; the steps are closed.
    """
    with closing(steps):
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            yield step
            stop_if(cancel, note)


def drain(steps: Generator[Step, None, Result]) -> Result:
    """What steps end with, once all are done."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
