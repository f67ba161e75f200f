"""The method contract: a method decides, the engine does.

A method returns pure data: for every span of a prompt either :class:`Blend` (copy a base, add weighted
offsets, move it) or :class:`Dense` (forward it). The defaults make the naive method: position-only reuse
of every segment. Bases are not the methods' business: the session encodes each outside sample once,
behind the begin-of-sequence token alone, and keeps each response's KV from its producer's decoding.
"""

from __future__ import annotations

import copy
import time
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from torch import Tensor

from backend.errors import OptionError
from backend.kv import KVCache, KVSegment, Offset
from backend.offset_codec import Stored
from backend.records import AgentState, GateDecision, ModelInfo, PoolState
from backend.store import Observation, ObservationLog, PromptInContext


@dataclass(frozen=True)
class Term:
    """One weighted offset.

    ``weight``: scalar (), one per token (tokens,), or (layers, kv_heads, 1, head_dim); ``value_weight`` when
    the values have another. ``shift``: positions by which the key offset is turned before it is added, for
    showing what a wrong frame does; 0 is right.
    """

    weight: Tensor
    offset: Offset
    anchor: int
    value_weight: Tensor | None = None
    shift: int = 0


@dataclass(frozen=True)
class Blend:
    """Copy ``base``, add the weighted offsets (Eq. 6, 7), place it.

    ``moved``: rotate the keys to where the span stands; else leave them where they were encoded.
    ``exact``: the result equals what a dense pass would give here (a shared beginning).
    ``first_layer``: layers below it are copied without offsets.
    ``in_place``: key offsets are weighed and added where the keys stand, not position-free. A weight that
    differs by channel does not commute with the rotation, so there it makes a difference.
    """

    base: KVSegment
    terms: tuple[Term, ...] = ()
    moved: bool = True
    reason: str = ""
    exact: bool = False
    first_layer: int = 0
    in_place: bool = False


@dataclass(frozen=True)
class Dense:
    """Forward these tokens on top of what stands before them."""

    reason: str


@dataclass(frozen=True)
class Step:
    """What to do with prompt tokens ``[start, end)``."""

    start: int
    end: int
    action: Blend | Dense


@dataclass(frozen=True)
class Plan:
    """Steps that partition a prompt, in order, and the reasons."""

    steps: tuple[Step, ...]
    state: AgentState
    reason: str
    gate: tuple[GateDecision, ...] = ()


@dataclass(frozen=True)
class Arrived:
    """A placeholder's sample is complete and its base is in the log."""

    sample: Observation


@dataclass(frozen=True)
class Prefilled:
    """An agent's prompt was prefilled under ``plan``; ``cache`` holds it (without the last token's
    successor). ``real`` is True when every token was forwarded, so that offsets can be seen."""

    context: PromptInContext
    cache: KVCache
    real: bool
    plan: Plan


@dataclass(frozen=True)
class Finished:
    """A request is over: all its offsets were seen and nobody waits. The time to pack, trim and move."""


ObserveEvent = Arrived | Prefilled | Finished


