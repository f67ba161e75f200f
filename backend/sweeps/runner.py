"""Shards on a real model: pipelines through :class:`backend.session.session.LabSession`, judges through the
judge lab.

A shard that goes on first rebuilds its pools from the problems that are done: pipelines by sending them
through dense again (pinned) or under every method (free), judges from the candidates that were kept.
"""

import json
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, Protocol

from backend.base.cancel import stop_if
from backend.base.errors import BudgetError
from backend.base.serialization import as_json, from_json
from backend.judge.judge_lab import JudgeLab
from backend.model.adapters import variant
from backend.model.load import LoadedModel
from backend.records.events import Progress, RunDone
from backend.records.judge import JudgeOutcome, JudgeProblem, JudgeRequest
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.rows import outcome_row
from backend.records.run import NEAR_TIE, RunRecord
from backend.sweeps.grid import PlannedRow, Shard
from backend.sweeps.problems import Request
from backend.sweeps.rows import Finished, Row
from backend.sweeps.scoring import score
from backend.sweeps.traces import TraceSession

Loader = Callable[[str], LoadedModel]
Memo = Callable[[str], Any]


class Runner(Protocol):
    """What runs shards. ``weights`` is part of every key."""

    def weights(self, shard: Shard) -> str:
        """Identity of what computes a shard's rows."""
        ...

    def run(
        self, shard: Shard, keys: Collection[str], memo: Memo, cancel: threading.Event | None
    ) -> Iterator[Progress | Finished]:
        """Run a shard's problems that lack a row, in turn."""
        ...


class ModelRunner:
    """Runs shards on models, the last one loaded is kept.

    Args:
        load: gives a model by its name.
    """

    def __init__(self, load: Loader) -> None:
        self.load = load
        self.loaded: dict[str, LoadedModel] = {}

    def model(self, name: str, beside: str = "") -> LoadedModel:
        """A model; of those loaded before only the one ``beside`` it stays."""
        if name not in self.loaded:
            self.loaded = {n: model for n, model in self.loaded.items() if n == beside}
            self.loaded[name] = self.load(name)
        return self.loaded[name]

    def weights(self, shard: Shard) -> str:
        """Hashes and dtypes of the model, of a judge's other agents, and of variants that agents run on."""
        names = [shard.cell.model]
        if shard.judge and shard.judge.agents:
            names.append(shard.judge.agents)
        models: list[LoadedModel | None] = [self.model(name, names[0]) for name in names]
        variants = {agent.model for agent in shard.pipeline.agents} if shard.pipeline else set[str]()
        models += [variant(self.model(names[0]), name) for name in sorted(variants - {""})]
        return " ".join(f"{model.info.weights_hash} {model.info.dtype}" for model in models if model)

    def run(
        self, shard: Shard, keys: Collection[str], memo: Memo, cancel: threading.Event | None = None
    ) -> Iterator[Progress | Finished]:
        """See :class:`Runner`."""
        weights = self.weights(shard)
        units = shard.units
        lacking = [{s.method for s in row if s.key(weights) not in keys} for row in units]
        first = next((i for i, names in enumerate(lacking) if names), None)
        if first is None:
            return
        labels = set().union(*lacking)
        dense, *others = shard.methods
        methods = (dense, *(choice for choice in others if choice.label in labels))
        if shard.judge:
            yield from self._judge(shard, units, first, methods, weights, memo, cancel)
        else:
            yield from self._pipeline(shard, units, first, methods, weights, cancel)

    def _pipeline(
        self,
        shard: Shard,
        units: list[list[PlannedRow]],
        first: int,
        methods: tuple[MethodChoice, ...],
        weights: str,
        cancel: threading.Event | None,
    ) -> Iterator[Progress | Finished]:
        assert shard.pipeline is not None
        session = TraceSession(self.model(shard.cell.model), budget_bytes=shard.budget_mb << 20)
        base = RunRequest(
            shard.pipeline, dict(shard.requests[0].values), methods, shard.cell.mode, shard.decoding,
            probe_offsets=shard.measure_cache,
        )  # fmt: skip
        sent = shard.requests[: shard.warmup + first]
        traced = any(request.recorded for request in shard.requests)
        groups = [[request] for request in sent] if traced else [list(sent)] * bool(sent)
        for group in groups:
            session.recorded = group[0].recorded
            for event in session.warm_up(base, [request.example for request in group], cancel=cancel):
                if isinstance(event, Progress):
                    yield event
        for place in range(first, shard.size):
            request = shard.requests[shard.warmup + place]
            session.recorded = request.recorded
            record = None
            try:
                for event in session.run(replace(base, values=dict(request.values)), cancel=cancel):
                    if isinstance(event, RunDone):
                        record = event.record
                    elif isinstance(event, Progress):
                        yield event
            except BudgetError as error:  # which of hundreds it is, nobody could tell
                raise BudgetError(
                    f"{shard.cell.task}, problem {request.number}: {error}", field=error.field
                ) from None
            assert record is not None
            missing = [planned for planned in units[place] if planned.method in {m.label for m in methods}]
            rows = pipeline_rows(record, request, missing, weights)
            yield Finished(unit_of(units[place], weights), rows)

    def _judge(
        self,
        shard: Shard,
        units: list[list[PlannedRow]],
        first: int,
        methods: tuple[MethodChoice, ...],
        weights: str,
        memo: Memo,
        cancel: threading.Event | None,
    ) -> Iterator[Progress | Finished]:
        assert shard.judge is not None
        model = self.model(shard.cell.model)
        agents = self.model(shard.judge.agents, shard.cell.model) if shard.judge.agents else None
        request = replace(shard.judge, methods=methods, judge=shard.cell.model, agents=shard.judge.agents)
        lab = JudgeLab(model, agents, budget_bytes=shard.budget_mb << 20, orders=len(request.orders))
        sent = shard.problems[: shard.warmup + first]
        for index, problem in enumerate(sent):
            stop_if(cancel)
            yield Progress(f"Taking in what was judged before: {index + 1} of {len(sent)}", index, len(sent))
            place = index - shard.warmup
            body = memo(unit_of(units[place], weights)) if place >= 0 else None
            if body is not None:
                problem = from_json(JudgeProblem, body)
            full, bases = lab.execute(problem, request)
            for order in request.orders:
                lab.learn(full, bases, order, request)
        for place in range(first, shard.size):
            stop_if(cancel)
            problem = shard.problems[shard.warmup + place]
            yield Progress(f"Judging problem {place + 1} of {shard.size}", place, shard.size)
            unit = unit_of(units[place], weights)
            body = memo(unit)
            if body is not None:
                problem = from_json(JudgeProblem, body)
            judged = lab.judged(problem, request, cancel=cancel)
            planned = {(row.cell.judge_order, row.method): row for row in units[place]}
            rows = tuple(
                judge_row(judged.problem, o, planned[o.order, o.method], request, weights, judged.wall_ms)
                for o in judged.outcomes
            )
            yield Finished(unit, rows, as_json(judged.problem))


