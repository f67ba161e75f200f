"""A visitor's session: runs requests, keeps pools, and writes records.

Each session is a trust domain of its own: its logs and pools are seen by no other.

*Pinned*: every method reads the texts that dense produced, and the KV of each response is the one that
dense decoding left, so an agent's error is its own and not inherited. Dense has then seen every sample
in every context, so any method's pools can be derived by replaying the gate over the history, without
prefilling. *Free*: each method has a log of its own, reads its own texts, and inherits its own errors.
"""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import torch

from backend import __version__
from backend.answers import extract_number, same_answer
from backend.engine import Decoded, Engine, Prefill
from backend.errors import BudgetError, NotRelocatableError, OptionError, RunCancelled
from backend.events import AgentDone, Event, Progress, RunDone, TextSoFar
from backend.flow import Flow, see_offsets
from backend.methods.base import Arrived, Blend, Clock, Dense, Method, Options, Plan, Prefilled
from backend.methods.dense import dense_plan
from backend.methods.registry import make_options, method_class
from backend.model import LoadedModel
from backend.presets import Example
from backend.probes.fidelity import fidelity, largest_difference
from backend.probes.offsets import cache_error, offset_probe
from backend.prompts import Pipeline
from backend.records import (
    COMPUTED,
    CORRECTED,
    REUSED,
    Decoding,
    MethodChoice,
    OffsetProbe,
    Outcome,
    PoolState,
    Prompt,
    RunRecord,
    RunRequest,
    SpanAction,
    Timing,
    encode,
)
from backend.store import Observation, ObservationLog, PromptInContext

MAX_METHODS = 12
WARM_BATCH = 8  # requests that a pinned warm-up decodes together


@dataclass(frozen=True)
class Estimate:
    """What a run will cost, roughly."""

    seconds: float
    bytes: int
    tokens: int


@dataclass
class Slot:
    """One method choice in a stream: its instance and how much of the history it has processed."""

    method: Method
    seen: int = 0


@dataclass
class Stream:
    """A log with the requests that went through it, oldest first, agent by agent."""

    log: ObservationLog
    history: list[list[PromptInContext]] = field(default_factory=list)
    slots: dict[str, Slot] = field(default_factory=dict)


@dataclass
class Lane:
    """One method within one request."""

    choice: MethodChoice
    options: Options
    stream: Stream
    flow: Flow
    slot: Slot
    method: Method  # a fork of the slot's, which it replaces when the request is finished
    gate_ms: float = 0.0


@dataclass
class Row:
    """One method at one agent."""

    lane: Lane
    context: PromptInContext
    plan: Plan
    prefill: Prefill
    clock: Clock
    decoded: Decoded | None = None


