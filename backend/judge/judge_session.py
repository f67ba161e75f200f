"""A judge's session in one order of the candidates, and several of them that answer as one batch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from backend.cache.kv_cache import KVSegment
from backend.cache.observations import Observation
from backend.records.events import READ, Event, RunDone
from backend.records.request import REFERENCE, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.prompt_run import read_densely
from backend.session.request_state import Flow, see_offsets
from backend.session.session import LabSession
from backend.session.streams import Past, Row, Stream
from backend.session.workspace import BESIDE

T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """A slot's text as tokens, with the KV its writer's decoding left (None: it is encoded alone)."""

    ids: tuple[int, ...]
    base: KVSegment | None
    source: str


class GivenFlow(Flow):
    """A walk whose declared texts may come with their tokens, cache and writer."""

    given: Mapping[str, Given]

    def start(self, values: Mapping[str, str]) -> list[Observation]:
        """Take the texts in; see :meth:`backend.session.request_state.Flow.start`."""
        arrived = []
        for name, text in values.items():
            given = self.given.get(name)
            if given is None or given.base is None:
                found = super().start({name: text})
            else:
                self.ids[name] = given.ids
                found = [self._observe(name, given.ids, text, given.base)]
                found[0].led = given.base  # an answer has one base, whatever stands before it
            for sample in found:
                sample.source = given.source if given else ""
            arrived += found
        return arrived


class JudgeSession(LabSession):
    """The judge's session in one order. ``given`` belongs to the next run; ``rows`` to the last one: each
    method's plan, cache and answer, dense first."""

    waits = True
    beside = BESIDE.format(what="Other orders, or runs of others,")
    given: Mapping[str, Given] = {}
    rows: Sequence[Row] = ()

    def asking(
        self, request: RunRequest, given: Mapping[str, Given], cancel: threading.Event | None = None
    ) -> Generator[Event, None, RunRecord]:
        """Run a request over given texts; ends with the record.

        Raises:
            LabError: the request cannot be run.
            RunCancelled: ``cancel`` was set.
        """
        self.given, record = given, None
        for event in self.run(request, cancel=cancel):
            if isinstance(event, RunDone):
                record = event.record
            yield event
        assert record is not None
        return record

    def learn(self, request: RunRequest, given: Mapping[str, Given]) -> None:
        """Let the pools see a request: dense reads its prompt, and nobody answers."""
        self.given = given
        lanes, values = self.admission.prepare(replace(request, methods=(MethodChoice(REFERENCE),)))
        [lane] = lanes
        lane.flow.start(values)
        context = lane.flow.context(request.pipeline.final)
        prefill = read_densely(self.engine, context, "learning")
        see_offsets(context, prefill.cache, self.engine)
        lane.stream.history.append(Past([context], {}))
        lane.stream.shrink()

    def flow(self, request: RunRequest, stream: Stream) -> Flow:
        flow = GivenFlow(request.pipeline, self.engine, stream.log, engines=self.others)
        flow.given = self.given
        return flow

    def finish(self, rows: list[Row]) -> None:
        self.rows = rows


def side_by_side(works: Sequence[Generator[Event, None, T]]) -> list[T]:
    """What works end with that go on by turns. None answers before all have read: then their answers are one
    batch from its first token on.

    Raises:
        LabError: one of them failed; the others are given up.
    """
    found: dict[int, T] = {}
    try:
        reading = list(enumerate(works))
        while reading:
            turns, reading = deque(reading), []
            while turns:
                number, work = turns.popleft()
                try:
                    event = next(work)
                except StopIteration as end:
                    found[number] = end.value
                else:
                    (reading if event is READ else turns).append((number, work))
    finally:
        for work in works:
            work.close()
    return [found[number] for number in range(len(works))]
