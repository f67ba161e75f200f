"""The method contract: a method decides, the engine does.

A method returns pure data: for every span of a prompt either :class:`Reuse` (copy a base, add weighted
offsets, move it) or :class:`Compute` (forward it). The defaults make the naive method: position-only reuse
of every segment. Bases are not the methods' business: the session encodes each outside sample once,
behind the begin-of-sequence token alone, and keeps each response's KV from its producer's decoding.
"""

import copy
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVCache, KVSegment
from backend.cache.offset_packing import Stored
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.methods.options import Options, Profile
from backend.methods.plan import MaskKind, Plan, Reuse, Selection, Step
from backend.records.model_info import BIASED, ModelInfo
from backend.records.pools import PoolState
from backend.records.prompt import Span


class PromptView(Protocol):
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

    def attentions(self, queries: Sequence[int]) -> Tensor:
        """At every layer, (layers, heads, queries, total), in one pass that forwards the queries together, so
        that each sees the others fresh."""

    def logits_at(self, tokens: Sequence[int]) -> Tensor:
        """Next-token logits (n, vocabulary), fp32, at tokens, each forwarded over the assembled cache."""

    def dense_logits_at(self, tokens: Sequence[int]) -> Tensor:
        """The same over the cache of :meth:`dense`."""

    def step(self, tokens: Sequence[int], mask: MaskKind = "exact") -> tuple[Tensor, Tensor]:
        """Walk one layer deeper with ``tokens`` (at first any, then some of those before), over the cache
        that the walk has blended so far. Returns their keys (position-free) and values at that layer,
        (kv_heads, n, head_dim). A gradual selection that begins so goes on from there.

        Raises:
            OptionError: :attr:`layerwise` says why.
        """


@dataclass(frozen=True)
class Arrived:
    """A placeholder's sample is complete and its base is in the log."""

    sample: Sample


@dataclass(frozen=True)
class Prefilled:
    """An agent's prompt was prefilled under ``plan``; ``cache`` holds it (without the last token's
    successor). ``real`` is True when every token was forwarded, so that offsets can be seen. ``hidden``:
    (tokens, hidden) states before layer :attr:`Plan.cut`, where the plan has one; ``projected``: (layers,
    tokens, n), where it asks for it (:attr:`Plan.project`)."""

    context: PromptInContext
    cache: KVCache
    real: bool
    plan: Plan
    hidden: Tensor | None = None
    projected: Tensor | None = None


@dataclass(frozen=True)
class Finished:
    """A request is over: all its offsets were seen, and it is no longer timed. The time to pack, trim and
    offload."""


MethodEvent = Arrived | Prefilled | Finished


class Method(ABC):
    """A reuse method. One instance lives as long as its pools; ``options`` may be replaced between requests.

    Class attributes: ``name`` (in the CLI and records), ``title``, ``summary`` (one plain sentence),
    ``paper`` (source), ``profiles`` (named bundles of its options), ``not_replayed`` (why a past request
    cannot be replayed under it; empty when it can), ``planned`` (options whose whole effect is in its
    plans: where another value plans the same, it does the same), ``needs_bases`` (it copies the session's
    bases of its texts, so the time of encoding them is its own), ``shares_texts`` (it takes texts out of
    other prompts; one that does not pays for neither judging nor encoding them, reads the prompt as it
    stands, and leaves prompts that others may begin with where they were read exactly), ``needs_masks``
    (it computes tokens out of their order, at positions of their own or under a mask), ``needs_layers``
    (it reads the model's layers one by one, which is there for some families alone), ``column`` (its
    place in lists and comparisons; methods without one come last, by name; None: it cannot be chosen by
    name).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    column: ClassVar[int | None] = 1000
    not_replayed: ClassVar[str] = ""
    planned: ClassVar[tuple[str, ...]] = ()
    needs_bases: ClassVar[bool] = True
    shares_texts: ClassVar[bool] = True
    needs_masks: ClassVar[bool] = False
    needs_layers: ClassVar[bool] = False
    Options: ClassVar[type[Options]] = Options
    profiles: ClassVar[Mapping[str, Profile]] = {}

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def supports(cls, model: ModelInfo) -> str | None:
        """None when the method works on this model, else the reason why not."""
        if not model.certificate.relocatable:
            return model.certificate.reason
        return cls.masks_refused(model) or cls.layers_refused(model)

    @classmethod
    def masks_refused(cls, model: ModelInfo) -> str | None:
        """Why a method that needs masks cannot have them on this model; None when it can, or needs none."""
        biased = any(layer.kind == "distance bias" for layer in model.certificate.layers)
        return BIASED if cls.needs_masks and biased else None

    @classmethod
    def layers_refused(cls, model: ModelInfo) -> str | None:
        """The same of a method that reads the model's layers one by one."""
        if not cls.needs_layers or model.layerwise:
            return None
        return (
            "It reads the model's layers one by one, which the lab does for the Llama and Qwen families; "
            f"this model is of the family {model.family!r}. Choose a model of those, or a method that needs "
            "no single layers, such as naive or kvcomm."
        )

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        """Decide for every span; the default reuses each segment and moves its keys."""
        return copy_everything(context)

    def replay(self, context: PromptInContext, log: SampleLog) -> None:
        """Change the state as :meth:`plan` would, for a past prompt. The default plans."""
        self.plan(context, log, Clock())

    def layout(self, context: PromptInContext) -> PromptInContext:
        """The prompt as this method reads it; the default reads it as it is. (A method that compresses texts
        returns another, with fewer tokens.)"""
        return context

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        """Tokens to compute again, once the prompt is assembled and before its last token is forwarded; the
        default leaves all as it is. Called only where something was copied."""
        return None

    def accept(self, view: PromptView, clock: Clock) -> str | None:
        """None keeps the result; a reason falls back to reading the whole prompt, at its cost."""
        return None

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        """Remember what an event showed; the default remembers nothing of its own."""

    def pools(self, log: SampleLog) -> tuple[PoolState, ...]:
        """The state of this method's pools, for records."""
        return ()

    def needed(self) -> set[int]:
        """Observations that should stay in the log."""
        return set()

    def offloadable(self) -> set[int]:
        """Those of them whose offsets may wait in main memory."""
        return set()

    def stored(self, anchor: Sample, agent: int) -> Stored | None:
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


def is_beginning(span: Span) -> bool:
    """Is this the prompt's own first words? Nothing precedes them, so any copy is what dense computes."""
    return span.kind == "prefix" and span.start == 0


def segment_base(context: PromptInContext, name: str, prefix_base: str = "template") -> KVSegment:
    """The base KV of a placeholder's sample or of a prefix segment (see :func:`prefix_base_option`)."""
    if name in context.samples:
        return context.samples[name].base
    return (context.isolated_bases if prefix_base == "alone" else context.prefix_bases)[name]


def copy_everything(context: PromptInContext, prefix_base: str = "template", rotate: bool = True) -> Plan:
    """Reuse every segment, and correct nothing but the position.

    Args:
        prefix_base: see :func:`prefix_base_option`.
        rotate: whether keys are moved; else they are copied as they are.
    """
    reason = "copied and moved" if rotate else "copied, not moved"
    steps = tuple(
        Step(span.start, span.end, Reuse(base, moved=rotate, reason=reason, exact=is_beginning(span)))
        for span in context.prompt.filled_spans
        for base in [segment_base(context, span.name, prefix_base)]
    )
    how = "moved to their new" if rotate else "left at their old"
    return Plan(steps, "reused", f"Every segment was copied; keys were {how} positions.")
