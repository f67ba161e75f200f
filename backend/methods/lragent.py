"""LRAgent: agents that differ by an adapter share what their common base computed; of the adapter's part the
low-rank form alone is kept for each (Jeon, Ha and Kim, ICML 2026, arXiv 2602.01053).

A value of agent i is ``X_i W + (X_i A_i) B_i``: the *base cache*, from the pretrained weights W, and the
adapter's part, whose *LR cache* ``X_i A_i`` (tokens, rank) takes ``rank / width`` of its room (Equation 3,
Section 3.2). Agent j takes over the base cache that whoever read the context first left there, and puts its
own adapter's part on it:

* ``shared`` (BaseLRShared): from the LR cache that the first reader left, ``(X_i A) B_j``. The context is not
  forwarded at all.
* ``own`` (BaseShared): from its own LR cache, ``(X_j A_j) B_j``, for which it forwards the whole context
  over the shared keys and values (the paper's *LR prefill*). That spares memory, not computing.
* ``none`` (FullShared, the control): the first reader's keys and values as they are.

Readings.

* The paper shares keys as they are, for it adapts queries and values alone; where keys are adapted too, it
  adds their part before they are turned (Appendix D.1). The lab's deltas change every projection, so that is
  the default; ``keys`` off is the paper's main setting.
* BaseLRShared asks for one down-projection A for all. The lab's deltas are trained apart, so the first reader
  leaves a product for each adapter of the pipeline, the base's own weights being an adapter of zero. With one
  A for all these would be the same numbers, kept once.
* Only taking ``X_i`` for ``X_j`` is an approximation: layer 0 is always exact, and an adapter that changes
  keys and values of the last layer alone is exact everywhere. What other deltas (of queries, outputs, MLPs)
  do to the context's states is lost with ``shared``; what they do to later tokens is not.
* Where keys are normed behind their projection (Qwen 3) an adapter's part of them cannot be added: they are
  shared as they are.
* What a beginning is and from whom it is taken over: :mod:`backend.methods.beginnings`. On the reader's own
  weights it is copied, which is exact. Weights that are not the base with an adapter are read afresh.
* Flash-LoRA-Attention (Section 3.3) is a matter of time alone: here the adapter's part is put on keys and
  values once, in full size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.base.text import show
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Prefilled
from backend.methods.beginnings import BeginningsMethod, EarlierPrompt
from backend.methods.dense import dense_plan
from backend.methods.options import Options, option
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.model.low_rank import LowRank

FORMS = ("shared", "own", "none")
ADAPTER_WORDS = {
    "shared": "its adapter's part came from the low-rank cache that was left there",
    "own": "its adapter's part came from its own pass over them",
    "none": "no adapter's part was put on them",
}


@dataclass(frozen=True)
class LRAgentOptions(Options):
    """Options of LRAgent."""

    low_rank: str = option(
        "shared", "Adapter's part", "From the first reader's low-rank cache (BaseLRShared), from the agent's "
        "own (BaseShared, which forwards every token), or left out (FullShared).",
        choices=FORMS, paper="Section 3.2",
    )  # fmt: skip
    keys: bool = option(
        True, "Of keys, too", "Off: keys are shared as they are, as where adapters change queries and values "
        "alone.", paper="Section 3.2, Appendix D.1", advanced=True,
    )  # fmt: skip


class LRAgentMethod(BeginningsMethod):
    """The base's part by copy from another adapter's agent, the adapter's part in low rank."""

    name = "lragent"
    column = 196
    title = "LRAgent"
    summary = "Shares what agents' common base computed, and puts each agent's low-rank adapter on it."
    paper = "LRAgent, arXiv 2602.01053"
    Options = LRAgentOptions

    def usable(self, prompt: EarlierPrompt, context: PromptInContext) -> bool:
        """The same weights, or two that are the base with adapters; with a product for each adapter."""
        adapters = context.low_ranks
        parts = all(not name or name in adapters for name in (prompt.weights, context.weights))
        return prompt.extras.keys() == adapters.keys() and (parts or prompt.weights == context.weights)

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        match = self.longest(context, clock)
        rows = self.rows(context)
        if match is None:
            return replace(dense_plan(context.prompt, dense_reason(context)), cut=0, project=rows)
        (sender, length), end = match, len(context.prompt.ids)
        own, form = sender.weights == context.weights, self.options.low_rank
        adapter = None if own else self.adapter(context, context.weights)
        with clock.part("correct"):
            base = sender.kv if own or form == "none" else self.base(sender, context)
            if adapter is not None and form == "shared":
                base = add_adapter(base, adapter, sender.extras[context.weights])
        parts = [sender.extras[name][:, :length] for name in sorted(sender.extras)]
        copied = Reuse(
            base.slice(0, length),
            reason=f"the same beginning, read by {sender.reader}",
            exact=own,
            projected=torch.cat(parts, dim=2) if parts else None,
        )
        how = "all of it was copied" if own else ADAPTER_WORDS["none" if adapter is None else form]
        return Plan(
            (Step(0, length, copied), Step(length, end, Compute("behind the shared beginning"))),
            "partial",
            f"The first {length} of {end} tokens were read by {sender.reader}; {how}.",
            cut=0,
            until=0,
            project=rows,
            own=adapter if form == "own" else None,
        )

    def extras(self, event: Prefilled) -> Mapping[str, Tensor] | None:
        """By adapter, (layers, tokens, 2 * rank) products of the layers' inputs: the LR caches."""
        adapters = event.context.low_ranks
        if event.projected is None:
            return {} if event.plan.cut == 0 and not adapters else None
        names = sorted(adapters)
        parts = event.projected.split([2 * adapters[name].rank for name in names], dim=2)
        return dict(zip(names, parts, strict=True))

    def rows(self, context: PromptInContext) -> Tensor | None:
        """(layers, n, hidden): the down-projections of every adapter of the pipeline, by name."""
        adapters = context.low_ranks
        return torch.cat([adapters[name].rows for name in sorted(adapters)], dim=1) if adapters else None

    def adapter(self, context: PromptInContext, weights: str) -> LowRank | None:
        """An adapter, without its part of keys where the options say so; None for the base's own weights."""
        adapter: LowRank | None = context.low_ranks.get(weights)
        if adapter is None or self.options.keys:
            return adapter
        return replace(adapter, up=torch.stack([torch.zeros_like(adapter.up[0]), adapter.up[1]]))

    def base(self, prompt: EarlierPrompt, context: PromptInContext) -> KVSegment:
        """An earlier prompt's KV, less its adapter's part."""
        adapter = self.adapter(context, prompt.weights)
        if adapter is None:
            return prompt.kv
        return add_adapter(prompt.kv, adapter, -prompt.extras[prompt.weights])


def dense_reason(context: PromptInContext) -> str:
    """Why nothing is copied."""
    if not context.weights or context.weights in context.low_ranks:
        return "Nobody has read this beginning on the same base."
    return (
        f"The weights {show(context.weights)} are not the lab's own with a low-rank adapter, so their prompt "
        "is read afresh. Let the agent run on a variant that kvlab train-links made, or choose droidspeak, "
        "which asks for no adapter."
    )


def add_adapter(base: KVSegment, adapter: LowRank, products: Tensor) -> KVSegment:
    """Keys and values with an adapter's part, given its LR cache (layers, tokens, 2 * rank)."""
    keys, values = adapter.expand(products)
    return replace(base, keys=base.keys + keys, values=base.values + values, exact=False)
