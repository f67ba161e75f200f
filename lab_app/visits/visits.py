"""Server-side visits by id, and the one model they take turns on.

The browser holds a visit's id and nothing else. A visit is a trust domain of its own: its engine
session (pools, cached KV), its last records and its cancel event live here and end with it.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from backend.base.errors import LabError
from backend.base.serialization import encode
from backend.cache.process_memory import trim
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.anchor_cost import AnchorCost
from backend.records.blend import BlendStudy
from backend.records.documents import DocumentStudy
from backend.records.events import Event, Progress
from backend.records.hardware import Figures
from backend.records.judge import Judged, JudgeProblem, JudgeRequest
from backend.records.offsets import OffsetStudy
from backend.records.proximity import ProximityRecord
from backend.records.replay import Replay
from backend.records.run import ModelInfo, Outcome, PoolState, RunRecord, RunRequest
from backend.records.sharing.store import SharedRuns
from backend.records.sweep import Count, Swept
from backend.session.limits import Limits
from backend.studies.gallery import GalleryEntry
from lab_app.pages.pipeline.undo import History
from lab_app.ui import text
from lab_app.visits.classroom import Rooms
from lab_app.visits.queue import Place, Turns

KEPT_RECORDS = 6
RECORD_BYTES = 64 << 20  # of one record, unpacked, and of all that a visit keeps beside the one on the screen
LEFT_SECONDS = 60.0  # a browser that has gone may come back: a reload of the network, a laptop's lid


class Engine(Protocol):
    """What the page needs of an engine session."""

    def run(
        self,
        request: RunRequest,
        *,
        cancel: threading.Event | None = None,
        ends: Callable[[Outcome], bool] | None = None,
    ) -> Iterator[Event]:
        """Events, the last one a finished record; ``ends`` says of an outcome that no agent follows it."""

    def warm_up(
        self,
        request: RunRequest,
        examples: Any,
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        """Fill the pools of the request's methods; progress events only. ``shared``: all of it is public."""

    def ready(self, request: RunRequest, examples: Any) -> bool:
        """Whether a shared warm-up with these examples was computed before."""

    def study(self, request: object, *, cancel: threading.Event | None = None) -> Iterator[Any]:
        """Progress, then the record of the study that the request is for (``backend.lab.STUDIES``)."""

    def machine_figures(self) -> Iterator[Progress | Figures]:
        """Progress, then what the break-even formula needs to know of this machine."""

    def trained_weights(self) -> dict[str, str]:
        """Names and labels of the shipped weights that were trained for documents encoded apart."""

    def replay(
        self, request: RunRequest, last: int, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | Replay]:
        """Progress, then the record of past requests under the request's methods."""

    def write_candidates(
        self, request: JudgeRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | JudgeProblem]:
        """Progress, then the request's one problem with candidates that agents wrote."""

    def estimate_judging(self, request: JudgeRequest, count: int = 1, taken_in: int = 0) -> float:
        """Seconds of judging so many problems of a request, and of taking in so many more."""

    def sweep_desk(self) -> Any:
        """Where sweeps are asked for: ``.plan``, ``.saved``, ``.edited``."""

    def sweep(
        self, desk: Any, text: str, lines: str, *, cancel: threading.Event | None = None
    ) -> Generator[Count | Swept]:
        """Counts and what was found so far, then all of it."""

    def estimate(self, request: RunRequest, count: int = 1) -> Any:
        """``.seconds``, ``.bytes`` and ``.tokens`` of ``count`` runs."""

    def pools(self, request: RunRequest) -> tuple[PoolState, ...]:
        """The pools that the request's methods would use."""

    def tensor_bytes(self, record: RunRecord) -> int:
        """Bytes of the keys and values behind a run, as far as they are still held."""

    def tensors(self, record: RunRecord) -> bytes:
        """They themselves, as a safetensors file."""

    @property
    def held(self) -> int:
        """Bytes of what is remembered."""

    def forget(self) -> None:
        """Drop everything remembered."""


class Model(Protocol):
    """What the page needs of a loaded model."""

    @property
    def info(self) -> ModelInfo:
        """Facts for the top bar."""

    def count_tokens(self, pipeline: Pipeline, agent: int, values: Any) -> int:
        """Tokens of an agent's prompt with these values."""


