"""KVCOMM: copied KV corrected by offsets interpolated from anchors, in three profiles.

Sources: KVCOMM, Section 3.3 and 3.4, Eq. 5 (gate), Eq. 6 (placeholder), Eq. 7 (following prefix
segment), Algorithm 1, Tables A.3 and A.4. Readings of open points that concern the pool and the weights are
in :mod:`backend.methods.kvcomm.pool` and :mod:`backend.methods.kvcomm.weights`; here:

* Keys and offsets are position-free when they are mixed; one rotation follows. With ``rotate`` off the
  mixed keys stay at the position where the base was encoded.
* An agent reuses only when all its placeholders are shareable, else it is dense (Algorithm 1), and every
  sample that the gate made an anchor gets its offsets from that dense pass. Samples that were
  shareable do not become anchors (Section 3, step 2), though the pass saw them too.
* An empty placeholder (no history yet) has no tokens and no say; the prefix segment behind it counts as
  following the last placeholder that holds text. Where there is none, no anchor knows its offset, and it
  is read afresh.
* The paper evaluates a single turn. Here an agent in another turn is another reader, for it reads another
  prompt; and a text keeps its one pool, decision and base in whichever turn it is read.
* An anchor that never met this agent is not eligible for it; with no eligible anchor the agent is dense.
* Where a placeholder is a slot that anybody's text may stand in (:attr:`Observation.source`), an anchor
  corrects a text wherever either stood, and the template text behind a slot only where it was seen behind
  that slot; their weights then sum to one among themselves, and without any it is read afresh.
* ``fresh`` *text* follows the judge study, whose reuse rates are counts of single texts (249 of 5 x 153),
  where Algorithm 1 copies a prompt whole or not at all.
* Base of a prefix segment: its template with stand-ins in the holes. With weights that sum to one it cancels
  in Eq. 7: base + sum w (real_a - base) = sum w real_a. So ``prefix_base`` matters only with
  ``prefix_offset`` off.
* *As shipped* follows the public implementation where its results differ from the paper's: weights, frame
  of the key offsets, layer 0, gate, counts, eviction, and copying uncorrected when no anchor knows the
  agent; the base of outside texts, keys compared at the agent's own place, and the first agent's weights
  used again. Readings where its description is silent: the lead-in is what stands before the text on its
  line in the first template that reads it; sample and anchors are turned to the same place to be compared;
  an anchor counts as used when it belongs to the smallest set that holds 0.9 of the weight (the public code
  errs about the last one of that set, in a way that is not described). Not here: its crashes. Layer 0's
  offset is zero in every frame, for its keys and values depend on the token alone, so leaving it out changes
  nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from backend.base.clock import Clock
from backend.cache.kv_cache import KVOffset, KVSegment, Offset
from backend.cache.observations import Observation, ObservationLog, PromptInContext, SeenOffset
from backend.cache.offset_packing import AnchorStore, Codec, Stored
from backend.methods.base import Arrived, Finished, Method, ObserveEvent, segment_base
from backend.methods.dense import dense_plan
from backend.methods.kvcomm.pool import AnchorPool, PoolRules
from backend.methods.kvcomm.weights import Match, Weighing, Weight, base_of, of_those
from backend.methods.options import Options, Profile, option, prefix_base_option
from backend.methods.plan import Blend, Dense, Plan, Step, Term
from backend.prompts.template import called
from backend.records.run import GateDecision, PoolState, Span


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
    approximation: str = option(
        "softmax", "Offset from",
        "All anchors by their L2 distance or cosine similarity, the nearest alone, or all alike (a control).",
        choices=("softmax", "cosine", "nearest", "uniform"), paper="Table A.4, Fig. A.12", advanced=True,
    )  # fmt: skip
    temperature: float = option(
        1.0, "Softmax temperature", "Below 1, near anchors weigh more; above 1, all weigh more alike.",
        minimum=0.01, maximum=100.0, paper="not in the paper", advanced=True,
    )  # fmt: skip
    top_k: int = option(
        0, "Anchors mixed (top k)", "Mix only the heaviest anchors. 0 mixes all.",
        minimum=0, maximum=256, paper="not in the paper", advanced=True,
    )  # fmt: skip
    distance: str = option(
        "token", "Weights per",
        "One weight per anchor and token, one per anchor for the whole text, or separate ones for keys and "
        "values as shipped.",
        choices=("token", "sequence", "separate"), paper="Eq. 6 leaves it open", advanced=True,
    )  # fmt: skip
    compared: str = option(
        "embedding", "Texts compared by",
        "Their token embeddings (small), or the whole KV of all layers as shipped.",
        choices=("embedding", "kv"), paper="Section 3.1: h at layer 1", advanced=True,
    )  # fmt: skip
    norm: str = option(
        "sum", "Distance of two texts",
        "Sum of their tokens' distances, the norm of all of them as one vector, or the mean per token.",
        choices=("sum", "frobenius", "mean"), paper="Eq. 5 leaves it open", advanced=True,
    )  # fmt: skip
    gate: str = option(
        "entropy", "A text is shared when",
        "Entropy: an anchor stands out. Length: an anchor is long enough. Closeness: an anchor is near as "
        "well. Shipped: as the public code decides.",
        choices=("entropy", "length", "closeness", "shipped"), paper="Eq. 5, Table A.3", advanced=True,
    )  # fmt: skip
    closeness: float = option(
        0.5, "Allowed distance",
        "For the closeness gate: how far the anchors may be, as a share of a token embedding's length.",
        minimum=0.0, maximum=2.0, paper="not in the paper", advanced=True,
    )  # fmt: skip
    eviction: str = option(
        "published", "Full pool drops",
        "The least used of the first quarter, of the first five (as shipped), or of all.",
        choices=("published", "shipped", "least used"), paper="Section 3.3", advanced=True,
    )  # fmt: skip
    frame: str = option(
        "position-free", "Key offsets kept",
        "Position-free, or in the frame of the anchor's own position and added unturned, as shipped.",
        choices=("position-free", "anchor's position"), paper="Eq. 6", advanced=True,
    )  # fmt: skip
    first_layer: bool = option(
        True, "Correct layer 0 too", "As shipped, layer 0 gets no offset; its true offset is zero.",
        paper="Eq. 6", advanced=True,
    )  # fmt: skip
    text_base: str = option(
        "alone", "Outside texts were encoded",
        "Questions, tool results and given texts: alone, or behind the user header and the words that stand "
        "before them on their line of the first template that reads them, as shipped.",
        choices=("alone", "lead-in"), paper="Section 3.3", advanced=True,
    )  # fmt: skip
    keys_at: str = option(
        "position-free", "Keys compared",
        "Position-free, or turned to where the text stands in the agent's prompt, as shipped. Matters only "
        "for separate weights.",
        choices=("position-free", "agent's position"), paper="Eq. 6", advanced=True,
    )  # fmt: skip
    weights_from: str = option(
        "each agent", "Mixing weights found by",
        "Each agent for itself, or the first agent that reuses a text, for all later ones too, as shipped.",
        choices=("each agent", "first agent"), paper="Eq. 6", advanced=True,
    )  # fmt: skip
    missing: str = option(
        "dense", "Agent without anchors",
        "Read the prompt afresh, or copy uncorrected as shipped.",
        choices=("dense", "copy"), paper="Algorithm 1", advanced=True,
    )  # fmt: skip
    fresh: str = option(
        "prompt", "A new text is read afresh",
        "With its whole prompt, or alone with the template text behind it, over what the others left in the "
        "cache. A free-running prompt that is copied in part teaches no offset.",
        choices=("prompt", "text"), paper="Algorithm 1; judge study, C.3", advanced=True,
    )  # fmt: skip
    prefix_base: str = prefix_base_option()
    budget_mib: float = option(
        0.0, "Memory of a pool (MiB)",
        "Most that the anchors of one placeholder may take, offsets included; the eviction rule makes room. "
        "0 sets no limit.",
        minimum=0.0, maximum=65536.0, paper="Section 6.4.5", advanced=True,
    )  # fmt: skip
    codec: str = option(
        "none", "Stored offsets are packed",
        "Not at all; in half precision, mixed as it is, at half the bytes to read; without loss, or rounded "
        "to multiples of a step, which mixing unpacks again.",
        choices=("none", "half", "lossless", "lossy"), paper="Section 6.4.5 proposes it", advanced=True,
    )  # fmt: skip
    codec_step: float = option(
        0.1, "Step of the lossy form", "Each element of an offset errs by at most half of it.",
        minimum=0.001, maximum=10.0, paper="Section 6.4.5: half of the elements are under 0.1", advanced=True,
    )  # fmt: skip
    on_device: int = option(
        0, "Anchors kept on the device",
        "Offsets of all but the most used anchors of a placeholder wait in main memory (copies in half "
        "precision do not). 0 keeps all on the device; where the model runs on a CPU this changes nothing.",
        minimum=0, maximum=256, paper="Section 6.4.4, Table A.6", advanced=True,
    )  # fmt: skip

    @property
    def wants_lead_in(self) -> bool:
        return self.text_base == "lead-in"


PROFILES = {
    "published": Profile(
        "As published", "The paper's equations, with this lab's reading of open points.", {}
    ),
    "shipped": Profile(
        "As shipped",
        "As the public code: whole KV compared, weights of its own, key offsets in the anchor's frame.",
        {
            "compared": "kv",
            "distance": "separate",
            "norm": "frobenius",
            "gate": "shipped",
            "eviction": "shipped",
            "frame": "anchor's position",
            "first_layer": False,
            "text_base": "lead-in",
            "keys_at": "agent's position",
            "weights_from": "first agent",
            "missing": "copy",
        },
    ),
    "corrected": Profile(
        "Corrected",
        "Position-free offsets, distances per token, closeness as well as contrast, exact eviction.",
        {"norm": "mean", "gate": "closeness", "temperature": 0.1, "eviction": "least used"},
    ),
}


class KVCommMethod(Method):
    """Reuse corrected by what dense passes over similar texts have shown."""

    name = "kvcomm"
    title = "KVCOMM"
    summary = "Copies the cache and corrects it by the offsets that similar earlier texts (anchors) showed."
    paper = "KVCOMM, Eq. 5 to 7, Algorithm 1"
    Options = KVCommOptions
    profiles = PROFILES

    def __init__(self, options: KVCommOptions) -> None:
        super().__init__(options)
        self._pools: dict[str, AnchorPool] = {}
        self._decisions: dict[int, GateDecision] = {}  # by observation number
        self._store = AnchorStore(Codec(self.options.codec, self.options.codec_step))

    def pool(self, placeholder: str) -> AnchorPool:
        """The placeholder's pool; empty at first."""
        if placeholder not in self._pools:
            o = self.options
            weighing = Weighing(
                o.approximation, o.temperature, o.top_k, o.compared, o.norm, o.distance, o.text_base
            )
            budget = int(o.budget_mib * 2**20)
            rules = PoolRules(
                o.capacity, o.gamma, o.gate, o.closeness, o.eviction, weighing, o.weights_from, budget
            )
            self._pools[placeholder] = AnchorPool(placeholder, rules)
        return self._pools[placeholder]

    def scope(self, sample: Observation) -> str:
        """Whose pool a sample belongs to: its writer's (A_i, one per agent and placeholder)."""
        return sample.source or sample.placeholder

    def observe(self, event: ObserveEvent, log: ObservationLog) -> None:
        """Gate each sample once, when it arrives; what is not shareable becomes an anchor. Pack and trim when
        the request is over."""
        if isinstance(event, Finished):
            self._tidy(log)
        if not isinstance(event, Arrived):
            return
        sample = event.sample
        pool = self.pool(self.scope(sample))
        decision = pool.gate(sample, log)
        self._decisions[sample.number] = decision
        if not decision.shareable:
            pool.insert(sample)
            self._trim(pool, log)

    def _trim(self, pool: AnchorPool, log: ObservationLog) -> None:
        """Keep a pool to its budget. Sizes are those of the packed form, also in a replay, where a newcomer's
        offsets are known at once."""
        if pool.rules.budget_bytes:
            for number in pool.uses.keys() & log.observations.keys():
                self._store.keep(log.observations[number])
            pool.trim(log, self._store.bytes)

    def _tidy(self, log: ObservationLog) -> None:
        """Pack what was seen, keep to the budget, and forget what belongs to no anchor."""
        for pool in self._pools.values():
            for number in pool.uses.keys() & log.observations.keys():
                self._store.keep(log.observations[number])
            self._trim(pool, log)
        self._store.drop_all_but(self.needed())

    def plan(self, context: PromptInContext, log: ObservationLog, clock: Clock) -> Plan:
        gate = tuple(self._decisions[o.number] for o in context.samples.values())
        new = [d.placeholder for d in gate if not d.shareable]
        alone = self.options.fresh == "text"  # what is new is read afresh, and nothing else
        if new and (not alone or len(new) == len(gate)):
            names, verb = ", ".join(new), "is" if len(new) == 1 else "are"
            reason = f"{names} {verb} new to the pool, so the whole prompt is read afresh."
            return _fallback(context, reason, gate)
        matches: dict[str, Match] = {}
        with clock.part("match"):
            for name, sample in context.samples.items():
                if name in new:
                    continue
                found = self.match(context, sample, log)
                if found is None and self.options.missing == "copy":
                    continue
                if found is None and alone:
                    new.append(name)
                    continue
                if found is None:
                    reason = f"No anchor of {name} has been seen by agent {called(context.prompt.agent)} yet."
                    return _fallback(context, reason, gate)
                matches[name] = found
            mixed = {name: self.mixed(context, name, found, log) for name, found in matches.items()}
        for name, found in matches.items():
            self.pool(self.scope(context.samples[name])).used(found)
        if new:
            names = ", ".join(new)
            reason = f"New to the pool, so read afresh: {names}. What has trusted anchors was copied."
            return Plan(self.steps(context, mixed, frozenset(new)), "partial", reason, gate)
        reason = "Every shared text has trusted anchors: copied and corrected."
        return Plan(self.steps(context, mixed), "reused", reason, gate)

    def match(self, context: PromptInContext, sample: Observation, log: ObservationLog) -> Match | None:
        """The anchors of a sample that know this prompt's agent, weighed; None when there is none."""
        name = sample.placeholder
        turn = partial(context.turned, name) if self.options.keys_at == "agent's position" else None
        followers = None if sample.source else context.followers(name)
        pool = self.pool(self.scope(sample))
        return pool.match(sample, context.prompt.agent, followers, log, turn)

    def mixed(self, context: PromptInContext, name: str, match: Match, log: ObservationLog) -> Match:
        """The anchors whose offsets correct a text: those that it was matched with."""
        return match

    def steps(
        self, context: PromptInContext, matches: dict[str, Match], fresh: frozenset[str] = frozenset()
    ) -> tuple[Step, ...]:
        """Copy every segment of a prompt; correct it by the match of its placeholder where there is one. The
        texts named in ``fresh`` are forwarded, and the template text behind them."""
        behind = {f: name for name in context.samples for f in context.followers(name)}
        return tuple(
            Step(
                span.start,
                span.end,
                Dense("new to the pool", provenance="fallback")
                if fresh & {span.name, behind.get(span.name)}
                else self._action(context, span, behind, matches),
            )
            for span in context.prompt.spans
            if span.end > span.start
        )

    def _action(
        self, context: PromptInContext, span: Span, behind: dict[str, str], matches: dict[str, Match]
    ) -> Blend | Dense:
        agent, name, moved = context.prompt.agent, span.name, self.options.rotate
        if name in context.samples:
            base = base_of(context.samples[name], self.options.text_base)
            if not self.options.placeholder_offset:
                return Blend(base, moved=moved, reason="copied (its correction is switched off)")
            if name not in matches:
                return Blend(base, moved=moved, reason="copied: no anchor knows this agent (as shipped)")
            match = matches[name]
            terms = tuple(
                self._term(w, a.offsets[agent], self._offset(a, agent).slice(0, base.tokens), a, span)
                for w, a in zip(match.own, match.anchors, strict=True)
            )
            return self._corrected(base, terms, "corrected by its anchors (Eq. 6)")
        base = segment_base(context, name)
        if name not in behind:
            if span.start > 0:
                return Dense(
                    "template text behind an empty placeholder, with no text before it to correct it by"
                )
            return Blend(base, moved=moved, reason="the prompt's own beginning, exact", exact=moved)
        if not self.options.prefix_offset or behind[name] not in matches:
            base = segment_base(context, name, self.options.prefix_base)
            return Blend(base, moved=moved, reason="copied (its correction is switched off)")
        match = matches[behind[name]]
        stood = [name in a.offsets[agent].followers for a in match.anchors]
        weights = match.behind if all(stood) else of_those(match.behind, stood)
        if not weights:
            return Dense("none of the anchors stood before this template text")
        anchors = [a for a, known in zip(match.anchors, stood, strict=True) if known]
        terms = tuple(
            self._term(w, a.offsets[agent], self._store.offset(a, agent).followers[name], a, span)
            for w, a in zip(weights, anchors, strict=True)
        )
        return self._corrected(base, terms, f"corrected by the anchors of {behind[name]} (Eq. 7)")

    def _offset(self, anchor: Observation, agent: int) -> Offset:
        """An anchor's own offset in an agent's context, from the base that is meant."""
        seen: Offset = self._store.offset(anchor, agent).placeholder
        base = base_of(anchor, self.options.text_base)
        if base is anchor.base:
            return seen
        home = base.keys.device  # the offsets may wait elsewhere
        return KVOffset(
            seen.keys.to(home) + (anchor.base.keys - base.keys),
            seen.values.to(home) + (anchor.base.values - base.values),
        )

    def _term(
        self, weight: Weight, seen: SeenOffset, offset: Offset, anchor: Observation, span: Span
    ) -> Term:
        """One anchor's offset; as shipped its keys stay turned by the anchor's own position."""
        stood = seen.starts[anchor.placeholder if span.kind == "placeholder" else span.name]
        shift = stood - span.start if self.options.frame == "anchor's position" else 0
        own_values = None if weight.values is weight.keys else weight.values
        return Term(weight.keys, offset, anchor.number, own_values, shift)

    def _corrected(self, base: KVSegment, terms: tuple[Term, ...], reason: str) -> Blend:
        first_layer = 0 if self.options.first_layer else 1
        in_place = self.options.frame == "anchor's position"
        return Blend(base, terms, self.options.rotate, reason, first_layer=first_layer, in_place=in_place)

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
                    sum(map(self._store.bytes, held)),
                    pool.rules.budget_bytes,
                    self.options.codec,
                )
            )
        return tuple(states)

    def needed(self) -> set[int]:
        return {n for pool in self._pools.values() for n in pool.uses}

    def cold(self) -> set[int]:
        kept = self.options.on_device
        if not kept:
            return set()
        ranked = (sorted(pool.uses, key=lambda n: (-pool.uses[n], -n)) for pool in self._pools.values())
        return {number for numbers in ranked for number in numbers[kept:]}

    def stored(self, anchor: Observation, agent: int) -> Stored | None:
        return self._store.stored(anchor, agent)

    @property
    def held_bytes(self) -> int:
        return self._store.held_bytes

    def held_of(self, number: int) -> int:
        return self._store.held_of(number)

    def fork(self) -> Self:
        twin = type(self)(self.options)
        twin._pools = {name: replace(pool, uses=dict(pool.uses)) for name, pool in self._pools.items()}
        twin._store = self._store.copy()
        return twin  # decisions belong to the request that asked for them

    def forget(self, numbers: set[int]) -> None:
        for pool in self._pools.values():
            for number in numbers & pool.uses.keys():
                del pool.uses[number]
        for number in numbers & self._decisions.keys():
            del self._decisions[number]
        self._store.drop_all_but(self.needed())


def _fallback(context: PromptInContext, reason: str, gate: tuple[GateDecision, ...]) -> Plan:
    plan = dense_plan(context, reason)
    return Plan(plan.steps, "fallback", reason, gate)
