"""Past pinned requests under other methods, options or profiles, without prefilling them again.

In pinned mode dense has seen every sample of every past request in every context, and the log keeps what it
saw: base KV and offsets. So a method's pools, decisions and caches follow from the log alone, whatever its
options: a fresh instance lives through the whole history in order, and the plans of the last requests are
executed and decoded. What the model still reads are the tokens that a plan leaves to it, as in a run; a plan
that shares nothing needs no model at all, for its text is dense's by definition (KVCOMM, Algorithm 1).

A replay under the options of the run gives the run's own texts and decisions, with two exceptions. Pools know
only the requests that the log still holds. And a pool with a byte budget of its own makes room with the sizes
that its newcomers have at the end of their request, which in a run are not yet known when they arrive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.base.cancel import drained, stop_if, stoppable
from backend.base.clock import Clock
from backend.base.errors import BudgetError, OptionError
from backend.cache.samples import PromptInContext
from backend.engine.decoding import Decoded
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Method
from backend.methods.options import Options
from backend.methods.plan import Plan
from backend.methods.registry import method_class
from backend.prompts.scoring import extract_answer, right
from backend.records.events import Progress
from backend.records.replay import MOST_REPLAYED, PastRequest, Replay, Replayed
from backend.records.request import Decoding, MethodChoice, RunRequest, with_reference
from backend.records.run import reuse
from backend.session.prompt_run import own_context
from backend.session.request_state import RequestState
from backend.session.streams import AnsweredRequest, Stream

Choice = tuple[MethodChoice, Options]
NOTHING_KEPT = "Nothing of the replay was kept."
BATCH_ROWS = 32  # answers that are decoded together, as far as the budget allows
NOTHING_HELD = (
    "No pinned request with these templates and decoding settings is remembered, so there is nothing to "
    "replay. Run one first, or fill the pools; then change what you like of the methods, but neither "
    "templates nor decoding."
)


def check_replay(request: RunRequest, choices: Sequence[Choice], stream: Stream | None, last: int) -> None:
    """Refuse what cannot be replayed.

    Raises:
        OptionError: free mode, no method to replay, a wrong number, or no past request.
    """
    if request.mode != "pinned":
        raise OptionError(
            f"The mode is {request.mode!r}; only pinned requests can be replayed, where every method reads "
            "the texts that dense wrote. Choose pinned, and run again.",
            field="mode",
        )
    if type(last) is not int or not 1 <= last <= MOST_REPLAYED:
        raise OptionError(
            f"The number of past requests is {last!r}; allowed: 1 to {MOST_REPLAYED}, whole numbers. "
            "Change it.",
            field="replay.last",
        )
    if not any(_can(choice) for choice, _ in choices):
        raise OptionError(
            "None of the methods can be replayed: dense’s answers are remembered as they are. Choose a reuse "
            "method, such as KVCOMM.",
            field="methods",
        )
    if stream is None or not stream.history:
        raise OptionError(NOTHING_HELD, field="replay")


def replay(
    stream: Stream,
    request: RunRequest,
    choices: Sequence[Choice],
    engine: Engine,
    engines: Mapping[int, Engine],
    last: int,
    cancel: threading.Event | None = None,
) -> Iterator[Progress | Replay]:
    """Replay the last ``last`` requests of a stream; ends with the record.

    Args:
        stream: pinned. Its pools are left alone; its log gains bases that a method wants encoded otherwise.
        request: pipeline, decoding and methods.
        choices: the methods with their options, without dense.
        engine: the lab's own.
        engines: that of each agent.
        last: how many requests to answer again; all when the log holds fewer.
        cancel: ends it when set.

    Raises:
        OptionError: see :func:`check_replay`.
        BudgetError: the methods' caches are over the log's budget.
        RunCancelled: ``cancel`` was set.
    """
    began = time.perf_counter()
    check_replay(request, choices, stream, last)
    every = {id(e): e for e in (engine, *engines.values())}.values()
    before = sum(e.forwarded_tokens for e in every)
    if any(options.wants_lead_in for _, options in choices):
        yield Progress("Encoding outside texts behind their lead-in", 0, 1)
        RequestState(request.pipeline, engine, stream.log).encode_lead_ins()
        stream.shrink()
        check_replay(request, choices, stream, last)
    encoded = sum(e.forwarded_tokens for e in every) - before
    history, forgotten = list(stream.history), stream.forgotten
    player = _Player(request, [c for c in choices if _can(c[0])], engines, cancel)
    batch, cache_bytes = player.check_caches(history[-last:], stream.log.budget_bytes)
    rows: list[Replayed] = []
    requests: list[PastRequest] = []
    waiting: list[list[_Job]] = []  # by request, then by agent
    for index, past in enumerate(history):
        number, answered = forgotten + index + 1, index >= len(history) - last
        yield Progress(f"Copying for past request {number}", index, len(history))
        stop_if(cancel, NOTHING_KEPT)
        jobs = []
        # All methods live through the request side by side, agent by agent.
        for at_agent in zip(*(past.through(m, stream.log) for m in player.methods), strict=True):
            if answered:
                job = _Job(number, past, at_agent[0][0], [plan for _, plan in at_agent])
                jobs.append(player.copy(job))
        if answered:
            waiting.append(jobs)
            if len(waiting) == batch or index == len(history) - 1:
                span = f"{waiting[0][0].number} to {number}"
                yield Progress(f"The agents answer past requests {span}", index, len(history))
                rows += player.answer(waiting)
                waiting = []
            values = {
                sample.placeholder: sample.text
                for context in past.contexts
                for sample in context.samples.values()
                if sample.placeholder in request.pipeline.inputs
            }
            requests.append(PastRequest(number, values, past.expected))
    forwarded = sum(e.forwarded_tokens for e in every) - before
    prefilled = sum(row.forwarded_tokens for row in rows)
    dense = request_label(request)
    again = sum(len(context.prompt.ids) for past in history for context in past.contexts)
    again += sum(row.prompt_tokens - row.reused_tokens for row in rows if row.method != dense)
    yield Replay(
        request=request,
        model=engine.model.info,
        requests=tuple(requests),
        rows=tuple(rows),
        held=len(history),
        forgotten=forgotten,
        log_bytes=stream.log.bytes,
        budget_bytes=stream.log.budget_bytes,
        cache_bytes=cache_bytes,
        prefill_tokens=prefilled,
        decode_tokens=forwarded - prefilled - encoded,
        encoded_tokens=encoded,
        again_tokens=again,
        wall_ms=(time.perf_counter() - began) * 1e3,
        notes=tuple(
            f"{choice.label} is left out: {method_class(choice.name).not_replayed}."
            for choice, _ in choices
            if not _can(choice)
        ),
    )


def request_label(request: RunRequest) -> str:
    """Dense's label in a request."""
    return with_reference(request.methods)[0].label


