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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, Self

from torch import Tensor

from backend.base.errors import OptionError
from backend.cache.kv_cache import KVCache, KVSegment, Offset
from backend.cache.observations import Observation, ObservationLog, PromptInContext
from backend.cache.offset_packing import Stored
from backend.records.run import AgentState, GateDecision, ModelInfo, PoolState, Provenance, Span

MaskKind = Literal["exact", "shipped"]


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
    ``hidden``: (tokens, hidden) states that go into layer :attr:`Plan.cut`; None lets the embeddings.
    ``provenance``: for the record; None: "exact local" when exact, else "semantic".
    """

    base: KVSegment
    terms: tuple[Term, ...] = ()
    moved: bool = True
    reason: str = ""
    exact: bool = False
    first_layer: int = 0
    in_place: bool = False
    provenance: Provenance | None = None
    hidden: Tensor | None = None


@dataclass(frozen=True)
class Dense:
    """Forward these tokens on top of what stands before them."""

    reason: str
    provenance: Provenance | None = None


@dataclass(frozen=True)
class Step:
    """What to do with prompt tokens ``[start, end)``.

    ``position``: RoPE position of the first of them, the others follow; None: their place in the prompt,
    soft tokens before them included.
    """

    start: int
    end: int
    action: Blend | Dense
    position: int | None = None


@dataclass(frozen=True)
class Link:
    """Soft tokens between prompt tokens: forwarded like :class:`Dense`, seen by all that follows.

    ``at``: the prompt token before which they stand, at the positions right before its own.
    ``embeddings``: (tokens, hidden), as the model's input embeddings.
    """

    at: int
    embeddings: Tensor
    reason: str = ""

    @property
    def tokens(self) -> int:
        return int(self.embeddings.shape[0])


@dataclass(frozen=True)
class Plan:
    """Steps that partition a prompt, in order, and the reasons.

    ``links``: soft tokens between them. ``visible``: (tokens, tokens) bool, which columns a row may look at
    beside being causal; for the rows that are forwarded, and None where causal is all. ``visible_layers``:
    the first and the last layer at which that holds, where it is not all of them; only where nothing is
    copied. ``cut``: copy the layers below it alone, and forward every token from it on
    (:mod:`backend.engine.partial_layers`); only with steps at their places.
    """

    steps: tuple[Step, ...]
    state: AgentState
    reason: str
    gate: tuple[GateDecision, ...] = ()
    links: tuple[Link, ...] = ()
    visible: Tensor | None = None
    visible_layers: tuple[int, int] | None = None
    cut: int | None = None

    @property
    def plain(self) -> bool:
        """Is it what a dense pass does, whatever its name?"""
        bare = not self.links and self.visible is None
        return bare and all(isinstance(s.action, Dense) and s.position in (None, s.start) for s in self.steps)


@dataclass(frozen=True)
class Selection:
    """Prompt tokens to compute again over the assembled cache.

    Attributes:
        tokens: their indices, ascending; or one such set per layer from ``first_layer`` on, each within the
            one before (gradual; needs :attr:`View.layerwise`).
        first_layer: one set: the K/V of lower layers stay as they were assembled. Sets per layer: below it
            every token is computed.
        fresh_below: below this layer every token's K/V become the fresh ones (:meth:`View.fresh`).
        mask: "exact", or "shipped": the bottom-right causal mask of the public code, under which a chosen
            token sees later ones; below ``mask_layer`` it is exact in any case.
        reason: for the record.
    """

    tokens: tuple[int, ...] | tuple[tuple[int, ...], ...]
    first_layer: int = 0
    fresh_below: int = 0
    mask: MaskKind = "exact"
    mask_layer: int = 0
    reason: str = "chosen to be computed again"

    @property
    def gradual(self) -> bool:
        """Is there one set per layer?"""
        return bool(self.tokens) and isinstance(self.tokens[0], tuple)

    @property
    def sets(self) -> list[tuple[int, ...]]:
        """The sets of tokens, a single one unless it is gradual."""
        tokens: Any = self.tokens
        return [tuple(each) for each in tokens] if self.gradual else [tuple(tokens)]


class View(Protocol):
    """What a hook may look at of an assembled prompt. Lazy: what it computes is counted, and timed as part of
    the hook. Tokens are prompt tokens; ``total`` of them. Tensors are the model's dtype on its device.

    ``cache`` holds all of them but the last in :meth:`Method.select`, all in :meth:`Method.accept`.
    """

    context: PromptInContext
    plan: Plan
    cache: KVCache
    total: int
    copied: Tensor  # (total,) bool: not forwarded yet
    start: Mapping[str, tuple[int, int]]  # a span's name -> its tokens [start, end)
    logits: Tensor | None  # (vocabulary,) after the last token, fp32; in accept only

    @property
    def token_layers(self) -> int:
        """The engine's count so far, a token at a layer being one; what a look adds to it is what it cost."""

    @property
    def layerwise(self) -> str:
        """Empty when layers can be walked one by one on this model, else the reason why not."""

    def fresh(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys (position-free) and values, each (kv_heads, total, head_dim), at a layer when every token is
        forwarded up to it."""

    def stale(self, layer: int) -> tuple[Tensor, Tensor]:
        """The assembled cache's, in the shapes of :meth:`fresh`; the last token holds zeros in select."""

    def dense(self) -> KVCache:
        """The cache of a dense prefill of the whole prompt."""

    def attention(self, queries: Sequence[int], layer: int) -> Tensor:
        """Probabilities (heads, queries, total), fp32, with which tokens look at the assembled cache."""

    def logits_at(self, tokens: Sequence[int]) -> Tensor:
        """Next-token logits (n, vocabulary), fp32, at tokens, each forwarded over the assembled cache."""

    def dense_logits_at(self, tokens: Sequence[int]) -> Tensor:
        """The same over the cache of :meth:`dense`."""

    def step(self, tokens: Sequence[int], mask: MaskKind = "exact") -> tuple[Tensor, Tensor]:
        """Walk one layer deeper with ``tokens`` (at first any, then some of those before), over the cache
        that the walk has blended so far. Returns their keys (position-free) and values at that layer,
        (kv_heads, n, head_dim). A gradual selection that says the same costs nothing more.

        Raises:
            OptionError: :attr:`layerwise` says why.
        """


@dataclass(frozen=True)
class Arrived:
    """A placeholder's sample is complete and its base is in the log."""

    sample: Observation


@dataclass(frozen=True)
class Prefilled:
    """An agent's prompt was prefilled under ``plan``; ``cache`` holds it (without the last token's
    successor). ``real`` is True when every token was forwarded, so that offsets can be seen. ``hidden``:
    (tokens, hidden) states before layer :attr:`Plan.cut`, where the plan has one."""

    context: PromptInContext
    cache: KVCache
    real: bool
    plan: Plan
    hidden: Tensor | None = None


@dataclass(frozen=True)
class Finished:
    """A request is over: all its offsets were seen and nobody waits. The time to pack, trim and move."""


ObserveEvent = Arrived | Prefilled | Finished


class Clock:
    """Adds up the milliseconds of named parts. A part inside another is not counted for both.

    Nothing waits while parts begin and end: the marks set then are compared when :attr:`parts` is read.
    """

    def __init__(
        self,
        mark: Callable[[], Any] = time.perf_counter,
        between: Callable[[Any, Any], float] = lambda first, last: (last - first) * 1e3,
    ) -> None:
        """
        Args:
            mark: sets a mark where a device's work stands now, without waiting for it.
            between: milliseconds from one mark to another, once both have been reached.
        """
        self._mark, self._between = mark, between
        self._parts: dict[str, float] = {}
        self._open: list[str] = []
        self._spans: list[tuple[str, Any, Any, int]] = []  # part, from, to, and 1 or -1

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time the body under ``name``."""
        self._open.append(name)
        began = self._mark()
        try:
            yield
        finally:
            ended = self._mark()
            self._open.pop()
            self._spans.append((name, began, ended, 1))
            if self._open:
                self._spans.append((self._open[-1], began, ended, -1))

    def add(self, name: str, ms: float) -> None:
        """Count what was spent elsewhere."""
        self._parts[name] = self._parts.get(name, 0.0) + ms

    @property
    def parts(self) -> dict[str, float]:
        """Milliseconds by part; may be changed. Waits for the device."""
        spans, self._spans = self._spans, []
        for name, began, ended, sign in spans:
            self.add(name, sign * self._between(began, ended))
        return self._parts


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
        """Must outside texts have a base behind their lead-in as well?
        (:meth:`backend.session.request_state.Flow.lead_in`)"""
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
    cannot be replayed under it; empty when it can), ``needs_bases`` (it copies the session's bases of
    its texts, so the time of encoding them is its own).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    not_replayed: ClassVar[str] = ""
    needs_bases: ClassVar[bool] = True
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
            Step(
                span.start,
                span.end,
                Blend(segment_base(context, span.name), reason="copied and moved", exact=beginning(span)),
            )
            for span in context.prompt.spans
            if span.end > span.start
        )
        return Plan(steps, "reused", "Every segment was copied; keys were moved to their new positions.")

    def layout(self, context: PromptInContext) -> PromptInContext:
        """The prompt as this method reads it; the default reads it as it is. (A method that compresses texts
        returns another, with fewer tokens.)"""
        return context

    def select(self, view: View, clock: Clock) -> Selection | None:
        """Tokens to compute again, once the prompt is assembled and before its last token is forwarded; the
        default leaves all as it is. Asked only where something was copied."""
        return None

    def accept(self, view: View, clock: Clock) -> str | None:
        """None keeps the result; a reason falls back to reading the whole prompt, at its cost."""
        return None

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

    @property
    def held_bytes(self) -> int:
        """Bytes of KV that the method keeps itself, beside the log."""
        return 0

    def held_of(self, number: int) -> int:
        """Those of them that go when an observation is forgotten."""
        return 0

    def shrink(self, budget_bytes: int) -> None:
        """Give up what can be found again, longest unused first, until ``held_bytes`` is at most this."""

    def forget(self, numbers: set[int]) -> None:
        """Observations that left the log for want of memory."""


def beginning(span: Span) -> bool:
    """Is this the prompt's own first words? Nothing precedes them, so any copy is what dense computes."""
    return span.kind == "prefix" and span.start == 0


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