class Clock:
    """Adds up the milliseconds of named parts."""

    def __init__(self, synchronise: Any = None) -> None:
        self.parts: dict[str, float] = {}
        self._synchronise = synchronise or (lambda: None)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time the body under ``name``."""
        self._synchronise()
        began = time.perf_counter()
        try:
            yield
        finally:
            self._synchronise()
            self.parts[name] = self.parts.get(name, 0.0) + (time.perf_counter() - began) * 1e3


def option(
    default: Any,
    label: str,
    help_text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    paper: str = "",
    advanced: bool = False,
) -> Any:
    """A field of an ``Options`` dataclass with what widgets, flags and docs need.

    ``advanced``: seldom changed by hand, so a page may fold it away.
    """
    return field(
        default=default,
        metadata={
            "label": label,
            "help": help_text,
            "minimum": minimum,
            "maximum": maximum,
            "choices": tuple(choices),
            "paper": paper,
            "advanced": advanced,
        },
    )


@dataclass(frozen=True)
class Options:
    """Base of every method's options; checks types and ranges.

    Raises:
        OptionError: an unknown choice, a wrong type or a value out of range.
    """

    @property
    def wants_lead_in(self) -> bool:
        """Must outside texts have a base behind their lead-in as well? (:meth:`backend.flow.Flow.lead_in`)"""
        return False

    def __post_init__(self) -> None:
        name = type(self).__qualname__.removesuffix("Options").lower() or "options"
        for f in fields(self):
            value, meta = getattr(self, f.name), f.metadata
            where = f"{name}.{f.name}"
            wanted = type(f.default)
            if wanted is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, f.name, value)
            if wanted is int and type(value) is float and value.is_integer():
                value = int(value)
                object.__setattr__(self, f.name, value)
            if type(value) is not wanted:
                raise OptionError(
                    f"{meta['label']} is {value!r}; it must be of type {wanted.__name__}. The default "
                    f"is {f.default!r}.",
                    field=where,
                )
            if meta["choices"] and value not in meta["choices"]:
                raise OptionError(
                    f"{meta['label']} is {value!r}; allowed: {', '.join(meta['choices'])}. Choose one "
                    "of them.",
                    field=where,
                )
            low, high = meta["minimum"], meta["maximum"]
            if low is not None and not low <= value <= high:
                raise OptionError(
                    f"{meta['label']} is {value:g}; allowed: {low:g} to {high:g}. The default is "
                    f"{f.default:g}.",
                    field=where,
                )


@dataclass(frozen=True)
class Profile:
    """A named bundle of option values; options that it does not name keep their defaults."""

    title: str
    summary: str
    options: Mapping[str, Any]


class Method(ABC):
    """A reuse method. One instance lives as long as its pools; ``options`` may be replaced between requests.

    Class attributes: ``name`` (in the CLI and records), ``title``, ``summary`` (one plain sentence),
    ``paper`` (source), ``profiles`` (named bundles of its options), ``not_replayed`` (why a past request
    cannot be replayed under it; empty when it can).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    not_replayed: ClassVar[str] = ""
    Options: ClassVar[type[Options]] = Options
    profiles: ClassVar[Mapping[str, Profile]] = {}

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def supports(cls, model: ModelInfo) -> str | None:
        """None when the method works on this model, else the reason why not."""
        return None if model.certificate.relocatable else model.certificate.reason

    def plan(self, context: PromptInContext, log: ObservationLog, clock: Clock) -> Plan:
        """Decide for every span; the default reuses each segment and moves its keys."""
        steps = tuple(
            Step(span.start, span.end, Blend(segment_base(context, span.name), reason="copied and moved"))
            for span in context.prompt.spans
            if span.end > span.start
        )
        return Plan(steps, "reused", "Every segment was copied; keys were moved to their new positions.")

    def observe(self, event: ObserveEvent, log: ObservationLog) -> None:
        """Remember what an event showed; the default remembers nothing of its own."""

    def pools(self, log: ObservationLog) -> tuple[PoolState, ...]:
        """The state of this method's pools, for records."""
        return ()

    def needed(self) -> set[int]:
        """Observations that should stay in the log."""
        return set()

    def cold(self) -> set[int]:
        """Those of them whose offsets may wait in main memory."""
        return set()

    def stored(self, anchor: Observation, agent: int) -> Stored | None:
        """How an anchor's offsets are kept for an agent, where not as the log holds them."""
        return None

    def fork(self) -> Self:
        """A twin that goes on by itself. A run works on a fork, which takes the original's place when the run
        is finished; so a cancelled run leaves no trace."""
        return copy.deepcopy(self)

    def forget(self, numbers: set[int]) -> None:
        """Observations that left the log for want of memory."""


def segment_base(context: PromptInContext, name: str, prefix_base: str = "template") -> KVSegment:
    """The base KV of a placeholder's sample or of a prefix segment (see :func:`prefix_base_option`)."""
    if name in context.samples:
        return context.samples[name].base
    return (context.lone_bases if prefix_base == "alone" else context.prefix_bases)[name]


def prefix_base_option() -> Any:
    """The option that says where uncorrected template text was encoded; the paper leaves it open."""
    return option(
        "template",
        "Template text was encoded",
        "In its template, with stand-ins in the holes, or alone. Matters only where it is not corrected.",
        choices=("template", "alone"),
        paper="KVCOMM Fig. 3, initialization",
        advanced=True,
    )
