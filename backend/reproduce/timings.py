"""Plans that measure times and bytes."""

import statistics
from collections.abc import Iterator
from dataclasses import asdict

from backend.base.statistics import bootstrap, share
from backend.bench.group import AgentTimes, group_times
from backend.bench.roofline import beyond
from backend.engine.engine import Engine
from backend.methods.registry import parse_methods
from backend.prompts.presets import load_preset, preset_requests
from backend.records.anchor_cost import AnchorCost, AnchorCostRequest
from backend.records.documents import DocumentSpeed
from backend.records.events import Progress
from backend.reproduce.context import Context, Step
from backend.reproduce.energy import Meter
from backend.reproduce.spec import CostPlan, GroupPlan, LatencyPlan, Measurement, SpeedPlan, Value
from backend.reproduce.sweeping import value_of
from backend.studies.anchor_cost import anchor_cost
from backend.studies.document_speed import document_speed
from backend.studies.latency import Served, Server

POOL_BYTES = {"cpu": 16 << 30, "cuda": 128 << 30}


def group(plan: GroupPlan, context: Context) -> Iterator[Step]:
    """Times of every agent in every setting, and their mean ratio.

    Raises:
        LabError: see :func:`backend.bench.group.group_times`.
    """
    repeats = context.count(plan.problems)
    for agents, prefix, question, answer in plan.settings:
        times: list[AgentTimes] = []
        for event in group_times(context.model, agents, prefix, question, answer, plan.anchors, repeats):
            if isinstance(event, AgentTimes):
                times.append(event)
            else:
                yield event
        where = {"prefix": str(prefix), "question": str(question), "answer": str(answer)}
        for agent_times in times:
            if wrong := beyond(agent_times.roofline_percent):
                context.notes.append(f"Agent {agent_times.agent} of {agents}: {wrong}")
            yield Measurement(
                {**where, "agent": str(agent_times.agent), "tokens": str(agent_times.tokens)},
                _of_agent(agent_times, repeats),
            )
        means = {
            name: Value(statistics.fmean(_of_agent(t, repeats)[name].value for t in times), of=len(times))
            for name in ("ratio", "two_heaviest_ratio", "strongest_ratio")
        }
        yield Measurement({**where, "agent": "mean"}, means)


def _of_agent(agent_times: AgentTimes, repeats: int) -> dict[str, Value]:
    times = {name: ms for name, ms in asdict(agent_times).items() if name.endswith("_ms") and ms is not None}
    half = agent_times.dense_bf16_ms
    dense = "dense_bf16" if half and half < agent_times.dense_ms else "dense"
    ratios = {
        "ratio": agent_times.dense_ms / agent_times.reuse_ms,
        "two_heaviest_ratio": agent_times.dense_ms / agent_times.two_heaviest_ms,
        "strongest_ratio": times[f"{dense}_ms"] / agent_times.reuse_ms,
        "strongest_roofline": agent_times.roofline_percent[dense] / 100,
        "reuse_roofline": agent_times.roofline_percent["reuse"] / 100,
    }
    return {name: Value(value, of=repeats) for name, value in (times | ratios).items()}


def cost(plan: CostPlan, context: Context) -> Iterator[Step]:
    """Times and bytes of pools; with several numbers of agents, each metric's name ends in its number.

    Raises:
        LabError: see :func:`backend.studies.anchor_cost.anchor_cost`.
    """
    model = context.model
    budget = POOL_BYTES.get(model.device.type, POOL_BYTES["cpu"])
    values: dict[tuple[int, int], dict[str, Value]] = {}
    for agents in plan.agents:
        request = AnchorCostRequest(plan.anchors, plan.lengths, agents)
        for event in anchor_cost(model, request, budget, Engine(model).clock()):
            if not isinstance(event, AnchorCost):
                yield event
                continue
            suffix = f" {agents}" if len(plan.agents) > 1 else ""
            for row, count in enumerate(plan.anchors):
                for column, length in enumerate(plan.lengths):
                    cell = values.setdefault((count, length), {})
                    for name in ("match_ms", "match_kv_ms", "mix_ms", "move_ms"):
                        cell[name + suffix] = Value(float(getattr(event, name)[row, column]))
                    size = int(event.pool_bytes[row, column])
                    cell[f"pool_mb{suffix}"] = Value(size / 1e6)
                    cell[f"group_mb{suffix}"] = Value(size / (agents + 1) * group_units(agents) / 1e6)
    for (count, length), cell in values.items():
        yield Measurement({"anchors": str(count), "tokens": str(length)}, cell)


