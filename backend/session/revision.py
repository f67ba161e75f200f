"""A finished pinned run under other methods or options, from what its session still holds.

Dense has read every prompt of a pinned run, and the log keeps what it saw: base KV and offsets. So what
another method would decide, copy and correct follows from the log: a fresh instance replays the history. The
model forwards the tokens that a plan leaves to it and, once per changed method, dense's answer behind the
method's cache. That gives errors, divergences and the first token that differs; only an answer that parts
from dense's, or might by rounding, is decoded. Results come in the order of their cost: decisions first, then
errors, then answers and attention. Dense's own caches are read again once and kept for the next change of the
same run, as are the last changes' results.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import torch
from torch import Tensor

from backend.base.cancel import drain, stop_if, stoppable
from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.cache.samples import PromptInContext
from backend.engine.decoding import Decoded
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.options import Options
from backend.methods.patched import patched
from backend.methods.plan import Plan, Reuse, plan_key
from backend.methods.registry import make_options, method_class
from backend.records.events import Progress
from backend.records.request import MethodChoice, RunRequest
from backend.records.run import COMPUTED, CORRECTED, REUSED, AttentionProbe, Outcome, RunRecord
from backend.session.admission import choices_of
from backend.session.dense_reading import DenseReading, PlanResult
from backend.session.outcomes import Forced, attention_of, cache_distance, outcome_of, same_request_notes
from backend.session.pool_views import pool_views
from backend.session.prompt_run import own_context, read_densely
from backend.session.streams import AnsweredRequest, MethodInstance, MethodRun, PromptRun, Stream, stream_key
from backend.session.tensors import past_of
from backend.session.workspace import Workspace

Choice = tuple[MethodChoice, Options]
Place = tuple[int, str]  # an agent and a column's label
Rows = dict[str, dict[int, PromptRun]]  # by label and agent
NEAR = 10.0  # a lead below this many floors is decoded: rounding might turn it
STOPPED = "Nothing of the change was kept."
NOTE = "Changed after the run, from what it had stored: "
TIMES = ". Their times are those of cached texts."


@dataclass(frozen=True)
class Revised:
    """A run under other methods.

    ``pending``: agent and label of answers that are still to be decoded; of their texts only what is sure is
    there, up to the first token that differs. ``planned``: those of them of which the decisions alone are
    known, neither times nor errors. ``whole``: nothing follows.
    """

    record: RunRecord
    pending: frozenset[Place] = frozenset()
    planned: frozenset[Place] = frozenset()
    whole: bool = False


def revise(
    session: Workspace, record: RunRecord, request: RunRequest, cancel: threading.Event | None = None
) -> Generator[Progress | Revised, None, None]:
    """Give a record the columns of ``request``; ends with all of them decoded.

    Args:
        session: that ran the record; its pools are left alone.
        record: pinned, finished.
        request: as the record's but for its methods.
        cancel: stops it at its next step.

    Raises:
        OptionError: something else than the methods differs, the log no longer holds the run, or one of the
            methods cannot be replayed.
        RunCancelled: ``cancel`` was set.
    """
    start = time.perf_counter()
    (dense, _), *choices = choices_of(session, request)
    stream = session.streams.get(stream_key(request, dense))
    past = past_of(session.streams, record)
    if stream is None or past is None or replace(record.request, methods=request.methods) != request:
        raise OptionError(
            "What this run stored is no longer held, or more than its methods was changed. Run it again.",
            field="run",
        )
    sources = {c.label: source for c, options in choices if (source := _same(record, c, options))}
    changed = [(choice, options) for choice, options in choices if choice.label not in sources]
    for choice, _ in changed:
        if reason := method_class(choice.name).not_replayed:
            raise OptionError(f"{choice.label} needs a run: {reason}.", field="methods")
    work = _Revision(session, record, request, stream, past, cancel)
    runs = work.runs(changed)
    rows, planned = work.plan(runs)
    if planned:
        yield Revised(work.record(sources, rows, start), planned | work.undecoded, planned)
    rows |= work.read({label: runs[label] for _, label in planned})
    pending = work.compare(rows)
    if pending or not work.has_attention(rows):
        yield Revised(work.record(sources, rows, start), pending)
    work.decode([rows[label][agent] for agent, label in sorted(pending)])
    yield Revised(work.record(sources, rows, start, whole=True), whole=True)


def _same(record: RunRecord, choice: MethodChoice, options: Options) -> str:
    """The label of the record's column with these options, if there is one."""
    own = [m for m in record.request.methods if (m.name, m.exact) == (choice.name, choice.exact)]
    own.sort(key=lambda m: m.label != choice.label)
    return next((m.label for m in own if make_options(m.name, m.options) == options), "")