@dataclass
class Visit:
    """One visitor's state on the server."""

    id: str
    engine: Engine
    records: OrderedDict[str, RunRecord] = field(default_factory=OrderedDict)
    shown: str | None = None  # id of the record on the screen
    ran: Any = None  # the request behind the record on the screen, as the bench stated it
    tab: str = ""
    next_example: int = 0
    example: Example | None = None  # the request of the set that was put on the bench
    checked: GalleryEntry | None = None  # the example of the gallery that it is, if it is one
    value_names: tuple[str, ...] = ()  # which placeholder each value box fills
    cancel: threading.Event | None = None
    measuring: bool = False
    measured: tuple[str, ProximityRecord] | None = None  # the last measurement, by its download token
    studied: tuple[str, OffsetStudy] | None = None  # the last study of offsets, by its download token
    study_token: int = -1  # of the study's text, chosen for all its figures; -1: the usual one
    priced: tuple[str, AnchorCost] | None = None  # the last measurement of pools, by its download token
    replayed: tuple[str, Replay] | None = None  # the last replay, by its download token
    judged: tuple[str, Judged] | None = None  # the last judged problems, by their download token
    # the last measurement of each further kind, by its download token
    kept: dict[str, tuple[str, BlendStudy | DocumentStudy]] = field(default_factory=dict)
    maps_asked: int = 0  # the last one wins: another choice makes an earlier map old
    benches: dict[str, dict[str, Any]] = field(default_factory=dict)  # behind kept records, by their tokens
    history: History = field(default_factory=History)
    stored: int = 0  # how many runs the visit has shared
    pages: dict[str, Any] = field(default_factory=dict)  # what the other pages remember, by their keys
    used: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)
    browser: str = ""  # by which the server knows the tab that it belongs to
    called: bool = False  # a program's, not a page's
    left: float | None = None  # when that tab went away

    @property
    def busy(self) -> bool:
        """Whether it runs or waits for something."""
        return self.cancel is not None or self.measuring

    def keep(self, record: RunRecord, show: bool = True) -> str:
        """Remember a record, and ``show`` it on the pipeline's page; the token that downloads it."""
        token = secrets.token_urlsafe(18)
        self.records[token] = record
        self.shown = token if show else self.shown
        sizes = {known: record_bytes(kept) for known, kept in self.records.items()}
        for old in list(self.records):
            few = len(self.records) <= KEPT_RECORDS
            if old in (self.shown, token) or (few and sum(sizes.values()) <= RECORD_BYTES):
                continue
            del self.records[old], sizes[old]
            self.benches.pop(old, None)
        return token

    def keep_bench(self, bench: dict[str, Any]) -> None:
        """Remember the bench behind the record on the screen."""
        if self.shown:
            self.benches[self.shown] = bench

    def measure(self, record: ProximityRecord) -> None:
        """Remember a measurement in the place of the one before."""
        self.measured = (secrets.token_urlsafe(18), record)

    def price(self, record: AnchorCost) -> str:
        """Remember a measurement of pools in the place of the one before; the token that downloads it."""
        self.priced = (secrets.token_urlsafe(18), record)
        return self.priced[0]

    def keep_replay(self, record: Replay) -> None:
        """Remember a replay in the place of the one before."""
        self.replayed = (secrets.token_urlsafe(18), record)

    def keep_judged(self, record: Judged) -> str:
        """Remember judged problems in the place of those before; the token that downloads them."""
        self.judged = (secrets.token_urlsafe(18), record)
        return self.judged[0]

    def keep_measured(self, kind: str, record: BlendStudy | DocumentStudy) -> str:
        """Remember a measurement in the place of the last of its kind; the token that downloads it."""
        self.kept[kind] = (secrets.token_urlsafe(18), record)
        return self.kept[kind][0]

    def study(self, record: OffsetStudy) -> None:
        """Remember a study of offsets in the place of the one before."""
        self.studied, self.study_token = (secrets.token_urlsafe(18), record), -1

    @property
    def record(self) -> RunRecord | None:
        """The record on the screen."""
        return self.records.get(self.shown) if self.shown else None


