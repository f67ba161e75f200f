"""The judge lab: candidates written once, put before a judge in several orders, read through every method.

Source: judge study, Sections 3 to 5, C.3. Execution is dense and sampled, its texts are fixed; the KV that
each agent's own decoding left is what the judge's methods reuse. The judge is greedy, and every method reads
the same tokens (pinned). Readings of open points:

* A candidate's slot is a placeholder of the judge's template, and its writer its source
  (:attr:`backend.cache.samples.Sample.source`): so KVCOMM keeps a pool per writer, slot-aligned one
  per slot.
* Each order has a session of its own: the same texts in another order would else find themselves as anchors.
* A typed text has no execution cache. It is encoded alone, like any outside text, and so is what agents of
  another size wrote, for their caches do not fit.
* *Pairwise* asks about every two candidates in the order shown; most wins are selected, ties are a set.
* Orders know nothing of each other, so their answers are decoded in one batch. Each prompt is read while
  nothing else is at work, so times to the first token are as they would be alone.
"""

import random
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch

from backend.base.clock import Clock
from backend.base.errors import ModelError, OptionError
from backend.cache.kv_cache import KVSegment
from backend.cache.memory_budget import free_bytes
from backend.engine.engine import Engine
from backend.judge.judge_session import JudgeSession, SlotText, side_by_side
from backend.judge.prompts import (
    WORDINGS,
    check_wording,
    execution_pipeline,
    final_of,
    judge_pipeline,
    right_final,
)
from backend.judge.verdicts import Reading, outcome_of, reading_of
from backend.methods.dense import dense_plan
from backend.model.load import LoadedModel
from backend.model.weight_variants import check_sibling
from backend.prompts.pipeline import Pipeline
from backend.prompts.tasks.arithmetic import draw_problem
from backend.prompts.tasks.judge_prompt import draw_results
from backend.records.events import Event
from backend.records.judge import Candidate, JudgedProblem, JudgeOutcome, JudgeProblem, JudgeRequest, Order
from backend.records.request import Decoding, RunRequest, with_reference
from backend.records.run import RunRecord
from backend.session.pool_views import principal_coordinates
from backend.session.prompt_run import own_context

BLANK_TRIES = 8  # an agent that writes nothing is asked again with another seed
NOTHING = "(no answer)"
LOGIT_BYTES = 4
Bases = tuple[KVSegment | None, ...]


@dataclass(frozen=True)
class OrderResult:
    """Every method's outcome for a problem in an order, dense first; the runs' notes; the last record."""

    order: Order
    outcomes: tuple[JudgeOutcome, ...]
    notes: tuple[str, ...]
    record: RunRecord

    @property
    def labelled(self) -> dict[str, None]:
        """The notes, each with the order's name before it."""
        return dict.fromkeys(f"{self.order.label}: {note}" for note in self.notes)


