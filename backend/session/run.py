"""One request from its prompts to its record: every agent reads and answers under every method."""

import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from backend.base.cancel import stop_if
from backend.base.errors import ModelError
from backend.base.machine import versions
from backend.cache.samples import PromptInContext, Sample
from backend.methods.base import Arrived
from backend.records.events import PROMPTS_READ, AgentDone, Event, Progress, RunDone, TextSoFar
from backend.records.familiarity import AgentSurprisal
from backend.records.prompt import Prompt
from backend.records.request import RunRequest
from backend.records.run import AttentionProbe, OffsetProbe, Outcome, RunRecord, ShadowCheck, ToolUse
from backend.session.admission import prepare
from backend.session.familiarity import agent_surprisal, run_familiarity
from backend.session.outcomes import attention_of, outcomes_of, same_request_notes
from backend.session.pool_views import pool_views
from backend.session.prompt_run import own_context, read_prompt, take_answer
from backend.session.request_state import RequestState, record_offsets
from backend.session.shadow_check import shadow_checks
from backend.session.streams import MethodRun, PromptRun, states_of
from backend.session.weights_notes import weights_notes
from backend.session.workspace import Workspace

SMALLER = (
    "Memory ran out at first, so the methods decoded one after the other and not as one batch. Their times "
    "are not those of a batch."
)


