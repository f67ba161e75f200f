"""A judge's session in one order of the candidates, and several of them that answer as one batch."""

import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from backend.cache.kv_cache import KVSegment
from backend.cache.samples import Sample
from backend.records.events import PROMPTS_READ, Event, RunDone
from backend.records.request import REFERENCE, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.admission import prepare
from backend.session.prompt_run import read_densely
from backend.session.request_state import RequestState, record_offsets
from backend.session.session import LabSession
from backend.session.streams import AnsweredRequest, PromptRun, Stream
from backend.session.workspace import CONCURRENT

T = TypeVar("T")


@dataclass(frozen=True)
class SlotText:
    """A slot's text as tokens, with the KV its writer's decoding left (None: it is encoded alone)."""

    ids: tuple[int, ...]
    base: KVSegment | None
    source: str


class SlotRequestState(RequestState):
    """A request state whose slots may come with their tokens, KV and writer."""

    texts: Mapping[str, SlotText]

    def start(self, values: Mapping[str, str]) -> list[Sample]:
        """Take the texts in; see :meth:`backend.session.request_state.RequestState.start`."""
        arrived = []
        for name, text in values.items():
            slot = self.texts.get(name)
            if slot is None or slot.base is None:
                samples = super().start({name: text})
            else:
                self.ids[name] = slot.ids
                samples = [self._add_sample(name, slot.ids, text, slot.base)]
                samples[0].lead_in_base = slot.base  # an answer has one base, whatever stands before it
            for sample in samples:
                sample.source = slot.source if slot else ""
            arrived += samples
        return arrived


class JudgeSession(LabSession):
    """The judge's session in one order.

    Attributes:
        texts: of the next run's slots.
        rows: of the last run: each method's plan, cache and answer, dense first.
    """

    pauses_before_decode = True
    concurrent_note = CONCURRENT.format(what="Other orders, or runs of others,")
    texts: Mapping[str, SlotText] = {}
    rows: Sequence[PromptRun] = ()

    def run_slots(
        self, request: RunRequest, texts: Mapping[str, SlotText], cancel: threading.Event | None = None
    ) -> Generator[Event, None, RunRecord]:
        """Run a request whose slots hold these texts; ends with the record.

        Raises:
            LabError: the request cannot be run.
            RunCancelled: ``cancel`` was set.
        """
        self.texts, record = texts, None
        for event in self.run(request, cancel=cancel):
            if isinstance(event, RunDone):
                record = event.record
            yield event
        assert record is not None
        return record

    def learn(self, request: RunRequest, texts: Mapping[str, SlotText]) -> None:
        """Let the pools see a request: dense reads its prompt, and nobody answers."""
        self.texts = texts
        runs, values = prepare(self, replace(request, methods=(MethodChoice(REFERENCE),)))
        [run] = runs
        run.state.start(values)
        context = run.state.context(request.pipeline.final)
        prefill = read_densely(self.engine, context, "learning")
        record_offsets(context, prefill.cache, self.engine)
        run.stream.history.append(AnsweredRequest([context], {}))
        run.stream.shrink()

    def request_state(self, request: RunRequest, stream: Stream) -> RequestState:
        state = SlotRequestState(request.pipeline, self.engine, stream.log, engines=self.others)
        state.texts = self.texts
        return state

    def finish(self, rows: list[PromptRun]) -> None:
        self.rows = rows


def side_by_side(works: Sequence[Generator[Event, None, T]]) -> list[T]:
    """Run generators by turns; returns what each ends with. None decodes before all have read their prompts,
    so their answers are one batch from the first token on.

    Raises:
        LabError: one of them failed; the others are given up.
    """
    results: dict[int, T] = {}
    try:
        reading = list(enumerate(works))
        while reading:
            turns, reading = deque(reading), []
            while turns:
                number, work = turns.popleft()
                try:
                    event = next(work)
                except StopIteration as end:
                    results[number] = end.value
                else:
                    (reading if event is PROMPTS_READ else turns).append((number, work))
    finally:
        for work in works:
            work.close()
    return [results[number] for number in range(len(works))]
