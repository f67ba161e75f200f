"""KVCOMM: copied KV corrected by offsets interpolated from anchors (profile *as published*).

Sources: KVCOMM, Section 3.3 and 3.4, Eq. 5 (gate), Eq. 6 (placeholder), Eq. 7 (following prefix
segment), Algorithm 1. Readings of open points that concern the pool are in :mod:`backend.anchors`; here:

* Keys and offsets are position-free when they are mixed; one rotation follows. With ``rotate`` off the
  mixed keys stay at the position where the base was encoded.
* An agent reuses only when all its placeholders are shareable, else it is dense (Algorithm 1), and every
  sample that the gate made an anchor gets its offsets from that dense pass. Samples that were
  shareable do not become anchors (Section 3, step 2), though the pass saw them too.
* An empty placeholder (no history yet) has no tokens and no say; the prefix segment behind it counts as
  following the last placeholder that holds text. Where there is none, no anchor knows its offset, and it
  is read afresh.
* An anchor that never met this agent is not eligible for it; with no eligible anchor the agent is dense.
* Base of a prefix segment: its template with stand-ins in the holes. With weights that sum to one it cancels
  in Eq. 7: base + sum w (real_a - base) = sum w real_a. So ``prefix_base`` matters only with
  ``prefix_offset`` off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from backend.anchors import AnchorPool, Match
from backend.methods.base import (
    Arrived,
    Blend,
    Clock,
    Dense,
    Method,
    ObserveEvent,
    Options,
    Plan,
    Step,
    Term,
    option,
    prefix_base_option,
    segment_base,
)
from backend.methods.dense import dense_plan
from backend.records import GateDecision, PoolState, Span
from backend.store import ObservationLog, PromptInContext


@dataclass(frozen=True)
class KVCommOptions(Options):
    """Options of KVCOMM; the defaults are the paper's."""

    rotate: bool = option(
        True, "Move keys to their new position", "Rotate corrected keys into place (alignment step 1).",
        paper="Table 5, K w/ rot",
    )  # fmt: skip
    placeholder_offset: bool = option(
        True, "Correct the shared texts",
        "Add the anchors' offsets to the placeholders' KV (alignment step 2).",
        paper="Eq. 6; Table 5, phi w/ offset",
    )  # fmt: skip
    prefix_offset: bool = option(
        True, "Correct the template text behind them",
        "Add the anchors' offsets to the following prefix segments' KV (alignment step 3).",
        paper="Eq. 7; Table 5, p w/ offset",
    )  # fmt: skip
    gamma: float = option(
        0.3, "Entropy threshold (gamma)",
        "How evenly the anchors may weigh before a text counts as new. 0 shares nothing.",
        minimum=0.0, maximum=1.0, paper="Eq. 5, Table 6",
    )  # fmt: skip
    capacity: int = option(
        20, "Pool size (V)", "How many anchors each placeholder may keep. 0 shares nothing.",
        minimum=0, maximum=256, paper="Section 3.3, Table 6",
    )  # fmt: skip
    distance: str = option(
        "token", "Weights per", "One weight per anchor and token, or one per anchor for the whole text.",
        choices=("token", "sequence"), paper="Eq. 6 leaves it open",
    )  # fmt: skip
    norm: str = option(
        "sum", "Distance of two texts",
        "Sum of their tokens' distances, or the norm of all of them as one vector.",
        choices=("sum", "frobenius"), paper="Eq. 5 leaves it open",
    )  # fmt: skip
    prefix_base: str = prefix_base_option()


