"""Copy everything, then compute some tokens again: what such methods share, and controls of the choice.

Over position-only reuse a share of the tokens is forwarded once more over the assembled cache, so that they
see what stands before them. Methods differ in which tokens they take. The controls here use the machinery of
CacheBlend (:mod:`backend.methods.cacheblend`) with another choice, so a difference is one of choosing:

* *query-norm*: tokens that the words behind the last placeholder look at most. InfoFlow-KV calls its signal
  the attention norm of the query; read here as the L2 norm, over heads and those words, of their attention.
* *random-k*: any, from a seed.
* *oracle-k*: those whose assembled K/V differ most from dense's, over all layers. It needs the dense pass
  that it is meant to save, and pays for it.
"""

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.norms import token_norms
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, PromptView, copy_everything
from backend.methods.options import Options, layer_option, option, prefix_base_option, seed_option
from backend.methods.plan import MaskKind, Plan, Reuse, Selection


def ratio_option(default: float, paper: str) -> Any:
    """The option that says how many tokens are computed again."""
    return option(
        default, "Share computed again", "Of the tokens before the suffix; 1 computes everything again.",
        minimum=0.0, maximum=1.0, paper=paper,
    )  # fmt: skip


def mask_option() -> Any:
    """The option that says what the chosen tokens see."""
    return option(
        "exact", "Chosen tokens see",
        "What stands before them, or as shipped: the public code's mask counts from the end of both lists, "
        "so a chosen token also sees as many later ones as there are left-out tokens behind it.",
        choices=("exact", "shipped"), paper="a defect of both public implementations",
    )  # fmt: skip


def suffix_option() -> Any:
    """The option that says whether the words behind the last placeholder are always computed."""
    return option(
        True, "Always compute the suffix", "The template text behind the last placeholder, beside the share.",
        paper="CacheBlend, public code", advanced=True,
    )  # fmt: skip


@dataclass(frozen=True)
class SelectiveOptions(Options):
    """Options that all selection controls have."""

    ratio: float = ratio_option(0.15, "CacheBlend, Section 4.3")
    mask: str = mask_option()
    suffix: bool = suffix_option()
    fresh_layers: int = layer_option(
        2, "Layers computed for all tokens",
        "CacheBlend computes its first two layers for all tokens, to choose by them. A control that does the "
        "same differs in nothing but its choice.",
        paper="CacheBlend, public code",
    )  # fmt: skip
    prefix_base: str = prefix_base_option()


class SelectiveMethod(Method):
    """Position-only reuse, of which :meth:`score` says what is computed again."""

    needs_masks = True

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        return copy_everything(context, self.options.prefix_base)

    @abstractmethod
    def score(self, view: PromptView, clock: Clock) -> Tensor:
        """(total,) how much each prompt token deserves to be computed again."""

    def parts(self, view: PromptView) -> tuple[list[int], list[int]]:
        """Copied tokens to choose from, and those that are computed again in any case."""
        return candidates(view, self.options.suffix)

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        o, layers = self.options, int(view.cache.keys.shape[0])
        free, suffix = self.parts(view)
        count = round(o.ratio * len(free))
        tokens = best(self.score(view, clock), free, count) if 0 < count < len(free) else free[:count]
        chosen = tuple(sorted({*tokens, *suffix}))
        if not chosen:
            return None
        # Where all are taken, no layer need be computed twice.
        below = min(o.fresh_layers, layers) if 0 < count < len(free) else 0
        return Selection(
            chosen,
            fresh_below=below,
            mask=cast(MaskKind, o.mask),
            mask_layer=max(below - 1, 0),
            reason=f"computed again: {self.title.lower()}",
        )


def candidates(view: PromptView, with_suffix: bool) -> tuple[list[int], list[int]]:
    """Tokens that were copied: those to choose from, and those of the suffix that are taken in any case. The
    last token is forwarded anyhow and is in neither."""
    spans = view.context.prompt.spans
    end = view.total - 1
    last = spans[-1] if spans else None
    behind = last.start if with_suffix and last is not None and last.kind == "prefix" and last.start else end
    copied = [t for t in range(end) if view.copied[t]]
    return [t for t in copied if t < behind], [t for t in copied if t >= behind]


def exact_tokens(view: PromptView) -> set[int]:
    """Tokens whose copy is what dense would compute."""
    steps = [s for s in view.plan.steps if isinstance(s.action, Reuse) and s.action.exact]
    return {token for step in steps for token in range(step.start, step.end)}


def best(score: Tensor, tokens: Sequence[int], count: int) -> list[int]:
    """The ``count`` highest of some tokens; the earlier one where two are equal."""
    order = score[torch.tensor(tokens, device=score.device)].argsort(descending=True, stable=True)
    return [tokens[i] for i in order[:count].tolist()]


@dataclass(frozen=True)
class QueryNormOptions(SelectiveOptions):
    """Options of the query's choice."""

    layer: int = layer_option(
        0, "Looks at layer", "Where attention is read. 0: half of the depth.",
        paper="InfoFlow-KV leaves it open",
    )  # fmt: skip


class QueryNormMethod(SelectiveMethod):
    """What the question looks at."""

    name = "query_norm"
    column = 100
    title = "Query norm"
    summary = "Copies the cache, then computes again the tokens that the words behind the texts look at most."
    paper = "InfoFlow-KV (this lab's reading)"
    Options = QueryNormOptions

    def score(self, view: PromptView, clock: Clock) -> Tensor:
        layers = int(view.cache.keys.shape[0])
        layer = min(self.options.layer or layers // 2, layers - 1)
        _, suffix = candidates(view, with_suffix=True)
        attention = view.attention([*suffix, view.total - 1], layer)  # (heads, queries, total)
        return attention.square().sum(dim=(0, 1)).sqrt()


@dataclass(frozen=True)
class RandomKOptions(SelectiveOptions):
    """Options of the random choice."""

    seed: int = seed_option("Which random tokens.")


class RandomKMethod(SelectiveMethod):
    """No choice at all: what the number of tokens alone brings."""

    name = "random_k"
    column = 110
    title = "Random tokens"
    summary = "Copies the cache, then computes random tokens again: the control of every choice."
    paper = "a control of this lab"
    Options = RandomKOptions

    def score(self, view: PromptView, clock: Clock) -> Tensor:
        draw = random.Random(f"{self.options.seed}:{view.context.prompt.ids}")
        return torch.tensor([draw.random() for _ in range(view.total)])


class OracleKMethod(SelectiveMethod):
    """The choice by dense's own cache."""

    name = "oracle_k"
    column = 120
    title = "Largest true error"
    summary = "Copies the cache, then computes again the tokens that really differ most from dense."
    paper = "a control of this lab"
    Options = SelectiveOptions

    def score(self, view: PromptView, clock: Clock) -> Tensor:
        dense, end = view.dense(), view.total - 1
        score = torch.zeros(view.total, device=dense.keys.device)
        for own, reference in ((view.cache.keys, dense.keys), (view.cache.values, dense.values)):
            expected = reference[:, 0, :, :end]
            error = token_norms(own[:, 0, :, :end] - expected).square()
            size = token_norms(expected).square().mean(dim=1, keepdim=True)  # layers count alike
            score[:end] += (error / size.clamp_min(1e-12)).sum(dim=0)
        return score