class _Revision:
    """The changed columns of one record."""

    def __init__(
        self,
        session: Workspace,
        record: RunRecord,
        request: RunRequest,
        stream: Stream,
        past: AnsweredRequest,
        cancel: threading.Event | None,
    ) -> None:
        self.session, self.before, self.request = session, record, request
        self.stream, self.past, self.cancel = stream, past, cancel
        self.reference = record.labels[0]
        self.state = session.request_state(request, stream)
        for context in past.contexts:
            self.state.samples.update(context.samples)
        self.undecoded = frozenset[Place]()  # answers that are to be decoded
        self.results: dict[Place, PlanResult] = {}
        self.keys: dict[Place, Hashable] = {}  # of what may be taken over

    @property
    def reading(self) -> DenseReading:
        """Dense's caches; read at first where no earlier change of the run did."""
        if not self.is_read:
            self.session.reading = self._read_dense()
        assert self.session.reading is not None
        return self.session.reading

    @property
    def is_read(self) -> bool:
        return self.session.reading is not None and self.session.reading.past is self.past

    def _engine(self, agent: int) -> Engine:
        return self.session.engine_of(self.request, agent)

    def _run(self, choice: MethodChoice, options: Options) -> MethodRun:
        method = method_class(choice.name)(options)
        return MethodRun(choice, options, self.stream, self.state, MethodInstance(method), method)

    def _read_dense(self) -> DenseReading:
        """Dense's caches, and its logits along its answers."""
        reading = DenseReading(self.past)
        choice = MethodChoice("dense", {}, self.reference)
        run = self._run(choice, make_options("dense", {}))
        for context in self.past.contexts:
            stop_if(self.cancel, STOPPED)
            agent = context.prompt.agent
            engine, outcome = self._engine(agent), self.before.outcome(agent, self.reference)
            prefill = read_densely(engine, context, outcome.reason)
            ids = tuple(outcome.token_ids.tolist())
            answer = ids if outcome.stopped else ids[:-1]
            logits = engine.teacher_force([prefill], answer)[0]
            best = logits.topk(2).values
            nothing = prefill.cache.segment(0, 0, engine.model.rotation, exact=True, context="")
            leads = tuple((best[:, 0] - best[:, 1]).tolist())
            decoded = Decoded(ids, nothing, outcome.stopped, leads, logits)
            reading.rows[agent] = PromptRun(run, context, prefill.plan, prefill, Clock(), decoded)
            reading.logits[agent] = logits
            clock = Clock()
            for part, ms in outcome.timing.parts_ms.items():
                clock.add(part, ms)
            reading.plain[agent] = PlanResult(prefill, clock, logits)
        return reading

    def runs(self, changed: Sequence[Choice]) -> dict[str, MethodRun]:
        """A fresh instance of every changed method, which has replayed all requests before this one."""
        if any(options.wants_lead_in for _, options in changed):
            self.state.encode_lead_ins()
        at = next(i for i, past in enumerate(self.stream.history) if past is self.past)
        out = {}
        for choice, options in changed:
            stop_if(self.cancel, STOPPED)
            run = out[choice.label] = self._run(choice, options)
            for earlier in self.stream.history[:at]:
                earlier.replay(run.method, self.stream.log)
        return out

    def plan(self, runs: Mapping[str, MethodRun]) -> tuple[Rows, frozenset[Place]]:
        """Every changed method's rows, with the results of an earlier change with the same plan; and the
        places where there are none, so that a row holds the decisions alone."""
        rows: Rows = {}
        planned = set()
        for label, original in runs.items():
            # the original goes on where prompts are read
            run = replace(original, method=original.method.fork())
            label_rows, clocks = rows.setdefault(label, {}), self._clocks()
            for context, plan in self.past.plans(run.method, self.stream.log, clocks):
                agent = context.prompt.agent
                row = self._cached(run, context, plan, clocks[agent]) if self.is_read else None
                if row is None:
                    planned.add((agent, label))
                    row = self._planned_row(run, context, plan)
                else:
                    self._answer(row)
                label_rows[agent] = row
        return rows, frozenset(planned)

    def _clocks(self) -> dict[int, Clock]:
        return {context.prompt.agent: self.session.engine.clock() for context in self.past.contexts}

    def _planned_row(self, run: MethodRun, context: PromptInContext, plan: Plan) -> PromptRun:
        """A row that is planned and not read: tokens that may be computed again later count as copied."""
        model = self._engine(context.prompt.agent).model
        actions = np.full((model.info.layers, len(context.prompt.ids)), COMPUTED, dtype=np.uint8)
        for step in plan.steps:
            if isinstance(step.action, Reuse):
                actions[: plan.cut, step.start : step.end] = CORRECTED if step.action.terms else REUSED
        actions[:, -1] = COMPUTED
        cache = model.new_cache(0)
        prefill = Prefill(cache, torch.empty(0), actions, int((actions == COMPUTED).sum()), False, plan)
        nothing = cache.segment(0, 0, model.rotation, exact=True, context="")
        return PromptRun(run, context, plan, prefill, Clock(), Decoded((), nothing, False, (), None))

    def read(self, runs: Mapping[str, MethodRun]) -> Rows:
        """Read every agent's prompt under these methods."""
        rows: Rows = {}
        for label, run in runs.items():
            stop_if(self.cancel, STOPPED)
            label_rows, clocks = rows.setdefault(label, {}), self._clocks()
            for context, plan in self.past.plans(run.method, self.stream.log, clocks):
                agent = context.prompt.agent
                row = self._cached(run, context, plan, clocks[agent])
                label_rows[agent] = row or self._read_row(run, context, plan, clocks[agent])
        return rows

    def _cached(self, run: MethodRun, context: PromptInContext, plan: Plan, clock: Clock) -> PromptRun | None:
        """The row of a plan whose result is kept: an earlier change planned the same, or nothing is copied,
        so that cache and times are dense's own."""
        choice, agent = run.choice, context.prompt.agent
        planned = None if plan.plain else plan_key(plan)
        options = tuple(sorted((k, v) for k, v in choice.options.items() if k not in run.method.planned))
        key = None if planned is None else (choice.name, choice.exact, options, agent, planned)
        self.keys[agent, choice.label] = key
        result = self.reading.plain[agent] if plan.plain else self.reading.results.get(key)
        if result is None:
            return None
        self.results[agent, choice.label] = result
        for part in result.clock.parts.keys() - clock.parts.keys():
            clock.add(part, result.clock.parts[part])
        return PromptRun(run, context, plan, replace(result.prefill, plan=plan), clock)

    def _read_row(self, run: MethodRun, context: PromptInContext, plan: Plan, clock: Clock) -> PromptRun:
        choice, agent = run.choice, context.prompt.agent
        method = patched(run.method, choice.exact, agent)
        prefill = self._engine(agent).execute(context.prompt, plan, clock, method=method, context=context)
        if prefill.plan is not plan:  # the method fell back to dense
            self.keys[agent, choice.label] = None
        return PromptRun(run, context, prefill.plan, prefill, clock)

    @torch.inference_mode()
    def compare(self, rows: Rows) -> frozenset[Place]:
        """Compare every method's logits along dense's answer; the answers that are still to be decoded."""
        self.undecoded = frozenset()
        for agent, dense in self.reading.rows.items():
            stop_if(self.cancel, STOPPED)
            agent_rows = [by_agent[agent] for by_agent in rows.values() if agent in by_agent]
            new_rows = [row for row in agent_rows if (agent, row.run.choice.label) not in self.results]
            if new_rows:
                assert dense.decoded is not None
                answer = dense.decoded.ids[: len(self.reading.logits[agent]) - 1]
                forced = self._engine(agent).teacher_force([row.prefill for row in new_rows], answer)
                for row, logits in zip(new_rows, forced, strict=True):
                    self.results[agent, row.run.choice.label] = PlanResult(row.prefill, row.clock, logits)
            for row in agent_rows:
                self._answer(row)
        self.reading.keep({key: self.results[place] for place, key in self.keys.items() if key is not None})
        return self.undecoded

    def _answer(self, row: PromptRun) -> None:
        """Set a row's answer: the one decoded for the same logits, else the part that the logits
        determine."""
        agent, label = row.context.prompt.agent, row.run.choice.label
        row.decoded = self.reading.decoded.get(self._key(row))
        if row.decoded is None:
            dense = self.reading.rows[agent].decoded
            assert dense is not None
            row.decoded, sure = self._forced_answer(agent, dense, self.results[agent, label].logits)
            if not sure:
                self.undecoded |= {(agent, label)}

    def _forced_answer(self, agent: int, dense: Decoded, logits: Tensor) -> tuple[Decoded, bool]:
        """The part of an answer that ``logits`` along dense's determine, and whether it is the whole
        answer."""
        if self.request.decoding.temperature > 0:
            return replace(dense, ids=(), stopped=False), False
        floor = self._floor(agent)
        best, predicted = logits.topk(2)
        leads, picks = (best[:, 0] - best[:, 1]).tolist(), predicted[:, 0].tolist()
        engine, filled = self._engine(agent), list[int]()
        stops = engine.stop_ids()
        for at, pick in enumerate(picks):
            chosen = not filled  # by the model; results that are filled in have no choice
            pick = pick if chosen else filled.pop(0)
            same = pick == dense.ids[at] if at < len(dense.ids) else pick in stops
            if chosen and leads[at] < NEAR * floor:
                return replace(dense, ids=dense.ids[:at], stopped=False), False
            if not same:
                stopped = pick in stops
                return replace(
                    dense, ids=dense.ids[:at] + (() if stopped else (pick,)), stopped=stopped
                ), stopped
            filled = filled or list(engine.model.tokens.filled_after(dense.ids[: at + 1]))
        return dense, True

    def _floor(self, agent: int) -> float:
        fidelity = self.before.outcome(agent, self.reference).fidelity
        if fidelity is not None:
            return fidelity.floor
        return self._engine(agent).model.info.certificate.logit_floor

    def decode(self, rows: Sequence[PromptRun]) -> None:
        """Let rows answer, those of one agent as one batch."""
        for agent in dict.fromkeys(row.context.prompt.agent for row in rows):
            agent_rows = [row for row in rows if row.context.prompt.agent == agent]
            steps = self._engine(agent).decode_steps(
                [row.prefill for row in agent_rows],
                self.request.decoding_of(agent),
                context=own_context(agent),
            )
            for row, decoded in zip(agent_rows, drain(stoppable(steps, self.cancel, STOPPED)), strict=True):
                row.decoded = self.reading.decoded[self._key(row)] = decoded

    def _key(self, row: PromptRun) -> tuple[int, bytes]:
        """The key of an answer: the agent, and a hash of the logits along dense's answer."""
        agent = row.context.prompt.agent
        logits = self.results[agent, row.run.choice.label].logits.float().cpu().numpy()
        return agent, hashlib.sha256(logits.tobytes()).digest()

    def _outcome(self, row: PromptRun) -> Outcome:
        agent = row.context.prompt.agent
        prompt = self.before.outcome(agent, self.reference).prompt
        if (result := self.results.get((agent, row.run.choice.label))) is None:  # not read yet
            return outcome_of(self._engine(agent), row, row, self.request, 0.0, prompt, None)
        engine, dense = self._engine(agent), self.reading.rows[agent]
        if result.distance is None and self.request.probe_offsets:
            result.distance = cache_distance(engine, row, dense)
        forced = Forced(result.logits, self.reading.logits[agent], self._floor(agent))
        return outcome_of(engine, row, dense, self.request, 0.0, prompt, forced, result.distance)

    def has_attention(self, rows: Rows) -> bool:
        """Whether the attention of every answer is measured, or was not requested."""
        present = (
            self.results[agent, label].answer == row.decoded.ids
            for label, by_agent in rows.items()
            for agent, row in by_agent.items()
            if row.decoded is not None
        )
        return not self.request.probe_attention or all(present)

    def _attention(self, row: PromptRun, outcome: Outcome) -> tuple[AttentionProbe, ...]:
        agent, label = row.context.prompt.agent, row.run.choice.label
        result, ids = self.results[agent, label], row.decoded.ids if row.decoded is not None else ()
        if result.answer != ids:
            result.attention = attention_of(self._engine(agent), [row], [outcome])
            result.answer = ids
        return tuple(replace(a, method=label) for a in result.attention)

    def record(self, sources: Mapping[str, str], rows: Rows, start: float, whole: bool = False) -> RunRecord:
        """The record with its changed columns; ``whole``: with pools and attention, too."""
        before, labels = self.before, [m.label for m in self.request.methods if m.label != self.reference]
        new = {
            (agent, label): self._outcome(row)
            for label, by_agent in rows.items()
            for agent, row in by_agent.items()
        }
        outcomes: list[Outcome] = []
        for agent in before.agents:
            outcomes.append(before.outcome(agent, self.reference))
            for label in labels:
                outcome = new.get((agent, label)) or before.outcome(agent, sources[label])
                outcomes.append(replace(outcome, method=label))
        label_of = {old: label for label, old in sources.items()}
        runs = [next(iter(by_agent.values())).run for by_agent in rows.values()]
        pools = tuple(replace(p, method=label_of[p.method]) for p in before.pools if p.method in label_of)
        views = tuple(
            replace(v, method=label_of[v.method]) for v in before.pool_views if v.method in label_of
        )
        attention = tuple(
            replace(a, method=label_of.get(a.method, a.method))
            for a in before.attention
            if a.method in label_of or a.method == self.reference
        )
        if whole:
            new_pools = tuple(
                replace(p, method=run.choice.label) for run in runs for p in run.method.pools(self.stream.log)
            )
            pools += new_pools
            views += pool_views(runs, new_pools) if self.request.probe_offsets else ()
        if whole and self.request.probe_attention:
            for agent in before.agents:
                for label, by_agent in rows.items():
                    attention += self._attention(by_agent[agent], new[agent, label])
        removed = {m.label for m in before.request.methods} - set(label_of)
        notes = tuple(
            n for n in before.notes if n.partition(":")[0] not in {*removed, *rows} and not n.startswith(NOTE)
        )
        earlier = next(
            (n.removeprefix(NOTE).removesuffix(TIMES).split(", ") for n in before.notes if NOTE in n), []
        )
        titles = {
            m.label: m.label.replace(m.name, method_class(m.name).title, 1) for m in self.request.methods
        }
        names = [title for label, title in titles.items() if label in rows or title in earlier]
        note = (NOTE + ", ".join(names) + TIMES,) if names else ()
        return replace(
            before,
            id=secrets.token_hex(8),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            request=self.request,
            outcomes=tuple(outcomes),
            pools=pools,
            pool_views=views,
            attention=attention,
            shadow=(),
            notes=notes + same_request_notes(runs) + note,
            wall_ms=(time.perf_counter() - start) * 1e3,
        )
