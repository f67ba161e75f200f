"""Server-side visits by id, and the one model they take turns on.

The browser holds a visit's id and nothing else. A visit is a trust domain of its own: its engine
session (pools, cached KV), its last records and its cancel event live here and end with it.
"""

import secrets
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.errors import LabError
from backend.base.serialization import encode
from backend.cache.process_memory import trim
from backend.records.run import RunRecord
from backend.records.sharing.store import SharedRuns
from backend.session.limits import Limits
from lab_app.visits.addresses import Volume
from lab_app.visits.classroom import Rooms
from lab_app.visits.engine import Engine, Model
from lab_app.visits.queue import ModelQueue, QueuePlace

LAB_FULL = (
    "All {visits} places of this lab are taken by people who use them now. Reload the page in a minute."
)
KEPT_RECORDS = 6
RECORD_BYTES = 64 << 20  # of one record, unpacked, and of all that a visit keeps beside the one on the screen
DAY = 86400.0
STORED_A_DAY = (64 << 20, 256 << 20)  # bytes of runs that one address may share, and all of them
ACTIVE_SECONDS = 120.0  # after a visitor's last action, in which nobody else gets the place
LEFT_SECONDS = 60.0  # a browser that has gone may come back: a reload of the network, a laptop's lid


class StoredResult(NamedTuple):
    """A measurement that a visit keeps, and the token that downloads it."""

    token: str
    record: Any  # of the study of this kind


@dataclass
class Visit:
    """One visitor's state on the server."""

    id: str
    engine: Engine
    records: OrderedDict[str, RunRecord] = field(default_factory=OrderedDict)
    record_sizes: dict[str, int] = field(default_factory=dict)  # bytes of their arrays
    shown: str | None = None  # id of the record on the screen
    cancel: threading.Event | None = None
    measuring: threading.Event | None = None  # while a section measures; set to stop it
    results: dict[str, StoredResult] = field(default_factory=dict)  # the last measurement of each kind
    stored: int = 0  # how many runs the visit has shared
    pages: dict[str, Any] = field(default_factory=dict)  # what the pages remember, by their keys
    used: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)
    browser: str = ""  # by which the server knows the tab that it belongs to
    address: str = ""  # where it comes from, for what is counted by that
    called: bool = False  # a program's, not a page's
    left_at: float | None = None  # when that tab went away

    @property
    def busy(self) -> bool:
        """Whether it runs or waits for something."""
        return self.cancel is not None or self.measuring is not None

    def stop(self) -> None:
        """Stop what runs or measures."""
        for event in filter(None, (self.cancel, self.measuring)):
            event.set()

    def keep(self, record: RunRecord, show: bool = True) -> str:
        """Remember a record, and ``show`` it on the pipeline's page; the token that downloads it."""
        token = secrets.token_urlsafe(18)
        self.records[token] = record
        self.shown = token if show else self.shown
        self.record_sizes[token] = record_bytes(record)
        for old in list(self.records):
            few = len(self.records) <= KEPT_RECORDS
            if old in (self.shown, token) or (few and self.kept_bytes <= RECORD_BYTES):
                continue
            del self.records[old], self.record_sizes[old]
        return token

    @property
    def kept_bytes(self) -> int:
        """Bytes of the arrays of all runs that are kept."""
        return sum(tuple(self.record_sizes.values()))  # copied at once: other threads keep runs meanwhile

    def keep_result(self, kind: str, record: Any) -> str:
        """Remember a measurement in the place of the last of its kind; the token that downloads it."""
        self.results[kind] = StoredResult(secrets.token_urlsafe(18), record)
        return self.results[kind].token

    def result(self, kind: str) -> Any:
        """The last measurement of a kind; None where there is none."""
        entry = self.results.get(kind)
        return None if entry is None else entry.record

    @property
    def record(self) -> RunRecord | None:
        """The record on the screen."""
        return self.records.get(self.shown) if self.shown else None


