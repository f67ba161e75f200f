"""What a run is asked: a pipeline, its values, and the methods. Frozen and free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.prompts.pipeline import Pipeline
from backend.records.risk_gate import RiskGate

Mode = Literal["pinned", "free"]


REFERENCE = "dense"  # the method that all others are compared with


@dataclass(frozen=True)
class MethodChoice:
    """A method with its options, under the label it has in the run (labels are unique in a run)."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    @property
    def reference(self) -> bool:
        """Is it the one that all others are compared with?"""
        return self.name == REFERENCE


def with_reference(methods: Sequence[MethodChoice]) -> tuple[MethodChoice, ...]:
    """The methods with the reference first, whether they name it or not."""
    reference = next((m for m in methods if m.reference), MethodChoice(REFERENCE))
    return (reference, *(m for m in methods if not m.reference))


@dataclass(frozen=True)
class Decoding:
    """How text is generated: greedy at temperature 0, else sampling with ``seed``."""

    max_new_tokens: int = 96
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class RunRequest:
    """One request to the lab: a pipeline, the values of its outside placeholders, and the methods.

    A pipeline of several turns is kept unrolled (:attr:`backend.prompts.pipeline.Pipeline.unrolled`), so that
    whatever reads a request or its record meets one acyclic graph of agents.

    ``mode`` *pinned*: every method reads the texts that dense produced, so prompts are identical and
    fidelity is defined. *free*: each method lives with its own texts.
    """

    pipeline: Pipeline
    values: Mapping[str, str]
    methods: tuple[MethodChoice, ...]
    mode: Mode = "pinned"
    decoding: Decoding = Decoding()
    probe_offsets: bool = True  # what the caches hold, and how familiar the prompts are
    expected: str | None = None  # the known answer, to be scored by pipeline.scoring
    probe_attention: bool = False
    gate: RiskGate | None = None  # may refuse reuse before the last agent, the judge
    slots_only: bool = False  # before the last agent, copy nothing but the texts that stand side by side
    shadow: bool = False  # check the last agent's answers against dense, once they are given

    def __post_init__(self) -> None:
        object.__setattr__(self, "pipeline", self.pipeline.unrolled)
