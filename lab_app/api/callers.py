"""Visits of programs. Like a browser tab, each caller's session is a trust domain of its own.

A caller that sends a session name gets the same visit, with its pools and records, at every call. A caller
without one gets a visit for one call, which ends a minute later; its calls are rate-limited by address."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from backend.base.errors import OptionError
from backend.base.text import show
from backend.session.limits import Rate
from lab_app.visits.visits import Visit, VisitStore

ADDRESSES = 1024  # whose rates are remembered, the latest ones
SESSION = re.compile(r"[A-Za-z0-9_.-]{16,128}")


@dataclass(frozen=True)
class Caller:
    """A program's session name, empty if it sends none, and its address."""

    session: str = ""
    address: str = ""


class Callers:
    """The visits of programs that call the lab's endpoints.

    Args:
        lab: holds the visits.
        clock: seconds.
    """

    def __init__(self, lab: VisitStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.lab, self._clock = lab, clock
        self._rates: OrderedDict[str, Rate] = OrderedDict()
        self._guard = threading.Lock()

    @contextmanager
    def visit(self, caller: Caller) -> Iterator[Visit]:
        """The caller's visit, for one call.

        Raises:
            LabError: the session's name could be guessed; a caller without one asked too often; or the lab is
                full.
        """
        if caller.session:
            yield self._session_visit(caller.session)
            return
        self._rate(caller.address).ask()
        visit = self.lab.open()
        try:
            yield visit
        finally:
            visit.left_at = self._clock()  # nobody can use it again, so it ends soon

    def _session_visit(self, session: str) -> Visit:
        """The visit of a session, a new one at its first call."""
        if not SESSION.fullmatch(session):
            raise OptionError(
                f"The session_hash is {show(session)}; give 16 to 128 letters and digits that nobody "
                "guesses, or leave it out.",
                field="session_hash",
            )
        with self._guard:
            for visit in self.lab.visits:
                if visit.called and visit.browser == session:
                    return self.lab.visit(visit.id)
            visit = self.lab.open(session)
            visit.called = True
            return visit

    def _rate(self, address: str) -> Rate:
        with self._guard:
            rate = self._rates.pop(address, None) or Rate(self.lab.limits.requests_a_minute)
            self._rates[address] = rate
            while len(self._rates) > ADDRESSES:
                self._rates.popitem(last=False)
            return rate
