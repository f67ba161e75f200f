"""The line before the model: who is next, and how long that may take."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from backend.errors import RunCancelled
from lab_app import text
from lab_app.html import duration
from viz.words import plural

MEASURED = 16  # the last turns, from which a wait is expected
TOLD_SECONDS = 3.0  # a browser that has gone is noticed when it is told something


class Turns:
    """First come, first served. A ticket, not a thread, holds the turn: handlers change threads.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._tickets: deque[object] = deque()
        self._changed = threading.Condition()
        self._clock, self._began = clock, clock()
        self._lasted: deque[float] = deque(maxlen=MEASURED)

    def __len__(self) -> int:
        """Who runs, and who waits."""
        return len(self._tickets)

    def join(self) -> object:
        """Stand in line."""
        ticket = object()
        with self._changed:
            if not self._tickets:
                self._began = self._clock()
            self._tickets.append(ticket)
        return ticket

    def wait(self, ticket: object, seconds: float) -> int:
        """Wait up to ``seconds``; how many stand before the ticket (0: its turn)."""
        with self._changed:
            self._changed.wait_for(lambda: self._tickets[0] is ticket, timeout=seconds)
            return self._tickets.index(ticket)

    def leave(self, ticket: object) -> None:
        """Give the turn, or the place in line, away."""
        with self._changed:
            if ticket in self._tickets:
                if self._tickets[0] is ticket:
                    now = self._clock()
                    self._lasted.append(now - self._began)
                    self._began = now
                self._tickets.remove(ticket)
            self._changed.notify_all()

    def expected(self, before: int) -> float | None:
        """Seconds until the turn of a ticket with ``before`` others before it, if those last as long as the
        last ones did on average; None while none was measured."""
        with self._changed:
            if not self._lasted or not before:
                return None
            usual = sum(self._lasted) / len(self._lasted)
            return max(0.0, usual - (self._clock() - self._began)) + usual * (before - 1)


class Place:
    """A place in the line; called with seconds, it waits up to as long and says how many are before."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.ticket = turns, turns.join()

    def __call__(self, seconds: float) -> int:
        return self.turns.wait(self.ticket, seconds)

    def leave(self) -> None:
        """Give it away."""
        self.turns.leave(self.ticket)

    def said(self, before: int) -> str:
        """Position and expected wait, for the person who waits."""
        expected = self.turns.expected(before)
        told = text.WAITING.format(before=plural(before, "run"))
        return told if expected is None else f"{told} {text.WAITING_TIME.format(about=duration(expected))}"


def waiting(
    place: Place, cancel: threading.Event | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[str]:
    """Wait for the turn; says where one stands whenever that changes, and every few seconds.

    Raises:
        RunCancelled: ``cancel`` was set meanwhile.
    """
    known, told = 0, 0.0
    while before := place(0.2):
        if cancel is not None and cancel.is_set():
            raise RunCancelled("Stopped while waiting.")
        if before != known or clock() - told >= TOLD_SECONDS:
            known, told = before, clock()
            yield place.said(before)
