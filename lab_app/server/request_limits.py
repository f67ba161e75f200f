"""Limits of requests, for each address and in total.

An address is that of the connection (of IPv6 its network, /64). A class room shares one address, so each
limit suits a hundred tabs.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from lab_app.visits.addresses import Volume

MOST_BODY = 8 << 20  # bytes: every box of the page full, and its options
MOST_UPLOAD = 32 << 20
MOST_VALUES = 200_000  # in a body; the page has some 1,200 widgets
BODY_SECONDS = 60.0  # for a body to arrive
ANSWER_SECONDS = 600.0  # for an answer to be taken
HOUR, MINUTE = 3600.0, 60.0
MOST_NAME = 128  # characters of a session's name
MOST_NAMES = 20_000  # remembered of all sessions; the longest unused is forgotten


class Bound(NamedTuple):
    """A limit for each address, and one for all together."""

    each: int
    together: int


CONNECTIONS = Bound(768, 3072)  # open at once, idle or not
STREAMS = Bound(384, 1536)  # open at once: what a tab listens to, three at most
DOWNLOADS = Bound(8, 16)  # being made or read at once: each may hold a whole record
ANSWERS = Bound(256, 512)  # all others at once
SESSIONS = Bound(120, 600)  # new ones a minute
CALLS = Bound(6_000, 12_000)  # calls a minute
UPLOADS = Bound(256 << 20, 1 << 30)  # bytes an hour; the framework deletes what is older


class Open:
    """Counts what is open at once, by address."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.counted: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more; False where the limit is reached."""
        if self.counted[address] >= self.bound.each or self.counted.total() >= self.bound.together:
            self.leave(address, 0)
            return False
        self.counted[address] += 1
        return True

    def leave(self, address: str, many: int = 1) -> None:
        """One has ended."""
        self.counted[address] -= many
        if not self.counted[address]:
            del self.counted[address]


class Minute:
    """Counts what came within a minute, by address. ``clock``: seconds."""

    def __init__(self, bound: Bound, clock: Callable[[], float] = time.monotonic) -> None:
        self.bound, self._clock, self._began = bound, clock, clock()
        self._counted: Counter[str] = Counter()

    @property
    def used(self) -> int:
        """How many came within this minute."""
        return self._counted.total() if self._clock() - self._began < MINUTE else 0

    def ask(self, address: str) -> bool:
        """Count one more; False where the limit is reached."""
        if self._clock() - self._began >= MINUTE:
            self._began = self._clock()
            self._counted.clear()
        if self._counted[address] >= self.bound.each or self._counted.total() >= self.bound.together:
            return False
        self._counted[address] += 1
        return True


class Names:
    """Session names and the browser of each: the page's script invents them, so a name proves nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.made = Minute(SESSIONS, clock)
        self._owners: OrderedDict[str, str] = OrderedDict()

    def belongs(self, name: str, browser: str) -> bool:
        """Whether a browser may use a name: nobody's yet, or its own."""
        return self._owners.get(name, browser) == browser

    def new(self, address: str) -> bool:
        """Count a new session; False where too many are."""
        return self.made.ask(address)

    def take(self, name: str, browser: str, address: str) -> bool:
        """Remember a name; False where too many were new within the minute."""
        if name not in self._owners and not self.new(address):
            return False
        self._owners[name] = browser
        self._owners.move_to_end(name)
        while len(self._owners) > MOST_NAMES:
            self._owners.popitem(last=False)
        return True


class Counts:
    """All that is counted of requests. ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.names, self.calls = Names(clock), Minute(CALLS, clock)
        self.uploads = Volume(UPLOADS.each, UPLOADS.together, HOUR, clock)
        self.open = {bound: Open(bound) for bound in (STREAMS, DOWNLOADS, ANSWERS)}
        self.connections = Open(CONNECTIONS)
