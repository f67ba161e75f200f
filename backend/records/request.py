"""What a run is asked: a pipeline, its values, and the methods. Frozen and free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from backend.base.ranges import SEEDS
from backend.base.serialization import SELDOM
from backend.prompts.pipeline import Pipeline
from backend.records.control import control, controls_of
from backend.records.risk_gate import RiskGate

Mode = Literal["pinned", "free"]


REFERENCE = "dense"  # the method that all others are compared with


@dataclass(frozen=True)
class MethodChoice:
    """A method with its options, under the label it has in the run (labels are unique in a run).

    ``exact``: parts of its caches that are the full read's own, as :func:`backend.records.blame.exact_parts`
    reads them: a diagnosis, which costs a full read.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    exact: str = field(default="", metadata=SELDOM)

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

    max_new_tokens: int = control(
        96, "Longest answer (tokens)", called="The longest answer", limits=(1, 4096),
        usage="The longest answer, in tokens; else as the scenario says.",
    )  # fmt: skip
    temperature: float = control(
        0.0, "Temperature (0: greedy)", called="The temperature", limits=(0, 5), step=0.1,
        usage="0 is greedy.",
    )  # fmt: skip
    top_p: float = control(
        1.0, "Top-p", called="Top-p", limits=(0.01, 1), step=0.05,
        usage="Share of probability that is sampled from.",
    )  # fmt: skip
    seed: int = control(0, "Seed", called="The seed", limits=SEEDS, usage="Of sampling.")


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
    mode: Mode = control(
        "pinned", "Mode",
        choices={
            "pinned": "Pinned: every method reads the texts that the full read wrote",
            "free": "Free-running: each method reads its own texts",
        },
        usage="pinned (all read the full read's texts) or free (each reads its own).",
    )  # fmt: skip
    decoding: Decoding = Decoding()
    probe_offsets: bool = True  # what the caches hold, and how familiar the prompts are
    expected: str | None = None  # the known answer, to be scored by pipeline.scoring
    probe_attention: bool = control(
        False, "Record attention", key="attention", shown_only=True,
        help="Which of the texts an agent looks at when it writes its first token and when it names a "
        "candidate. Costs one more reading of the answer per method, outside of the times shown.",
    )  # fmt: skip
    gate: RiskGate | None = None  # may refuse reuse before the last agent, the judge
    slots_only: bool = False  # before the last agent, copy nothing but the texts that stand side by side
    shadow: bool = False  # check the last agent's answers against dense, once they are given

    def __post_init__(self) -> None:
        object.__setattr__(self, "pipeline", self.pipeline.unrolled)

    def decoding_of(self, agent: int) -> Decoding:
        """How an agent's text is generated: no longer than its own limit."""
        limit = self.pipeline.agent(agent).max_new_tokens
        return replace(self.decoding, max_new_tokens=min(self.decoding.max_new_tokens, limit))


#: All controls of a comparison, by key.
CONTROLS = {**controls_of(RunRequest), **controls_of(Decoding, "decoding")}


def control_values(request: RunRequest) -> dict[str, Any]:
    """What a request's controls are set to, by key."""
    return {
        key: getattr(getattr(request, entry.part) if entry.part else request, entry.field)
        for key, entry in CONTROLS.items()
    }


def with_controls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a :class:`RunRequest` that these values by key set; controls left out are as usual."""
    of_part: dict[str, dict[str, Any]] = {"": {}, "decoding": {}}
    for key, value in values.items():
        of_part[CONTROLS[key].part][CONTROLS[key].field] = value
    return {**of_part[""], "decoding": Decoding(**of_part["decoding"])}
