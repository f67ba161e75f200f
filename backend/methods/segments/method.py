"""Cross-query segment reuse: graft stored KV of text that was read before, elsewhere and almost as it is now.

Source: "Cross-Query KV Segment Reuse for Template-Heavy Agents", a plan that was never built. Its steps, and
our reading of what it leaves open:

- *Discovery*: pieces between scaffold marks and punctuation, and overlapping windows (``segments.cutting``).
- *Retrieval*: shingled MinHash and LSH, then exact verification of the shingles and of the W tokens before
  (``segments.store``). Where tokens of a verified segment differ, those are read afresh: a key of another
  token is no approximation of this one's. Segments that follow one another as they did in their prompt make
  one graft.
- *Halo*: the first and last h tokens of a graft are read afresh. They are known before anything is copied, so
  they are steps of the plan, and what follows sees them as they are; no second pass is needed. In a causal
  model only the left halo meets a neighbour that changed; ``halo_sides`` drops the right one.
- *Layers*: the plan reuses lower layers and computes the upper ones "normally", which needs states that were
  not computed (:mod:`backend.engine.partial_layers`). Two consistent forms, and that one as an exhibit.
- *Acceptance*: KL of the next-token distributions at the grafts' last tokens, dense against grafted. Full
  compute of a boundary needs a pass over all before it, so probing costs what reuse saves: by default a
  segment is probed the first time that it is grafted, and trusted from then on.
- What was grafted is not stored again, so an error is not handed on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import torch

from backend.base.clock import Clock
from backend.cache.norms import kl
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, MethodEvent, Prefilled, PromptView
from backend.methods.options import Profile
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.methods.segments.cutting import Cut, cuts
from backend.methods.segments.grafts import Graft, Run, cover, labels, without_halo
from backend.methods.segments.options import FORMS, PAPER, SegmentsOptions
from backend.methods.segments.store import Owner, SegmentStore
from backend.records.run import Provenance

DENSE = {
    "": Compute("nothing alike was stored"),
    "edge": Compute("the edge of a graft"),
    "rejected": Compute("something alike was stored, but failed verification", provenance="rejected"),
}


class SegmentsMethod(Method):
    """Fuzzy internal reuse with a halo and a probe."""

    name = "segments"
    column = 180
    title = "Segment reuse"
    summary = (
        "Finds stretches of text that were read before, anywhere, and grafts their cache with fresh edges."
    )
    paper = PAPER
    not_replayed = "it copies from caches of earlier prompts, which have left the log since"
    needs_bases = False  # it copies from earlier prompts
    Options = SegmentsOptions
    profiles: ClassVar[Mapping[str, Profile]] = {
        "base": Profile("The plan's base", "As planned: the lower 12 of 32 layers, h 8, tau 0.8.", {
            "form": FORMS[1], "layer_share": 0.375, "probe": "always"}),
        "int8": Profile("Eight bits", "The defaults, stored in eight bits.", {"int8": True}),
        "unguarded": Profile("No probe", "The defaults without acceptance tests.", {"probe": "off"}),
    }  # fmt: skip
    needs_masks = True

    def __init__(self, options: SegmentsOptions, store: SegmentStore | None = None) -> None:
        super().__init__(options)
        self.store = store or SegmentStore(options.match_rules, options.budget_mb << 20, options.int8)
        self._texts: dict[int, str] = {}
        self._owner = Owner("")  # of the plan that is being carried out
        self._runs: tuple[Run, ...] = ()

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        ids, options = context.prompt.ids, self.options
        self._owner = Owner(log.domain, context.weights)
        with clock.part("match"):
            searches = tuple(self.store.find(self._owner, ids, self.cut(context)))
            matches = tuple(best for _, best, _ in searches if best)
            if options.form == FORMS[2]:  # even behind the same beginning it is not what dense gives
                matches = tuple(replace(best, beginning=False) for best in matches)
            whole = cover(matches, len(ids) - 1)
            inside = without_halo(whole, options.halo, options.halo_sides == "both")
            refused = [(c.start, c.end) for c, best, others in searches if best is None and others]
            plan = self.graft(context, inside, refused)
            self.store.mark_used(self._owner, [g.stored.number for g in self._grafts])
        if matches and plan.state == "dense":
            return replace(plan, reason="What is alike is all edge, and read afresh.")
        return plan

    def graft(
        self, context: PromptInContext, matches: tuple[Run, ...], refused: Sequence[tuple[int, int]] = ()
    ) -> Plan:
        """The plan that copies these runs and forwards the rest. ``refused``: where something alike failed
        verification."""
        cut, total = self.cut_layer(context), len(context.prompt.ids)
        self._runs = matches if cut != 0 else ()
        reasons = labels(total, self._runs, refused)
        steps, count = tuple(self._steps(context, reasons)), reasons.count("graft")
        if not count:
            return Plan(steps, "dense", "Nothing alike was stored.", cut=cut)
        pieces = "1 piece" if len(self._runs) == 1 else f"{len(self._runs)} pieces"
        return Plan(steps, "partial", f"{count} of {total} tokens were grafted in {pieces}.", cut=cut)

    @property
    def ends(self) -> list[int]:
        """The last tokens of the grafts of the plan before, edges included, where they are not exact."""
        return [run.end - 1 for run in self._runs if not run.grafts[-1].exact]

    @property
    def _grafts(self) -> tuple[Graft, ...]:
        return tuple(graft for run in self._runs for graft in run.grafts)

    def cut_layer(self, context: PromptInContext) -> int | None:
        """The layer below which KV are reused; None for all layers."""
        assert context.rotation is not None, "the prompt was laid out without a model"
        layers = len(context.rotation.layers)
        return None if self.options.form == FORMS[0] else round(self.options.layer_share * layers)

    def cut(self, context: PromptInContext) -> tuple[Cut, ...]:
        """The prompt's candidate segments; marks are found in what each token reads by itself."""
        assert context.encoder is not None, "the prompt was laid out without a model"
        decode = context.encoder.decode
        for token in set(context.prompt.ids) - self._texts.keys():
            self._texts[token] = decode((token,))
        return cuts([self._texts[token] for token in context.prompt.ids], self.options.cut_rules)

    def _steps(self, context: PromptInContext, reasons: list[str]) -> Iterator[Step]:
        """Grafts as they are, and between them tokens to forward, with the reason."""
        grafts = {graft.start: graft for graft in self._grafts}
        at, total = 0, len(reasons)
        while at < total:
            if graft := grafts.get(at):
                yield Step(at, graft.end, self._blend(context, graft))
                at = graft.end
                continue
            end = next((i for i in range(at, total) if reasons[i] != reasons[at] or i in grafts), total)
            yield Step(at, end, DENSE[reasons[at]])
            at = end

    def _blend(self, context: PromptInContext, graft: Graft) -> Reuse:
        stored, end = graft.stored, graft.at + graft.tokens
        where: Provenance
        if graft.exact:
            where = "exact local" if stored.agent == context.prompt.agent else "exact external"
            reason = "the same beginning, at the same place"
        else:
            where, reason = "semantic", "alike, behind a like context"
        hidden = None if stored.hidden is None else stored.hidden[graft.at : end]
        base = stored.kv(graft.at, end)
        return Reuse(base, reason=reason, exact=graft.exact, provenance=where, hidden=hidden)

    def accept(self, view: PromptView, clock: Clock) -> str | None:
        numbers = [g.stored.number for g in self._grafts]
        assert view.logits is not None
        if not torch.isfinite(view.logits).all():
            self.store.forget(self._owner, numbers)
            return "Grafting gave numbers that are not finite."
        new = [g for g in self._grafts if not g.exact and not g.stored.trusted]
        if self.options.probe == "off" or (self.options.probe == "first use" and not new):
            return None
        ends = self.ends
        if not ends:
            return None
        divergence = float(kl(view.dense_logits_at(ends), view.logits_at(ends)).mean())
        if divergence > self.options.threshold:
            self.store.forget(self._owner, [g.stored.number for g in new])
            return f"At the ends of the grafts predictions moved by {divergence:.3g} nats."
        self.store.mark_used(self._owner, numbers, trusted=True)
        return None

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        if not isinstance(event, Prefilled):
            return
        context, states = event.context, self.options.form == FORMS[1]
        if states and event.hidden is None:
            return
        grafted = [s for s in event.plan.steps if isinstance(s.action, Reuse) and not s.action.exact]
        total = len(context.prompt.ids)
        clean = min((step.start for step in grafted), default=total)  # up to here KV are what dense gives
        pieces = [c for c in self.cut(context) if all(c.end <= s.start or c.start >= s.end for s in grafted)]
        assert context.rotation is not None
        kv = event.cache.segment(0, total, context.rotation, exact=True, context="")
        layers = self.cut_layer(context)
        kv = replace(kv, keys=kv.keys[:layers], values=kv.values[:layers])
        for exact in (True, False):
            self.store.add(
                Owner(log.domain, context.weights),
                context.prompt.ids,
                [cut for cut in pieces if (cut.end <= clean) == exact],
                replace(kv, exact=exact),
                context.prompt.agent,
                event.hidden if states else None,
            )

    @property
    def held_bytes(self) -> int:
        return self.store.total_bytes

    def shrink(self, budget_bytes: int) -> None:
        self.store.shrink(budget_bytes)

    def fork(self) -> Self:
        twin = type(self)(self.options, self.store.twin())
        twin._texts = self._texts
        return twin