def pipeline_rows(
    record: RunRecord, request: Request, unit: list[PlannedRow], weights: str
) -> tuple[Row, ...]:
    """A run as rows, one for each method, scored as the request says; dense first in the record."""
    final = record.request.pipeline.final
    by_method: dict[str, list[dict[str, Any]]] = {}
    for outcome in record.outcomes:
        by_method.setdefault(outcome.method, []).append(outcome_row(record, outcome))
    finals = {label: next(o for o in rows if o["agent"] == final) for label, rows in by_method.items()}
    scores = {label: score(o["text"], request.golds, request.scorer) for label, o in finals.items()}
    [dense, *_] = by_method
    rows = []
    for planned in unit:
        label = planned.method
        method_rows, scored, last = by_method[label], scores[label], finals[label]
        silent = scored.answer is None and scores[dense].answer is None
        same = last["text"] == finals[dense]["text"] if silent else scored.answer == scores[dense].answer
        margin = last.get("margin")
        rows.append(
            Row(
                key=planned.key(weights),
                **_place(planned, record.request.decoding),
                request=next(iter(request.values.values()), ""),
                expected=request.golds[0] if request.golds else None,
                answer=scored.answer,
                correct=scored.correct if request.golds else None,
                score=scored.value if request.golds else None,
                as_dense=same,
                selection_right=None,
                state=last["state"],
                agents=len(method_rows),
                agents_reused=sum(o["state"] == "reused" for o in method_rows),
                blocks=sum(o["blocks"] for o in method_rows),
                blocks_reused=sum(o["blocks_reused"] for o in method_rows),
                prompt_tokens=sum(o["prompt_tokens"] for o in method_rows),
                reused_tokens=sum(o["tokens_reused"] for o in method_rows),
                ttft_ms=last["ttft_ms"],
                total_ttft_ms=sum(o["ttft_ms"] for o in method_rows),
                kl_first=last.get("kl_first"),
                kl_mean=last.get("kl_mean"),
                floor=last.get("floor"),
                near_tie=None if margin is None else margin < NEAR_TIE * last["floor"],
                key_error=last.get("key_error"),
                value_error=last.get("value_error"),
                wall_ms=record.wall_ms,
                body=json.dumps({"outcomes": method_rows}, ensure_ascii=False),
            )
        )
    return tuple(rows)


def judge_row(
    problem: JudgeProblem,
    outcome: JudgeOutcome,
    planned: PlannedRow,
    request: JudgeRequest,
    weights: str,
    wall_ms: float,
) -> Row:
    """A judged problem in one order under one method as a row."""
    decoding = replace(request.sampling, max_new_tokens=request.max_new_tokens)
    return Row(
        key=planned.key(weights),
        **_place(planned, decoding),
        request=problem.question,
        expected=problem.expected,
        answer=outcome.answer,
        correct=outcome.correct,
        score=None if outcome.correct is None else float(outcome.correct),
        as_dense=outcome.consistent,
        selection_right=outcome.selection_right,
        state=outcome.state,
        agents=1,
        agents_reused=int(outcome.state == "reused"),
        blocks=outcome.blocks,
        blocks_reused=outcome.reused_blocks,
        prompt_tokens=outcome.prompt_tokens,
        reused_tokens=outcome.reused_tokens,
        ttft_ms=outcome.ttft_ms,
        total_ttft_ms=outcome.ttft_ms,
        kl_first=outcome.kl_first,
        kl_mean=outcome.kl_mean,
        floor=outcome.floor,
        near_tie=outcome.near_tie,
        wall_ms=wall_ms,
        body=json.dumps(as_json(outcome), ensure_ascii=False),
    )


def _place(planned: PlannedRow, decoding: Decoding) -> dict[str, Any]:
    cell = planned.cell
    return {
        "task": cell.task, "model": cell.model, "mode": cell.mode, "request_order": cell.request_order,
        "seed": cell.seed, "judge_order": cell.judge_order, "max_new_tokens": decoding.max_new_tokens,
        "temperature": decoding.temperature, "problem": planned.problem, "method": planned.method,
    }  # fmt: skip


def unit_of(unit: list[PlannedRow], weights: str) -> str:
    """Identity of a problem in its cell, whatever methods read it: dense's row in the first order."""
    return unit[0].key(weights)
