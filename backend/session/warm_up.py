"""Warming up: requests that go through a session before the one that is looked at, so that pools fill."""

import threading
from collections.abc import Generator, Sequence
from dataclasses import replace

from backend.base.cancel import drain, stop_if, stoppable
from backend.base.errors import BudgetError
from backend.cache.memory_budget import out_of_memory, release
from backend.cache.samples import PromptInContext
from backend.prompts.presets import Example
from backend.records.events import Event, Progress
from backend.records.request import REFERENCE, MethodChoice, RunRequest
from backend.session.admission import prepare
from backend.session.prompt_run import own_context, read_densely, take_answer
from backend.session.request_state import record_offsets
from backend.session.run import Run
from backend.session.shared_warm_up import Key, warm_up_key
from backend.session.streams import AnsweredRequest, Stream, stream_key
from backend.session.workspace import Workspace

DENSE = MethodChoice(REFERENCE)
WARM_BATCH = 8  # requests that a pinned warm-up decodes together


class WarmUp:
    """Fills the pools of a session, or takes them from a warm-up that another session made of the same texts.

    Args:
        session: whose pools they are.
    """

    def __init__(self, session: Workspace) -> None:
        self.session = session

    def warm_up_is_cached(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        """Whether a shared warm-up with these examples would find them computed."""
        key, _ = self._warm_keys(request, examples)
        return self._shareable(request) and self.session.kept_warm_ups.size(key) is not None

    def _shareable(self, request: RunRequest) -> bool:
        """Whether a warm-up of this session is the same in every other: nothing went through it before, and
        its agents run on the lab's own weights."""
        stream = self.session.streams.get(stream_key(request, DENSE))
        return (
            request.mode == "pinned"
            and (stream is None or not (stream.history or stream.forgotten))
            and not any(request.pipeline.agent(agent).model for agent in request.pipeline.order)
        )

    def _warm_keys(self, request: RunRequest, examples: Sequence[Example]) -> tuple[Key, str]:
        """The cache key of a pinned warm-up, and the key of the stream that it fills."""
        stream = stream_key(request, DENSE)
        return warm_up_key(stream, examples), stream

    def events(
        self,
        request: RunRequest,
        examples: Sequence[Example],
        cancel: threading.Event | None,
        small: bool,
        shared: bool = False,
    ) -> Generator[Event, None, None]:
        """See :meth:`backend.session.session.LabSession.warm_up`. ``small``: no two requests at once."""
        shared = shared and self._shareable(request)
        if shared and self._take_cached(request, examples):
            yield Progress("They were computed before, for everybody", len(examples), len(examples))
            return
        bare = replace(request, probe_offsets=False, probe_attention=False, expected=None)
        if request.mode == "free":
            for number, example in enumerate(examples):
                yield Progress(
                    f"Warming up with request {number + 1} of {len(examples)}", number, len(examples)
                )
                warming = replace(bare, values=dict(example.values))
                drain(Run(self.session, warming, cancel, small).events())
            return
        batch = 1 if small else WARM_BATCH
        for at in range(0, len(examples), batch):
            part = examples[at : at + batch]
            progress = Progress(f"Warming up with requests {at + 1} to {at + len(part)}", at, len(examples))
            yield progress
            for _ in self._warm_batch(bare, part, cancel):
                yield progress  # lets other sessions work
        if shared and not small:
            self._keep_cached(request, examples)

    def _take_cached(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        """Begin with a copy of the examples' stream, if there is one and room for it; else with an empty
        stream, for a cancelled run may have left something in the log."""
        key, stream = self._warm_keys(request, examples)
        session, cache = self.session, self.session.kept_warm_ups
        session.streams.pop(stream, None)
        size = cache.size(key)
        if size is None or size > session.budget_bytes:
            return False
        try:
            session.memory.make_room(session, min(session.bytes + size, session.budget_bytes), 0)
        except BudgetError:
            return False
        copy = cache.copy(key, session.id, session.budget_bytes, session.engine)
        if copy is None:  # dropped to make room
            return False
        session.streams[stream] = copy
        session.drop_idle({id(copy)})
        return True

    def _keep_cached(self, request: RunRequest, examples: Sequence[Example]) -> None:
        """Keep a complete warm-up for other sessions, if memory is spare. The texts are encoded behind their
        lead-ins as well, for methods as shipped."""
        key, name = self._warm_keys(request, examples)
        stream = self.session.streams.get(name)
        if stream is None or stream.forgotten or len(stream.history) != len(examples):
            return
        if not self.session.memory.spare(stream.bytes + stream.log.most_lead_in_bytes):
            return

        def with_lead_ins(copy: Stream) -> None:
            self.session.request_state(request, copy).encode_lead_ins()

        try:
            self.session.kept_warm_ups.keep(key, stream, with_lead_ins)
        except Exception as error:  # the warm-up itself is complete without its copy
            if not out_of_memory(error):
                raise
            release()

    def _warm_batch(
        self, request: RunRequest, examples: Sequence[Example], cancel: threading.Event | None
    ) -> Generator[object, None, None]:
        """Dense over several requests at once, into the pinned stream's history; yields at each step."""
        first = replace(request, values=dict(examples[0].values), methods=(DENSE,))
        runs, _ = prepare(self.session, first, len(examples))
        stream = runs[0].stream
        states = [self.session.request_state(request, stream) for _ in examples]
        histories: list[list[PromptInContext]] = [[] for _ in examples]
        finished = False
        try:
            for state, example in zip(states, examples, strict=True):
                state.start(request.pipeline.check_values(example.values))
            for agent in request.pipeline.order:
                engine, prefills = self.session.engine_of(request, agent), []
                decoding = request.decoding_of(agent)
                for state, history in zip(states, histories, strict=True):
                    yield None
                    stop_if(cancel)
                    context = state.context(agent)
                    engine.check_room(len(context.prompt.ids), decoding.max_new_tokens, agent)
                    prefill = read_densely(engine, context, "warm-up")
                    record_offsets(context, prefill.cache, engine)
                    history.append(context)
                    prefills.append(prefill)
                steps = engine.decode_steps(
                    prefills, decoding, context=own_context(agent), scheduler=self.session.scheduler
                )
                decoded = yield from stoppable(steps, cancel)
                for state, row in zip(states, decoded, strict=True):
                    take_answer(state, agent, row)
            finished = True
        finally:
            if finished:
                stream.history += [
                    AnsweredRequest(contexts, state.answers, example.answer)
                    for contexts, state, example in zip(histories, states, examples, strict=True)
                ]
                stream.shrink()
                self.session.drop_idle({id(stream)})
            else:
                self.session.settle(runs, {DENSE.label: []}, finished=False)