def group_units(agents: int) -> int:
    """Caches of one anchor's text that a fully connected group keeps, over all placeholders: a base and an
    offset for each reader, of the user's input (all read it) and of every answer (those behind its agent
    do)."""
    return (agents + 1) + sum(agents - writer + 1 for writer in range(1, agents))


def speed(plan: SpeedPlan, context: Context) -> Iterator[Step]:
    """Time to first token by document length.

    Raises:
        LabError: see :func:`backend.studies.document_speed.document_speed`.
    """
    repeats = context.count(plan.problems)
    for event in document_speed(context.model, plan.lengths, repeats, plan.source):
        if not isinstance(event, DocumentSpeed):
            yield event
            continue
        for column, length in enumerate(event.lengths):
            ms = {name.lower(): float(event.ttft_ms[row, column]) for row, name in enumerate(event.names)}
            values = {"dense_ms": Value(ms["dense"], of=repeats)}
            for name in ("kvlink1", "kvlink5"):
                values[f"{name}_ms"] = Value(ms[name], of=repeats)
                values[f"{name}_less"] = Value(1 - ms[name] / ms["dense"], of=repeats)
            yield Measurement({"length": str(length)}, values)


def latency(plan: LatencyPlan, context: Context) -> Iterator[Step]:
    """Whole requests, method by method; energy of the measured ones where the GPU reports it.

    Raises:
        LabError: see :class:`backend.studies.latency.Server`.
    """
    meter = Meter(context.model.device)
    warm, count = context.warm(plan.warmup), context.count(plan.problems)
    if meter.absent:
        context.notes.append(f"{meter.absent[0].upper()}{meter.absent[1:]}.")
    choices = [parse_methods(text)[0] for text in plan.methods]
    for name in plan.pipelines:
        preset = load_preset(name)
        examples = preset_requests(preset, warm + count, context.settings.seed)
        dense: list[Served] = []
        for choice in choices:
            server = Server(context.model, preset.pipeline, choice)
            served: list[Served] = []
            before: float | None = None
            for place, example in enumerate(examples):
                yield Progress(f"{name}: {choice.label}, request {place + 1}", place, len(examples))
                if place == warm:
                    before = meter.joules()
                result = server.serve(example)
                if place >= warm:
                    served.append(result)
            after = meter.joules()
            dense = dense or served
            values = _of_served(served, dense)
            if before is not None and after is not None:
                values["joules"] = Value((after - before) / count, of=count)
            yield Measurement({"task": name, "method": choice.label}, values)


def _of_served(served: list[Served], dense: list[Served]) -> dict[str, Value]:
    count = len(served)
    values = {
        name: Value(statistics.median(getattr(s, name) for s in served), of=count)
        for name in ("wall_ms", "ttft_ms", "decode_ms")
    }
    for ratio, name in (("ratio", "wall_ms"), ("ttft_ratio", "ttft_ms")):
        pairs = zip(dense, served, strict=True)
        each = [getattr(d, name) / max(getattr(s, name), 1e-9) for d, s in pairs]
        values[ratio] = Value(statistics.median(each), of=count)
    values["agents"] = value_of(bootstrap([s.agents_reused for s in served], [s.agents for s in served]))
    values["accuracy"] = value_of(share([s.correct for s in served]))
    return values