class Lab:
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
        self.shared = shared
        self._loader, self._engine, self._clock = loader, engine, clock
        self.limits = limits or Limits()
        self._model: Model | None = None
        self._loading = threading.Lock()
        self._visits: dict[str, Visit] = {}
        self._guard = threading.Lock()
        self.turns = Turns(width=self.limits.together)
        self.rooms = Rooms(clock)
        self.gone: Callable[[str], None] = lambda browser: None  # told whose visit is over

    @property
    def model(self) -> Model:
        """The model, loaded at first use."""
        with self._loading:
            if self._model is None:
                self._model = self._loader()
            return self._model

    def engine(self) -> Engine:
        """An engine session of no visit, for a run that shall find nothing. Let it forget afterwards."""
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

    def open(self, browser: str = "") -> Visit:
        """A new visit, for a tab of a browser.

        Raises:
            LabError: every place is taken by somebody who is running something.
        """
        now = self._clock()
        visit = Visit(
            secrets.token_urlsafe(18), self._engine(self.model), used=now, began=now, browser=browser
        )
        self.sweep()
        with self._guard:
            spare = len(self._visits) - self.limits.visits + 1
            idle = sorted(
                (v for v in self._visits.values() if not v.busy), key=lambda v: (v.left is None, v.used)
            )
            if spare > len(idle):
                raise LabError(text.LAB_FULL.format(visits=self.limits.visits))
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
            found = self._visits.get(visit_id)
            if found is None:
                raise LabError(
                    "This page was idle for too long and its session has ended. "
                    "Reload the page; nothing typed is lost until then."
                )
            found.used, found.left = self._clock(), None
            return found

    def close(self, visit_id: str) -> None:
        """End a visit and free what it holds."""
        with self._guard:
            visit = self._visits.pop(visit_id, None)
        if visit is not None:
            if visit.cancel is not None:
                visit.cancel.set()
            self._end([visit])

    def leave(self, browser: str) -> None:
        """A tab went away: what it runs is stopped, and soon its visit ends."""
        with self._guard:
            found = [v for v in self._visits.values() if browser and v.browser == browser]
            for visit in found:
                visit.left = self._clock()
                if visit.cancel is not None:
                    visit.cancel.set()

    def back(self, browser: str) -> None:
        """A tab that had gone is there again."""
        with self._guard:
            for visit in self._visits.values():
                if browser and visit.browser == browser:
                    visit.left = None

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
                    or (visit.left is not None and now - visit.left > LEFT_SECONDS)
                )
            ]
            for visit in over:
                del self._visits[visit.id]
        self._end(over)
        return len(over)

    def _end(self, over: Iterable[Visit]) -> None:
        """Free what visits hold that are held no more."""
        for visit in over:
            visit.engine.forget()
            with self._guard:
                there = any(other.browser == visit.browser for other in self._visits.values())
            if visit.browser and not there:
                self.gone(visit.browser)

    def record(self, token: str) -> RunRecord | None:
        """A record by its download token."""
        with self._guard:
            return next((v.records[token] for v in self._visits.values() if token in v.records), None)

    def holder(self, token: str) -> Visit | None:
        """The visit that keeps the record with this download token."""
        with self._guard:
            return next((v for v in self._visits.values() if token in v.records), None)

    def measurement(self, token: str) -> ProximityRecord | None:
        """A measurement by its download token."""
        with self._guard:
            held = [v.measured for v in self._visits.values() if v.measured is not None]
        return next((record for known, record in held if known == token), None)

    def cost(self, token: str) -> AnchorCost | None:
        """A measurement of pools by its download token."""
        with self._guard:
            held = [v.priced for v in self._visits.values() if v.priced is not None]
        return next((record for known, record in held if known == token), None)

    def study(self, token: str) -> OffsetStudy | None:
        """A study of offsets by its download token."""
        with self._guard:
            held = [v.studied for v in self._visits.values() if v.studied is not None]
        return next((record for known, record in held if known == token), None)

    def replay(self, token: str) -> Replay | None:
        """A replay by its download token."""
        with self._guard:
            held = [v.replayed for v in self._visits.values() if v.replayed is not None]
        return next((record for known, record in held if known == token), None)

    def judged(self, token: str) -> Judged | None:
        """Judged problems by their download token."""
        with self._guard:
            held = [v.judged for v in self._visits.values() if v.judged is not None]
        return next((record for known, record in held if known == token), None)

    def measured(self, kind: str, token: str) -> BlendStudy | DocumentStudy | None:
        """A measurement of a kind by its download token."""
        with self._guard:
            held = [v.kept[kind] for v in self._visits.values() if kind in v.kept]
        return next((record for known, record in held if known == token), None)

    @contextmanager
    def in_line(self, together: bool = False) -> Iterator[Place]:
        """Stand in line for the model; see :func:`lab_app.visits.queue.waiting`. ``together``: for a run,
        which can go on beside others' and decode in one batch with them."""
        place = Place(self.turns, together)
        try:
            yield place
        finally:
            place.leave()


def record_bytes(record: RunRecord) -> int:
    """What a record's arrays take; its texts are small beside them."""
    arrays: dict[str, Any] = {}
    encode(record, arrays)
    return sum(array.nbytes for array in arrays.values())


def keep_swept(lab: Lab, seconds: float = 15.0) -> threading.Thread:
    """End visits whose time is over and give the system what they held, every few seconds, as long as the lab
    is there."""
    known, pause = weakref.ref(lab), threading.Event()

    def work() -> None:
        while not pause.wait(seconds) and (found := known()) is not None:
            found.sweep()
            del found
            trim()  # also for those who left otherwise, and for what runs freed

    thread = threading.Thread(target=work, name="sweeper", daemon=True)
    thread.start()
    return thread
