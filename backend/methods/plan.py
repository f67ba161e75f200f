"""What a method decides, as plain data: which span of a prompt comes from where, and which tokens are
computed again."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from backend.cache.kv_cache import KVSegment, Offset, Temper
from backend.model.low_rank import LowRank
from backend.records.blame import Part
from backend.records.run import AgentState, GateDecision, Provenance

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
class Reuse:
    """Copy ``base``, add the weighted offsets (Eq. 6, 7), place it.

    ``moved``: rotate the keys to where the span stands; else leave them where they were encoded.
    ``exact``: the result equals what a dense pass would give here (a shared beginning).
    ``first_layer``: layers below it are copied without offsets.
    ``in_place``: key offsets are weighed and added where the keys stand, not position-free. A weight that
    differs by channel does not commute with the rotation, so there it makes a difference.
    ``hidden``: (tokens, hidden) states that go into layer :attr:`Plan.cut`; None lets the embeddings.
    ``projected``: (layers, tokens, n) of these tokens, where :attr:`Plan.project` is asked for.
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
    projected: Tensor | None = None


@dataclass(frozen=True)
class Compute:
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
    action: Reuse | Compute
    position: int | None = None


@dataclass(frozen=True)
class Link:
    """Soft tokens between prompt tokens: forwarded like :class:`Compute`, seen by all that follows.

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
    (:mod:`backend.engine.partial_layers`); only with steps at their places. ``until``: with a cut, copy again
    from this layer on. ``project``: (layers, n, hidden), with a cut of 0: what each layer's input, normed,
    gives with these rows is wanted (``Prefilled.projected``). ``own``: with both cuts at 0, forward what is
    copied as well, over the copies, and add to them what this adapter makes of it. ``temper``: at which
    prompt tokens, (tokens,), attention is tuned, and how; without links.
    """

    steps: tuple[Step, ...]
    state: AgentState
    reason: str
    gate: tuple[GateDecision, ...] = ()
    links: tuple[Link, ...] = ()
    visible: Tensor | None = None
    visible_layers: tuple[int, int] | None = None
    cut: int | None = None
    until: int | None = None
    project: Tensor | None = None
    own: LowRank | None = None
    temper: Temper | None = None

    @property
    def plain(self) -> bool:
        """Is it what a dense pass does, whatever its name?"""
        bare = not self.links and self.visible is None and self.temper is None
        return bare and all(
            isinstance(s.action, Compute) and s.position in (None, s.start) for s in self.steps
        )


@dataclass(frozen=True)
class Selection:
    """Prompt tokens to compute again over the assembled cache.

    Attributes:
        tokens: their indices, ascending; or one such set per layer from ``first_layer`` on, each within the
            one before (gradual; needs :attr:`PromptView.layerwise`).
        first_layer: one set: the K/V of lower layers stay as they were assembled. Sets per layer: below it
            every token is computed.
        fresh_below: below this layer every token's K/V become the fresh ones (:meth:`PromptView.fresh`).
        mask: "exact", or "shipped": the bottom-right causal mask of the public code, under which a chosen
            token sees later ones; below ``mask_layer`` it is exact in any case.
        reason: for the record.
        exact: parts of the cache that then become those of a dense pass, which is made for them.
    """

    tokens: tuple[int, ...] | tuple[tuple[int, ...], ...]
    first_layer: int = 0
    fresh_below: int = 0
    mask: MaskKind = "exact"
    mask_layer: int = 0
    reason: str = "chosen to be computed again"
    exact: tuple[Part, ...] = ()

    @property
    def gradual(self) -> bool:
        """Is there one set per layer?"""
        return bool(self.tokens) and isinstance(self.tokens[0], tuple)

    @property
    def sets(self) -> list[tuple[int, ...]]:
        """The sets of tokens, a single one unless it is gradual."""
        tokens: Any = self.tokens
        return [tuple(chosen) for chosen in tokens] if self.gradual else [tuple(tokens)]


def plan_key(plan: Plan) -> Hashable | None:
    """Equal for two plans over one log that copy, correct and forward the same; None where a plan holds more
    than steps."""
    more = (plan.visible, plan.visible_layers, plan.cut, plan.until, plan.project, plan.own, plan.temper)
    if plan.links or any(part is not None for part in more):
        return None
    return tuple((s.start, s.end, s.position, _action_key(s.action)) for s in plan.steps)


def _action_key(action: Reuse | Compute) -> Hashable:
    if isinstance(action, Compute):
        return "computed"
    terms = tuple((t.anchor, t.shift, _bytes(t.weight), _bytes(t.value_weight)) for t in action.terms)
    how = (action.moved, action.exact, action.first_layer, action.in_place)
    return (id(action.base), id(action.hidden), id(action.projected), how, terms)


def _bytes(weight: Tensor | None) -> bytes:
    return b"" if weight is None else weight.float().cpu().numpy().tobytes()