class Run:
    """A request that goes through a session.

    Args:
        session: whose logs and engines it uses.
        request: what to run.
        cancel: stops it at its next step.
        small: memory ran out before, so rows go one by one.
    """

    def __init__(
        self,
        session: Workspace,
        request: RunRequest,
        cancel: threading.Event | None,
        small: bool = False,
    ) -> None:
        self.session = session
        self.request, self.cancel, self.small = request, cancel, small
        self.concurrent = False  # whether another run was at work meanwhile
        self.contexts: dict[str, list[PromptInContext]] = {}  # by a method's label, in running order
        self.prompts: list[Prompt] = []
        self.outcomes: list[Outcome] = []
        self.offsets: list[OffsetProbe] = []
        self.attention: list[AttentionProbe] = []
        self.surprisal: list[AgentSurprisal] = []
        self.shadow: tuple[ShadowCheck, ...] = ()
        self.tools: list[ToolUse] = []
        self.attention_notes: tuple[str, ...] = ()  # why attention was not measured

    def events(self, ends: Callable[[Outcome], bool] | None = None) -> Generator[Event, None, None]:
        """The run's events, ending with the record; see :meth:`backend.session.session.LabSession.run`."""
        start, request = time.perf_counter(), self.request
        runs, values = prepare(self.session, request)
        self.contexts = {run.choice.label: [] for run in runs}
        finished = False
        try:
            for state, members in states_of(runs):
                self._arrive(state.start(values), members)
            notes = same_request_notes(runs)
            active = runs
            for index, agent in enumerate(request.pipeline.order):
                new = yield from self._agent(active, agent, index)
                if ends is not None:
                    ended = [ends(new[0])] * len(new) if request.mode == "pinned" else list(map(ends, new))
                    active = [run for run, is_over in zip(active, ended, strict=True) if not is_over]
                    if not active:
                        break
            finished = True
        finally:
            self.session.settle(runs, self.contexts, finished, request.expected)
        yield RunDone(self._record(runs, notes, start))

    def _agent(self, runs: list[MethodRun], agent: int, index: int) -> Generator[Event, None, list[Outcome]]:
        """One agent reads, answers and uses its tool, under every method; ends with its outcomes."""
        request, scheduler = self.request, self.session.scheduler
        stop_if(self.cancel)
        self.concurrent = self.concurrent or scheduler.going > 1
        name = request.pipeline.agent(agent).name
        rows = []
        for run in runs:
            label = run.choice.label
            yield Progress(f"{name}: {label} is reading", index, len(request.pipeline.order), agent, label)
            stop_if(self.cancel)
            rows.append(self.prefill(run, agent))
            self.contexts[label].append(rows[-1].context)
        decode_ms = yield from self._decode(rows)
        self.session.finish(rows)
        self.concurrent = self.concurrent or scheduler.going > 1
        engine = self.session.engine_of(request, agent)
        outcomes = outcomes_of(engine, rows, request, decode_ms, self.prompts, self.offsets)
        self.outcomes += outcomes
        if request.probe_offsets:
            prompt, answer = rows[0].context.prompt, outcomes[0].token_ids.tolist()
            self.surprisal.append(agent_surprisal(engine.model, prompt, outcomes[0].prompt, answer))
        if request.probe_attention:
            try:
                self.attention += attention_of(engine, rows, outcomes)
            except ModelError as error:  # this family's attention cannot be read; the run goes on
                self.attention_notes = (str(error),)
        for state, members in states_of(runs):
            self._answer(state, members, next(r for r in rows if r.run is members[0]), agent)
        yield AgentDone(agent, tuple(outcomes))
        if request.shadow and agent == request.pipeline.final:
            self.shadow = shadow_checks(engine, rows, outcomes, request)
        return outcomes

    def _answer(self, state: RequestState, members: list[MethodRun], row: PromptRun, agent: int) -> None:
        """Add an agent's answer and its tool's result to the request state."""
        assert row.decoded is not None
        _, samples, result = take_answer(state, agent, row.decoded)
        if result:
            tool, label = self.request.pipeline.agent(agent).tool, members[0].choice.label
            self.tools.append(
                ToolUse(agent, label, tool, result.text, result.ok, result.reason or "", result.wall_ms)
            )
        self._arrive(samples, members)

    def _record(self, runs: list[MethodRun], notes: tuple[str, ...], start: float) -> RunRecord:
        pools = tuple(
            replace(p, method=run.choice.label) for run in runs for p in run.method.pools(run.stream.log)
        )
        return RunRecord(
            id=secrets.token_hex(8),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(),
            model=self.session.model.info,
            request=self.request,
            prompts=tuple(self.prompts),
            outcomes=tuple(self.outcomes),
            offsets=tuple(self.offsets),
            pools=pools,
            pool_views=pool_views(runs, pools) if self.request.probe_offsets else (),
            wall_ms=(time.perf_counter() - start) * 1e3,
            notes=notes
            + weights_notes(self.request, self.outcomes, self.prompts)
            + self.attention_notes
            + ((SMALLER,) if self.small else ())
            + ((self.session.concurrent_note,) if self.concurrent else ()),
            tools=tuple(self.tools),
            attention=tuple(self.attention),
            shadow=self.shadow,
            familiarity=run_familiarity(self.session, self.request, self.prompts, self.surprisal),
        )

    def _arrive(self, samples: Sequence[Sample], members: Sequence[MethodRun]) -> None:
        """Let each method see the samples that just became complete."""
        for run in members:
            run.clock = run.clock or self.session.engine.clock()
            with run.clock.part("gate"):
                for sample in samples:
                    run.method.on_event(Arrived(sample), run.stream.log)

    def prefill(self, run: MethodRun, agent: int) -> PromptRun:
        """Let an agent read its prompt under one method."""
        request = self.request
        context = run.state.context(agent)
        engine = self.session.engine_of(request, agent)
        engine.check_room(len(context.prompt.ids), request.decoding_of(agent).max_new_tokens, agent)
        charged = run.method.shares_texts
        clock = (run.clock if charged else None) or engine.clock()
        run.clock = None
        if charged:
            ms_by_text = run.state.lead_in_ms if run.options.wants_lead_in else run.state.base_ms
            ms_by_text = ms_by_text if run.method.needs_bases else {}
            clock.add("base", sum(ms_by_text.get(n, 0.0) for n in context.samples))
        judging = agent == request.pipeline.final
        context, prefill = read_prompt(
            engine,
            context,
            run.method,
            run.stream.log,
            clock,
            gate=request.gate if judging else None,
            copy_slots_only=request.slots_only and judging,
            exact=run.choice.exact,
        )
        if request.mode == "pinned":
            if run.choice.reference:
                record_offsets(context, prefill.cache, engine)
        elif prefill.plan.plain:
            record_offsets(context, prefill.cache, engine, run.method.needed())
        return PromptRun(run, context, prefill.plan, prefill, clock)

    def _decode(self, rows: list[PromptRun]) -> Generator[Event, None, float]:
        """Let every row answer, as one batch unless memory ran out; ms that it took."""
        total_ms = 0.0
        for part in [[row] for row in rows] if self.session.engine.one_by_one else [rows]:
            total_ms += yield from self._decode_batch(part)
        return total_ms

    def _decode_batch(self, rows: list[PromptRun]) -> Generator[Event, None, float]:
        request, session = self.request, self.session
        agent = rows[0].context.prompt.agent
        for row in rows:
            row.run.state.charge(row.context)
        start = time.perf_counter()
        steps = self.session.engine_of(request, agent).decode_steps(
            [r.prefill for r in rows],
            request.decoding_of(agent),
            context=own_context(agent),
            keep_logits=request.mode == "pinned",
            scheduler=session.scheduler,
            wait=session.pauses_before_decode,
        )
        lengths = [-1] * len(rows)
        with closing(steps):
            if session.pauses_before_decode:
                next(steps)
                yield PROMPTS_READ
            while True:
                try:
                    ids = next(steps)
                except StopIteration as end:
                    for row, decoded in zip(rows, end.value, strict=True):
                        row.decoded = decoded
                    return (time.perf_counter() - start) * 1e3
                stop_if(self.cancel)
                for index, row in enumerate(rows):
                    if len(ids[index]) != lengths[index]:
                        lengths[index] = len(ids[index])
                        yield TextSoFar(agent, row.run.choice.label, session.model.tokens.decode(ids[index]))
