"""CacheBlend: compute again the tokens whose K/V differ most (Yao et al., EuroSys 2025, arXiv 2405.16444).

Cached texts are copied and moved. The first layers are computed for every token; where a token's fresh K/V
at the *check layer* differ most from the copied ones, it is computed again at all further layers over the
blended cache. Deviation of a token: the sum of squared differences over heads and channels.

Three readings, as profiles:

* *As published*: K and V deviation, and gradual filtering, where the share shrinks from layer to layer
  (Section 4.3). The paper gives no schedule; here the share at layer l is ``ratio ** (1 + t)`` with t rising
  evenly from -TAPER to TAPER, so that their geometric mean is ``ratio`` and 1 stays 1.
* *As shipped*, the research code: V deviation, one choice for all layers, 16% plus the whole suffix, and a
  causal mask aligned at the lower right corner, which lets chosen tokens see later ones. (Its evaluation
  scripts set 18% and, by the length of a list of one list, a suffix of one token.)
* *LMCache* (v1): K deviation, 15%, no forced suffix, the copied K/V kept at the check layer, the same mask,
  and texts stored in the context in which they were first seen.

Departures: keys are kept position-free, so comparing them after the rotation, as LMCache does, is the same;
chosen tokens pass the layers up to the check layer a second time, which is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.methods.base import Arrived, Method, MethodEvent, PromptView, copy_everything
from backend.methods.dense import dense_plan
from backend.methods.options import Options, Profile, layer_option, option, prefix_base_option
from backend.methods.plan import MaskKind, Plan, Reuse, Selection, Step
from backend.methods.selective import best, candidates, mask_option, ratio_option, suffix_option
from backend.prompts.template import Placeholder, agent_label

TAPER = 0.1
MOST_TEXTS = 64  # outside texts that are kept in the log for their first context
OUTSIDE = ("question", "tool", "declared")


@dataclass(frozen=True)
class CacheBlendOptions(Options):
    """Options of CacheBlend; the defaults are its published form, with a choice that works on every model."""

    ratio: float = ratio_option(0.15, "Section 4.3: 5% to 18%")
    check_layer: int = layer_option(
        1, "Check layer", "Where fresh and copied K/V are compared. At layer 0 they do not differ yet.",
        paper="Section 4.3",
    )  # fmt: skip
    deviation: str = option(
        "both", "Compared", "Keys, values (as the research code does), or both.",
        choices=("both", "keys", "values"), paper="Section 4.2",
    )  # fmt: skip
    selection: str = option(
        "one-shot", "Tokens are chosen",
        "Once for all layers, or anew at each layer among those of the one before (Llama and Qwen families).",
        choices=("one-shot", "gradual"), paper="Section 4.3, gradual filtering",
    )  # fmt: skip
    mask: str = mask_option()
    donor: str = option(
        "isolated", "Texts were encoded",
        "Alone, or as first seen: in the prompt that was the first to read them. An agent's answer is always "
        "as its own agent left it.",
        choices=("isolated", "as first seen"), paper="LMCache", advanced=True,
    )  # fmt: skip
    suffix: bool = suffix_option()
    whole_check_layer: bool = option(
        True, "Keep the check layer fresh", "For every token, or for the chosen ones only, as LMCache does.",
        paper="public code", advanced=True,
    )  # fmt: skip
    prefix_base: str = prefix_base_option()


PROFILES = {
    "published": Profile(
        "As published", "K and V compared, chosen anew at each layer. Llama and Qwen families.",
        {"selection": "gradual"},
    ),
    "shipped": Profile(
        "As shipped", "As the research code: values compared, one choice, its mask.",
        {"ratio": 0.16, "deviation": "values", "mask": "shipped"},
    ),
    "lmcache": Profile(
        "LMCache", "As LMCache: keys compared, no forced suffix, its mask, texts as first seen.",
        {"deviation": "keys", "mask": "shipped", "donor": "as first seen", "suffix": False,
         "whole_check_layer": False},
    ),
}  # fmt: skip


class CacheBlendMethod(Method):
    """Recompute where the fresh K/V differ most from the copied ones."""

    name = "cacheblend"
    column = 70
    title = "CacheBlend"
    summary = "Copies the cache, then computes again the tokens whose keys and values differ most from it."
    paper = "CacheBlend, Section 4; LMCache"
    Options = CacheBlendOptions
    profiles = PROFILES
    needs_masks = True

    def __init__(self, options: CacheBlendOptions) -> None:
        super().__init__(options)
        self._texts: list[int] = []  # outside texts, oldest first

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        """Keep the latest outside texts in the log, where their first context matters."""
        if not isinstance(event, Arrived) or self.options.donor == "isolated":
            return
        if Placeholder(event.sample.placeholder).kind in OUTSIDE:
            self._texts = [*self._texts, event.sample.number][-MOST_TEXTS:]

    def needed(self) -> set[int]:
        return set(self._texts)

    def forget(self, numbers: set[int]) -> None:
        self._texts = [n for n in self._texts if n not in numbers]

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        plan = copy_everything(context, self.options.prefix_base)
        if self.options.donor == "isolated":
            return plan
        bases: dict[int, KVSegment] = {}
        for span in context.prompt.spans:
            sample = context.samples.get(span.name)
            if sample is None or Placeholder(span.name).kind not in OUTSIDE:
                continue
            with clock.part("match"):
                first = first_seen(sample, context.prompt.agent, log)
            if first is None:
                return dense_plan(
                    context.prompt, f"{span.name} is read for the first time, so nothing is stored of it."
                )
            bases[span.start] = first
        return replace(plan, steps=tuple(_from_donor(step, bases.get(step.start)) for step in plan.steps))

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        o, layers = self.options, int(view.cache.keys.shape[0])
        free, suffix = candidates(view, o.suffix)
        count, check = round(o.ratio * len(free)), min(o.check_layer, layers - 1)
        mask, reason = cast(MaskKind, o.mask), f"{o.deviation} differ most at layer {check}"
        reason = f"computed again: {reason.replace('both', 'keys and values')}, or the suffix"
        if not count:
            return Selection(tuple(suffix), mask=mask, reason=reason) if suffix else None
        if o.selection == "gradual":
            return Selection(self._sets(view, free, suffix, check, layers), 0, 0, mask, reason=reason)
        if count == len(free):  # nothing to choose by, so no layer is computed twice
            return Selection((*free, *suffix), mask=mask, reason=reason)
        tokens = best(deviation(view.fresh(check), view.stale(check), o.deviation), free, count)
        below = check + o.whole_check_layer
        chosen = tuple(sorted((*tokens, *suffix)))
        return Selection(chosen, fresh_below=below, mask=mask, mask_layer=check, reason=reason)

    def _sets(
        self, view: PromptView, free: Sequence[int], suffix: Sequence[int], check: int, layers: int
    ) -> tuple[tuple[int, ...], ...]:
        """The tokens of each layer: all up to the check layer, then fewer and fewer."""
        every = tuple(range(view.total - 1))
        sets, tokens = [every] * (check + 1), every
        mask, chosen = cast(MaskKind, self.options.mask), list(free)
        for at in range(layers - 1):
            fresh = view.step(tokens, mask)
            if at < check:
                continue
            deeper = layers - 1 - check
            turn = 0.0 if deeper == 1 else 2 * (at - check) / (deeper - 1) - 1
            count = round(self.options.ratio ** (1 + TAPER * turn) * len(free))
            if count < len(chosen):
                index = torch.tensor(tokens, device=fresh[0].device)
                keys, values = view.stale(at)
                score = torch.zeros(view.total, device=index.device)
                stale = keys[:, index], values[:, index]
                score[index] = deviation(fresh, stale, self.options.deviation)
                chosen = best(score, chosen, count)
            tokens = tuple(sorted((*chosen, *suffix)))
            sets.append(tokens)
        return tuple(sets)


def deviation(fresh: tuple[Tensor, Tensor], stale: tuple[Tensor, Tensor], kind: str) -> Tensor:
    """(tokens,) sum of squared differences over heads and channels of K, V or both, each (kv_heads, tokens,
    head_dim)."""
    pairs = list(zip(fresh, stale, strict=True))
    compared = {"keys": pairs[:1], "values": pairs[1:], "both": pairs}[kind]
    distances = [(new.float() - old.float()).square().sum(dim=(0, 2)) for new, old in compared]
    return torch.stack(distances).sum(dim=0)


def first_seen(sample: Sample, agent: int, log: SampleLog) -> KVSegment | None:
    """A text's KV in the prompt that was the first to be read densely with it, or None when that is the
    prompt of ``agent`` that is being read now."""
    for candidate in sorted(log.samples.values(), key=lambda o: o.number):
        if candidate.ids != sample.ids or candidate.number > sample.number:
            continue
        for reader, context_offset in candidate.offsets.items():
            if candidate.number == sample.number and reader == agent:
                return None
            base, offset = candidate.base, context_offset.placeholder
            device = base.keys.device
            return KVSegment(
                base.keys + offset.keys.to(device),
                base.values + offset.values.to(device),
                context_offset.starts[candidate.placeholder],
                True,
                f"agent {agent_label(reader)}'s prompt, the first that read it",
            )
    return None


def _from_donor(step: Step, base: KVSegment | None) -> Step:
    if base is None or not isinstance(step.action, Reuse):
        return step
    return replace(step, action=replace(step.action, base=base, reason="copied as first seen, and moved"))
