"""The figures behind the break-even formula, measured on this machine (:mod:`backend.records.break_even`).

One agent with full pools (:mod:`backend.bench.group`) at several lengths: dense's polynomial is fitted,
reuse's parts are divided by what they grow with. The measured ratios stand beside what the formula then says
of the same cases.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from backend.base.errors import BudgetError, OptionError
from backend.bench.common import conditions, medians, timed
from backend.bench.group import AgentTimes, group_times
from backend.engine.engine import Engine
from backend.model.load import LoadedModel
from backend.records.break_even import Case, Machine, answer
from backend.records.events import Progress
from backend.records.hardware import Figures, measured_figures

AGENT = 2  # reads the user's input and one answer
PREFIX, QUESTION = 0.25, 0.4  # of a prompt; the rest is the answer
FEW = 2
LONGEST, ANCHORS, REPEATS = 800, 20, 3  # as a page measures


@dataclass(frozen=True)
class Measured:
    """The machine, and each measured case beside what the formula says of it."""

    machine: Machine
    cases: tuple[dict[str, Any], ...]
    conditions: dict[str, Any]


@torch.inference_mode()
def measure(
    model: LoadedModel, lengths: Sequence[int], anchors: int, repeats: int
) -> Iterator[Progress | Measured]:
    """Measure; yields progress and, last, the figures.

    Args:
        lengths: of the reader's prompt, two or more.
        anchors: of each pool, all of them mixed.

    Raises:
        LabError: a number is out of range; see :func:`backend.bench.group.group_times`.
    """
    if len(set(lengths)) < 2 or anchors < FEW:
        raise OptionError(
            f"lengths are {list(lengths)} and anchors {anchors}; two lengths and {FEW} anchors are needed. "
            "Give more.",
            field="break_even.lengths",
        )
    timed_agents: list[AgentTimes] = []
    for number, tokens in enumerate(sorted(set(lengths))):
        yield Progress(f"A prompt of {tokens:,} tokens", number, len(lengths))
        prefix, question = int(tokens * PREFIX), int(tokens * QUESTION)
        answer_tokens = tokens - prefix - question
        for event in group_times(model, AGENT, prefix, question, answer_tokens, anchors, repeats):
            if isinstance(event, AgentTimes) and event.agent == AGENT:
                timed_agents.append(event)
    machine = of_times(timed_agents, anchors, model)
    yield Progress("Base and offsets of a new text", len(lengths), len(lengths))
    machine = replace(machine, encode_ms=_encode_ms(model, max(lengths), repeats))
    cases = []
    for agent_times in timed_agents:
        case = case_of(agent_times, anchors)
        formula = answer(machine, case)
        cases.append(
            {
                "case": asdict(case),
                "dense_ms": agent_times.dense_ms,
                "reuse_ms": agent_times.reuse_ms,
                "ratio": agent_times.dense_ms / agent_times.reuse_ms,
                "formula_dense_ms": formula.dense_ms,
                "formula_reuse_ms": formula.reuse_ms,
                "formula_ratio": formula.ratio,
            }
        )
    context = conditions(model.device, model.dtype) | {"device": model.device.type}
    yield Measured(machine, tuple(cases), context)


def measure_within(model: LoadedModel, budget_bytes: int) -> Iterator[Progress | Figures]:
    """Measure at lengths that the model can read, with as many anchors as there is room for; yields progress
    and, last, the figures.

    Args:
        budget_bytes: what the pools may take, and as much again while they are packed.

    Raises:
        BudgetError: not even two anchors fit.
    """
    longest = min(LONGEST, model.info.context_tokens)
    each = 2 * 2 * model.info.kv_bytes_per_token * longest
    anchors = min(ANCHORS, budget_bytes // each)
    if anchors < FEW:
        raise BudgetError(
            f"Two anchors of {longest:,} tokens take {2 * each >> 20:,} MiB while they are measured; "
            f"{budget_bytes >> 20:,} MiB are allowed. Raise --budget-mb, or choose other hardware.",
            field="break_even.machine",
        )
    for event in measure(model, (longest // 4, longest // 2, longest), anchors, REPEATS):
        if isinstance(event, Measured):
            yield measured_figures(event.machine, {"measured": event.cases, **event.conditions})
        else:
            yield event


def fit_dense(tokens: Sequence[int], times: Sequence[float]) -> tuple[float, float, float]:
    """(a, b, c) of dense's polynomial by least squares, none below 0: what would be is left out.

    Raises:
        OptionError: there are fewer than two lengths.
    """
    if len(set(tokens)) < 2 or len(tokens) != len(times):
        raise OptionError("Dense is fitted to two lengths or more. Measure more.", field="break_even.tokens")
    from scipy.optimize import nnls

    length = np.asarray(tokens, dtype=float)
    powers = np.stack([np.ones_like(length), length, length**2], axis=1)
    scale = powers.max(axis=0)
    factors, _ = nnls(powers / scale, np.asarray(times, dtype=float))
    a, b, c = (factors / scale).tolist()
    return a, b, c


def case_of(agent_times: AgentTimes, anchors: int) -> Case:
    """The case that was timed: nothing but the opening is left uncorrected, and no base is new."""
    opening = int(agent_times.tokens * PREFIX) // 2
    return Case(agent_times.tokens, agent_times.tokens - opening, 0, 1, anchors, anchors)


def of_times(times: Sequence[AgentTimes], anchors: int, model: LoadedModel) -> Machine:
    """A machine from agents' times: dense fitted, and the slopes of what grows with the length.

    Assembly is one pass: what it takes for each token with A anchors is shared out between writing and mixing
    as the bytes are, 2 and A caches. Whatever else a request takes, the gate and the steps' making, is its
    deciding."""
    per_token = statistics.median(t.assembly_ms / case_of(t, anchors).shared for t in times)
    first = statistics.median(t.first_token_ms for t in times)
    mixed = per_token * anchors / (anchors + 2)
    return Machine(
        model.info.name,
        fit_dense([t.tokens for t in times], [t.dense_ms for t in times]),
        first,
        0.0,  # matching is part of the assembly that was timed
        per_token - mixed,
        mixed / anchors,
        0.0,
        max(0.0, statistics.median(t.reuse_ms - t.assembly_ms - t.first_token_ms for t in times)),
        0.0,
        2 * model.info.kv_bytes_per_token,
    )


def _encode_ms(model: LoadedModel, tokens: int, repeats: int) -> float:
    """Encoding a new text's base, for each token."""
    engine = Engine(model)
    ids = [5 + i % 50 for i in range(tokens // 2)]
    spent = medians(timed({"encode": lambda: engine.encode(ids, (1,), "alone")}, repeats, model.device))
    return spent["encode"] / len(ids)
