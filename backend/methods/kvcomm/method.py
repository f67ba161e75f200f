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
* Where a placeholder is a slot that anybody's text may stand in
  (:attr:`backend.cache.samples.Sample.source`), an anchor corrects a text wherever either stood, and the
  template text behind a slot only where it was seen behind that slot; their weights then sum to one among
  themselves, and without any it is read afresh.
* ``fresh`` *text* follows the judge study, whose reuse rates are counts of single texts (249 of 5 x 153),
  where Algorithm 1 copies a prompt whole or not at all.
* Base of a prefix segment: its template with stand-ins in the holes. With weights that sum to one and
  position-free offsets it cancels in Eq. 7: base + sum w (real_a - base) = sum w real_a. So there
  ``prefix_base`` matters only with ``prefix_offset`` off. Offsets that are added unturned do not cancel it,
  so as shipped the stand-ins are the public code's: the placeholders' names in braces and quotes, and a
  space.
* *As shipped* follows the public implementation where its results differ from the paper's: weights, frame
  of the key offsets, layer 0, gate, counts, eviction, and copying uncorrected when no anchor knows the
  agent; the bases of outside texts and of template text, keys compared where each stood (the sample in the
  agent's prompt, an anchor in the prompt of the last agent that read it afresh), the first agent's weights
  used again, and texts that came before. An outside text that came before word for word is not gated again:
  it is shared unless it was new then and has left the pool since. A response to a question that came before
  is gated, but shared whatever the gate says while the anchor that it left then is in the pool.
  Readings where the description is silent: the lead-in is what stands before the text on its line in the
  first template that reads it. Not here: its crashes. Layer 0's offset is zero in every frame, for its keys
  and values depend on the token alone, so leaving it out changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVOffset, KVSegment, Offset
from backend.cache.offset_packing import AnchorStore, Codec, Stored
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.methods.base import Arrived, Finished, Method, MethodEvent, segment_base
from backend.methods.dense import fallback_plan
from backend.methods.kvcomm.options import PROFILES, KVCommOptions
from backend.methods.kvcomm.pool import AnchorPool, PoolRules
from backend.methods.kvcomm.weights import Match, Turn, Weighing, Weight, base_of, subset
from backend.methods.plan import Compute, Plan, Reuse, Step, Term
from backend.prompts.template import Placeholder, agent_label
from backend.records.pools import PoolState
from backend.records.prompt import Span
from backend.records.run import GateDecision


class KVCommMethod(Method):
    """Reuse corrected by offsets that dense passes over similar texts showed."""

    name = "kvcomm"
    column = 40
    title = "KVCOMM"
    summary = "Copies the cache and corrects it by the offsets that similar earlier texts (anchors) showed."
    paper = "KVCOMM, Eq. 5 to 7, Algorithm 1"
    planned = ("gamma", "capacity")
    Options = KVCommOptions
    profiles = PROFILES

    def __init__(self, options: KVCommOptions) -> None:
        super().__init__(options)
        self._pools: dict[str, AnchorPool] = {}
        self._decisions: dict[int, GateDecision] = {}  # by observation number
        self._question: tuple[int, ...] = ()  # that the present request asks
        # What came before, by pool and text (an answer: by its question): the anchor that it left, if any.
        self._texts: dict[tuple[str, tuple[int, ...]], int | None] = {}
        codec = Codec(self.options.codec, self.options.codec_step)
        self._store = AnchorStore(codec, lead_ins=self.options.text_base == "lead-in")

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

    def scope(self, sample: Sample) -> str:
        """Whose pool a sample belongs to: its writer's (A_i, one per agent and placeholder)."""
        return sample.source or sample.placeholder

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        """Gate each sample once, when it arrives; what is not shareable becomes an anchor. Pack and trim when
        the request is over."""
        if isinstance(event, Finished):
            self._question = ()
            self._tidy(log)
        if not isinstance(event, Arrived):
            return
        sample = event.sample
        pool = self.pool(self.scope(sample))
        if Placeholder(sample.placeholder).kind == "question":
            self._question = sample.ids
        repeat = self._repeat_decision(sample, pool)
        if repeat is not None and self._outside(sample):
            decision = repeat
        else:
            decision = pool.gate(sample, log)
            pool.count_gated(decision)
            if repeat is not None and repeat.shareable and not decision.shareable:
                decision = repeat
        self._decisions[sample.number] = decision
        self._texts.setdefault(self._key(sample), None)
        if not decision.shareable and self.options.eviction != "shipped":
            pool.insert(sample)
            self._remember(sample, pool, log)

    def _remember(self, sample: Sample, pool: AnchorPool, log: SampleLog) -> None:
        """Note a text's anchor, and trim the pool."""
        self._texts[self._key(sample)] = sample.number
        self._trim(pool, log)

    @staticmethod
    def _outside(sample: Sample) -> bool:
        kind = Placeholder(sample.placeholder).kind
        return kind in ("question", "tool", "declared") and not sample.source

    def _key(self, sample: Sample) -> tuple[str, tuple[int, ...]]:
        """The key by which the public code recognises a text."""
        return self.scope(sample), sample.ids if self._outside(sample) else self._question

    def _repeat_decision(self, sample: Sample, pool: AnchorPool) -> GateDecision | None:
        """As shipped, the decision on a text that came before; None for any other, and for an answer that
        left no anchor."""
        key = self._key(sample)
        if self.options.repeated == "gated" or not (key[1] and self.options.capacity and key in self._texts):
            return None
        anchor = self._texts[key]
        shareable = anchor in pool.uses or (anchor is None and self._outside(sample))
        what = "This very text" if self._outside(sample) else "The answer to this very question"
        outcome = (
            "so it is shared without a gate" if shareable else "but its anchor has gone: it is new again"
        )
        return GateDecision(
            sample.placeholder, shareable, "came before", f"{what} came before, {outcome}.", sample.tokens,
            len(pool.uses), 0, None, None,
        )  # fmt: skip

    def _trim(self, pool: AnchorPool, log: SampleLog) -> None:
        """Keep a pool to its budget. Sizes are those of the packed form, also in a replay, where a newcomer's
        offsets are known at once."""
        if pool.rules.budget_bytes:
            for number in pool.uses.keys() & log.samples.keys():
                self._store.keep(log.samples[number])
            pool.trim(log, self._store.bytes)

    def _tidy(self, log: SampleLog) -> None:
        """Pack what was seen, keep to the budget, and forget what belongs to no anchor."""
        for pool in self._pools.values():
            for number in pool.uses.keys() & log.samples.keys():
                self._store.keep(log.samples[number])
            self._trim(pool, log)
        self._store.drop_all_but(self.needed())

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        gate, new = self._read_gate(context, log)
        if self._all_afresh(gate, new):
            names, verb = ", ".join(new), "is" if len(new) == 1 else "are"
            reason = f"{names} {verb} new to the pool, so the whole prompt is read afresh."
            return fallback_plan(context.prompt, reason, gate)
        with clock.part("match"):
            matches, unknown = self._matches(context, new, log)
            if unknown:
                reason = (
                    f"No anchor of {unknown} has been seen by agent {agent_label(context.prompt.agent)} yet."
                )
                return fallback_plan(context.prompt, reason, gate)
            mixed = {name: self.mixed(context, name, match, log) for name, match in matches.items()}
        if new:
            names = ", ".join(new)
            reason = f"New to the pool, so read afresh: {names}. What has trusted anchors was copied."
            return Plan(self.steps(context, mixed, frozenset(new)), "partial", reason, gate)
        reason = "Every shared text has trusted anchors: copied and corrected."
        return Plan(self.steps(context, mixed), "reused", reason, gate)

    def replay(self, context: PromptInContext, log: SampleLog) -> None:
        """A plan changes the pools by what the gate made anchors and by the uses that a match counts; as
        shipped matching counts none, so nothing is matched."""
        gate, new = self._read_gate(context, log)
        if self.options.eviction != "shipped" and not self._all_afresh(gate, new):
            self._matches(context, new, log)

    def _read_gate(
        self, context: PromptInContext, log: SampleLog
    ) -> tuple[tuple[GateDecision, ...], list[str]]:
        """The decisions on a prompt's texts, and which of these are new; as shipped those join their pools
        now."""
        gate = tuple(self._decisions[o.number] for o in context.samples.values())
        new = [d.placeholder for d in gate if not d.shareable]
        if self.options.eviction == "shipped":
            for sample in map(context.samples.__getitem__, new):
                pool = self.pool(self.scope(sample))
                pool.read_afresh(sample)
                self._remember(sample, pool, log)
        return gate, new

    def _all_afresh(self, gate: Sequence[GateDecision], new: Sequence[str]) -> bool:
        """Whether new texts make the whole prompt be read afresh, not themselves alone."""
        return bool(new) and (self.options.fresh == "prompt" or len(new) == len(gate))

    def _matches(
        self, context: PromptInContext, new: list[str], log: SampleLog
    ) -> tuple[dict[str, Match], str]:
        """The texts' matches by placeholder, counted as uses, and which text's missing anchors have the
        prompt read afresh; with ``fresh`` *text* such a text counts as ``new`` and is added there."""
        matches: dict[str, Match] = {}
        for name, sample in context.samples.items():
            if name in new:
                continue
            match = self.match(context, sample, log)
            if match is not None:
                matches[name] = match
            elif self.options.missing == "copy":
                continue
            elif self.options.fresh == "text":
                new.append(name)
            else:
                return {}, name
        for name, match in matches.items():
            self.pool(self.scope(context.samples[name])).count_uses(match)
        return matches, ""

    def match(self, context: PromptInContext, sample: Sample, log: SampleLog) -> Match | None:
        """The anchors of a sample that know this prompt's agent, weighed; None when there is none."""
        followers = None if sample.source else context.followers(sample.placeholder)
        pool = self.pool(self.scope(sample))
        return pool.match(sample, context.prompt.agent, followers, log, self.turn(context, sample))

    def turn(self, context: PromptInContext, sample: Sample) -> Turn | None:
        """Where a sample's keys and its anchors' are compared; None: position-free."""
        if self.options.keys_at == "position-free":
            return None
        start, same_place = context.start(sample.placeholder), self.options.keys_at == "agent's position"

        def turned(text: Sample, keys: Tensor) -> Tensor:
            if same_place or text.number == sample.number:
                return context.rotated_keys(start, keys)
            last_reader = list(text.offsets.values())[-1]
            return context.rotated_keys(last_reader.starts[text.placeholder], keys)

        return turned

    def mixed(self, context: PromptInContext, name: str, match: Match, log: SampleLog) -> Match:
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
                Compute("new to the pool", provenance="fallback")
                if fresh & {span.name, behind.get(span.name)}
                else self._action(context, span, behind, matches),
            )
            for span in context.prompt.filled_spans
        )

    def _action(
        self, context: PromptInContext, span: Span, behind: dict[str, str], matches: dict[str, Match]
    ) -> Reuse | Compute:
        agent, name, moved = context.prompt.agent, span.name, self.options.rotate
        if name in context.samples:
            base = base_of(context.samples[name], self.options.text_base)
            if not self.options.placeholder_offset:
                return Reuse(base, moved=moved, reason="copied (its correction is switched off)")
            if name not in matches:
                return Reuse(base, moved=moved, reason="copied: no anchor knows this agent (as shipped)")
            match = matches[name]
            terms = tuple(
                self._term(w, self._offset(a, agent).slice(0, base.tokens), a, agent, span)
                for w, a in zip(match.own, match.anchors, strict=True)
            )
            return self._corrected(base, terms, "corrected by its anchors (Eq. 6)")
        template = segment_base(context, name)
        base = context.named_bases[name] if self.options.prefix_base == "names" else template
        if name not in behind:
            if span.start > 0:
                return Compute(
                    "template text behind an empty placeholder, with no text before it to correct it by"
                )
            return Reuse(base, moved=moved, reason="the prompt's own beginning, exact", exact=moved)
        if not self.options.prefix_offset or behind[name] not in matches:
            if self.options.prefix_base == "alone":
                base = segment_base(context, name, "alone")
            return Reuse(base, moved=moved, reason="copied (its correction is switched off)")
        match = matches[behind[name]]
        has_segment = [name in a.offsets[agent].followers for a in match.anchors]
        weights = match.behind if all(has_segment) else subset(match.behind, has_segment)
        if not weights:
            return Compute("none of the anchors stood before this template text")
        anchors = [a for a, present in zip(match.anchors, has_segment, strict=True) if present]
        terms = tuple(
            self._term(w, from_base(offset, template, base), a, agent, span)
            for w, a in zip(weights, anchors, strict=True)
            for offset in [self._store.offset(a, agent).followers[name]]
        )
        return self._corrected(base, terms, f"corrected by the anchors of {behind[name]} (Eq. 7)")

    def _offset(self, anchor: Sample, agent: int) -> Offset:
        """An anchor's own offset in an agent's context, relative to the base that ``text_base`` names."""
        offset = self._store.offset(anchor, agent).placeholder
        return from_base(offset, anchor.base, base_of(anchor, self.options.text_base))

    def _term(self, weight: Weight, offset: Offset, anchor: Sample, agent: int, span: Span) -> Term:
        """One anchor's offset; as shipped its keys stay turned by the anchor's own position."""
        starts = anchor.offsets[agent].starts
        start = starts[anchor.placeholder if span.kind == "placeholder" else span.name]
        shift = start - span.start if self.options.frame == "anchor's position" else 0
        own_values = None if weight.values is weight.keys else weight.values
        return Term(weight.keys, offset, anchor.number, own_values, shift)

    def _corrected(self, base: KVSegment, terms: tuple[Term, ...], reason: str) -> Reuse:
        first_layer = 0 if self.options.first_layer else 1
        in_place = self.options.frame == "anchor's position"
        return Reuse(base, terms, self.options.rotate, reason, first_layer=first_layer, in_place=in_place)

    def pools(self, log: SampleLog) -> tuple[PoolState, ...]:
        states = []
        for pool in self._pools.values():
            anchors = [log.samples[n] for n in pool.uses if n in log.samples]
            states.append(
                PoolState(
                    self.name,
                    pool.placeholder,
                    pool.capacity,
                    tuple(o.number for o in anchors),
                    tuple(o.tokens for o in anchors),
                    tuple(pool.uses[o.number] for o in anchors),
                    tuple(o.preview for o in anchors),
                    sum(map(self._store.bytes, anchors)),
                    pool.rules.budget_bytes,
                    self.options.codec,
                )
            )
        return tuple(states)

    def needed(self) -> set[int]:
        return {n for pool in self._pools.values() for n in pool.uses}

    def offloadable(self) -> set[int]:
        count = self.options.on_device
        if not count:
            return set()
        ranked = (sorted(pool.uses, key=lambda n: (-pool.uses[n], -n)) for pool in self._pools.values())
        return {number for numbers in ranked for number in numbers[count:]}

    def stored(self, anchor: Sample, agent: int) -> Stored | None:
        return self._store.stored(anchor, agent)

    @property
    def held_bytes(self) -> int:
        return self._store.held_bytes

    def held_of(self, number: int) -> int:
        return self._store.held_of(number)

    def fork(self) -> Self:
        twin = type(self)(self.options)
        twin._pools = {name: replace(pool, uses=dict(pool.uses)) for name, pool in self._pools.items()}
        twin._store, twin._texts = self._store.copy(), dict(self._texts)
        return twin  # decisions and the question belong to one request

    def forget(self, numbers: set[int]) -> None:
        for pool in self._pools.values():
            for number in numbers & pool.uses.keys():
                del pool.uses[number]
        for number in numbers & self._decisions.keys():
            del self._decisions[number]
        self._store.drop_all_but(self.needed())


def from_base(offset: Offset, old: KVSegment, new: KVSegment) -> Offset:
    """An offset relative to the base ``old``, made relative to ``new``."""
    if new is old:
        return offset
    device = new.keys.device  # the offsets may wait elsewhere
    return KVOffset(
        offset.keys.to(device) + (old.keys - new.keys), offset.values.to(device) + (old.values - new.values)
    )
