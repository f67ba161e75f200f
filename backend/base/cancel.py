"""Work in steps that a person may stop between any two of them."""

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
    """Raise if the work should stop. ``note``: what remains of it, for the message.

    Raises:
        RunCancelled: ``cancel`` is set.
    """
    if cancel is not None and cancel.is_set():
        raise RunCancelled(f"Stopped. {note}")


def stoppable(
    steps: Generator[Step, None, Result], cancel: Cancel, note: str = NOTE
) -> Generator[Step, None, Result]:
    """The same steps and result; ``cancel`` is checked after each step.

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
    """Run all steps; their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