class JudgeLab:
    """Agents that write candidates, and a judge that reads them.

    Args:
        judge: the judge's model.
        agents: the execution agents'; the judge's own when absent.
        budget_bytes: what the sessions of all orders may hold together.
        orders: how many there will be.

    ``most_at_once``: answers in a batch; more gain little.
    ``note`` says what becomes of the agents' caches; empty when the judge reuses them as its own.
    """

    most_at_once = 48

    def __init__(
        self,
        judge: LoadedModel,
        agents: LoadedModel | None = None,
        *,
        budget_bytes: int = 4 << 30,
        orders: int = 1,
    ) -> None:
        self.model = judge
        self.agents = agents or judge
        self.engine = Engine(self.agents)  # the agents'
        self.budget_bytes = budget_bytes // max(1, orders)
        self.sessions: dict[str, JudgeSession] = {}
        self.note, self.reuses = "", True
        if self.agents.info.weights_hash != judge.info.weights_hash:
            try:
                check_sibling(judge, self.agents, "agents")
                self.note = (
                    "The agents ran on other weights of the judge's architecture; their caches are reused."
                )
            except ModelError as error:
                self.reuses = False
                self.note = f"Candidates are encoded alone by the judge's model. {error}"

    # -- candidates

    def draw(self, request: JudgeRequest, number: int) -> JudgeProblem:
        """Problem ``number`` of a request; see :func:`drawn_problem`."""
        return drawn_problem(request, number)

    def execute(self, problem: JudgeProblem, request: JudgeRequest) -> tuple[JudgeProblem, Bases]:
        """Let the agents write the candidates that are missing; returns the problem with them, and the KV
        that each left (None for typed texts, and where it does not fit the judge)."""
        if problem.regime == "typed":
            return problem, (None,) * len(problem.candidates)
        count = len(problem.candidates) or request.candidates
        pipeline = execution_pipeline(problem.regime, count, request.wording, request.sampling.max_new_tokens)
        values = {"user_question": self.agents.tokens.encode(problem.question)}
        candidates: list[Candidate] = []
        bases: list[KVSegment | None] = []
        for agent in pipeline.order:
            if problem.candidates:
                candidate = problem.candidates[agent - 1]
                ids, base = candidate.ids, self._recompute(pipeline, agent, values, candidate.ids)
            else:
                ids, base = self._write(pipeline, agent, values, request.sampling, problem.number)
                text = self.agents.tokens.decode(ids).replace("\x00", "\ufffd")  # NUL is no text
                expected, wording = problem.expected, request.wording
                right = None if expected is None else right_final(final_of(text, wording), expected, wording)
                candidate = Candidate(text, f"agent {agent}", ids, right)
            values[f"agent_{agent}_current"] = ids
            candidates.append(candidate)
            bases.append(base if self.reuses else None)
        return replace(problem, candidates=tuple(candidates)), tuple(bases)

    def _write(
        self, pipeline: Pipeline, agent: int, values: dict[str, tuple[int, ...]], how: Decoding, number: int
    ) -> tuple[tuple[int, ...], KVSegment]:
        """One agent's answer: dense and sampled."""
        prompt = self.agents.tokens.prompt(pipeline, agent, values)
        self.engine.check_room(len(prompt.ids), how.max_new_tokens, agent)
        prefill = self.engine.execute(prompt, dense_plan(prompt, "execution"), Clock())
        for trial in range(BLANK_TRIES):
            seed = random.Random(f"write:{how.seed}:{number}:{agent}:{trial}").getrandbits(62)
            [decoded] = self.engine.decode([prefill], replace(how, seed=seed), context=own_context(agent))
            if self.agents.tokens.decode(decoded.ids).strip():
                return decoded.ids, decoded.kv
        ids = self.agents.tokens.encode(NOTHING)
        return ids, self._recompute(pipeline, agent, values, ids)

    def _recompute(
        self, pipeline: Pipeline, agent: int, values: dict[str, tuple[int, ...]], ids: tuple[int, ...]
    ) -> KVSegment:
        """The KV of a known answer in its writer's context, computed again."""
        prompt = self.agents.tokens.prompt(pipeline, agent, values)
        return self.engine.encode(ids, prompt.ids, own_context(agent))

    # -- judging

    def session(self, order: Order) -> JudgeSession:
        """The session that keeps an order's pools."""
        if order.label not in self.sessions:
            self.sessions[order.label] = JudgeSession(self.model, budget_bytes=self.budget_bytes)
        return self.sessions[order.label]

    def prompts(
        self, problem: JudgeProblem, bases: Bases, layout: Sequence[int], request: JudgeRequest
    ) -> list[tuple[tuple[int, ...], RunRequest, dict[str, SlotText]]]:
        """What the judge is asked about a problem in a layout: one prompt, or (pairwise) one for every two
        slots. Each with the candidates in its slots, the request, and the texts it is given."""
        shown = list(combinations(layout, 2)) if request.protocol == "pairwise" else [tuple(layout)]
        tokens = self.model.tokens
        out = []
        for places in shown:
            pipeline = judge_pipeline(
                request.protocol, request.criterion, len(places), request.wording, request.max_new_tokens
            )
            values, texts = {"user_question": problem.question}, {}
            for slot, number in enumerate(places, 1):
                candidate, base = problem.candidates[number - 1], bases[number - 1]
                name = f"candidate_{slot}"
                values[name] = candidate.text
                ids = candidate.ids if base is not None else tokens.encode(candidate.text)
                texts[name] = SlotText(ids, base, candidate.source)
            run = RunRequest(
                pipeline,
                values,
                with_reference(request.methods),
                decoding=Decoding(request.max_new_tokens),
                probe_offsets=False,
                gate=request.gate,
                slots_only=request.slots_only,
            )
            out.append((places, run, texts))
        return out

    def judge(
        self,
        problem: JudgeProblem,
        bases: Bases,
        orders: Sequence[Order],
        request: JudgeRequest,
        cancel: threading.Event | None = None,
    ) -> list[OrderResult]:
        """Judge a problem in some orders, all at once; see :meth:`groups`.

        Raises:
            LabError: it cannot be judged.
            RunCancelled: ``cancel`` was set.
        """
        for session in self.sessions.values():
            session.rows = ()  # frees the last problem's caches before this one's are made
        many = len(orders) > 1
        return side_by_side(
            [self._run_order(problem, bases, order, request, many, cancel) for order in orders]
        )

    def groups(self, problem: JudgeProblem, request: JudgeRequest) -> list[tuple[Order, ...]]:
        """The request's orders, in groups that are judged at once. What a group's prompts take, their copies
        in a batch, and the logits that are kept, is at most a quarter of what the pools may hold, and half
        of what a device has left."""
        methods = len(with_reference(request.methods))
        layout = tuple(range(1, len(problem.candidates) + 1))
        nothing: Bases = (None,) * len(layout)
        info, new = self.model.info, request.max_new_tokens
        tokens = new + max(
            self.model.count_tokens(run.pipeline, run.pipeline.final, run.values)
            for _, run, _ in self.prompts(problem, nothing, layout, request)
        )
        each = 2 * methods * (tokens * info.kv_bytes_per_token + new * info.vocabulary * LOGIT_BYTES)
        room, free = self.budget_bytes * len(request.orders) // 4, free_bytes(self.model.device)
        room = room if free is None else min(room, free // 2)
        size = max(1, min(room // each, self.most_at_once // methods))
        return [request.orders[start : start + size] for start in range(0, len(request.orders), size)]

    def _run_order(
        self,
        problem: JudgeProblem,
        bases: Bases,
        order: Order,
        request: JudgeRequest,
        many: bool,
        cancel: threading.Event | None,
    ) -> Generator[Event, None, OrderResult]:
        """Judge a problem in an order. ``many``: whether other orders are judged with it."""
        layout = order.layout(problem.number, len(problem.candidates))
        session = self.session(order)
        read: dict[str, list[Reading]] = {}
        notes: dict[str, None] = {}
        for places, run, texts in self.prompts(problem, bases, layout, request):
            record = yield from session.run_slots(run, texts, cancel)
            # Concurrent work changes only the times of decoding, and a verdict keeps none of these.
            notes |= dict.fromkeys(note for note in record.notes if note != session.concurrent_note)
            for row, outcome in zip(session.rows, record.outcomes, strict=True):
                assert row.decoded is not None
                reading = reading_of(record, outcome, row.decoded.margins, places, request)
                read.setdefault(outcome.method, []).append(reading)
        [first, *_] = read.values()
        outcomes = tuple(
            outcome_of(problem, order.label, layout, label, readings, first, request)
            for label, readings in read.items()
        )
        if many and session.concurrent_note not in record.notes:  # the others are done
            record = replace(record, notes=(*record.notes, session.concurrent_note))
        return OrderResult(order, outcomes, tuple(notes), record)

    def learn(self, problem: JudgeProblem, bases: Bases, order: Order, request: JudgeRequest) -> None:
        """Let an order's pools see a problem, without judging it."""
        layout = order.layout(problem.number, len(problem.candidates))
        for _, run, texts in self.prompts(problem, bases, layout, request):
            self.session(order).learn(run, texts)

    def judged(
        self,
        problem: JudgeProblem,
        request: JudgeRequest,
        key: str = "",
        cancel: threading.Event | None = None,
    ) -> JudgedProblem:
        """A problem in all orders: a row.

        Raises:
            LabError: it cannot be judged.
            RunCancelled: ``cancel`` was set.
        """
        began = time.perf_counter()
        problem, bases = self.execute(problem, request)
        outcomes: list[JudgeOutcome] = []
        notes = dict.fromkeys([self.note] if self.note else [])
        for orders in self.groups(problem, request):
            for result in self.judge(problem, bases, orders, request, cancel):
                outcomes += result.outcomes
                notes |= result.labelled
        wall = (time.perf_counter() - began) * 1e3
        return JudgedProblem(key, problem, tuple(outcomes), wall, tuple(notes))


def drawn_problem(request: JudgeRequest, number: int) -> JudgeProblem:
    """Problem ``number`` of a request, as it is given or drawn; agents' candidates are still missing.

    Numbers below 1 are the warm-up's.
    """
    if request.problems:
        place = number - 1 + request.warmup
        return replace(request.problems[place], number=number)
    rng = random.Random(f"judge:{request.seed}:{number}")
    drawn = draw_problem(rng, True, 3, request.steps or None)
    candidates: tuple[Candidate, ...] = ()
    if request.regime == "typed":
        texts = draw_results(rng, request.criterion, drawn, request.candidates)
        candidates = tuple(
            Candidate(text, f"agent {i}", right=value == drawn.answer)
            for i, (text, value) in enumerate(texts, 1)
        )
    return JudgeProblem(number, drawn.question, candidates, request.regime, str(drawn.answer))


def check(request: JudgeRequest) -> None:
    """Refuse a request that cannot be run, before any model works.

    Raises:
        OptionError: see :meth:`backend.records.judge.JudgeRequest.check`; or there is no such wording, or its
            answers are programs, for which only a sweep has tests.
    """
    request.check()
    check_wording(request.wording)
    if WORDINGS[request.wording].final == "code":
        raise OptionError(
            f"The wording {request.wording!r} is for problems with unit tests, which a sweep over humaneval "
            "judges (docs/sweeps.md). Choose another wording.",
            field="judge.wording",
        )


@torch.inference_mode()
def question_points(model: LoadedModel, questions: Sequence[str]) -> Any:
    """(questions, components) mean token embeddings in principal coordinates; None without any question."""
    means = [model.embed(model.tokens.encode(q)).float().mean(dim=0) for q in questions]
    return principal_coordinates(torch.stack(means)) if means else None