class KVCommMethod(Method):
    """Reuse corrected by what dense passes over similar texts have shown."""

    name = "kvcomm"
    title = "KVCOMM"
    summary = "Copies the cache and corrects it by the offsets that similar earlier texts (anchors) showed."
    paper = "KVCOMM, Eq. 5 to 7, Algorithm 1"
    Options = KVCommOptions

    def __init__(self, options: KVCommOptions) -> None:
        super().__init__(options)
        self._pools: dict[str, AnchorPool] = {}
        self._decisions: dict[int, GateDecision] = {}  # by observation number

    def pool(self, placeholder: str) -> AnchorPool:
        """The placeholder's pool; empty at first."""
        return self._pools.setdefault(
            placeholder, AnchorPool(placeholder, self.options.capacity, self.options.norm)
        )

    def observe(self, event: ObserveEvent, log: ObservationLog) -> None:
        """Gate each sample once, when it arrives; what is not shareable becomes an anchor."""
        if not isinstance(event, Arrived):
            return
        sample = event.sample
        pool = self.pool(sample.placeholder)
        decision = pool.gate(sample, self.options.gamma, log)
        self._decisions[sample.number] = decision
        if not decision.shareable:
            pool.insert(sample)

    def plan(self, context: PromptInContext, log: ObservationLog, clock: Clock) -> Plan:
        gate = tuple(self._decisions[o.number] for o in context.samples.values())
        new = [d.placeholder for d in gate if not d.shareable]
        if new:
            names, verb = ", ".join(new), "is" if len(new) == 1 else "are"
            reason = f"{names} {verb} new to the pool, so the whole prompt is read afresh."
            return _fallback(context, reason, gate)
        matches: dict[str, Match] = {}
        with clock.part("match"):
            for name, sample in context.samples.items():
                found = self._pools[name].match(
                    sample, context.prompt.agent, context.followers(name), log, self.options.distance
                )
                if found is None:
                    reason = f"No anchor of {name} has been seen by agent {context.prompt.agent} yet."
                    return _fallback(context, reason, gate)
                matches[name] = found
        for name, found in matches.items():
            self._pools[name].used(found.anchors)
        behind = {f: name for name in matches for f in context.followers(name)}
        steps = tuple(
            Step(span.start, span.end, self._action(context, span, behind, matches))
            for span in context.prompt.spans
            if span.end > span.start
        )
        return Plan(steps, "reused", "Every shared text has trusted anchors: copied and corrected.", gate)

    def _action(
        self, context: PromptInContext, span: Span, behind: dict[str, str], matches: dict[str, Match]
    ) -> Blend | Dense:
        agent, name, moved = context.prompt.agent, span.name, self.options.rotate
        base = segment_base(context, name)
        if name in matches:
            if not self.options.placeholder_offset:
                return Blend(base, moved=moved, reason="copied (its correction is switched off)")
            match = matches[name]
            weights = match.sequence if match.token is None else match.token
            terms = tuple(
                Term(w, a.offsets[agent].placeholder.slice(0, base.tokens), a.number)
                for w, a in zip(weights, match.anchors, strict=True)
            )
            return Blend(base, terms, moved, "corrected by its anchors (Eq. 6)")
        if name not in behind:
            if span.start > 0:
                return Dense(
                    "template text behind an empty placeholder, with no text before it to correct it by"
                )
            return Blend(base, moved=moved, reason="the prompt's own beginning, exact", exact=moved)
        if not self.options.prefix_offset:
            base = segment_base(context, name, self.options.prefix_base)
            return Blend(base, moved=moved, reason="copied (its correction is switched off)")
        match = matches[behind[name]]
        terms = tuple(
            Term(w, a.offsets[agent].followers[name], a.number)
            for w, a in zip(match.sequence, match.anchors, strict=True)
        )
        return Blend(base, terms, moved, f"corrected by the anchors of {behind[name]} (Eq. 7)")

    def pools(self, log: ObservationLog) -> tuple[PoolState, ...]:
        states = []
        for pool in self._pools.values():
            held = [log.observations[n] for n in pool.uses if n in log.observations]
            states.append(
                PoolState(
                    self.name,
                    pool.placeholder,
                    pool.capacity,
                    tuple(o.number for o in held),
                    tuple(o.tokens for o in held),
                    tuple(pool.uses[o.number] for o in held),
                    tuple(o.preview for o in held),
                    sum(o.bytes for o in held),
                )
            )
        return tuple(states)

    def needed(self) -> set[int]:
        return {n for pool in self._pools.values() for n in pool.uses}

    def fork(self) -> Self:
        twin = type(self)(self.options)
        twin._pools = {name: replace(pool, uses=dict(pool.uses)) for name, pool in self._pools.items()}
        return twin  # decisions belong to the request that asked for them

    def forget(self, numbers: set[int]) -> None:
        for pool in self._pools.values():
            for number in numbers & pool.uses.keys():
                del pool.uses[number]
        for number in numbers & self._decisions.keys():
            del self._decisions[number]


def _fallback(context: PromptInContext, reason: str, gate: tuple[GateDecision, ...]) -> Plan:
    plan = dense_plan(context, reason)
    return Plan(plan.steps, "fallback", reason, gate)