class VisitStore:
    """The loaded model, the visits, and whose turn it is."""

    def __init__(
        self,
        loader: Callable[[], Model],
        engine: Callable[[Model], Engine],
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        shared: SharedRuns | None = None,
    ) -> None:
        self.shared, self.stored = shared, Volume(*STORED_A_DAY, DAY, clock)
        self.first_runs: Path | None = None  # the folder of finished runs that pages show at first
        self._loader, self._engine, self._clock = loader, engine, clock
        self.limits = limits or Limits()
        self._model: Model | None = None
        self._loading = threading.Lock()
        self._visits: dict[str, Visit] = {}
        self._guard = threading.Lock()
        self.turns = ModelQueue(width=self.limits.together)
        self.rooms = Rooms(clock)
        self.on_end: Callable[[str], None] = lambda browser: (
            None
        )  # called with the browser whose visit is over

    @property
    def model(self) -> Model:
        """The model, loaded at first use."""
        with self._loading:
            if self._model is None:
                self._model = self._loader()
            return self._model

    def engine(self) -> Engine:
        """A fresh engine session outside any visit. Call its ``forget`` afterwards."""
        return self._engine(self.model)

    @property
    def loaded(self) -> bool:
        """Whether the model is there; asking does not load it."""
        return self._model is not None

    @property
    def visits(self) -> tuple[Visit, ...]:
        """Every visit held."""
        with self._guard:
            return tuple(self._visits.values())

    @property
    def full(self) -> bool:
        """Whether every place is taken by somebody who uses it."""
        with self._guard:
            return len(self._visits) >= self.limits.visits and not self._replaceable("")

    def _replaceable(self, address: str) -> list[Visit]:
        """The visits that end where somebody from ``address`` needs a place: those that were left, then those
        that have been idle longest. Whoever has just done something keeps the place, for else a crowd would
        only push one another out, and nobody would see a run's end; but no address keeps more places than
        the newcomer's would have."""
        places = Counter(visit.address for visit in self._visits.values())
        fair, active = places[address] + 1, self._clock() - ACTIVE_SECONDS
        candidates = [
            visit
            for visit in self._visits.values()
            if not visit.busy
            and (visit.left_at is not None or visit.used < active or places[visit.address] > fair)
        ]
        return sorted(candidates, key=lambda visit: (visit.left_at is None, visit.used))

    def open(self, browser: str = "", address: str = "") -> Visit:
        """A new visit, for a tab of a browser at an address.

        Raises:
            LabError: every place is taken by somebody who uses it.
        """
        now = self._clock()
        visit = Visit(
            secrets.token_urlsafe(18), self._engine(self.model), used=now, began=now, browser=browser,
            address=address,
        )  # fmt: skip
        self.sweep()
        with self._guard:
            spare = len(self._visits) - self.limits.visits + 1
            idle = self._replaceable(address) if spare > 0 else []
            if spare > len(idle):
                raise LabError(LAB_FULL.format(visits=self.limits.visits))
            ended = idle[: max(0, spare)]
            for old in ended:
                del self._visits[old.id]
            self._visits[visit.id] = visit
        self._end(ended)
        return visit

    def visit(self, visit_id: str) -> Visit:
        """The visit with this id.

        Raises:
            LabError: it has ended.
        """
        with self._guard:
            visit = self._visits.get(visit_id)
            if visit is None:
                raise LabError(
                    "The server has ended this page's session. Reload the page: what you typed "
                    "comes back. Open files again."
                )
            visit.used, visit.left_at = self._clock(), None
            return visit

    def close(self, visit_id: str) -> None:
        """End a visit and free what it holds."""
        with self._guard:
            visit = self._visits.pop(visit_id, None)
        if visit is not None:
            visit.stop()
            self._end([visit])

    def leave(self, browser: str) -> None:
        """A tab went away: what it runs is stopped, and soon its visit ends."""
        with self._guard:
            visits = [v for v in self._visits.values() if browser and v.browser == browser]
            for visit in visits:
                visit.left_at = self._clock()
                visit.stop()

    def tab_returned(self, browser: str) -> None:
        """A tab that had gone is there again."""
        with self._guard:
            for visit in self._visits.values():
                if browser and visit.browser == browser:
                    visit.left_at = None

    def sweep(self) -> int:
        """End the visits whose time is over; how many those were."""
        now = self._clock()
        idle, most = self.limits.idle_minutes * 60, self.limits.lifetime_minutes * 60
        with self._guard:
            over = [
                visit
                for visit in self._visits.values()
                if not visit.busy
                and (
                    now - visit.used > idle
                    or now - visit.began > most
                    or (visit.left_at is not None and now - visit.left_at > LEFT_SECONDS)
                )
            ]
            for visit in over:
                del self._visits[visit.id]
        self._end(over)
        return len(over)

    def _end(self, over: Iterable[Visit]) -> None:
        """Free what ended visits hold."""
        for visit in over:
            visit.engine.forget()
            with self._guard:
                present = any(other.browser == visit.browser for other in self._visits.values())
            if visit.browser and not present:
                self.on_end(visit.browser)

    def record(self, token: str) -> RunRecord | None:
        """A record by its download token."""
        with self._guard:
            return next((v.records[token] for v in self._visits.values() if token in v.records), None)

    def holder(self, token: str) -> Visit | None:
        """The visit that keeps the record with this download token."""
        with self._guard:
            return next((v for v in self._visits.values() if token in v.records), None)

    def result(self, kind: str, token: str) -> Any:
        """A measurement of a kind by its download token."""
        with self._guard:
            entries = [v.results[kind] for v in self._visits.values() if kind in v.results]
        return next((entry.record for entry in entries if entry.token == token), None)

    @contextmanager
    def in_line(self, together: bool = False) -> Iterator[QueuePlace]:
        """Stand in line for the model; see :func:`lab_app.visits.queue.wait_for_turn`.

        ``together``: for a run, which can go on beside others' and decode in one batch with them."""
        place = QueuePlace(self.turns, together)
        try:
            yield place
        finally:
            place.leave()


def record_bytes(record: RunRecord) -> int:
    """What a record's arrays take; its texts are small beside them."""
    arrays: dict[str, Any] = {}
    encode(record, arrays)
    return sum(array.nbytes for array in arrays.values())


def keep_swept(lab: VisitStore, seconds: float = 15.0) -> threading.Thread:
    """Every few seconds, end visits whose time is over and return their memory to the system, as long as the
    lab exists."""
    reference, pause = weakref.ref(lab), threading.Event()

    def work() -> None:
        while not pause.wait(seconds) and (store := reference()) is not None:
            store.sweep()
            del store
            trim()  # also after other ends of visits, and after runs

    thread = threading.Thread(target=work, name="sweeper", daemon=True)
    thread.start()
    return thread
