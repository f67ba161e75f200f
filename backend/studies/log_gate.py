"""The gate on logged calls: sampled calls are read densely and under a method, and their answers compared.

Every sampled call finds the same pools: those that the first calls with its template left. So calls are
independent given these, and what is said of the share of changed answers is of calls like those in the log.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from backend.base.errors import LabError, OptionError
from backend.logs.call_pipeline import CallPipelines, by_template
from backend.logs.calls import Call
from backend.methods.base import Method
from backend.methods.registry import method_class
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.events import Progress, RunDone
from backend.records.log_gate import GateRecord, GateRequest, GateRow
from backend.records.request import REFERENCE, Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord, reuse
from backend.session.session import LabSession

MOST_CALLS = 20_000


def log_gate(
    model: LoadedModel, request: GateRequest, calls: Sequence[Call], budget_bytes: int = 1 << 30
) -> Iterator[Progress | GateRecord]:
    """Sample calls and compare; ends with the record. Where there are too few calls to tell, none is read.

    Raises:
        OptionError: there are more calls than are held at once.
    """
    if len(calls) > MOST_CALLS:
        raise OptionError(f"The log holds more than {MOST_CALLS:,} calls. Give a part of it.", field="log")
    whole = CallPipelines(calls)
    pipelines: dict[int, Pipeline] = {}
    values: dict[int, dict[str, str]] = {}
    refused: dict[int, str] = {}
    for index in range(len(calls)):
        try:
            pipeline, values[index] = whole.pipeline(index, request.max_new_tokens)
            pipelines[index] = replace(pipeline, scoring=request.same)
        except LabError as error:
            refused[index] = str(error)
    groups = by_template(pipelines)
    warm = request.warm if method_class(request.method.name).on_event is not Method.on_event else 0
    warming = {index: group[: min(warm, len(group) // 2)] for group in groups.values() for index in group}
    warmed = {index for first in warming.values() for index in first}
    left = [index for index in range(len(calls)) if index not in warmed]
    record = GateRecord(request, model.info, len(calls), len(warmed))
    chosen = sampled(left, whole.agents, request)
    rows: list[GateRow] = []
    for number, index in enumerate(chosen if len(chosen) >= request.needed else ()):
        yield Progress(
            f"{number} calls compared, {sum(row.flipped for row in rows)} changed", number, len(chosen)
        )
        row = GateRow(calls[index].where, whole.agents[index], refused.get(index, ""))
        if not row.refused:
            first = [Example(values[i]) for i in warming[index]]
            row = _compared(model, request, pipelines[index], values[index], first, row, budget_bytes)
        rows.append(row)
        if request.stop_early:
            record = replace(record, rows=tuple(rows))
            if record.limits[0] > request.max_flips or record.verdict == "at most":
                break
    yield replace(record, rows=tuple(rows))


def sampled(left: Sequence[int], agents: Sequence[str], request: GateRequest) -> list[int]:
    """Calls in the order in which they are read. All at once: every agent's share of them as in the log. With
    ``stop_early``: in a random order, so that each call is like any other."""
    rng = random.Random(f"gate:{request.seed}")
    if request.stop_early:
        return rng.sample(left, min(request.calls, len(left)))
    by_agent: dict[str, list[int]] = defaultdict(list)
    for index in left:
        by_agent[agents[index]].append(index)
    count = min(request.calls, len(left))
    exact = {agent: count * len(own) / len(left) for agent, own in by_agent.items()}
    share = {agent: int(part) for agent, part in exact.items()}
    for agent in sorted(exact, key=lambda a: (share[a] - exact[a], a))[: count - sum(share.values())]:
        share[agent] += 1
    chosen = [index for agent, own in by_agent.items() for index in rng.sample(own, share[agent])]
    rng.shuffle(chosen)
    return chosen


def _compared(
    model: LoadedModel,
    request: GateRequest,
    pipeline: Pipeline,
    values: dict[str, str],
    first: Sequence[Example],
    row: GateRow,
    budget_bytes: int,
) -> GateRow:
    """A call read twice; or why it could not be."""
    run = RunRequest(
        pipeline, values, (MethodChoice(REFERENCE), request.method),
        decoding=Decoding(request.max_new_tokens, seed=request.seed), probe_offsets=False,
    )  # fmt: skip
    session = LabSession(model, budget_bytes=budget_bytes)
    try:
        if first:
            for _ in session.warm_up(run, first, shared=True):
                pass
        [record] = [event.record for event in session.run(run) if isinstance(event, RunDone)]
    except LabError as error:
        return replace(row, refused=str(error))
    return _row_of(record, request.method.label, row)


def _row_of(record: RunRecord, label: str, row: GateRow) -> GateRow:
    dense, other = record.outcome(1, REFERENCE), record.outcome(1, label)
    prompt = record.prompts[other.prompt]
    if dense.answer is None and other.answer is None:
        flipped = dense.text.strip() != other.text.strip()
    else:
        flipped = dense.answer != other.answer
    near = other.fidelity is not None and other.fidelity.near_tie
    return replace(
        row, flipped=flipped, near_tie=flipped and near, prompt_tokens=len(prompt.token_ids),
        reused_tokens=reuse(prompt.spans, other.actions)[0], dense=dense.text, method=other.text,
    )  # fmt: skip
