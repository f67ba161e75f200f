"""A visitor's session: runs requests, keeps pools, and writes records.

Each session is a trust domain of its own: its logs and pools are seen by no other.

*Pinned*: every method reads the texts that dense produced, and the KV of each response is the one that
dense decoding left, so an agent's error is its own and not inherited. Dense has then seen every sample
in every context, so any method's pools can be derived by replaying the gate over the history, without
prefilling. *Free*: each method has a log of its own, reads its own texts, and inherits its own errors.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from backend.base.clock import Clock
from backend.base.errors import BudgetError, ModelError, NotRelocatableError, OptionError, RunCancelled
from backend.base.machine import versions
from backend.base.text import show
from backend.cache.memory_budget import Memory, free_bytes, out_of_memory, release, surviving
from backend.cache.observations import Observation, ObservationLog, PromptInContext
from backend.engine.cuda_graph import Recordings
from backend.engine.decoding import Decoded
from backend.engine.engine import Engine
from backend.engine.speed import pace
from backend.engine.turns import Together
from backend.lab import Studies
from backend.methods.base import Arrived, Finished, Prefilled
from backend.methods.candidates import slots_only
from backend.methods.dense import dense_plan
from backend.methods.options import Options
from backend.methods.registry import make_options, method_class
from backend.methods.risk_guard import GuardedMethod, check_gate
from backend.model.load import LoadedModel
from backend.model.weight_variants import check_sibling, weights_notes
from backend.prompts.pipeline import Agent
from backend.prompts.presets import Example
from backend.prompts.template import called
from backend.prompts.tools.registry import get_tool
from backend.records.events import READ, AgentDone, Event, Progress, RunDone, TextSoFar
from backend.records.replay import Replay
from backend.records.run import (
    AttentionProbe,
    Decoding,
    MethodChoice,
    OffsetProbe,
    Outcome,
    PoolState,
    Prompt,
    RunRecord,
    RunRequest,
    ShadowCheck,
    ToolUse,
)
from backend.session.limits import ALONE, Limits, Rate
from backend.session.outcomes import attention_of, outcomes_of, same_text_notes
from backend.session.pool_views import pool_views
from backend.session.request_state import Flow, see_offsets
from backend.session.shadow_check import shadow_checks
from backend.session.shared_warm_up import Key, Ready, ready_key
from backend.session.streams import Lane, Past, Row, Stream, flows_of, stream_key

DENSE = MethodChoice("dense")
WARM_BATCH = 8  # requests that a pinned warm-up decodes together
SMALLER = (
    "Memory ran out at first, so the methods decoded one after the other and not as one batch. Their times "
    "are not those of a batch."
)
BESIDE = (
    "{what} went on at the same time, so the times of decoding and of the whole run are not those of "
    "this request alone. Times to the first token are: no other run works meanwhile."
)
AGAIN = Progress("Memory ran out. Trying once more in smaller pieces", 0, 1)


@dataclass(frozen=True)
class Estimate:
    """What a run will cost, roughly."""

    seconds: float
    bytes: int
    tokens: int


class LabSession(Studies):
    """Runs requests on one model. Sessions of one model may run in threads of their own: they work by turns,
    and decode in one batch.

    Args:
        model: the loaded model; may be shared with other sessions.
        domain: trust domain; a fresh one when absent.
        budget_bytes: how much the logs of this session may hold.
        others: other weights of the model's architecture by the names that agents call them.
        limits: what may be asked; ``budget_bytes`` stands for its own limit of a visit's memory.
        memory: the account that this session shares with others; one of its own when absent.

    Raises:
        ModelError: the caches of some of ``others`` do not fit the model.
    """

    #: Whether a run tells ``READ`` before its first token, so that others may be decoded with it from there.
    waits = False
    #: The note of a run that was not alone.
    beside = BESIDE.format(what="Runs of others")

    def __init__(
        self,
        model: LoadedModel,
        *,
        domain: str | None = None,
        budget_bytes: int = 1 << 30,
        others: Mapping[str, LoadedModel] | None = None,
        limits: Limits = ALONE,
        memory: Memory | None = None,
    ) -> None:
        self.id = domain or secrets.token_urlsafe(12)
        self.model = model
        self.engine = Engine(model)
        for name, other in (others or {}).items():
            check_sibling(model, other, name)
        self.others = {name: Engine(other) for name, other in (others or {}).items()}
        self.budget_bytes = budget_bytes
        self.streams: dict[str, Stream] = {}
        self.limits, self.rate = limits, Rate(limits.requests_a_minute)
        self.memory = memory or Memory(free=lambda: free_bytes(model.device))
        self._held, self.runs, self.used = 0, 0, time.monotonic()
        self.memory.join(self)
        self.memory.join(Ready.on(model))
        for each in (model, *(other.model for other in self.others.values())):
            self.memory.join(Recordings.on(each))
        self.together = Together.on(model)

    # -- what a caller asks ---------------------------------------------------------------------

    def run(
        self,
        request: RunRequest,
        *,
        cancel: threading.Event | None = None,
        ends: Callable[[Outcome], bool] | None = None,
    ) -> Iterator[Event]:
        """Run a request under every method; ends with :class:`RunDone`.

        Args:
            request: what to run.
            cancel: stops it at its next step.
            ends: says of an agent's outcome that no further agent runs, under this method; pinned, where all
                methods go dense's way, under any.

        Raises:
            LabError: the request cannot be run; nothing was remembered of it.
            RunCancelled: ``cancel`` was set.
        """
        self.rate.ask()
        work = self._survive(lambda small: self._run(request, cancel, ends, small), AGAIN)
        yield from self.together.by_turns(work)

    def _run(
        self,
        request: RunRequest,
        cancel: threading.Event | None,
        ends: Callable[[Outcome], bool] | None,
        small: bool,
    ) -> Generator[Event, None, None]:
        """See :meth:`run`. ``small``: memory ran out before, so rows go one by one."""
        began = time.perf_counter()
        lanes, values = self._prepare(request)
        prompts: list[Prompt] = []
        outcomes: list[Outcome] = []
        offsets: list[OffsetProbe] = []
        attention: list[AttentionProbe] = []
        unread: tuple[str, ...] = ()
        shadow: tuple[ShadowCheck, ...] = ()
        tools: list[ToolUse] = []
        beside = False
        contexts: dict[str, list[PromptInContext]] = {lane.choice.label: [] for lane in lanes}
        finished = False
        try:
            for flow, members in flows_of(lanes):
                arrived = flow.start(values)
                self._arrive(arrived, members)
            total = len(request.pipeline.order)
            notes = same_text_notes(lanes)
            going = lanes
            for done, agent in enumerate(request.pipeline.order):
                _stop_if(cancel)
                beside = beside or self.together.going > 1
                name = request.pipeline.agent(agent).name
                rows = []
                for lane in going:
                    yield Progress(
                        f"{name}: {lane.choice.label} is reading", done, total, agent, lane.choice.label
                    )
                    _stop_if(cancel)
                    rows.append(self._prefill(lane, agent, request))
                    contexts[lane.choice.label].append(rows[-1].context)
                decode_ms = yield from self._decode(rows, request, cancel, done, total)
                beside = beside or self.together.going > 1
                new = outcomes_of(self._at(request, agent), rows, request, decode_ms, prompts, offsets)
                outcomes += new
                if request.probe_attention:
                    try:
                        attention += attention_of(self._at(request, agent), rows, new)
                    except ModelError as error:  # a family that cannot be watched; the run is none the worse
                        unread = (str(error),)
                for flow, members in flows_of(going):
                    row = next(r for r in rows if r.lane is members[0])
                    assert row.decoded is not None
                    text = self.model.tokens.decode(row.decoded.ids)
                    sample = flow.answer(agent, row.decoded.ids, text, row.decoded.kv)
                    used = self._use_tool(request.pipeline.agent(agent), text, members)
                    tools += [used] if used else []
                    result = flow.tool_result(agent, used.text) if used else None
                    self._arrive([x for x in (sample, result) if x], members)
                yield AgentDone(agent, tuple(new))
                if request.shadow and agent == request.pipeline.final:
                    shadow = shadow_checks(self._at(request, agent), rows, new, request)
                if ends is not None:
                    over = [ends(new[0])] * len(new) if request.mode == "pinned" else list(map(ends, new))
                    going = [lane for lane, ended in zip(going, over, strict=True) if not ended]
                    if not going:
                        break
            finished = True
        finally:
            self._settle(lanes, contexts, finished, request.expected)
        pools = tuple(
            replace(p, method=lane.choice.label) for lane in lanes for p in lane.method.pools(lane.stream.log)
        )
        views = pool_views(lanes, pools) if request.probe_offsets else ()
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
                notes=notes
                + weights_notes(request, outcomes, prompts)
                + unread
                + ((SMALLER,) if small else ())
                + ((self.beside,) if beside else ()),
                tools=tuple(tools),
                pool_views=views,
                attention=tuple(attention),
                shadow=shadow,
            )
        )

    def warm_up(
        self,
        request: RunRequest,
        examples: Sequence[Example],
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        """Send ``examples`` through, so that the pools of the request's methods fill.

        Pinned: only dense runs, all examples as one batch; pools are derived from it. Free: each example runs
        under every method. A cancelled warm-up keeps what was finished.

        ``shared``: templates and examples are public. Then what they leave is kept for all sessions of the
        model, and taken from there, as a copy, where it is there already
        (:mod:`backend.session.shared_warm_up`).
        """
        self.rate.ask()
        work = self._survive(lambda small: self._warm(request, examples, cancel, small, shared), AGAIN)
        yield from self.together.by_turns(work)

    def ready(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        """Whether a shared warm-up with these examples would find them computed."""
        key, _ = self._warm_keys(request, examples)
        return self._shareable(request) and Ready.on(self.model).size(key) is not None

    def _shareable(self, request: RunRequest) -> bool:
        """Whether a warm-up of this session is the same in every other: nothing went through it before, and
        its agents run on the lab's own weights."""
        stream = self.streams.get(stream_key(request, DENSE))
        return (
            request.mode == "pinned"
            and (stream is None or not (stream.history or stream.forgotten))
            and not any(request.pipeline.agent(agent).model for agent in request.pipeline.order)
        )

    def _warm_keys(self, request: RunRequest, examples: Sequence[Example]) -> tuple[Key, str]:
        """By which a pinned warm-up is kept, and the stream that it fills."""
        stream = stream_key(request, DENSE)
        return ready_key(stream, examples), stream

    def _warm(
        self,
        request: RunRequest,
        examples: Sequence[Example],
        cancel: threading.Event | None,
        small: bool,
        shared: bool = False,
    ) -> Generator[Event, None, None]:
        """See :meth:`warm_up`. ``small``: no two requests at once."""
        shared = shared and self._shareable(request)
        if shared and self._take_ready(request, examples):
            yield Progress("They were computed before, for everybody", len(examples), len(examples))
            return
        bare = replace(request, probe_offsets=False, probe_attention=False, expected=None)
        if request.mode == "free":
            for number, example in enumerate(examples):
                yield Progress(
                    f"Warming up with request {number + 1} of {len(examples)}", number, len(examples)
                )
                for event in self._run(replace(bare, values=dict(example.values)), cancel, None, small):
                    assert event is not None
            return
        batch = 1 if small else WARM_BATCH
        for at in range(0, len(examples), batch):
            part = examples[at : at + batch]
            said = Progress(f"Warming up with requests {at + 1} to {at + len(part)}", at, len(examples))
            yield said
            for _ in self._warm_batch(bare, part, cancel):
                yield said  # lets others in between
        if shared and not small:
            self._keep_ready(request, examples)

    def _take_ready(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        """Begin with a copy of what the examples left, if it is there and there is room; else with nothing,
        for what a cancelled run leaves in a log is not everybody's."""
        key, stream = self._warm_keys(request, examples)
        self.streams.pop(stream, None)
        ready = Ready.on(self.model)
        size = ready.size(key)
        if size is None or size > self.budget_bytes:
            return False
        try:
            self.memory.make_room(self, min(self.bytes + size, self.budget_bytes), 0)
        except BudgetError:
            return False
        found = ready.copy(key, self.id, self.budget_bytes, self.engine)
        if found is None:  # given up to make the room
            return False
        self.streams[stream] = found
        self._drop_idle({id(found)})
        return True

    def _keep_ready(self, request: RunRequest, examples: Sequence[Example]) -> None:
        """Keep a whole warm-up for the others, where that takes nothing from anybody."""
        key, name = self._warm_keys(request, examples)
        stream = self.streams.get(name)
        if stream is None or stream.forgotten or len(stream.history) != len(examples):
            return
        if not self.memory.spare(stream.bytes):
            return
        try:
            Ready.on(self.model).keep(key, stream)
        except Exception as error:  # the warm-up is done, whatever becomes of its copy
            if not out_of_memory(error):
                raise
            release()

    def replay(
        self, request: RunRequest, last: int = 20, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | Replay]:
        """Replay past requests under the request's methods from the log, without prefilling; ends with the
        record. Nothing is remembered of it.

        Args:
            request: pinned; its pipeline and decoding say which past requests are meant, its values nothing.
            last: how many of the latest requests to answer again; all that the log holds when it holds fewer.
            cancel: ends it when set.

        Raises:
            LabError: see :func:`backend.session.replay.replay`; or there is nothing to replay.
            RunCancelled: ``cancel`` was set.
        """
        from backend.session.replay import check_replay, replay

        _check_decoding(request.decoding)
        dense, *choices = self._choices(request)
        stream = self.streams.get(stream_key(request, dense[0]))
        check_replay(request, choices, stream, last)
        assert stream is not None
        engines = {agent: self._at(request, agent) for agent in request.pipeline.order}
        yield from self._study(lambda: replay(stream, request, choices, self.engine, engines, last, cancel))

    def estimate(self, request: RunRequest, count: int = 1) -> Estimate:
        """Rough cost from this machine's measured speed: of one request, or of warming up with ``count`` > 1.

        Raises:
            LabError: the request cannot be run.
        """
        values = request.pipeline.check_values(request.values)
        per_token, per_step = pace(self.engine, self.together)
        prompt_tokens, longest = 0, 0
        answer = min(request.decoding.max_new_tokens, 48)
        for agent in request.pipeline.order:
            self._at(request, agent)
            readers = len(request.pipeline.template(agent).placeholders)
            length = self.model.count_tokens(request.pipeline, agent, values) + answer * readers
            prompt_tokens += length
            longest = max(longest, length)
        self.limits.check(
            prompt_tokens * len(request.methods), len(request.pipeline.order), len(request.methods)
        )
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
            stream = self.streams.get(stream_key(request, choice))
            if stream is None:
                continue
            options = make_options(choice.name, choice.options)
            if options.wants_lead_in:
                self._flow(request, stream).lead_in()
            slot = stream.slot(choice, options)
            out += [replace(p, method=choice.label) for p in slot.method.pools(stream.log)]
        return tuple(out)

    @property
    def weights_hash(self) -> str:
        """Identity of all weights that agents may run on."""
        every = (engine.model.info.weights_hash for _, engine in sorted(self.others.items()))
        return "-".join((self.model.info.weights_hash, *every))

    def tensor_bytes(self, record: RunRecord) -> int:
        """Bytes of the keys and values behind a run, as far as the log still holds them."""
        from backend.session.tensors import tensor_bytes

        return tensor_bytes(self, record)

    def tensors(self, record: RunRecord) -> bytes:
        """They themselves, as the content of a safetensors file.

        Raises:
            BudgetError: see :func:`backend.session.tensors.tensor_file`.
        """
        from backend.session.tensors import tensor_file

        return tensor_file(self, record)

    def forget(self) -> None:
        """Drop every log and pool."""
        self.streams.clear()
        self._held = 0

    def _survive(
        self, attempt: Callable[[bool], Generator[Any, None, None]], again: Progress | None = None
    ) -> Generator[Any, None, None]:
        """Work within the account of memory; see :func:`backend.cache.memory_budget.surviving`."""
        every = (self.engine, *self.others.values())

        def sized(small: bool) -> Generator[Any, None, None]:
            for engine in every:
                engine.one_by_one = small
            yield from attempt(small)

        with self.memory.running(self):
            try:
                yield from surviving(sized, self._free, again)
            finally:
                for engine in every:
                    engine.one_by_one = False
                self._held, self.used = self.bytes, time.monotonic()

    def _free(self, last: bool) -> None:
        """Free what can be computed again: other sessions' idle pools, past prompts, and in the end all."""
        self.memory.empty(self)
        for stream in self.streams.values():
            stream.log.prefixes.shrink(0)
            for slot in stream.slots.values():
                slot.method.shrink(0)
        if last:
            self.forget()

    @property
    def bytes(self) -> int:
        """Bytes held by this session's logs and methods."""
        return sum(stream.bytes for stream in self.streams.values())

    @property
    def held(self) -> int:
        """Bytes held, for the account of all sessions; while a run changes the logs, those before it.

        Counted when it is asked for: after a failed run, its exception keeps alive for a while what the logs
        have let go.
        """
        if not self.runs:
            with suppress(RuntimeError):  # a page that looks at the pools may add to a log just now
                self._held = self.bytes
        return self._held

    # -- the parts of a run ---------------------------------------------------------------------

    def _prepare(self, request: RunRequest, rows: int = 1) -> tuple[list[Lane], dict[str, str]]:
        """Check everything that can be checked before the model works, and lay out the lanes, dense first."""
        values = request.pipeline.check_values(request.values)
        _check_decoding(request.decoding)
        chosen = self._choices(request)
        if request.gate is not None:
            check_gate(request.gate, self._at(request, request.pipeline.final).model.info)
        for agent in request.pipeline.order:
            length = self.model.count_tokens(request.pipeline, agent, values)
            self._at(request, agent).check_room(length, self._limit(request, agent), agent)
        self._check_budget(request, values, len(chosen), rows)
        lanes: list[Lane] = []
        flows: dict[int, Flow] = {}
        for choice, options in chosen:
            stream = self._stream(stream_key(request, choice))
            flow = flows.setdefault(id(stream), self._flow(request, stream))
            if options.wants_lead_in:
                flow.lead_in()  # before the slot, which replays what is in the log
            slot = stream.slot(choice, options)
            lanes.append(Lane(choice, options, stream, flow, slot, slot.method.fork()))
        return lanes, values

    def _choices(self, request: RunRequest) -> list[tuple[MethodChoice, Options]]:
        """The request's methods with their options, checked; dense first."""
        choices = [c for c in request.methods if c.name != "dense"]
        dense = next((c for c in request.methods if c.name == "dense"), MethodChoice("dense"))
        self.limits.check(0, 0, len(choices) + 1)
        labels = [c.label for c in (dense, *choices)]
        for label in labels:
            if labels.count(label) > 1:
                raise OptionError(
                    f"Two methods are labelled {label!r}. Give each its own label.", field="methods"
                )
        found = []
        for choice in (dense, *choices):
            cls = method_class(choice.name)
            options = make_options(choice.name, choice.options)
            refused = cls.supports(self.model.info)
            if refused:
                raise NotRelocatableError(
                    f"{cls.title} cannot run on {self.model.info.name}. {refused}", field="methods"
                )
            found.append((choice, options))
        return found

    def _check_budget(self, request: RunRequest, values: dict[str, str], methods: int, rows: int = 1) -> None:
        """Refuse a request that is over the limits, or whose own KV is over the budget: bases and offsets of
        every prompt, kept once (pinned) or per method (free), beside one cache per method. Then make room for
        ``rows`` such requests at once."""
        most = sum(self._tokens(request, agent, values) for agent in request.pipeline.order)
        self.limits.check(most * methods, len(request.pipeline.order), methods)
        each = self.model.info.kv_bytes_per_token
        kept = 3 * most * (methods if request.mode == "free" else 1) * each
        needed = kept + most * methods * each
        if needed > self.budget_bytes:
            raise BudgetError(
                f"This request may need {needed / 2**20:,.0f} MiB of KV cache ({most:,} prompt tokens, "
                f"{methods} methods, {each / 1024:.0f} KiB a token); this lab "
                f"allows {self.budget_bytes / 2**20:,.0f} MiB. Shorten the texts, choose fewer methods or "
                "fewer new tokens, or serve with a larger --budget-mb.",
                field="methods",
            )
        self.memory.make_room(
            self, min(self.bytes + kept * rows, self.budget_bytes), most * methods * each * rows
        )

    def _tokens(self, request: RunRequest, agent: int, values: Mapping[str, str]) -> int:
        """The most tokens that an agent's prompt can have: its own now, and the answers that it reads."""
        answers = [
            self._limit(request, writer) for writer, reader in request.pipeline.edges if reader == agent
        ]
        return self.model.count_tokens(request.pipeline, agent, values) + sum(answers)

    def _stream(self, key: str) -> Stream:
        """The stream of a key, a new one if need be; the last one used stands last."""
        found = self.streams.pop(key, None) or Stream(ObservationLog(self.id, self.budget_bytes))
        self.streams[key] = found
        return found

    def _at(self, request: RunRequest, agent: int) -> Engine:
        """The engine of an agent's weights.

        Raises:
            ModelError: this session has no such weights.
        """
        name = request.pipeline.agent(agent).model
        if name and name not in self.others:
            listed = ", ".join(map(repr, self.others)) or "no others"
            raise ModelError(
                f"Agent {called(agent)} runs on the weights {show(name)}, but beside {self.model.info.name} "
                f"there are {listed}. Load them (kvlab with --weights {show(name)[1:-1]}=MODEL), or let the "
                "agent run on the lab's own.",
                field=f"agents.{agent}.model",
            )
        return self.others.get(name, self.engine)

    def _flow(self, request: RunRequest, stream: Stream) -> Flow:
        """A new walk through the pipeline over a stream's log."""
        return Flow(request.pipeline, self.engine, stream.log, engines=self.others)

    def _limit(self, request: RunRequest, agent: int) -> int:
        return min(request.decoding.max_new_tokens, request.pipeline.agent(agent).max_new_tokens)

    def _arrive(self, samples: Sequence[Observation], members: Sequence[Lane]) -> None:
        """Let each method see the samples that just became complete."""
        for lane in members:
            lane.clock = lane.clock or self.engine.clock()
            with lane.clock.part("gate"):
                for sample in samples:
                    lane.method.observe(Arrived(sample), lane.stream.log)

    def _use_tool(self, agent: Agent, text: str, members: Sequence[Lane]) -> ToolUse | None:
        """Call an agent's tool, if it has one, with its answer."""
        if not agent.tool:
            return None
        found = get_tool(agent.tool).run(text)
        label = members[0].choice.label if members else "dense"
        return ToolUse(agent.id, label, agent.tool, found.text, found.ok, found.reason or "", found.wall_ms)

    def _prefill(self, lane: Lane, agent: int, request: RunRequest) -> Row:
        context = lane.flow.context(agent)
        engine = self._at(request, agent)
        engine.check_room(len(context.prompt.ids), self._limit(request, agent), agent)
        charged = lane.choice.name not in ("dense", "prefix")  # whose texts are neither judged nor encoded
        clock = (lane.clock if charged else None) or engine.clock()
        lane.clock = None
        if charged:
            spent = lane.flow.led_ms if lane.options.wants_lead_in else lane.flow.base_ms
            spent = spent if lane.method.needs_bases else {}
            clock.add("base", sum(spent.get(n, 0.0) for n in context.samples))
            with clock.part("base"):
                context = lane.method.layout(context)
        plan = lane.method.plan(context, lane.stream.log, clock)
        if request.slots_only and agent == request.pipeline.final:
            plan = slots_only(plan, context.prompt)
        method = lane.method
        if request.gate is not None and agent == request.pipeline.final:
            method = GuardedMethod(method, request.gate)
        prefill = engine.execute(context.prompt, plan, clock, method=method, context=context)
        plan = prefill.plan
        real = plan.plain
        lane.method.observe(Prefilled(context, prefill.cache, real, plan, prefill.hidden), lane.stream.log)
        if request.mode == "pinned":
            if lane.choice.name == "dense":
                see_offsets(context, prefill.cache, engine)
        elif real:
            see_offsets(context, prefill.cache, engine, lane.method.needed())
        return Row(lane, context, plan, prefill, clock)

    def _decode(
        self, rows: list[Row], request: RunRequest, cancel: threading.Event | None, done: int, total: int
    ) -> Generator[Event, None, float]:
        """Let every row answer, as one batch unless memory ran out; ms that it took."""
        spent = 0.0
        for part in [[row] for row in rows] if self.engine.one_by_one else [rows]:
            spent += yield from self._decode_batch(part, request, cancel)
        return spent

    def _decode_batch(
        self, rows: list[Row], request: RunRequest, cancel: threading.Event | None
    ) -> Generator[Event, None, float]:
        agent = rows[0].context.prompt.agent
        decoding = replace(request.decoding, max_new_tokens=self._limit(request, agent))
        for row in rows:
            row.lane.flow.charge(row.context)
        began = time.perf_counter()
        steps = self._at(request, agent).decode_steps(
            [r.prefill for r in rows],
            decoding,
            context=f"agent {called(agent)}'s own context",
            keep_logits=request.mode == "pinned",
            together=self.together,
            wait=self.waits,
        )
        shown = [-1] * len(rows)
        with closing(steps):
            if self.waits:
                next(steps)
                yield READ
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

    def _settle(
        self,
        lanes: list[Lane],
        contexts: dict[str, list[PromptInContext]],
        finished: bool,
        expected: str | None = None,
    ) -> None:
        """Close a request: remember it, or undo what an unfinished one left; then keep to the budget."""
        for stream in {id(lane.stream): lane.stream for lane in lanes}.values():
            members = [lane for lane in lanes if lane.stream is stream]
            if finished:
                first = members[0]
                stream.history.append(Past(contexts[first.choice.label], first.flow.answers, expected))
                for lane in members:
                    lane.method.observe(Finished(), stream.log)
                    lane.slot.method, lane.slot.seen = lane.method, len(stream.history)
                hot = {n for lane in members for n in lane.method.needed() - lane.method.cold()}
                stream.log.offload({n for lane in members for n in lane.method.cold()} - hot)
            else:
                known = stream.needed().union(*(request.observations for request in stream.history))
                for number in list(stream.log.observations):
                    if number not in known:
                        del stream.log.observations[number]
            stream.shrink()
        self._drop_idle({id(lane.stream) for lane in lanes})

    def _drop_idle(self, running: set[int]) -> None:
        """Drop streams of earlier templates or settings, the longest unused first, until the budget holds."""
        for key in [key for key, stream in self.streams.items() if id(stream) not in running]:
            if self.bytes <= self.budget_bytes:
                break
            del self.streams[key]

    def _warm_batch(
        self, request: RunRequest, examples: Sequence[Example], cancel: threading.Event | None
    ) -> Generator[None, None, None]:
        """Dense over several requests at once, into the pinned stream's history; yields at each step."""
        lanes, _ = self._prepare(
            replace(request, values=dict(examples[0].values), methods=(MethodChoice("dense"),)), len(examples)
        )
        stream = lanes[0].stream
        flows = [self._flow(request, stream) for _ in examples]
        histories: list[list[PromptInContext]] = [[] for _ in examples]
        finished = False
        try:
            for flow, example in zip(flows, examples, strict=True):
                flow.start(request.pipeline.check_values(example.values))
            for agent in request.pipeline.order:
                engine, prefills = self._at(request, agent), []
                for flow, history in zip(flows, histories, strict=True):
                    yield
                    _stop_if(cancel)
                    context = flow.context(agent)
                    engine.check_room(len(context.prompt.ids), self._limit(request, agent), agent)
                    prefill = engine.execute(context.prompt, dense_plan(context, "warm-up"), Clock())
                    see_offsets(context, prefill.cache, engine)
                    history.append(context)
                    prefills.append(prefill)
                decoding = replace(request.decoding, max_new_tokens=self._limit(request, agent))
                place = f"agent {called(agent)}'s own context"
                steps = engine.decode_steps(prefills, decoding, context=place, together=self.together)
                decoded = yield from _until(cancel, steps)
                for flow, row in zip(flows, decoded, strict=True):
                    text = self.model.tokens.decode(row.ids)
                    flow.answer(agent, row.ids, text, row.kv)
                    used = self._use_tool(request.pipeline.agent(agent), text, ())
                    if used:
                        flow.tool_result(agent, used.text)
            finished = True
        finally:
            if finished:
                stream.history += [
                    Past(contexts, flow.answers, example.answer)
                    for contexts, flow, example in zip(histories, flows, examples, strict=True)
                ]
                stream.shrink()
                self._drop_idle({id(stream)})
            else:
                self._settle(lanes, {"dense": []}, finished=False)


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


def _until(
    cancel: threading.Event | None, steps: Generator[list[list[int]], None, list[Decoded]]
) -> Generator[None, None, list[Decoded]]:
    """What decoding ends with, unless it is cancelled at one of its steps; yields at each of them."""
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            yield
            _stop_if(cancel)


def _stop_if(cancel: threading.Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise RunCancelled("Stopped. What was finished before is still there.")
