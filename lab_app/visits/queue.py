"""The line before the model: who is next, and how long that may take."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from backend.base.errors import RunCancelled
from viz.base.format import duration, plural

MEASURED = 16  # the last turns, whose average gives the expected wait
WAITING = "Others have the model: {before} before you."
WAITING_TIME = "Expected wait: {about}, as the last runs went."
REPORT_SECONDS = 3.0  # a browser that has gone is noticed when something is sent to it


@dataclass(eq=False)
class Ticket:
    """A place in the line; ``together``: its run can go on beside others that can."""

    together: bool = False


class ModelQueue:
    """First come, first served. A ticket, not a thread, holds the turn: handlers change threads.

    Args:
        clock: seconds.
        width: how many may have their turn at once, where all of them can go on together.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, width: int = 1) -> None:
        self.width = width
        self._tickets: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._clock, self._began = clock, clock()
        self._lasted: deque[float] = deque(maxlen=MEASURED)

    def __len__(self) -> int:
        """Who runs, and who waits."""
        return len(self._tickets)

    def join(self, together: bool = False) -> Ticket:
        """Stand in line."""
        ticket = Ticket(together)
        with self._changed:
            if not self._tickets:
                self._began = self._clock()
            self._tickets.append(ticket)
        return ticket

    def wait(self, ticket: Ticket, seconds: float) -> int:
        """Wait up to ``seconds``; how many stand before the ticket (0: its turn)."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_turn(ticket), timeout=seconds)
            return 0 if self._has_turn(ticket) else self._tickets.index(ticket)

    def _has_turn(self, ticket: Ticket) -> bool:
        before = self._tickets.index(ticket)
        if not before:
            return True
        first = islice(self._tickets, before + 1)
        return before < self.width and all(other.together for other in first)

    def leave(self, ticket: Ticket) -> None:
        """Give the turn, or the place in line, away."""
        with self._changed:
            if ticket in self._tickets:
                if self._has_turn(ticket):
                    now = self._clock()
                    self._lasted.append(now - self._began)
                    self._began = now
                self._tickets.remove(ticket)
            self._changed.notify_all()

    def expected(self, before: int, together: bool = False) -> float | None:
        """Seconds until the turn of a ticket with ``before`` others before it, if turns end as soon after one
        another as the last ones did on average; None while none was measured."""
        with self._changed:
            if not self._lasted or not before:
                return None
            if together and all(other.together for other in islice(self._tickets, before + 1)):
                before = max(1, before - self.width + 1)  # so many have to end
            average = sum(self._lasted) / len(self._lasted)
            return max(0.0, average - (self._clock() - self._began)) + average * (before - 1)


class QueuePlace:
    """A place in the line; called with seconds, it waits up to as long and says how many are before."""

    def __init__(self, turns: ModelQueue, together: bool = False) -> None:
        self.turns, self.ticket = turns, turns.join(together)

    def __call__(self, seconds: float) -> int:
        return self.turns.wait(self.ticket, seconds)

    def leave(self) -> None:
        """Give it away."""
        self.turns.leave(self.ticket)

    def describe(self, before: int) -> str:
        """Position and expected wait, for the person who waits."""
        expected = self.turns.expected(before, self.ticket.together)
        position = WAITING.format(before=plural(before, "run"))
        return position if expected is None else f"{position} {WAITING_TIME.format(about=duration(expected))}"


def wait_for_turn(
    place: QueuePlace, cancel: threading.Event | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[str]:
    """Wait for the turn; yields the position whenever it changes, and every few seconds.

    Raises:
        RunCancelled: ``cancel`` was set meanwhile.
    """
    last, last_time = 0, 0.0
    while before := place(0.2):
        if cancel is not None and cancel.is_set():
            raise RunCancelled("Stopped while waiting.")
        if before != last or clock() - last_time >= REPORT_SECONDS:
            last, last_time = before, clock()
            yield place.describe(before)
