"""The figures behind the break-even formula, measured on this machine (:mod:`backend.break_even`).

One agent with full pools (:mod:`backend.bench.group`) at several lengths: dense's polynomial is fitted,
reuse's parts are divided by what they grow with. The measured ratios stand beside what the formula then says
of the same cases.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from backend.bench.common import SHAPES, conditions, medians, timed
from backend.bench.group import AgentTimes, group_times
from backend.break_even import Case, Machine, answer, fit_dense, from_specifications
from backend.engine import Engine
from backend.errors import OptionError
from backend.events import Progress
from backend.model import LoadedModel

AGENT = 2  # reads the user's input and one answer
PREFIX, QUESTION = 0.25, 0.4  # of a prompt; the rest is the answer
FEW = 2
BF16 = 2  # bytes


def given_machine(shape: str, tflops: float, gb_s: float) -> Machine:
    """A known shape in bf16 on hardware of a data sheet (:func:`backend.break_even.from_specifications`).

    Args:
        tflops: 1e12 operations a second that a prefill reaches; ``gb_s`` 1e9 bytes a second.
    """
    kind = SHAPES[shape]
    hidden, layers = kind["hidden_size"], kind["num_hidden_layers"]
    heads, dim = kind["num_key_value_heads"], hidden // kind["num_attention_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * heads * dim
    parameters = layers * (attention + 3 * hidden * kind["intermediate_size"])
    parameters += kind["vocab_size"] * hidden  # the output layer; embedding is a look-up
    return from_specifications(
        f"{shape} on {tflops:g} TFLOP/s and {gb_s:g} GB/s",
        parameters=parameters, layers=layers, hidden=hidden, kv_bytes=2 * layers * heads * dim * BF16,
        weight_bytes=parameters * BF16, embedding_bytes=hidden * BF16, flops=tflops * 1e12,
        bytes_s=gb_s * 1e9,
    )  # fmt: skip


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
    found: list[AgentTimes] = []
    for number, tokens in enumerate(sorted(set(lengths))):
        yield Progress(f"A prompt of {tokens:,} tokens", number, len(lengths))
        prefix, question = int(tokens * PREFIX), int(tokens * QUESTION)
        answered = tokens - prefix - question
        for event in group_times(model, AGENT, prefix, question, answered, anchors, repeats):
            if isinstance(event, AgentTimes) and event.agent == AGENT:
                found.append(event)
    machine = of_times(found, anchors, model)
    yield Progress("Base and offsets of a new text", len(lengths), len(lengths))
    machine = replace(machine, encode_ms=_encode_ms(model, max(lengths), repeats))
    cases = []
    for one in found:
        case = case_of(one, anchors)
        said = answer(machine, case)
        cases.append(
            {
                "case": asdict(case),
                "dense_ms": one.dense_ms,
                "reuse_ms": one.reuse_ms,
                "ratio": one.dense_ms / one.reuse_ms,
                "formula_dense_ms": said.dense_ms,
                "formula_reuse_ms": said.reuse_ms,
                "formula_ratio": said.ratio,
            }
        )
    yield Measured(machine, tuple(cases), conditions(model.device, model.dtype))


def case_of(one: AgentTimes, anchors: int) -> Case:
    """The case that was timed: nothing but the opening is left uncorrected, and no base is new."""
    opening = int(one.tokens * PREFIX) // 2
    return Case(one.tokens, one.tokens - opening, 0, 1, anchors, anchors)


def of_times(times: Sequence[AgentTimes], anchors: int, model: LoadedModel) -> Machine:
    """A machine from agents' times: dense fitted, and the slopes of what grows with the length.

    Assembly is one pass: what it takes for each token with A anchors is shared out between writing and mixing
    as the bytes are, 2 and A caches."""
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
        statistics.median(t.others_ms for t in times),
        0.0,
        2 * model.info.kv_bytes_per_token,
    )


def _encode_ms(model: LoadedModel, tokens: int, repeats: int) -> float:
    """Encoding a new text's base, for each token."""
    engine = Engine(model)
    ids = [5 + i % 50 for i in range(tokens // 2)]
    spent = medians(timed({"encode": lambda: engine.encode(ids, (1,), "alone")}, repeats, model.device))
    return spent["encode"] / len(ids)
