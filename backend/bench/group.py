"""Time to first token of every agent of a fully connected group (KVCOMM, Tables 2 and 3).

Agent m reads the user's input and the answers of the m - 1 agents before it, with template text between
them. Both sides in one run, interleaved, as in :mod:`backend.bench.ttft`: *dense* is one plain prefill of the
prompt, on a CPU that computes in fp32 also one in bf16; *reuse* is KVCOMM's path after the last upstream
token: gate of the newest text, matching, correction, rotation and the last prompt token's forward, with all V
anchors and with the two heaviest; for agent 1 also the base of the user's input, which nobody has encoded
before. Tokens are drawn at random: times do not depend on them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from backend.base.clock import Clock
from backend.base.errors import BudgetError, OptionError
from backend.base.ranges import check_within
from backend.bench.common import medians, model_of, stronger_dense, timed
from backend.bench.reading import Reading
from backend.bench.roofline import Rates, least_ms, percent, prefill_operations, rates
from backend.engine.engine import Engine
from backend.model.load import LoadedModel, pick_device
from backend.records.events import Progress

GPU_ONLY = ("llama-8b",)  # 16 GB of weights, and minutes for a prompt on a CPU
LIMITS = {"agents": (1, 8), "prefix": (16, 8192), "question": (8, 8192), "answer": (8, 8192)}


def shape_or_model(
    name: str, device: str | None, *, device_map: str | None = None, quantise: str | None = None
) -> LoadedModel:
    """A model by its name, or a known shape with random weights.

    Raises:
        OptionError: the shape is too large for a CPU; see :func:`backend.bench.common.model_of`.
        ModelError: see :func:`backend.model.load.load_model`.
    """
    if name in GPU_ONLY and pick_device(device) != "cuda":
        raise OptionError(
            f"The shape {name} needs a GPU with 24 GB or more, and there is none here. Name a smaller one "
            "with --model smollm2-135m, or run at embedded scale.",
            field="model",
        )
    return model_of(name, device, device_map=device_map, quantise=quantise)


@dataclass(frozen=True)
class AgentTimes:
    """Medians of one agent, in milliseconds.

    Attributes:
        dense_bf16_ms: None where dense is in half precision already.
        assembly_ms: matching, correction and rotation; ``others_ms`` the gate, and agent 1's base.
        reuse_ms: the whole path, timed without its parts; ``two_heaviest_ms`` with two anchors mixed.
        roofline_percent: by side (``dense``, ``dense_bf16``, ``reuse``, ``two_heaviest``), the least time
            that the hardware allows as a share of the time taken; see :mod:`backend.bench.roofline`.
    """

    agent: int
    tokens: int
    dense_ms: float
    reuse_ms: float
    two_heaviest_ms: float
    assembly_ms: float
    first_token_ms: float
    others_ms: float
    roofline_percent: Mapping[str, float]
    dense_bf16_ms: float | None = None


@torch.inference_mode()
def group_times(
    model: LoadedModel, agents: int, prefix: int, question: int, answer: int, anchors: int, repeats: int
) -> Iterator[Progress | AgentTimes]:
    """Measure each agent in turn; yields progress and its times.

    Args:
        agents: how many there are.
        prefix: tokens of template text in each prompt.
        question: of the user's input; ``answer`` of each agent's answer.
        anchors: pool size V; every pool is full and all its anchors are eligible.
        repeats: timed repetitions of each side, behind two that do not count.

    Raises:
        OptionError: a number is out of range.
        BudgetError: the last agent's prompt is longer than the model reads.
    """
    sizes = {"agents": agents, "prefix": prefix, "question": question, "answer": answer}
    for name, value in sizes.items():
        check_within(value, *LIMITS[name], f"group.{name}")
    if not 1 <= anchors <= 64 or not 1 <= repeats <= 1000:
        raise OptionError(
            f"anchors are {anchors} and repeats {repeats}; allowed are 1 to 64 and 1 to 1000. Change them.",
            field="group",
        )
    longest = prefix + question + (agents - 1) * answer
    if longest > model.info.context_tokens:
        raise BudgetError(
            f"Agent {agents} would read {longest:,} tokens; {model.info.name} can read "
            f"{model.info.context_tokens:,}. Ask for shorter texts.",
            field="group.answer",
        )
    stronger = stronger_dense(model)
    bf16 = Engine(stronger) if stronger else None
    precisions = {"dense": model.dtype} | ({"dense_bf16": stronger.dtype} if stronger else {})
    roof = rates(model.device, precisions, repeats)
    for agent in range(1, agents + 1):
        yield Progress(f"Agent {agent} of {agents}: {prefix} prefix, {answer} answer", agent - 1, agents)
        texts = {"user_question": question} | {f"agent_{i}_current": answer for i in range(1, agent)}
        first, rest = prefix // 2, prefix - prefix // 2
        share = [rest // agent] * agent
        share[-1] += rest - sum(share)
        yield _measured(Reading(model, agent, (first, *share), texts, anchors), bf16, repeats, roof)


def _measured(reading: Reading, bf16: Engine | None, repeats: int, roof: Rates) -> AgentTimes:
    """One agent with full pools."""

    def encode() -> None:
        if reading.agent == 1:  # nobody has encoded the user's input before
            reading.engine.encode(reading.newest.ids, (1,), "alone")

    def reuse(name: str) -> None:
        encode()
        reading.reuse(name, Clock())

    sides: dict[str, Callable[[], object]] = {"dense": reading.dense}
    sides |= {name: (lambda name=name: reuse(name)) for name in reading.methods}  # type: ignore[misc]
    if bf16:  # last in a turn, see the bench of the time to first token
        sides["dense_bf16"] = lambda: bf16.prefill(reading.context.prompt.ids)
    device = reading.model.device
    ms = medians(timed(sides, repeats, device))
    parts = reading.parts("reuse", repeats)
    base, least = 0.0, reading.least_ms(roof)
    if reading.agent == 1:
        base = medians(timed({"base": encode}, repeats, device))["base"]
        encoded = prefill_operations(reading.model, len(reading.newest.ids), logits=False)
        for name in reading.methods:
            least[name] += least_ms(encoded, roof.product_gflop_s["dense"])

    def of(*names: str) -> float:
        return float(sum(parts.get(name, 0.0) for name in names))

    return AgentTimes(
        reading.agent, len(reading.context.prompt.ids), ms["dense"], ms["reuse"], ms["two_heaviest"],
        of("match", "correct", "rotate"), of("first_token"), of("gate") + base,
        {name: percent(value, ms[name]) for name, value in least.items()}, ms.get("dense_bf16"),
    )  # fmt: skip