def _can(choice: MethodChoice) -> bool:
    return not method_class(choice.name).not_replayed


@dataclass(frozen=True)
class _Job:
    """One agent at a past request: what each method decided, and the caches of those that share something."""

    number: int
    past: AnsweredRequest
    context: PromptInContext
    plans: Sequence[Plan]
    prefills: dict[int, Prefill] = field(default_factory=dict)  # by index of the plan


class _Player:
    """Answers past requests again under fresh instances of the methods."""

    def __init__(
        self,
        request: RunRequest,
        choices: Sequence[Choice],
        engines: Mapping[int, Engine],
        cancel: threading.Event | None,
    ) -> None:
        self.request, self.engines, self.cancel = request, engines, cancel
        self.labels = [choice.label for choice, _ in choices]
        self.methods: list[Method] = [method_class(choice.name)(options) for choice, options in choices]

    def check_caches(self, history: Sequence[AnsweredRequest], budget_bytes: int) -> tuple[int, int]:
        """How many requests to decode together, and most bytes that the caches will then take: one per method
        and agent, and those of one agent once more as the batch.

        Raises:
            BudgetError: one request alone is over the budget.
        """
        longest = max(
            len(context.prompt.ids) + self._decoding(context.prompt.agent).max_new_tokens
            for past in history
            for context in past.contexts
        )
        info = next(iter(self.engines.values())).model.info
        copies = len(self.request.pipeline.order) + 1
        needed = copies * longest * len(self.methods) * info.kv_bytes_per_token
        if needed > budget_bytes:
            raise BudgetError(
                f"The caches of {len(self.methods)} methods may need {needed / 2**20:,.0f} MiB ({longest:,} "
                f"tokens each); this lab allows {budget_bytes / 2**20:,.0f} MiB. Choose fewer methods, or "
                "serve with a larger --budget-mb.",
                field="methods",
            )
        batch = max(1, min(BATCH_ROWS // len(self.methods), budget_bytes // needed, len(history)))
        return batch, batch * needed

    def copy(self, job: _Job) -> _Job:
        """Carry out the plans that share something."""
        engine = self.engines[job.context.prompt.agent]
        for index, plan in enumerate(job.plans):
            stop_if(self.cancel, NOTHING_KEPT)
            if not plan.plain:
                job.prefills[index] = engine.execute(
                    job.context.prompt, plan, Clock(), method=self.methods[index], context=job.context
                )
        return job

    def answer(self, waiting: Sequence[Sequence[_Job]]) -> list[Replayed]:
        """Answers of several requests: each agent's under all methods as one batch."""
        decoded: dict[tuple[int, int], Iterator[Decoded]] = {}
        for jobs in zip(*waiting, strict=True):
            agent = jobs[0].context.prompt.agent
            answers = iter(self._decode(agent, [p for job in jobs for p in job.prefills.values()]))
            for job in jobs:
                decoded[job.number, agent] = iter([next(answers) for _ in job.prefills])
        return [
            row
            for jobs in waiting
            for job in jobs
            for row in self._rows(job, decoded[job.number, job.context.prompt.agent])
        ]

    def _rows(self, job: _Job, decoded: Iterator[Decoded]) -> list[Replayed]:
        """One agent at a past request: dense's answer as it was, then each method's."""
        remembered = job.past.answers[job.context.prompt.agent]
        dense = self._row(job, remembered, None)
        rows = [dense]
        for index, (label, plan) in enumerate(zip(self.labels, job.plans, strict=True)):
            prefill = job.prefills.get(index)
            plan = plan if prefill is None else prefill.plan
            row = self._row(job, remembered if prefill is None else next(decoded).ids, prefill)
            as_dense = row.answer == dense.answer and (row.answer is not None or row.text == dense.text)
            gate = tuple(replace(g, anchors=(), weights=(), distances=(), previews=()) for g in plan.gate)
            answer_row = replace(row, method=label, state=plan.state, reason=plan.reason, gate=gate)
            rows.append(replace(answer_row, as_dense=as_dense))
        return rows

    def _row(self, job: _Job, ids: tuple[int, ...], prefill: Prefill | None) -> Replayed:
        """An agent's answer with the numbers of its prefill; dense's without one."""
        context, expected = job.context, job.past.expected
        agent, tokens = context.prompt.agent, self.engines[context.prompt.agent].model.tokens
        scoring = self.request.pipeline.scoring
        text = tokens.decode(ids)
        answer = extract_answer(text, scoring)
        copied, whole = 0, 0
        blocks = sum(s.kind == "placeholder" and s.end > s.start for s in context.prompt.spans)
        if prefill is not None:
            copied, _, whole = reuse(context.prompt.spans, prefill.actions)
        return Replayed(
            request=job.number,
            agent=agent,
            method=request_label(self.request),
            state="dense",
            reason="As dense answered when the request was sent.",
            gate=(),
            prompt_tokens=len(context.prompt.ids),
            reused_tokens=copied,
            blocks=blocks,
            reused_blocks=whole,
            forwarded_tokens=prefill.forwarded_tokens if prefill is not None else 0,
            text=text,
            texts=tokens.texts(ids),
            answer=answer,
            as_dense=True,
            correct=right(answer, expected, scoring) if expected is not None else None,
        )

    def _decoding(self, agent: int) -> Decoding:
        decoding = self.request.decoding
        agent_limit = self.request.pipeline.agent(agent).max_new_tokens
        return replace(decoding, max_new_tokens=min(decoding.max_new_tokens, agent_limit))

    def _decode(self, agent: int, prefills: Sequence[Prefill]) -> list[Decoded]:
        if not prefills:
            return []
        steps = self.engines[agent].decode_steps(prefills, self._decoding(agent), context=own_context(agent))
        return drained(stoppable(steps, self.cancel, NOTHING_KEPT))