class LabSession:
    """Runs requests on one model.

    Args:
        model: the loaded model; may be shared with other sessions.
        domain: trust domain; a fresh one when absent.
        budget_bytes: how much the logs of this session may hold.
    """

    def __init__(self, model: LoadedModel, *, domain: str | None = None, budget_bytes: int = 1 << 30) -> None:
        self.id = domain or secrets.token_urlsafe(12)
        self.model = model
        self.engine = Engine(model)
        self.budget_bytes = budget_bytes
        self.streams: dict[str, Stream] = {}
        self._speed: tuple[float, float] | None = None

    # -- what a caller asks ---------------------------------------------------------------------

    def run(self, request: RunRequest, *, cancel: threading.Event | None = None) -> Iterator[Event]:
        """Run a request under every method; ends with :class:`RunDone`.

        Raises:
            LabError: the request cannot be run; nothing was remembered of it.
            RunCancelled: ``cancel`` was set.
        """
        began = time.perf_counter()
        lanes, values = self._prepare(request)
        prompts: list[Prompt] = []
        outcomes: list[Outcome] = []
        offsets: list[OffsetProbe] = []
        contexts: dict[str, list[PromptInContext]] = {lane.choice.label: [] for lane in lanes}
        finished = False
        try:
            for flow, members in _flows(lanes):
                arrived = flow.start(values)
                self._arrive(arrived, members)
            total = len(request.pipeline.order)
            notes = _same_text_notes(lanes)
            for done, agent in enumerate(request.pipeline.order):
                _stop_if(cancel)
                name = request.pipeline.agent(agent).name
                rows = []
                for lane in lanes:
                    yield Progress(
                        f"{name}: {lane.choice.label} is reading", done, total, agent, lane.choice.label
                    )
                    _stop_if(cancel)
                    rows.append(self._prefill(lane, agent, request))
                    contexts[lane.choice.label].append(rows[-1].context)
                decode_ms = yield from self._decode(rows, request, cancel, done, total)
                new = self._outcomes(rows, request, decode_ms, prompts, offsets)
                outcomes += new
                for flow, members in _flows(lanes):
                    row = next(r for r in rows if r.lane is members[0])
                    assert row.decoded is not None
                    text = self.model.tokens.decode(row.decoded.ids)
                    sample = flow.answer(agent, row.decoded.ids, text, row.decoded.kv)
                    self._arrive([sample] if sample else [], members)
                yield AgentDone(agent, tuple(new))
            finished = True
        finally:
            self._settle(lanes, contexts, finished)
        pools = tuple(
            replace(p, method=lane.choice.label) for lane in lanes for p in lane.method.pools(lane.stream.log)
        )
        yield RunDone(
            RunRecord(
                id=secrets.token_hex(8),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                versions=versions(),
                model=self.model.info,
                request=request,
                prompts=tuple(prompts),
                outcomes=tuple(outcomes),
                offsets=tuple(offsets),
                pools=pools,
                wall_ms=(time.perf_counter() - began) * 1e3,
                notes=notes,
            )
        )

    def warm_up(
        self, request: RunRequest, examples: Sequence[Example], *, cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        """Send ``examples`` through, so that the pools of the request's methods fill.

        Pinned: only dense runs, all examples as one batch; pools are derived from it. Free: each example runs
        under every method. A cancelled warm-up keeps what was finished.
        """
        bare = replace(request, probe_offsets=False, expected=None)
        if request.mode == "free":
            for number, example in enumerate(examples):
                yield Progress(
                    f"Warming up with request {number + 1} of {len(examples)}", number, len(examples)
                )
                for event in self.run(replace(bare, values=dict(example.values)), cancel=cancel):
                    assert event is not None
            return
        for at in range(0, len(examples), WARM_BATCH):
            part = examples[at : at + WARM_BATCH]
            yield Progress(f"Warming up with requests {at + 1} to {at + len(part)}", at, len(examples))
            _stop_if(cancel)
            self._warm_batch(bare, part, cancel)

    def estimate(self, request: RunRequest, count: int = 1) -> Estimate:
        """Rough cost from this machine's measured speed: of one request, or of warming up with ``count`` > 1.

        Raises:
            LabError: the request cannot be run.
        """
        values = request.pipeline.check_values(request.values)
        per_token, per_step = self._measure()
        prompt_tokens, longest = 0, 0
        answer = min(request.decoding.max_new_tokens, 48)
        for agent in request.pipeline.order:
            readers = len(request.pipeline.template(agent).placeholders)
            length = self.model.count_tokens(request.pipeline, agent, values) + answer * readers
            prompt_tokens += length
            longest = max(longest, length)
        # A pinned warm-up runs dense only, and decodes its requests in batches.
        batched = count > 1 and request.mode == "pinned"
        methods = 1 if batched else len(request.methods)
        steps = answer * len(request.pipeline.order) * (-(-count // WARM_BATCH) if batched else count)
        seconds = count * prompt_tokens * methods * per_token * 1.5 + steps * per_step * (2 if batched else 1)
        held = prompt_tokens * self.model.info.kv_bytes_per_token * (2 * count + methods)
        return Estimate(seconds, held, prompt_tokens * methods * count)

    def pools(self, request: RunRequest) -> tuple[PoolState, ...]:
        """The pools of the request's methods as they are now."""
        out: list[PoolState] = []
        for choice in request.methods:
            stream = self.streams.get(_stream_key(request, choice))
            if stream is None:
                continue
            slot = self._slot(stream, choice, make_options(choice.name, choice.options))
            out += [replace(p, method=choice.label) for p in slot.method.pools(stream.log)]
        return tuple(out)

    def forget(self) -> None:
        """Drop every log and pool."""
        self.streams.clear()

    @property
    def bytes(self) -> int:
        """Bytes held by this session's logs."""
        return sum(stream.log.bytes for stream in self.streams.values())

    # -- the parts of a run ---------------------------------------------------------------------

    def _prepare(self, request: RunRequest) -> tuple[list[Lane], dict[str, str]]:
        """Check everything that can be checked before the model works, and lay out the lanes, dense first."""
        values = request.pipeline.check_values(request.values)
        _check_decoding(request.decoding)
        choices = [c for c in request.methods if c.name != "dense"]
        dense = next((c for c in request.methods if c.name == "dense"), MethodChoice("dense"))
        if len(choices) + 1 > MAX_METHODS:
            raise OptionError(
                f"{len(choices) + 1} methods were chosen; at most {MAX_METHODS} run side by side. "
                "Remove some.",
                field="methods",
            )
        labels = [c.label for c in (dense, *choices)]
        for label in labels:
            if labels.count(label) > 1:
                raise OptionError(
                    f"Two methods are labelled {label!r}. Give each its own label.", field="methods"
                )
        for agent in request.pipeline.order:
            length = self.model.count_tokens(request.pipeline, agent, values)
            self.engine.check_room(length, self._limit(request, agent), agent)
        self._check_budget(request, values, len(choices) + 1)
        lanes: list[Lane] = []
        flows: dict[int, Flow] = {}
        for choice in (dense, *choices):
            cls = method_class(choice.name)
            options = make_options(choice.name, choice.options)
            refused = cls.supports(self.model.info)
            if refused:
                raise NotRelocatableError(
                    f"{cls.title} cannot run on {self.model.info.name}. {refused}", field="methods"
                )
            stream = self._stream(_stream_key(request, choice))
            slot = self._slot(stream, choice, options)
            flow = flows.setdefault(id(stream), Flow(request.pipeline, self.engine, stream.log))
            lanes.append(Lane(choice, options, stream, flow, slot, slot.method.fork()))
        return lanes, values

    def _check_budget(self, request: RunRequest, values: dict[str, str], methods: int) -> None:
        """Refuse a request whose own KV is over the budget: bases and offsets of every prompt, kept once
        (pinned) or per method (free), beside one cache per method."""
        most = 0
        for agent in request.pipeline.order:
            read = sum(self._limit(request, p) for p, reader in request.pipeline.edges if reader == agent)
            most += self.model.count_tokens(request.pipeline, agent, values) + read
        kept = 3 * most * (methods if request.mode == "free" else 1)
        needed = (kept + most * methods) * self.model.info.kv_bytes_per_token
        if needed > self.budget_bytes:
            raise BudgetError(
                f"This request may need {needed / 2**20:,.0f} MiB of KV cache ({most:,} prompt tokens, "
                f"{methods} methods, {self.model.info.kv_bytes_per_token / 1024:.0f} KiB a token); this lab "
                f"allows {self.budget_bytes / 2**20:,.0f} MiB. Shorten the texts, choose fewer methods or "
                "fewer new tokens, or serve with a larger --budget-mb.",
                field="methods",
            )

    def _stream(self, key: str) -> Stream:
        """The stream of a key, a new one if need be; the last one used stands last."""
        found = self.streams.pop(key, None) or Stream(ObservationLog(self.id, self.budget_bytes))
        self.streams[key] = found
        return found

    def _slot(self, stream: Stream, choice: MethodChoice, options: Options) -> Slot:
        """The method instance of a choice, brought up to date by replaying what it has not seen."""
        key = json.dumps([choice.name, [(f.name, getattr(options, f.name)) for f in fields(options)]])
        slot = stream.slots.setdefault(key, Slot(method_class(choice.name)(options)))
        while slot.seen < len(stream.history):
            arrived: set[int] = set()
            for context in stream.history[slot.seen]:
                for sample in context.samples.values():
                    if sample.number not in arrived:
                        arrived.add(sample.number)
                        slot.method.observe(Arrived(sample), stream.log)
                slot.method.plan(context, stream.log, Clock())
            slot.seen += 1
        return slot

    def _limit(self, request: RunRequest, agent: int) -> int:
        return min(request.decoding.max_new_tokens, request.pipeline.agent(agent).max_new_tokens)

    def _arrive(self, samples: Sequence[Observation], members: Sequence[Lane]) -> None:
        """Let each method see the samples that just became complete."""
        for lane in members:
            clock = self.engine.clock()
            with clock.part("gate"):
                for sample in samples:
                    lane.method.observe(Arrived(sample), lane.stream.log)
            lane.gate_ms += clock.parts["gate"]

    def _prefill(self, lane: Lane, agent: int, request: RunRequest) -> Row:
        context = lane.flow.context(agent)
        self.engine.check_room(len(context.prompt.ids), self._limit(request, agent), agent)
        clock = self.engine.clock()
        if lane.choice.name not in ("dense", "prefix"):
            clock.parts["base"] = sum(lane.flow.base_ms.get(n, 0.0) for n in context.samples)
            clock.parts["gate"], lane.gate_ms = lane.gate_ms, 0.0
        plan = lane.method.plan(context, lane.stream.log, clock)
        prefill = self.engine.execute(context.prompt, plan, clock)
        real = all(isinstance(step.action, Dense) for step in plan.steps)
        lane.method.observe(Prefilled(context, prefill.cache, real, plan), lane.stream.log)
        if request.mode == "pinned":
            if lane.choice.name == "dense":
                see_offsets(context, prefill.cache, self.engine)
        elif real:
            see_offsets(context, prefill.cache, self.engine, lane.method.needed())
        return Row(lane, context, plan, prefill, clock)

    def _decode(
        self, rows: list[Row], request: RunRequest, cancel: threading.Event | None, done: int, total: int
    ) -> Generator[Event, None, float]:
        agent = rows[0].context.prompt.agent
        decoding = replace(request.decoding, max_new_tokens=self._limit(request, agent))
        for row in rows:
            row.lane.flow.charge(row.context)
        began = time.perf_counter()
        steps = self.engine.decode_steps(
            [r.prefill for r in rows],
            decoding,
            context=f"agent {agent}'s own context",
            keep_logits=request.mode == "pinned",
        )
        shown = [-1] * len(rows)
        while True:
            try:
                ids = next(steps)
            except StopIteration as end:
                for row, decoded in zip(rows, end.value, strict=True):
                    row.decoded = decoded
                return (time.perf_counter() - began) * 1e3
            _stop_if(cancel)
            for index, row in enumerate(rows):
                if len(ids[index]) != shown[index]:
                    shown[index] = len(ids[index])
                    yield TextSoFar(agent, row.lane.choice.label, self.model.tokens.decode(ids[index]))

    def _outcomes(
        self,
        rows: list[Row],
        request: RunRequest,
        decode_ms: float,
        prompts: list[Prompt],
        offsets: list[OffsetProbe],
    ) -> list[Outcome]:
        """Turn finished rows into outcomes, with probes where they are defined."""
        pinned = request.mode == "pinned"
        dense = rows[0]
        assert dense.decoded is not None
        forced = dense_logits = None
        floor = 0.0
        if pinned:
            assert dense.decoded.logits is not None
            dense_logits = dense.decoded.logits
            fed = dense.decoded.ids[: len(dense_logits) - 1]
            forced = self.engine.teacher_force([r.prefill for r in rows], fed)
            computed_again = largest_difference(forced[0], dense_logits)
            # A one-token answer has nothing to compute again; what loading measured holds then.
            floor = max(computed_again, self.model.info.certificate.logit_floor)
        out = []
        for index, row in enumerate(rows):
            decoded = row.decoded
            assert decoded is not None
            if not pinned or index == 0:
                prompts.append(self.model.tokens.as_record(row.context.prompt))
            where = len(prompts) - 1
            text = self.model.tokens.decode(decoded.ids)
            answer = extract_number(text) if request.pipeline.scoring == "number" else None
            correct = same_answer(answer, request.expected) if request.expected is not None else None
            near = key_error = value_error = None
            if pinned and forced is not None and dense_logits is not None:
                near = fidelity(dense.decoded, decoded, forced[index], dense_logits, floor, self.model.tokens)
                if request.probe_offsets:
                    key_error, value_error = cache_error(
                        row.prefill.cache, dense.prefill.cache, len(row.context.prompt.ids)
                    )
            parts = row.clock.parts
            out.append(
                Outcome(
                    agent=row.context.prompt.agent,
                    method=row.lane.choice.label,
                    prompt=where,
                    state=row.plan.state,
                    reason=row.plan.reason,
                    text=text,
                    token_ids=_ids(decoded.ids),
                    texts=self.model.tokens.texts(decoded.ids),
                    stopped=decoded.stopped,
                    answer=answer,
                    correct=correct,
                    actions=row.prefill.actions,
                    spans=_span_actions(row),
                    gate=row.plan.gate,
                    timing=Timing(
                        {p: parts[p] for p in PARTS if p in parts},
                        sum(parts.values()),
                        decode_ms,
                        row.prefill.forwarded_tokens,
                    ),
                    fidelity=near,
                    key_error=key_error,
                    value_error=value_error,
                )
            )
        if pinned and request.probe_offsets:
            offsets.append(
                offset_probe(dense.context, dense.prefill.cache, self.model.rotation, len(prompts) - 1)
            )
        for row in rows[:1] if pinned else rows:
            if row.prefill.exact and row.lane.choice.name in ("dense", "prefix"):
                self._remember_prompt(row.context, row.prefill, row.lane.stream.log)
        return out

    def _remember_prompt(self, context: PromptInContext, prefill: Prefill, log: ObservationLog) -> None:
        total = len(context.prompt.ids)
        segment = prefill.cache.segment(
            0, total, self.model.rotation, exact=True, context="an earlier prompt"
        )
        log.remember_prompt(context.prompt.ids, segment)

    def _settle(self, lanes: list[Lane], contexts: dict[str, list[PromptInContext]], finished: bool) -> None:
        """Close a request: remember it, or undo what an unfinished one left; then keep to the budget."""
        for stream in {id(lane.stream): lane.stream for lane in lanes}.values():
            members = [lane for lane in lanes if lane.stream is stream]
            if finished:
                stream.history.append(contexts[members[0].choice.label])
                for lane in members:
                    lane.slot.method, lane.slot.seen = lane.method, len(stream.history)
            else:
                known = {o.number for request in stream.history for c in request for o in c.samples.values()}
                known |= self._needed(stream)
                for number in list(stream.log.observations):
                    if number not in known:
                        del stream.log.observations[number]
            self._shrink(stream)
        self._drop_idle({id(lane.stream) for lane in lanes})

    def _drop_idle(self, running: set[int]) -> None:
        """Drop streams of earlier templates or settings, the longest unused first, until the budget holds."""
        for key in [key for key, stream in self.streams.items() if id(stream) not in running]:
            if self.bytes <= self.budget_bytes:
                break
            del self.streams[key]

    def _needed(self, stream: Stream) -> set[int]:
        return {n for slot in stream.slots.values() for n in slot.method.needed()}

    def _shrink(self, stream: Stream) -> None:
        dropped = set(stream.log.shrink(self._needed(stream)))
        if dropped:
            kept = [
                (index, request)
                for index, request in enumerate(stream.history)
                if not any(o.number in dropped for c in request for o in c.samples.values())
            ]
            gone = set(range(len(stream.history))) - {index for index, _ in kept}
            for slot in stream.slots.values():
                slot.seen -= sum(1 for index in gone if index < slot.seen)
                slot.method.forget(dropped)
            stream.history = [request for _, request in kept]

    def _warm_batch(
        self, request: RunRequest, examples: Sequence[Example], cancel: threading.Event | None
    ) -> None:
        """Dense over several requests at once, into the pinned stream's history."""
        lanes, _ = self._prepare(
            replace(request, values=dict(examples[0].values), methods=(MethodChoice("dense"),))
        )
        stream = lanes[0].stream
        flows = [Flow(request.pipeline, self.engine, stream.log) for _ in examples]
        histories: list[list[PromptInContext]] = [[] for _ in examples]
        finished = False
        try:
            for flow, example in zip(flows, examples, strict=True):
                flow.start(request.pipeline.check_values(example.values))
            for agent in request.pipeline.order:
                prefills = []
                for flow, history in zip(flows, histories, strict=True):
                    _stop_if(cancel)
                    context = flow.context(agent)
                    self.engine.check_room(len(context.prompt.ids), self._limit(request, agent), agent)
                    prefill = self.engine.execute(context.prompt, dense_plan(context, "warm-up"), Clock())
                    see_offsets(context, prefill.cache, self.engine)
                    history.append(context)
                    prefills.append(prefill)
                decoding = replace(request.decoding, max_new_tokens=self._limit(request, agent))
                decoded = self.engine.decode(prefills, decoding, context=f"agent {agent}'s own context")
                for flow, row in zip(flows, decoded, strict=True):
                    flow.answer(agent, row.ids, self.model.tokens.decode(row.ids), row.kv)
            finished = True
        finally:
            if finished:
                stream.history += histories
                self._shrink(stream)
                self._drop_idle({id(stream)})
            else:
                self._settle(lanes, {"dense": []}, finished=False)

    def _measure(self) -> tuple[float, float]:
        """Seconds per prompt token and per decoding step, measured once per session."""
        if self._speed is None:
            tokens = [5 + i % 50 for i in range(128)]
            self.engine.prefill(tokens)
            prefills, steps = [], []
            for _ in range(3):  # the best of three: what else the machine does just then is no part of it
                began = time.perf_counter()
                cache, _ = self.engine.prefill(tokens)
                middle = time.perf_counter()
                for _ in range(4):
                    self.engine.forward(self.engine.ids(tokens[:1]), cache)
                prefills.append((middle - began) / len(tokens))
                steps.append((time.perf_counter() - middle) / 4)
            self._speed = (min(prefills), min(steps))
        return self._speed


PARTS = ("base", "gate", "match", "correct", "rotate", "prefill", "first_token")


def versions() -> dict[str, str]:
    """Versions that decide results."""
    import transformers

    return {
        "kv-reuse-lab": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def pipeline_hash(pipeline: Pipeline) -> str:
    """Identity of what a pipeline's prompts look like; pools do not outlive an edit."""
    return hashlib.sha256(json.dumps(encode(pipeline, {}), sort_keys=True).encode()).hexdigest()[:16]


def _stream_key(request: RunRequest, choice: MethodChoice) -> str:
    key = [pipeline_hash(request.pipeline), request.mode, encode(request.decoding, {})]
    if request.mode == "free":
        key += [choice.name, sorted(choice.options.items())]
    return json.dumps(key)


def _flows(lanes: list[Lane]) -> list[tuple[Flow, list[Lane]]]:
    """The distinct flows with the lanes that share them."""
    groups: dict[int, tuple[Flow, list[Lane]]] = {}
    for lane in lanes:
        groups.setdefault(id(lane.flow), (lane.flow, []))[1].append(lane)
    return list(groups.values())


def _same_text_notes(lanes: list[Lane]) -> tuple[str, ...]:
    """Warn where a pool already holds the very text that is asked: the correction is then a memory."""
    notes = []
    for lane in lanes:
        mine = {s.number for s in lane.flow.samples.values()}
        anchors = lane.method.needed() - mine
        held = {lane.stream.log.observations[n].ids for n in anchors if n in lane.stream.log.observations}
        if any(s.ids in held for s in lane.flow.samples.values()):
            notes.append(
                f"{lane.choice.label}: an anchor holds this very request, so its correction is a memory "
                "rather than an estimate."
            )
    return tuple(notes)


def _span_actions(row: Row) -> tuple[SpanAction, ...]:
    """The plan's steps as a record keeps them; the last token, always forwarded, is a step of its own."""
    total = len(row.context.prompt.ids)
    out = []
    for step in row.plan.steps:
        if isinstance(step.action, Dense):
            out.append(SpanAction(step.start, step.end, COMPUTED, "forward pass", step.action.reason, True))
            continue
        blend, end = step.action, min(step.end, total - 1)
        if end == step.start:
            continue
        out.append(
            SpanAction(
                step.start,
                end,
                CORRECTED if blend.terms else REUSED,
                blend.base.context,
                blend.reason,
                blend.exact or blend.base.exact,
                step.start - blend.base.start if blend.moved else 0,
                tuple(t.anchor for t in blend.terms),
                tuple(float(t.weight.mean()) for t in blend.terms),
            )
        )
    if isinstance(row.plan.steps[-1].action, Blend):
        out.append(
            SpanAction(
                total - 1, total, COMPUTED, "forward pass", "the last token gives the first answer", True
            )
        )
    return tuple(out)


def _check_decoding(decoding: Decoding) -> None:
    limits: tuple[tuple[str, Any, float, float], ...] = (
        ("max_new_tokens", decoding.max_new_tokens, 1, 4096),
        ("temperature", decoding.temperature, 0, 5),
        ("top_p", decoding.top_p, 0.01, 1),
        ("seed", decoding.seed, 0, 2**63 - 1),
    )
    for name, value, low, high in limits:
        whole = name in ("max_new_tokens", "seed")
        if type(value) not in ((int,) if whole else (int, float)) or not low <= value <= high:
            raise OptionError(
                f"{name} is {value!r}; allowed: {low:g} to {high:g}. Choose a value in that range.",
                field=f"decoding.{name}",
            )


def _stop_if(cancel: threading.Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise RunCancelled("Stopped. What was finished before is still there.")


def _ids(ids: Sequence[int]) -> Any:
    import numpy as np

    return np.array(ids, dtype=np.int64)
