"""Time to first token of every agent of a fully connected group (KVCOMM, Tables 2 and 3).

Agent m reads the user's input and the answers of the m - 1 agents before it, with template text between
them. Both sides in one run, interleaved, as in :mod:`backend.bench.ttft`: *dense* is one plain prefill of the
prompt; *reuse* is KVCOMM's path after the last upstream token: gate of the newest text, matching, correction,
rotation and the last prompt token's forward, with all V anchors and with the two heaviest; for agent 1 also
the base of the user's input, which nobody has encoded before. Tokens are drawn at random: times do not depend
on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from backend.bench.common import SHAPES, medians, random_model, timed
from backend.engine import Engine, Prefill
from backend.errors import BudgetError, OptionError
from backend.events import Progress
from backend.flow import see_offsets
from backend.methods.base import Arrived, Blend, Clock
from backend.methods.kvcomm import KVCommMethod, KVCommOptions
from backend.model import LoadedModel, load_model, pick_device
from backend.records import Span
from backend.store import Observation, ObservationLog, PromptInContext
from backend.tokens import TokenizedPrompt

HEAVIEST = 2
GPU_ONLY = ("llama-8b",)  # 16 GB of weights, and minutes for a prompt on a CPU
LIMITS = {"agents": (1, 8), "prefix": (16, 8192), "question": (8, 8192), "answer": (8, 8192)}


def shape_or_model(name: str, device: str | None) -> LoadedModel:
    """A model by its name, or a known shape with random weights.

    Raises:
        OptionError: the shape is too large for a CPU.
        ModelError: see :func:`backend.model.load_model`.
    """
    if name not in SHAPES:
        return load_model(name, device=device)
    if name in GPU_ONLY and pick_device(device) != "cuda":
        raise OptionError(
            f"The shape {name} needs a GPU with 24 GB or more, and there is none here. Name a smaller one "
            "with --model smollm2-135m, or run at embedded scale.",
            field="model",
        )
    return random_model(name, device)


@dataclass(frozen=True)
class AgentTimes:
    """Medians of one agent, in milliseconds.

    Attributes:
        assembly_ms: matching, correction and rotation; ``others_ms`` the gate, and agent 1's base.
        reuse_ms: the whole path, timed without its parts; ``two_heaviest_ms`` with two anchors mixed.
    """

    agent: int
    tokens: int
    dense_ms: float
    reuse_ms: float
    two_heaviest_ms: float
    assembly_ms: float
    first_token_ms: float
    others_ms: float


@torch.inference_mode()
def group_times(
    model: LoadedModel,
    agents: int,
    prefix: int,
    question: int,
    answer: int,
    anchors: int,
    repeats: int,
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
    given = {"agents": agents, "prefix": prefix, "question": question, "answer": answer}
    for name, value in given.items():
        low, high = LIMITS[name]
        if not low <= value <= high:
            raise OptionError(
                f"{name} is {value}; allowed: {low} to {high:,}. Change it.", field=f"group.{name}"
            )
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
    for agent in range(1, agents + 1):
        yield Progress(f"Agent {agent} of {agents}: {prefix} prefix, {answer} answer", agent - 1, agents)
        yield _Bench(model, agent, prefix, question, answer, anchors).measure(repeats)


class _Bench:
    """One agent with full pools."""

    def __init__(
        self, model: LoadedModel, agent: int, prefix: int, question: int, answer: int, anchors: int
    ) -> None:
        self.model, self.engine, self.agent = model, Engine(model), agent
        self.generator = torch.Generator().manual_seed(agent)
        self.log = ObservationLog("bench", 1 << 62)
        texts = [("user_question", question), *((f"agent_{i}_current", answer) for i in range(1, agent))]
        first, rest = prefix // 2, prefix - prefix // 2
        share = [rest // len(texts)] * len(texts)
        share[-1] += rest - sum(share)
        self.texts = texts
        self.fixed = {f"prefix {i}": self.draw(n) for i, n in enumerate((first, *share))}
        self.bases = {name: self.engine.encode(ids, (), "alone") for name, ids in self.fixed.items()}
        options = {"reuse": KVCommOptions(capacity=anchors, gamma=1.0)}
        options["two_heaviest"] = KVCommOptions(capacity=anchors, gamma=1.0, top_k=HEAVIEST)
        self.methods = {name: KVCommMethod(o) for name, o in options.items()}
        for _ in range(anchors):
            context, samples = self.request()
            cache, _ = self.engine.prefill(context.prompt.ids)
            see_offsets(context, cache, self.engine)
            for sample in samples:
                for method in self.methods.values():
                    method.pool(sample.placeholder).insert(sample)
        self.context, self.samples = self.request()
        for method in self.methods.values():
            for sample in self.samples:
                method.observe(Arrived(sample), self.log)

    def draw(self, count: int) -> tuple[int, ...]:
        high = self.model.info.vocabulary - 1
        return tuple(torch.randint(5, high, (count,), generator=self.generator).tolist())

    def request(self) -> tuple[PromptInContext, list[Observation]]:
        """A prompt of new texts, with their bases."""
        spans: list[Span] = []
        ids: list[int] = []
        samples: dict[str, Observation] = {}

        def add(name: str, part: tuple[int, ...], text: bool) -> None:
            spans.append(Span("placeholder" if text else "prefix", name, len(ids), len(ids) + len(part)))
            ids.extend(part)

        add("prefix 0", self.fixed["prefix 0"], False)
        for number, (name, size) in enumerate(self.texts, 1):
            part = self.draw(size)
            add(name, part, True)
            base = self.engine.encode(part, (1,), "alone")
            samples[name] = self.log.add(name, part, "", base, self.model.embed(part))
            add(f"prefix {number}", self.fixed[f"prefix {number}"], False)
        prompt = TokenizedPrompt(self.agent, tuple(ids), tuple(spans))
        return PromptInContext(prompt, samples, self.bases), list(samples.values())

    def reuse(self, name: str, clock: Clock) -> Prefill:
        """The path after the last upstream token."""
        method = self.methods[name]
        if self.agent == 1:
            with clock.part("base"):
                self.engine.encode(self.samples[0].ids, (1,), "alone")
        with clock.part("gate"):
            method.observe(Arrived(self.samples[-1]), self.log)
        plan = method.plan(self.context, self.log, clock)
        if not all(isinstance(step.action, Blend) for step in plan.steps):
            raise OptionError(
                f"The gate refused reuse, so there is nothing to time: {plan.reason}", field="group"
            )
        return self.engine.execute(self.context.prompt, plan, clock)

    def measure(self, repeats: int) -> AgentTimes:
        ids = self.context.prompt.ids
        sides: dict[str, Callable[[], object]] = {"dense": lambda: self.engine.prefill(ids)}
        sides |= {name: (lambda name=name: self.reuse(name, Clock())) for name in self.methods}  # type: ignore[misc]
        ms = medians(timed(sides, repeats, self.model.device))
        found: dict[str, list[float]] = {}
        for _ in range(repeats):
            clock = self.engine.clock()
            self.reuse("reuse", clock)
            for part, value in clock.parts.items():
                found.setdefault(part, []).append(value)
        parts: Mapping[str, Any] = medians(found)

        def of(*names: str) -> float:
            return float(sum(parts.get(name, 0.0) for name in names))

        return AgentTimes(
            self.agent, len(ids), ms["dense"], ms["reuse"], ms["two_heaviest"],
            of("match", "correct", "rotate"), of("first_token"), of("gate", "base"),
        )  # fmt: skip
