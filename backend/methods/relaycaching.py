"""RelayCaching: reuse what upstream agents decoded, repair a few tokens at a few layers (Geng et al., ICML
2026, arXiv 2603.13289).

An answer's KV is kept as its own agent decoded it and moved into the next agent's prompt; everything else
there is read afresh. KV of the same words agree across phases but at few tokens and in a range of layers. All
tokens are forwarded up to a *detection layer*; from there to the end of the range only those that deviate or
have influence; above it none.

* Deviation (Eq. 1, 5): 1 - cos(v reused, v fresh) at the detection layer, at least 1.5 times its mean.
* Influence (Eq. 6): the attention that the prompt's last 10 tokens pay, at least 1.45 times its mean.
* Both sets are joined (Eq. 9).

Readings. At hand were the abstract and others' summaries of Sections 4.2, 4.3 and 5.5; no code is public.

* Layers under the range are skipped there. A token cannot enter a layer without its state before it,
  which nobody stored: here the range begins at layer 0.
* *The end of the range* is profiled offline there, on a U-shaped similarity by layer. Here, on what the
  session saw in earlier requests: the last layer that deviates at least as much as the mean layer; without
  any, the last. Or a given layer.
* Influence is read at the detection layer, over all heads, by tokens that are read afresh.
* Where a model's layers cannot be walked one by one, the chosen tokens are computed up to the last layer.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from backend.base.clock import Clock
from backend.cache.kv_cache import OWN_CONTEXT
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.methods.base import Finished, Method, MethodEvent, PromptView, copy_everything
from backend.methods.dense import dense_plan
from backend.methods.options import Options, layer_option, option, seed_option
from backend.methods.plan import Plan, Selection
from backend.methods.selective import exact_tokens

PROFILED = 32  # answers that the profile is of, the latest ones
NOTHING = "No earlier agent's answer stands in this prompt: nothing was decoded before."


@dataclass(frozen=True)
class RelayCachingOptions(Options):
    """Options of RelayCaching."""

    choice: str = option(
        "both", "Repaired",
        "Tokens that deviate, have influence, or either; as many at random, as a control; none; or all.",
        choices=("both", "deviation", "influence", "random", "none", "all"), paper="Section 4.3, Eq. 9",
    )  # fmt: skip
    deviation: float = option(
        1.5, "Deviates from", "Times the mean deviation.", minimum=0.0, maximum=10.0,
        paper="Section 5.5, as told by others",
    )  # fmt: skip
    influence: float = option(
        1.45, "Has influence from", "Times the mean influence.", minimum=0.0, maximum=10.0,
        paper="Section 5.5, as told by others",
    )  # fmt: skip
    suffix_tokens: int = option(
        10, "Last tokens that look", "Whose attention is influence.", minimum=1, maximum=128,
        paper="Section 5.5, as told by others", advanced=True,
    )  # fmt: skip
    detection_layer: int = layer_option(
        1, "Detection layer", "Up to it every token is computed. At layer 0 nothing deviates yet.",
        paper="Section 4.2",
    )  # fmt: skip
    last_layer: int = layer_option(
        -1, "Repaired up to layer", "-1: as earlier requests show. One behind the last means the last.",
        minimum=-1, paper="Section 4.2, layer-range profiler",
    )  # fmt: skip
    seed: int = seed_option("Of the random control.")


class RelayCachingMethod(Method):
    """Answers by copy as they were decoded, repaired where they deviate or matter."""

    name = "relaycaching"
    column = 190
    title = "RelayCaching"
    summary = "Copies earlier agents' answers as they were decoded, and repairs a few tokens at a few layers."
    paper = "RelayCaching, arXiv 2603.13289"
    Options = RelayCachingOptions
    needs_masks = True

    def __init__(self, options: RelayCachingOptions) -> None:
        super().__init__(options)
        self._profile: int | None = None

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        if not any(decoded(sample) for sample in context.samples.values()):
            return dense_plan(context.prompt, NOTHING)
        return copy_everything(context)

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        """Profile the layers when a request is over, for those to come."""
        if isinstance(event, Finished) and self.options.last_layer < 0:
            self._profile = profiled(log)

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        o, layers = self.options, int(view.cache.keys.shape[0])
        exact = exact_tokens(view)
        copied = [t for t in range(view.total - 1) if view.copied[t] and t not in exact]
        names = [name for name, sample in view.context.samples.items() if decoded(sample)]
        inside = {t for name in names for t in range(*view.start[name])}
        answers, others = [t for t in copied if t in inside], [t for t in copied if t not in inside]
        reason = f"repaired ({o.choice}), or no answer's"
        if o.choice in ("none", "all"):
            return Selection(tuple(copied if o.choice == "all" else others), reason=reason)
        at = min(o.detection_layer, layers - 1)
        chosen = set(self._chosen(view, copied, answers, at))
        if o.choice == "random":
            draw = random.Random(f"{o.seed}:{view.context.prompt.ids}")
            chosen = set(draw.sample(answers, len(chosen)))
        last = o.last_layer if o.last_layer >= 0 else layers if self._profile is None else self._profile
        tokens = tuple(t for t in copied if t not in inside or t in chosen)
        if view.layerwise:
            return Selection(tokens, fresh_below=at + 1, reason=reason)
        sets = [tuple(copied)] * (at + 1) + [tokens] * (min(last, layers - 1) - at)
        return Selection((*sets, *[tuple(others)] * (layers - len(sets))), reason=reason)

    def _chosen(self, view: PromptView, copied: list[int], answers: list[int], layer: int) -> list[int]:
        """Those tokens of answers that deviate or have influence."""
        o, score = self.options, dict[str, Tensor]()
        if o.choice != "influence":
            stale = view.stale(layer)[1][:, copied]
            if view.layerwise:
                fresh = view.fresh(layer)[1][:, copied]
            else:  # the walk goes on from here
                fresh = [view.step(copied)[1] for _ in range(layer + 1)][-1]
            fresh, stale = (values.float().transpose(0, 1).flatten(1) for values in (fresh, stale))
            score["deviation"] = torch.zeros(view.total)
            score["deviation"][copied] = (1 - cosine_similarity(fresh, stale)).cpu()
        if o.choice != "deviation":
            queries = range(max(0, view.total - o.suffix_tokens), view.total)
            score["influence"] = view.attention(queries, layer).sum(dim=(0, 1)).cpu()
        is_chosen = torch.zeros(len(answers), dtype=torch.bool)
        for name, values in score.items():
            scores = values[answers]
            is_chosen |= scores >= getattr(o, name) * scores.mean()
        return [token for token, is_taken in zip(answers, is_chosen.tolist(), strict=True) if is_taken]


def decoded(sample: Sample) -> bool:
    """Is it what an agent wrote, with the KV that its decoding left?"""
    return sample.base.context.endswith(OWN_CONTEXT)


def profiled(log: SampleLog) -> int | None:
    """The end of the range of layers that deviate, over the answers whose true offsets are known; None: none
    are."""
    deviations = []
    answers = [s for s in log.samples.values() if decoded(s) and s.tokens and s.offsets]
    for sample in answers[-PROFILED:]:
        for offset in sample.offsets.values():
            old = sample.base.values.float().transpose(1, 2).flatten(2)  # (layers, tokens, heads x channels)
            dense = old + offset.placeholder.values.float().to(old.device).transpose(1, 2).flatten(2)
            deviations.append((1 - cosine_similarity(old, dense, dim=-1)).mean(dim=1))
    if not deviations:
        return None
    by_layer = torch.stack(deviations).mean(dim=0)
    return int((by_layer >= by_layer.mean()).nonzero().max())
